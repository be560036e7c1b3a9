"""The text of operands: read, written as the key of a result, refused with the place."""

import contextlib
import dataclasses
import itertools
import json
import math
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st

from advisor.errors import InputError
from advisor_data.bundled import bundled_input_points
from advisor_power.data.operands import (
    DTYPES,
    OPERATIONS_LIMIT,
    STORAGE,
    SWEEPS,
    TEXT_LIMIT,
    WIDTHS,
    WORDS,
    Call,
    Filled,
    Fingerprint,
    Operand,
    OperandPair,
    Stage,
    fill,
    fill_pair,
    fingerprint,
    parse_operands,
)


def _numbers(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high).map(lambda x: x + 0.0)


def _text(value: float) -> str:
    """The shortest, as keys have it."""
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


ANY, SPREAD = _numbers(-3e38, 3e38).map(_text), _numbers(0, 3e38).map(_text)
PART = _numbers(0, 1).map(_text)
BITS = st.integers(0, 32).map(str)
LINES, ENDS = st.sampled_from(["rows", "columns"]), st.sampled_from(["low", "high"])
RATIO = st.integers(2, 99).flatmap(lambda m: st.integers(0, m - 1).map(lambda n: f"{n}:{m}"))
NAME = (
    st.text(min_size=1)
    .filter(lambda text: text.isprintable())
    .map(lambda text: json.dumps(text, ensure_ascii=False))
)
OPTIONAL = (
    st.just("") | NAME.map("tensor={}".format),
    st.just("") | st.from_regex("[0-9a-f]{64}", fullmatch=True).map('sha256="{}"'.format),
)
TAKES: dict[Stage, dict[str, tuple[st.SearchStrategy[str], ...]]] = {
    "source": {
        "normal": (ANY, SPREAD),
        "uniform": (ANY, ANY),
        "unique": (st.integers(1, 1 << 20).map(str), ANY, SPREAD),
        "constant": (ANY,),
        "zeros": (),
        "ones": (),
        "random_bits": (),
        "file": (NAME, *OPTIONAL),
    },
    "value": {
        "sort": (st.sampled_from(["rows", "columns", "within-rows"]), PART),
        "sparse": (PART,),
        "spoil": (st.sampled_from(["nan", "inf"]), PART),
        "prune": (RATIO,),
        "scale": (ANY,),
        "shift": (ANY,),
        "permute": (LINES, st.integers(0, 2**32 - 1).map(str)),
    },
    "cast": {"cast": (st.sampled_from(DTYPES),)},
    "bit": {"flip": (BITS,), "randomize": (ENDS, BITS), "clear": (ENDS, BITS)},
}


def test_every_word_is_tried() -> None:
    assert {name for of in TAKES.values() for name in of} == set(WORDS)
    assert all(WORDS[name].stage == stage for stage, of in TAKES.items() for name in of)


def _calls(stage: Stage) -> st.SearchStrategy[Call]:
    def of(name: str) -> st.SearchStrategy[Call]:
        return st.tuples(*TAKES[stage][name]).map(
            lambda arguments: Call(name, tuple(filter(None, arguments)))
        )

    return st.sampled_from(sorted(TAKES[stage])).flatmap(of)


@st.composite
def _operands(draw: st.DrawFn) -> Operand:
    source = draw(_calls("source"))
    values = [] if source.name == "random_bits" else draw(st.lists(_calls("value"), max_size=5))
    casts = draw(st.lists(_calls("cast"), max_size=1))
    return Operand(source, (*values, *casts, *draw(st.lists(_calls("bit"), max_size=5))))


PAIRS = st.builds(
    OperandPair,
    a=_operands(),
    b=_operands(),
    aligned=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)


@pytest.mark.slow
@given(PAIRS)
def test_written_text_is_read_as_the_same_pair(pair: OperandPair) -> None:
    assert parse_operands(str(pair)) == pair


def test_text_in_quotes_is_written_in_one_way() -> None:
    text = f'file( "w" , tensor = "a \\"b\\" \\u00e9|;,()", sha256="{"0a" * 32}" )'
    key = f'file("w",tensor="a \\"b\\" é|;,()",sha256="{"0a" * 32}")'
    source = parse_operands(text).a.source
    assert (str(source), source.values[0], source.named("tensor")) == (key, "w", 'a "b" é|;,()')


