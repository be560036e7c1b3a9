"""What of two matrices decides the power of their product: how many bits are set and switch.

Power of a product follows the bits that change from one step to the next in operands, in the
products of significands and in the running sum (Gregersen et al., "Input-Dependent Power Usage in
GPUs" (2024), section V, names Hamming weight and alignment of bits). Signs count by themselves: to
add a negative product all of its bits are inverted. All are means over a sample, as a part of the
bits that there are, so that they compare between types.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.errors import InputError
from advisor.wire.power import InputFingerprint
from advisor_power.data.fill import STORAGE, fill_pair
from advisor_power.data.language import DTYPES, OperandPair
from advisor_power.data.tensor_file import Matrix

_STRETCH = 512  # neighbouring elements of a line, along the contraction
_ELEMENTS = 1 << 18  # of each operand that are looked at, each with the one beside it
_COUNTED = 1 << 15  # elements whose different values are counted: that takes the longest
_SIGNIFICANDS = {"fp32": 23, "tf32": 10, "bf16": 7, "fp16": 10, "fp8": 3, "fp8_e5m2": 2}
"""Bits behind the leading one."""

_DROPPED = {"tf32": 13}  # lowest bits of the stored number that the tensor core does not see


@dataclass(frozen=True, slots=True, kw_only=True)
class OperandPrint:
    """One matrix, in parts from 0 to 1.

    Attributes:
        weight: Bits that are set.
        along: Bits that differ between neighbours along the contraction.
        across: Bits that differ between neighbours of two lines.
        signs: Neighbours along the contraction of which one is negative and the other is not.
        zeros: Elements that are 0.
        distinct: Different values, of 32,768 elements or of all that there are.
    """

    weight: float
    along: float
    across: float
    signs: float
    zeros: float
    distinct: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """A product, in parts from 0 to 1.

    Attributes:
        product_weight: Bits that are set in products of significands; of int8 in products.
        product_switching: Bits of them that differ from one step of the contraction to the next.
        product_signs: Products of which the next one has the other sign; 0 is positive.
        zero_products: Products that are 0.
        sum_switching: Bits of the running sum, float32 or of int8 int32, that differ from step to
            step.
        sum_non_finite: Steps after which the sum is NaN or infinite.
    """

    a: OperandPrint
    b: OperandPrint
    product_weight: float
    product_switching: float
    product_signs: float
    zero_products: float
    sum_switching: float
    sum_non_finite: float


@np.errstate(invalid="ignore", over="ignore")  # NaN among the data is no fault of this
def fingerprint(a: Matrix, b: Matrix, dtype: str, *, seed: int = 0) -> Fingerprint:
    """The fingerprint of a product.

    Args:
        a: m by k, in the numpy type of `dtype`.
        b: k by n.
        dtype: Of both, a key of `bits.STORAGE`.
        seed: Of the sample.
    """
    random = np.random.default_rng(seed)
    starts = _starts(a.shape[1], random)
    lines_a, beside_a = _sample(a, starts, dtype, random)
    lines_b, beside_b = _sample(b.T, starts, dtype, random)
    count = min(len(lines_a), len(lines_b))
    x, y = lines_a[:count], lines_b[:count]
    products, product_bits = _products(x, y, dtype)
    zero = np.logical_or(x == 0, y == 0)
    sums = _sums(x, y, dtype)
    return Fingerprint(
        a=_operand(lines_a, beside_a, dtype),
        b=_operand(lines_b, beside_b, dtype),
        product_weight=_set_bits(products, product_bits),
        product_switching=_set_bits(products[:, 1:] ^ products[:, :-1], product_bits),
        product_signs=_switching_signs((_negative(x) ^ _negative(y)) & ~zero),
        zero_products=_part(zero),
        sum_switching=_set_bits(sums.view(np.uint32)[:, 1:] ^ sums.view(np.uint32)[:, :-1], 32),
        sum_non_finite=_part(~np.isfinite(sums)),
    )


@np.errstate(invalid="ignore")
def operand_print(matrix: Matrix, dtype: str) -> OperandPrint:
    """One matrix alone; its rows are along the contraction, as in weights of (outputs, inputs).

    It may be mapped from a file, of which only the sample is read.
    """
    random = np.random.default_rng(0)
    return _operand(*_sample(matrix, _starts(matrix.shape[1], random), dtype, random), dtype)


def _starts(steps: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Where each stretch begins along the contraction, for lines of both operands alike."""
    if steps <= _STRETCH:
        return np.zeros(_ELEMENTS // steps, np.int64)
    return random.permutation(_spread(_ELEMENTS // _STRETCH, steps, random))


def _spread(count: int, end: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Whole numbers below `end`, one in each of `count` equal parts, at random within it.

    Data is often alike in whole blocks of rows or columns; so no block is missed by bad luck.
    """
    return ((np.arange(count) + random.random(count)) * (end / count)).astype(np.int64) % end


def _sample(
    lines: Matrix, starts: NDArray[np.int64], dtype: str, random: np.random.Generator
) -> tuple[Matrix, Matrix]:
    """Stretches of lines, and of the line behind each; behind the last comes the first.

    Of what is small enough every line is taken once.
    """
    count, steps = lines.shape
    few = steps <= _STRETCH and count <= len(starts)
    lots = np.arange(count, dtype=np.int64) if few else _spread(len(starts), count, random)
    chosen = random.permutation(lots)
    places = (starts[: len(chosen), None] + np.arange(min(_STRETCH, steps))) % steps
    number, unsigned = STORAGE[dtype]
    # Numbers of a file need not begin at a multiple of their size: bits are copied, then numbers.
    bits: Matrix = lines.view(unsigned)
    beside = (chosen + 1) % count
    return bits[chosen[:, None], places].view(number), bits[beside[:, None], places].view(number)


def product_fingerprint(
    pair: OperandPair, shape: tuple[int, int, int], dtype: str
) -> InputFingerprint:
    """What the matrices of a product of `shape` (m, n, k) hold, by operands that are pinned."""
    if dtype not in DTYPES:
        raise InputError(
            f"products do not compute in {dtype}", fix=f"there are {', '.join(DTYPES)}"
        )
    a, b = fill_pair(pair, shape, dtype)
    features = features_of(fingerprint(a.matrix, b.matrix, dtype))
    return InputFingerprint(dtype=dtype, operands=str(pair), features=features)


def features_of(found: Fingerprint) -> dict[str, float]:
    """A fingerprint as a model takes it: numbers of operands with their letter."""
    whole = asdict(found)
    sides = {side: whole.pop(side) for side in ("a", "b")}
    return {f"{side}_{name}": n for side, of in sides.items() for name, n in of.items()} | whole


def _operand(lines: Matrix, beside: Matrix, dtype: str) -> OperandPrint:
    bits, others = _bits(lines, dtype), _bits(beside, dtype)
    width = 8 * bits.dtype.itemsize - _DROPPED.get(dtype, 0)
    counted = bits.ravel()[:_COUNTED]
    return OperandPrint(
        weight=_set_bits(bits, width),
        along=_set_bits(bits[:, 1:] ^ bits[:, :-1], width),
        across=_set_bits(bits ^ others, width),
        signs=_switching_signs(_negative(lines)),
        zeros=_part(lines == 0),
        distinct=len(np.unique(counted)) / counted.size,
    )


def _negative(lines: Matrix) -> NDArray[np.bool_]:
    """By the highest bit, which NaN and -0 have as well."""
    bits = lines.view(f"u{lines.dtype.itemsize}")
    return (bits >> (8 * bits.dtype.itemsize - 1)).astype(np.bool_)


def _switching_signs(negative: NDArray[np.bool_]) -> float:
    return _part(negative[:, 1:] ^ negative[:, :-1])


def _bits(lines: Matrix, dtype: str) -> Matrix:
    bits: Matrix = lines.view(STORAGE[dtype][1])
    return bits >> bits.dtype.type(_DROPPED.get(dtype, 0))


def _products(x: Matrix, y: Matrix, dtype: str) -> tuple[NDArray[np.uint64], int]:
    """Products of significands, of int8 the 16 bits of the product; and their number of bits."""
    if dtype == "int8":
        product = x.astype(np.int16) * y.astype(np.int16)
        return product.view(np.uint16).astype(np.uint64), 16
    return _significands(x, dtype) * _significands(y, dtype), 2 * (_SIGNIFICANDS[dtype] + 1)


def _significands(values: Matrix, dtype: str) -> NDArray[np.uint64]:
    """With the leading one, which numbers next to 0 and 0 itself do not have."""
    kept = _SIGNIFICANDS[dtype]
    bits = _bits(values, dtype).astype(np.uint64)
    low = bits & np.uint64((1 << kept) - 1)
    exponents = 8 * values.dtype.itemsize - _DROPPED.get(dtype, 0) - 1 - kept
    exponent = (bits >> np.uint64(kept)) & np.uint64((1 << exponents) - 1)
    return np.where(exponent > 0, low | np.uint64(1 << kept), low)


def _sums(x: Matrix, y: Matrix, dtype: str) -> NDArray[Any]:
    """The running sum of each pair of lines, as a tensor core accumulates it."""
    if dtype == "int8":
        return np.cumsum(x.astype(np.int32) * y.astype(np.int32), axis=1, dtype=np.int32)
    products = x.astype(np.float32) * y.astype(np.float32)
    # The sum begins at 0, which -0 does not change.
    return np.cumsum(products, axis=1, dtype=np.float32) + np.float32(0)


def _part(holds: Any) -> float:
    return int(np.count_nonzero(holds)) / max(holds.size, 1)


def _set_bits(bits: NDArray[Any], width: int) -> float:
    return float(np.mean(np.bitwise_count(bits))) / width if bits.size else 0.0
