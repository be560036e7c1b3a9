"""Types of the GPU as numpy holds them, rounding to them, and changes to their bits."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from advisor_power.tensors.types import Matrix

STORAGE: dict[str, tuple[Any, Any]] = {
    "fp32": (np.float32, np.uint32),
    "tf32": (np.float32, np.uint32),
    "bf16": (ml_dtypes.bfloat16, np.uint16),
    "fp16": (np.float16, np.uint16),
    "fp8": (ml_dtypes.float8_e4m3fn, np.uint8),
    "fp8_e5m2": (ml_dtypes.float8_e5m2, np.uint8),
    "int8": (np.int8, np.uint8),
}
"""The numpy type of a type of the GPU, and the unsigned integers of its bits.

fp8_e5m2 is found in files; products here compute in e4m3, `words.DTYPES`.
"""


def width(dtype: str) -> int:
    """Bits of an element."""
    return 8 * np.dtype(STORAGE[dtype][1]).itemsize


def cast(values: NDArray[np.float32], dtype: str) -> tuple[Matrix, int]:
    """Values rounded to the nearest of a type, and how many became an end of the range of int8.

    What is too large for another type becomes infinite, in e4m3 NaN.
    """
    if dtype == "int8":
        rounded = np.rint(np.nan_to_num(values))
        saturated = int(((rounded < -128) | (rounded > 127)).sum())
        return np.clip(rounded, -128, 127).astype(np.int8), saturated
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(STORAGE[dtype][0]), 0


def random_bits(random: np.random.Generator, shape: tuple[int, int], dtype: str) -> Matrix:
    """Every pattern of bits as often as any other, NaN and infinity among them."""
    number, unsigned = STORAGE[dtype]
    size = shape[0] * shape[1] * np.dtype(unsigned).itemsize
    return np.frombuffer(random.bytes(size), dtype=number).reshape(shape)


def change_bits(
    matrix: Matrix, dtype: str, name: str, random: np.random.Generator, *arguments: Any
) -> Matrix:
    """A matrix after `flip`, `randomize` or `clear`."""
    bits = np.ascontiguousarray(matrix).view(STORAGE[dtype][1])
    changed: Any = _CHANGES[name](random, bits, width(dtype), *arguments)
    return changed.view(STORAGE[dtype][0])


def _flip(random: np.random.Generator, bits: Matrix, of: int, n: float) -> Matrix:
    """Different bits of each element: Knuth, volume 2, section 3.4.2, algorithm S."""
    flipped = bits.copy()
    left = np.full(bits.shape, int(n), dtype=np.int8)
    for i in range(of):
        chosen = random.random(bits.shape, dtype=np.float32) * (of - i) < left
        flipped ^= chosen.astype(bits.dtype) << bits.dtype.type(i)
        left -= chosen
    return flipped


def _randomize(random: np.random.Generator, bits: Matrix, of: int, end: str, n: float) -> Matrix:
    mask = _mask(bits, of, end, n)
    drawn = random.integers(0, 1 << of, bits.shape, dtype=bits.dtype)
    return (bits & ~mask) | (drawn & mask)


def _clear(_: np.random.Generator, bits: Matrix, of: int, end: str, n: float) -> Matrix:
    return bits & ~_mask(bits, of, end, n)


def _mask(bits: Matrix, of: int, end: str, n: float) -> Any:
    low = (1 << int(n)) - 1
    return bits.dtype.type(low if end == "low" else low << (of - int(n)))


_CHANGES: dict[str, Callable[..., Matrix]] = {
    "flip": _flip,
    "randomize": _randomize,
    "clear": _clear,
}
