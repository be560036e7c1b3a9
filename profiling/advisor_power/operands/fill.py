"""Fills matrices as operands say: numbers, rounded to a type of the GPU, changed bit by bit."""

import zlib
from dataclasses import dataclass
from typing import Literal

import numpy as np

from advisor.errors import InputError
from advisor_power.operands.bits import cast, change_bits, random_bits, width
from advisor_power.operands.from_file import FILE, from_file
from advisor_power.operands.grammar import Call, Operand, OperandPair
from advisor_power.operands.values import ARRANGED, SOURCES, Shape
from advisor_power.operands.words import WORDS
from advisor_power.tensors.types import Matrix

ELEMENTS_LIMIT = 1 << 28
"""Of one matrix: 1 GiB of float32."""


@dataclass(frozen=True, slots=True, eq=False)
class Filled:
    """A matrix, and what its type could not hold."""

    matrix: Matrix
    """In the numpy type of its type; `tf32` as float32."""
    non_finite: int
    saturated: int
    """Values that were beyond the range of int8, and became its ends."""


def fill_pair(pair: OperandPair, shape: tuple[int, int, int], dtype: str) -> tuple[Filled, Filled]:
    """Both matrices of a product of `shape` (m, n, k): A is m by k, B is k by n.

    Raises:
        InputError: a matrix is too large or has no elements, is cast to another type, its
            operations do not fit its shape or type, or its file is not what the text says.
    """
    m, n, k = shape
    a = fill(pair.a, (m, k), dtype, seed=pair.seed, side="a")
    if not pair.aligned:
        return a, fill(pair.b, (k, n), dtype, seed=pair.seed, side="b")
    b = fill(pair.b, (n, k), dtype, seed=pair.seed, side="b")
    return a, Filled(b.matrix.T, b.non_finite, b.saturated)


def fill(
    operand: Operand, shape: Shape, dtype: str, *, seed: int, side: Literal["a", "b"]
) -> Filled:
    """One matrix. Its first values stay the same whatever operations follow.

    Raises:
        InputError: as `fill_pair`.
    """
    _check(operand, shape, dtype)
    calls = [call for call in operand.operations if call.name != "cast"]
    seeds = np.random.SeedSequence([seed, zlib.crc32(side.encode())]).spawn(len(calls) + 1)
    first, *others = map(np.random.default_rng, seeds)
    steps = list(zip(calls, others, strict=True))
    matrix, saturated = _numbers(operand.source, shape, dtype, first, steps)
    for call, random in steps:
        if WORDS[call.name].stage == "bit":
            matrix = change_bits(matrix, dtype, call.name, random, *call.values)
    return Filled(matrix, _non_finite(matrix, dtype), saturated)


def _numbers(
    source: Call,
    shape: Shape,
    dtype: str,
    first: np.random.Generator,
    steps: list[tuple[Call, np.random.Generator]],
) -> tuple[Matrix, int]:
    """The matrix as it is cast, and how many values its type could not hold."""
    if source.name == "random_bits":
        return random_bits(first, shape, dtype), 0
    if source.name == FILE:
        values = from_file(source, shape)
    else:
        values = SOURCES[source.name](first, shape, *source.values)
    for call, random in steps:
        if call.name in ARRANGED:
            values = ARRANGED[call.name](random, values, *call.values)
    return cast(values, dtype)


def _non_finite(matrix: Matrix, dtype: str) -> int:
    if dtype == "int8":
        return 0
    with np.errstate(invalid="ignore"):  # of signalling NaN
        return matrix.size - int(np.isfinite(matrix).sum())


def _check(operand: Operand, shape: Shape, dtype: str) -> None:
    rows, columns = shape
    if min(shape) < 1 or rows * columns > ELEMENTS_LIMIT:
        raise InputError(
            f"a matrix of {rows} by {columns} elements",
            fix=f"each side is 1 at least, and a matrix has {ELEMENTS_LIMIT} elements at most",
        )
    if operand.dtype not in (None, dtype):
        raise InputError(
            f"{operand} is cast to {operand.dtype}, and the product computes in {dtype}",
            fix="name the same type in both places, or leave the cast out",
        )
    for call in operand.operations:
        _check_call(call, columns, dtype)


def _check_call(call: Call, columns: int, dtype: str) -> None:
    if WORDS[call.name].stage == "bit" and call.values[-1] > width(dtype):
        raise InputError(f"{call} changes more bits than {dtype} has", fix=f"it has {width(dtype)}")
    if call.name == "prune":
        of = int(call.arguments[0].partition(":")[2])
        if columns % of:
            raise InputError(
                f"{call} needs groups of {of}, and a row has {columns} elements",
                fix=f"use a multiple of {of}",
            )