def test_keys_of_kept_results_stay(keys: list[str]) -> None:
    assert len(keys) > 100
    assert [str(parse_operands(key)) for key in keys] == keys


@pytest.fixture(scope="module")
def keys() -> list[str]:
    """Of all results that are kept here, and of the points that come with advisor."""
    files = (Path(__file__).parents[2] / "docs/measurements/power/inputs").glob("*.jsonl")
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return sorted(
        {line["case"]["operands"] for line in lines}
        | {point.expression for point in bundled_input_points()}
    )


@pytest.mark.parametrize("same", [
    "normal(0,1)|sparse(0.5)",
    " a = normal( 0 , 1.0 )\n | sparse( 5e-1 ) ; align=true",
    "a=normal(-0,1)|sparse(.5); b=normal(0,1)|sparse(0.50); seed=0",
])  # fmt: skip
def test_texts_of_one_meaning_have_one_key(same: str) -> None:
    key = "a=normal(0,1)|sparse(0.5); b=normal(0,1)|sparse(0.5); align=true; seed=0"
    assert str(parse_operands(same)) == key


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("", "line 1, column 1", "no source"),
        ("nomral(0,1)", "line 1, column 1", "did you mean normal"),
        ("normal(0,1)|\n  sparce(0.5)", "line 2, column 3", "did you mean sparse"),
        ("normal(0,-1)", "line 1, column 10", "sd of normal"),
        ("normal(0,1", "line 1, column 7", "write normal(mean, sd)"),
        ("normal(0)", "line 1, column 7", "write normal(mean, sd)"),
        ("unique(1.5,0,1)", "line 1, column 8", "whole number"),
        ("unique(9999999,0,1)", "line 1, column 8", "from 1 to 1048576"),
        ("zeros(1)", "line 1, column 6", "takes nothing"),
        ("sparse(0.5)", "line 1, column 1", "is no source"),
        ("ones|normal(0,1)", "line 1, column 6", "one source"),
        ("ones|flip(3)|sparse(0.5)", "line 1, column 14", "before the cast"),
        ("ones|cast(bf16)|cast(fp16)", "line 1, column 17", "cast once"),
        ("random_bits|sparse(0.5)", "line 1, column 13", "random_bits"),
        ("ones|cast(fp4)", "line 1, column 11", "fp32 or tf32"),
        ("ones|prune(4:2)", "line 1, column 12", "n below m"),
        ("ones|prune(2)", "line 1, column 12", "2:4"),
        ("ones|clear(middle,3)", "line 1, column 12", "low or high"),
        ("ones; a=ones", "line 1, column 7", "twice"),
        ("b=ones", "line 1, column 1", "no a="),
        ("ones; align=maybe", "line 1, column 13", "true or false"),
        ("ones; seed=-1", "line 1, column 12", "whole number"),
        ("ones ones", "line 1, column 6", "';' was expected"),
        ("ones|", "line 1, column 6", "the end of the text"),
        ("ones é", "line 1, column 6", "'é'"),
        ("normal(nan,1)", "line 1, column 8", "'nan'"),
        ("constant(1e39)", "line 1, column 10", "from -3e+38"),
        ("file(w.npy)", "line 1, column 6", "in double quotes"),
        ("file", "line 1, column 5", 'file("path", tensor="...", sha256="...")'),
        ('file("")', "line 1, column 6", "path of file"),
        ('file("w)', "line 1, column 5", 'file("path"'),
        ('file("\\q")', "line 1, column 6", "path of file"),
        ('file("\\ud800")', "line 1, column 6", "path of file"),
        ('file("w", tensr="x")', "line 1, column 5", 'tensor="..."'),
        ('file("w", tensor)', "line 1, column 5", 'tensor="..."'),
        ('file("w", tensor=x)', "line 1, column 18", "name of a tensor"),
        ('file("w", tensor="x", tensor="y")', "line 1, column 5", 'tensor="..."'),
        ('file("w", sha256="abc")', "line 1, column 18", "64 digits"),
        ('ones|file("w")', "line 1, column 6", "one source"),
        ('normal("0",1)', "line 1, column 8", "a number"),
    ],
)
def test_bad_text_is_refused_with_its_place(text: str, where: str, what: str) -> None:
    with pytest.raises(InputError) as error:
        parse_operands(text)
    assert all(part in str(error.value) for part in (where, what))


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(InputError):
        assert parse_operands(str(parse_operands(text))) == parse_operands(text)


