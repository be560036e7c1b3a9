"""The source `file`: numbers of a tensor in a file, and the hash that ties a key to them."""

import dataclasses
from pathlib import Path

import numpy as np

from advisor.errors import InputError
from advisor.predict.features import Float32s
from advisor_power.operands.grammar import Call, Operand, OperandPair
from advisor_power.operands.values import Shape
from advisor_power.tensors.tensor_file import TensorFile, open_tensors
from advisor_power.tensors.types import Tensor, shown

BYTES_LIMIT = 1 << 31
"""Of a tensor that fills a matrix: all of it is hashed."""

FILE = "file"


def pinned(pair: OperandPair) -> OperandPair:
    """The same operands, each file with the hash of its content, so that their text is a key.

    Raises:
        InputError: a file cannot be read or holds no such matrix, or has another hash than the text
            says.
    """
    known: dict[Call, Call] = {}

    def of(operand: Operand) -> Operand:
        if operand.source.name != FILE:
            return operand
        if operand.source not in known:
            known[operand.source] = _pinned(operand.source)
        return dataclasses.replace(operand, source=known[operand.source])

    return dataclasses.replace(pair, a=of(pair.a), b=of(pair.b))


def from_file(source: Call, shape: Shape) -> Float32s:
    """The first rows and columns of a tensor, as float32; float64 is rounded.

    Raises:
        InputError: as `pinned`; the text has no hash, or the matrix is smaller than `shape`.
    """
    found, tensor = _tensor(source)
    given = source.named("sha256")
    if given is None:
        raise InputError(
            f"{source} does not say which content it means",
            why="a result must be of the numbers that were measured, whatever the file becomes",
            fix=f"write {_with_hash(source, found.sha256(tensor))}",
        )
    _check_hash(source, given, found.sha256(tensor))
    matrix = found.matrix(tensor)
    if matrix.shape[0] < shape[0] or matrix.shape[1] < shape[1]:
        raise InputError(
            f"{source} has {matrix.shape[0]} by {matrix.shape[1]} elements, "
            f"and {shape[0]} by {shape[1]} are needed",
            fix="ask for a smaller product; of a larger matrix the first rows and columns are used",
        )
    with np.errstate(over="ignore", invalid="ignore"):
        return matrix[: shape[0], : shape[1]].astype(np.float32)


def _pinned(source: Call) -> Call:
    found, tensor = _tensor(source)
    sha256 = found.sha256(tensor)
    if (given := source.named("sha256")) is not None:
        _check_hash(source, given, sha256)
    return _with_hash(source, sha256)


def _tensor(source: Call) -> tuple[TensorFile, Tensor]:
    found = open_tensors(Path(source.values[0]))
    tensor = found.tensor(source.named("tensor"))
    found.matrix(tensor)  # raises where it is none
    if tensor.end - tensor.begin > BYTES_LIMIT:
        raise InputError(
            f"{source} has {tensor.end - tensor.begin} bytes",
            fix=f"use a tensor of {BYTES_LIMIT} bytes at most",
        )
    return found, tensor


def _check_hash(source: Call, given: str, sha256: str) -> None:
    if given != sha256:
        raise InputError(
            f"{shown(source.values[0])} is not what it was: sha256 is {sha256}, not {given}",
            fix="put the old content back, or leave sha256 out and measure the new one",
        )


def _with_hash(source: Call, sha256: str) -> Call:
    others = (a for a in source.arguments if not a.startswith("sha256="))
    return Call(source.name, (*others, f'sha256="{sha256}"'))
