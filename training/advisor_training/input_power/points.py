"""Measured inputs: one matrix product with known operands, its power, and what it was measured on.

A file has a JSON object in each line.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from advisor.errors import InputError
from advisor.formats.wire import WireError, read
from advisor.predict.profiles import Floats

FEATURES = (
    "a_weight", "a_along", "a_across", "a_zeros", "a_distinct",
    "b_weight", "b_along", "b_across", "b_zeros", "b_distinct",
    "product_weight", "product_switching", "zero_products", "sum_switching", "sum_non_finite",
)  # fmt: skip
"""The numbers of a fingerprint, those of both operands with their letter; each from 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputPoint:
    """One measured input.

    Attributes:
        shape: (m, n, k) of the product.
        units: SMs that it ran on.
        expression: The canonical text of both operands.
        group: What is left out as one: the sweep, or the network that a tensor is from.
        real: Its operands are from a network, not drawn.
        features: By the names of `FEATURES`.
        power_w: Of the GPU, below its power limit.
        idle_w: Of the same GPU without the product.
        flop_per_s: Operations of the product per second; of int8 the same count of integer ones.
        clock_mhz: Mean clock of the SMs.
        reference_w: Power of the same reference product shortly before or after.
    """

    gpu_model: str
    gpu_uuid: str
    dtype: str
    shape: tuple[int, int, int]
    units: int
    expression: str
    group: str
    real: bool = False
    features: dict[str, float]
    power_w: float
    idle_w: float
    flop_per_s: float
    clock_mhz: float
    reference_w: float


def read_points(path: Path) -> tuple[InputPoint, ...]:
    """The points of a file of JSON Lines.

    Raises:
        InputError: a line is no point, or one that cannot be; says which.
    """
    with path.open(encoding="utf-8") as lines:
        found = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    return tuple(_point(line, f"{path}, line {number}") for number, line in found)


def feature_matrix(points: Sequence[InputPoint]) -> Floats:
    """Fingerprints, shape (points, features)."""
    return np.array([[p.features[name] for name in FEATURES] for p in points]).reshape(
        len(points), len(FEATURES)
    )


def above_idle_w(points: Sequence[InputPoint]) -> Floats:
    """What the product draws, W; shape (points,)."""
    return np.array([p.power_w - p.idle_w for p in points])


def _point(line: str, name: str) -> InputPoint:
    try:
        point = read(InputPoint, line)
    except WireError as error:
        raise InputError(f"{name}: {error.what}", why=error.why, fix=error.fix) from error
    if odd := set(FEATURES) ^ point.features.keys():
        raise InputError(f"{name}: features {', '.join(sorted(odd))} are missing or unknown")
    outside = [f"{n} is {v:g}" for n, v in point.features.items() if not 0 <= v <= 1]
    if not 0 < point.idle_w < point.power_w:
        outside.append(f"power_w is {point.power_w:g} and idle_w {point.idle_w:g}")
    positive = ("flop_per_s", "clock_mhz", "reference_w", "units")
    outside += [f"{n} is {getattr(point, n):g}" for n in positive if getattr(point, n) <= 0]
    if min(point.shape) < 1:
        outside.append(f"shape is {point.shape}")
    if outside:
        raise InputError(f"{name}: {', '.join(outside)}", fix="leave the point out")
    return point
