"""Matrices are what their operands say."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InputError
from advisor_power.data.fill import STORAGE, Filled, fill, fill_pair
from advisor_power.data.language import DTYPES, SWEEPS, WIDTHS, parse_operands

PARTS = st.floats(0, 1)
SHAPE = (12, 16)


def filled(text: str, dtype: str = "fp32", *, seed: int = 3) -> Filled:
    return fill(parse_operands(text).a, SHAPE, dtype, seed=seed, side="a")


def bits_of(text: str, dtype: str) -> Any:
    return filled(text, dtype).matrix.view(STORAGE[dtype][1])


@given(PARTS)
def test_sorting_puts_the_lowest_part_first_and_keeps_the_order_of_the_rest(part: float) -> None:
    before = filled("normal(0,1)").matrix.ravel()
    after = filled(f"normal(0,1)|sort(rows,{part!r})").matrix.ravel()
    count = int(part * before.size)
    assert list(after[:count]) == sorted(before)[:count]
    rest = [value for value in before if value not in set(after[:count])]
    assert list(after[count:]) == rest


@given(PARTS)
def test_sorting_columns_is_sorting_the_rows_of_the_transpose(part: float) -> None:
    after = filled(f"normal(0,1)|sort(columns,{part!r})").matrix
    flat, before = after.T.ravel(), filled("normal(0,1)").matrix
    count = int(part * flat.size)
    assert list(flat[:count]) == sorted(before.ravel())[:count]
    assert sorted(flat) == sorted(before.ravel())


@given(PARTS)
def test_sorting_within_rows_keeps_each_row(part: float) -> None:
    before = filled("normal(0,1)").matrix
    after = filled(f"normal(0,1)|sort(within-rows,{part!r})").matrix
    count = int(part * SHAPE[1])
    for old, new in zip(before, after, strict=True):
        assert list(new[:count]) == sorted(old)[:count]
        assert sorted(new) == sorted(old)


@given(PARTS)
def test_sparse_sets_its_part_to_zero_and_nothing_else(part: float) -> None:
    before = filled("constant(3)").matrix
    after = filled(f"constant(3)|sparse({part!r})").matrix
    assert np.count_nonzero(after == 0) == round(part * before.size)
    assert set(after.ravel()) <= {0, 3}


@given(PARTS, st.sampled_from(["nan", "inf"]))
def test_spoil_makes_its_part_not_finite_and_nothing_else(part: float, to: str) -> None:
    after = filled(f"constant(3)|spoil({to},{part!r})")
    assert after.non_finite == round(part * after.matrix.size)
    assert set(after.matrix[np.isfinite(after.matrix)]) <= {3}
    assert np.isnan(after.matrix).sum() == (after.non_finite if to == "nan" else 0)


@pytest.mark.parametrize(("ratio", "kept", "of"), [("2:4", 2, 4), ("1:8", 1, 8), ("0:2", 0, 2)])
def test_pruning_keeps_the_largest_of_each_group(ratio: str, kept: int, of: int) -> None:
    before = filled("normal(0,1)").matrix.reshape(-1, of)
    after = filled(f"normal(0,1)|prune({ratio})").matrix.reshape(-1, of)
    for old, new in zip(before, after, strict=True):
        largest = [float(value) for value in sorted(np.abs(old))[of - kept :]]
        assert sorted(abs(value) for value in new if value) == largest


@given(st.sampled_from(DTYPES), st.data())
def test_flip_changes_that_many_bits_of_each_element(dtype: str, data: st.DataObject) -> None:
    n = data.draw(st.integers(0, WIDTHS[dtype]))
    changed = bits_of("constant(3)", dtype) ^ bits_of(f"constant(3)|flip({n})", dtype)
    assert set(np.bitwise_count(changed).ravel()) == {n}


@given(st.sampled_from(DTYPES), st.sampled_from(["low", "high"]), st.data())
def test_bits_of_one_end_change_and_the_others_stay(
    dtype: str, end: str, data: st.DataObject
) -> None:
    n = data.draw(st.integers(0, WIDTHS[dtype]))
    low = (1 << n) - 1
    mask = low if end == "low" else low << (WIDTHS[dtype] - n)
    before = bits_of("normal(0,9)", dtype)
    cleared = bits_of(f"normal(0,9)|clear({end},{n})", dtype)
    drawn = bits_of(f"normal(0,9)|randomize({end},{n})", dtype)
    assert np.array_equal(cleared, before & (mask ^ ((1 << WIDTHS[dtype]) - 1)))
    assert not np.any((drawn ^ before) & (mask ^ ((1 << WIDTHS[dtype]) - 1)))
    if n >= 4:
        assert np.any(drawn != before)


@pytest.mark.parametrize(("lines", "axis"), [("rows", 0), ("columns", 1)])
def test_permuting_moves_whole_lines_by_the_key(lines: str, axis: int) -> None:
    before = filled("normal(0,1)").matrix
    after = filled(f"normal(0,1)|permute({lines},7)").matrix
    assert not np.array_equal(after, before)
    moved = {tuple(line) for line in np.moveaxis(after, axis, 0)}
    assert moved == {tuple(line) for line in np.moveaxis(before, axis, 0)}
    assert np.array_equal(after, filled(f"normal(0,1)|permute({lines},7)").matrix)


def test_values_are_drawn_as_asked() -> None:
    big = (500, 400)
    normal = fill(parse_operands("normal(5,2)").a, big, "fp32", seed=1, side="a").matrix
    assert float(normal.mean()) == pytest.approx(5, abs=5 * 2 / math.sqrt(normal.size))
    assert float(normal.std()) == pytest.approx(2, rel=0.02)
    uniform = filled("uniform(-2,3)").matrix
    assert -2 <= uniform.min() < -1.5 < 2.5 < uniform.max() <= 3
    assert len(set(filled("unique(4,0,1)").matrix.ravel())) == 4
    assert set(filled("ones|scale(3)|shift(-1)").matrix.ravel()) == {2}
    assert not filled("zeros").matrix.any()


def test_operations_do_not_change_what_is_drawn_before_them() -> None:
    plain = filled("normal(0,1)").matrix
    assert np.array_equal(plain, filled("normal(0,1)|sparse(0)|flip(0)").matrix)
    assert not np.array_equal(plain, filled("normal(0,1)", seed=4).matrix)


def test_both_matrices_draw_for_themselves_and_b_is_transposed_where_aligned() -> None:
    shape = (8, 12, 16)
    a, b = fill_pair(parse_operands("normal(0,1)|sort(rows,1)"), shape, "fp32")
    assert (a.matrix.shape, b.matrix.shape) == ((8, 16), (16, 12))
    assert np.all(np.diff(b.matrix.T.ravel()) >= 0)
    _, unaligned = fill_pair(parse_operands("normal(0,1)|sort(rows,1); align=false"), shape, "fp32")
    assert np.all(np.diff(unaligned.matrix.ravel()) >= 0)
    assert not set(a.matrix.ravel()) & set(b.matrix.ravel())


@pytest.mark.parametrize(
    ("text", "dtype", "non_finite", "saturated"),
    [
        ("constant(1e6)", "fp16", 192, 0),
        ("constant(1e6)", "bf16", 0, 0),
        ("constant(1e6)", "fp8", 192, 0),
        ("constant(1e6)", "int8", 0, 192),
        ("constant(3e38)|scale(10)", "fp32", 192, 0),
        ("constant(0)", "fp32", 0, 0),
    ],
)
def test_what_a_type_cannot_hold_is_counted(
    text: str, dtype: str, non_finite: int, saturated: int
) -> None:
    found = filled(text, dtype)
    assert (found.non_finite, found.saturated) == (non_finite, saturated)


def test_random_bits_hold_every_pattern() -> None:
    found = fill(parse_operands("random_bits").a, (256, 64), "int8", seed=0, side="a")
    assert len(set(found.matrix.ravel())) == 256


def test_every_level_of_every_sweep_can_be_filled() -> None:
    for sweep in SWEEPS:
        for dtype in DTYPES:
            for pair in sweep.pairs(dtype).values():
                a, b = fill_pair(pair, (4, 6, 8), dtype)
                assert (a.matrix.shape, b.matrix.shape) == ((4, 8), (8, 6))


@pytest.mark.parametrize(
    ("text", "shape", "what"),
    [
        ("ones", (0, 4, 4), "0 by 4"),
        ("ones", (1 << 20, 4, 1 << 20), "at most"),
        ("ones|cast(fp16)", (4, 4, 4), "computes in bf16"),
        ("ones|flip(17)", (4, 4, 4), "more bits than bf16 has"),
        ("ones|prune(2:4)", (4, 4, 6), "groups of 4"),
    ],
)
def test_operands_that_do_not_fit_are_refused(
    text: str, shape: tuple[int, int, int], what: str
) -> None:
    with pytest.raises(InputError, match=what):
        fill_pair(parse_operands(text), shape, "bf16")
