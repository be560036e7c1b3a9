"""Whether a network with hidden units in another order computes what it did, on random input."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.errors import InputError
from advisor_power.operands.bits import Matrix
from advisor_power.reorder.layers import HiddenLayer, Part
from advisor_power.reorder.rewriting import Edits
from advisor_power.tensors.tensor_file import TensorFile
from advisor_power.tensors.types import fault

INPUTS = 16
_ROOM = 8
"""Roundings of float64 that a sum of so many products may be off for each product."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """Largest difference of outputs, relative to the largest sum of absolute products.

    Attributes:
        exact: Of sums in float64.
        allowed: Of those: more is no rounding.
        rounding: Of sums in float32, as a GPU makes them.
    """

    exact: float
    allowed: float
    rounding: float


def check_finite(layer: HiddenLayer) -> None:
    """Refuse NaN and infinity, which compare with nothing.

    Raises:
        InputError: a tensor of the layer holds some.
    """
    for part in layer.parts:
        with np.errstate(invalid="ignore"):
            bad = ~np.isfinite(part.file.numbers(part.tensor))
        if count := int(bad.sum()):
            raise fault(
                str(part.file.path),
                f"{count} of its numbers are NaN or infinite",
                tensor=part.tensor.name,
                byte=part.tensor.begin,
                fix="repair the weights, or leave the layer out with --layer",
            )


def agreement(
    layer: HiddenLayer, new: Mapping[Path, TensorFile], edits: Mapping[Path, Edits]
) -> Agreement:
    """Outputs of a layer from its old and its new files.

    Hidden units are activations of GELU, of gated layers times the other branch: any function of
    each element would do. Biases after the second layer take no part.

    Args:
        layer: Of the old files.
        new: The new files, by the path of the old one.
        edits: Of the old files; neighbours in a chain of layers have orders of their own.

    Raises:
        InputError: outputs are not the same but for rounding.
    """
    inputs, outputs = _outer(layer.ups[0], edits), _outer(layer.down, edits)
    count = _size(layer.ups[0])
    x = np.random.default_rng(0).standard_normal((INPUTS, count))
    moved_x = x if inputs is None else x[:, inputs]
    found: list[float] = []
    for number in (np.float64, np.float32):
        old, scale = _output(layer, {}, x.astype(number))
        now, _ = _output(layer, new, moved_x.astype(number))
        wanted = old if outputs is None else old[:, outputs]
        found.append(float(np.abs(now - wanted).max() / max(scale, 1e-300)))
    allowed = _ROOM * (layer.down.size + count) * 2.0**-53
    if not found[0] <= allowed:
        raise InputError(
            f"{layer.name}: in the new order outputs differ by {found[0]:.2g} of their sums",
            why=f"rounding would be {allowed:.2g}",
            fix="the new file was not kept; please report this",
        )
    return Agreement(found[0], allowed, found[1])


def hidden_units(layer: HiddenLayer, new: Mapping[Path, TensorFile], x: NDArray[Any]) -> Matrix:
    """What comes out of the activation, (inputs, hidden units)."""
    branches: list[NDArray[Any]] = []
    for up, bias in zip(layer.ups, layer.biases, strict=True):
        weight = _oriented(up, new).astype(x.dtype)
        value = x @ weight.T
        branches.append(value if bias is None else value + _numbers(bias, new).astype(x.dtype))
    first, *others = branches
    # GELU by its tanh; clipped, since the exponential of float32 ends at 88.
    inner = np.clip(1.5957691216 * (first + 0.044715 * first**3), -80, 80)
    active = first / (1 + np.exp(-inner))
    return active * others[0] if others else active


def down_weight(layer: HiddenLayer, new: Mapping[Path, TensorFile]) -> Matrix:
    """The weight out of hidden units, (outputs, hidden units)."""
    return _oriented(layer.down, new).T


def _output(
    layer: HiddenLayer, new: Mapping[Path, TensorFile], x: NDArray[Any]
) -> tuple[NDArray[Any], float]:
    """Outputs, and the largest sum of absolute products."""
    hidden = hidden_units(layer, new, x)
    weight = down_weight(layer, new).astype(x.dtype)
    return hidden @ weight.T, float((np.abs(hidden) @ np.abs(weight).T).max())


def _oriented(part: Part, new: Mapping[Path, TensorFile]) -> Matrix:
    """A weight with a row for each hidden unit."""
    numbers = _numbers(part, new)
    return numbers if part.axis == 0 else numbers.T


def _numbers(part: Part, new: Mapping[Path, TensorFile]) -> Matrix:
    file = new.get(part.file.path, part.file)
    return file.numbers(file.tensor(part.tensor.name))


def _outer(part: Part, edits: Mapping[Path, Edits]) -> NDArray[np.int64] | None:
    return edits.get(part.file.path, {}).get(part.tensor.name, {}).get(1 - part.axis)


def _size(part: Part) -> int:
    return part.tensor.shape[1 - part.axis]