def test_bombs_are_refused() -> None:
    with pytest.raises(InputError, match="too many operations"):
        parse_operands("ones" + "|scale(2)" * (OPERATIONS_LIMIT + 1))
    with pytest.raises(InputError, match="characters long"):
        parse_operands("o" * (TEXT_LIMIT + 1))


def test_the_fifteen_sweeps_of_the_paper_are_there_for_every_type() -> None:
    assert [sweep.takeaway for sweep in SWEEPS] == list(range(1, 16))
    for sweep in SWEEPS:
        for dtype in DTYPES:
            keys = [str(pair) for pair in sweep.pairs(dtype).values()]
            assert len(set(keys)) == len(keys)
            assert len(keys) > 1 or sweep.takeaway == 7
    aligned = {sweep.takeaway: next(iter(sweep.pairs("bf16").values())).aligned for sweep in SWEEPS}
    assert [takeaway for takeaway, is_aligned in aligned.items() if not is_aligned] == [8]


# Matrices are what their operands say.


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
    assert list(after[count:]) == [value for value in before if value not in set(after[:count])]


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
        assert (list(new[:count]), sorted(new)) == (sorted(old)[:count], sorted(old))


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
    normal = fill(parse_operands("normal(5,2)").a, (500, 400), "fp32", seed=1, side="a").matrix
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


# The fingerprint of a product against plain arithmetic on bits.


def of(text: str, dtype: str = "bf16") -> Fingerprint:
    a, b = fill_pair(parse_operands(text), (40, 56, 64), dtype)
    return fingerprint(a.matrix, b.matrix, dtype)


def numbers_of(found: Fingerprint) -> list[float]:
    whole = dataclasses.asdict(found)
    return [*whole.pop("a").values(), *whole.pop("b").values(), *whole.values()]


