"""The fingerprint of a product against plain arithmetic on bits."""

import dataclasses
import itertools
import struct
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor_power.data.fill import STORAGE, Fingerprint, fill_pair, fingerprint, operand_print
from advisor_power.data.language import DTYPES, parse_operands

SHAPE = (40, 56, 64)


def of(text: str, dtype: str = "bf16") -> Fingerprint:
    a, b = fill_pair(parse_operands(text), SHAPE, dtype)
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
    b = np.tile(np.array(y[:k], np.float32), (4, 1)).T
    found = fingerprint(a, b, "fp32")
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
    found = dataclasses.asdict(operand_print(matrix, dtype))
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
    found = dataclasses.asdict(operand_print(matrix, "fp32"))
    for name, value in whole_print(matrix, np.uint32).items():
        assert found[name] == pytest.approx(value, abs=0.012), name


@pytest.mark.slow
def test_the_sample_of_a_product_does_not_hang_on_its_seed() -> None:
    """Sorted into columns, each stretch of the contraction sees other exponents."""
    shape = (256, 256, 8192)
    a, b = fill_pair(parse_operands("normal(0,1)|sort(columns,1)"), shape, "bf16")
    found = [numbers_of(fingerprint(a.matrix, b.matrix, "bf16", seed=s)) for s in range(5)]
    assert np.ptp(np.array(found), axis=0).max() < 0.02