@given(
    st.sampled_from(DTYPES),
    st.sampled_from(
        ["normal(0,1e6)", "random_bits", "zeros", "unique(3,0,1)|sort(columns,0.3)", "uniform(0,9)"]
    ),
    st.integers(0, 99),
)
def test_every_number_is_a_part(dtype: str, text: str, seed: int) -> None:
    assert all(0 <= number <= 1 for number in numbers_of(of(f"{text}; seed={seed}", dtype)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_zeros_set_and_switch_nothing(dtype: str) -> None:
    found = of("zeros", dtype)
    assert (found.a.zeros, found.b.zeros, found.zero_products) == (1, 1, 1)
    assert (found.a.weight, found.a.along, found.sum_switching, found.product_weight) == (0,) * 4


LINE = st.lists(st.integers(-30, 30), min_size=2, max_size=12)


@given(LINE, LINE)
def test_float32_is_counted_as_by_hand(x: list[int], y: list[int]) -> None:
    """All lines are the same, so that the sample does not matter."""
    k = min(len(x), len(y))
    a = np.tile(np.array(x[:k], np.float32), (4, 1))
    found = fingerprint(a, np.tile(np.array(y[:k], np.float32), (4, 1)).T, "fp32")
    words = [_word(value) for value in x[:k]]
    assert found.a.weight == pytest.approx(sum(map(int.bit_count, words)) / 32 / k)
    assert (found.a.along, found.a.across) == (pytest.approx(_switching(words) / 32), 0)
    assert found.a.signs == pytest.approx(_switching([int(value < 0) for value in x[:k]]))
    assert found.b.signs == pytest.approx(_switching([int(value < 0) for value in y[:k]]))
    signs = [int(p * q < 0) for p, q in zip(x, y, strict=False)]
    assert found.product_signs == pytest.approx(_switching(signs))
    sums = [sum(p * q for p, q in zip(x[: i + 1], y[: i + 1], strict=False)) for i in range(k)]
    assert found.sum_switching == pytest.approx(_switching([_word(s) for s in sums]) / 32)
    products = [_significand(p) * _significand(q) for p, q in zip(x, y, strict=False)]
    assert found.product_weight == pytest.approx(sum(map(int.bit_count, products)) / 48 / k)
    assert found.product_switching == pytest.approx(_switching(products) / 48)


def _word(value: int) -> int:
    return struct.unpack("<I", struct.pack("<f", value))[0]


def _significand(value: int) -> int:
    return (_word(value) & 0x7FFFFF) | (0x800000 if value else 0)


def _switching(words: list[int]) -> float:
    changed = [(one ^ next_one).bit_count() for one, next_one in itertools.pairwise(words)]
    return sum(changed) / len(changed)


@pytest.mark.parametrize("change", ["sort(rows,1)", "sparse(0.9)", "clear(low,6)"])
def test_what_saves_power_in_the_paper_switches_less(change: str) -> None:
    assert of(f"normal(0,1)|{change}").product_switching < 0.8 * of("normal(0,1)").product_switching


def test_bits_that_the_tensor_core_drops_do_not_count() -> None:
    assert of("constant(1)|randomize(low,13)", "tf32").a.along == 0
    assert of("constant(1)|randomize(low,13)", "fp32").a.along > 0.1


def test_sums_that_overflow_are_seen() -> None:
    big = np.full((8, 64), 3e19, dtype=ml_dtypes.bfloat16)
    assert fingerprint(big, big.T, "bf16").sum_non_finite == 1
    assert of("normal(0,1)").sum_non_finite == 0


def test_one_line_and_one_step_are_enough() -> None:
    one = np.ones((1, 1), np.float32)
    assert fingerprint(one, one, "fp32").sum_switching == 0


def whole_print(matrix: Any, unsigned: Any) -> dict[str, float]:
    """Weight, switching and zeros of all elements, by definition."""
    bits = matrix.view(unsigned)
    width = 8 * bits.itemsize
    return {
        "weight": float(np.bitwise_count(bits).mean()) / width,
        "along": float(np.bitwise_count(bits[:, 1:] ^ bits[:, :-1]).sum())
        / (width * max(bits.size - len(bits), 1)),
        "across": float(np.bitwise_count(bits ^ np.roll(bits, -1, axis=0)).mean()) / width,
        "zeros": float((matrix == 0).mean()),
    }


@given(st.integers(2, 300), st.integers(2, 400), st.sampled_from(["fp32", "bf16", "fp8_e5m2"]))
def test_of_a_small_matrix_every_element_counts_once(rows: int, columns: int, dtype: str) -> None:
    number, unsigned = STORAGE[dtype]
    matrix = np.random.default_rng(rows).integers(-9, 9, (rows, columns)).astype(number)
    found = dataclasses.asdict(fingerprint(matrix, matrix.T, dtype).a)
    assert {n: found[n] for n in whole_print(matrix, unsigned)} == pytest.approx(
        whole_print(matrix, unsigned)
    )


def _blocks(rows: int, columns: int) -> Any:
    """Nothing but zeros in half of the columns and in a third of the rows."""
    matrix = np.random.default_rng(1).standard_normal((rows, columns)).astype(np.float32)
    matrix[:, : columns // 2] = 0
    matrix[rows // 3 : 2 * rows // 3] = 0
    return matrix


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(3000, 3000), (1, 2_000_000), (2_000_000, 1), (30, 60_000)])
def test_the_sample_finds_what_is_alike_in_blocks(shape: tuple[int, int]) -> None:
    matrix = _blocks(*shape)
    found = dataclasses.asdict(fingerprint(matrix, matrix.T, "fp32").a)
    for name, value in whole_print(matrix, np.uint32).items():
        assert found[name] == pytest.approx(value, abs=0.012), name


@pytest.mark.slow
def test_the_sample_of_a_product_does_not_hang_on_its_seed() -> None:
    """Sorted into columns, each stretch of the contraction sees other exponents."""
    a, b = fill_pair(parse_operands("normal(0,1)|sort(columns,1)"), (256, 256, 8192), "bf16")
    found = [numbers_of(fingerprint(a.matrix, b.matrix, "bf16", seed=s)) for s in range(5)]
    assert np.ptp(np.array(found), axis=0).max() < 0.02
