"""How far predictors of power by data are off, where it counts: on data and cards never seen."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from advisor.errors import InputError
from advisor.predict.profiles import Floats
from advisor_training.input_power.baselines import BASELINES
from advisor_training.input_power.model import (
    Fitted,
    Learner,
    Points,
    calibration_points,
    carried_over,
    group_residuals,
    physics,
    physics_and_trees,
)
from advisor_training.input_power.points import InputPoint, above_idle_w

METHODS: Mapping[str, Learner] = MappingProxyType(
    {"model": physics_and_trees, "physics": physics, **BASELINES}
)
"""Every learner by name; the first one is the model."""


@dataclass(frozen=True, slots=True)
class PowerErrors:
    """|predicted / measured - 1| of power.

    Attributes:
        mean: Over all points.
        p90: That nine of ten points do not exceed.
        points: How many.
    """

    mean: float
    p90: float
    points: int


def sweep_left_out(points: Points) -> dict[str, PowerErrors]:
    """Each method on drawn operands, each sweep left out in its turn.

    Raises:
        InputError: there is one sweep, or a type has too few points.
    """
    drawn = [p for p in points if not p.real]
    return {name: _held_out(drawn, learner) for name, learner in METHODS.items()}


def real_left_out(points: Points) -> dict[str, PowerErrors]:
    """Each method, learned from drawn operands, on tensors of networks.

    Raises:
        InputError: there are none of either.
    """
    drawn, real = [p for p in points if not p.real], [p for p in points if p.real]
    if not drawn or not real:
        raise InputError("drawn operands and tensors of networks are needed, and one is missing")
    return {name: errors_of(learner(drawn), real) for name, learner in METHODS.items()}


def other_card(points: Points, gpu_uuid: str) -> dict[str, PowerErrors]:
    """Each method, learned from all other cards, on one of which it knows two points of each type.

    Raises:
        InputError: there is no other card, or nothing left to test on.
    """
    there = [p for p in points if p.gpu_uuid == gpu_uuid]
    elsewhere = [p for p in points if p.gpu_uuid != gpu_uuid]
    if not there or not elsewhere:
        raise InputError(f"points of {gpu_uuid} and of another card are needed")
    # The same two for all, so that methods are told the same.
    known = calibration_points(physics(elsewhere), there)
    tested = [p for p in there if not any(p is one for one in known)]
    return {
        name: errors_of(carried_over(learner(elsewhere), known), tested)
        for name, learner in METHODS.items()
    }


def noise_floor(points: Points) -> float:
    """Mean |reference / its median - 1| of the repeated reference: nothing can be better.

    The median is of one card, type, shape and number of SMs.
    """
    found: dict[tuple[object, ...], list[float]] = {}
    for p in points:
        found.setdefault((p.gpu_uuid, p.dtype, p.shape, p.units), []).append(p.reference_w)
    off = [abs(w / float(np.median(all_w)) - 1) for all_w in found.values() for w in all_w]
    return float(np.mean(off))


def errors_of(fitted: Fitted, points: Points) -> PowerErrors:
    """Of points that took no part in fitting.

    Raises:
        InputError: there are none.
    """
    if not points:
        raise InputError("no point is left to test on", fix="measure more")
    return _errors(fitted(points), np.array([p.power_w for p in points]))


def _held_out(points: list[InputPoint], learner: Learner) -> PowerErrors:
    residuals = group_residuals(points, learner)
    # In the order of the residuals: by group.
    ordered = sorted(points, key=lambda p: p.group)
    above = above_idle_w(ordered) / np.exp(residuals.values)
    predicted = np.array([p.idle_w for p in ordered]) + above
    return _errors(predicted, np.array([p.power_w for p in ordered]))


def _errors(predicted: Floats, measured: Floats) -> PowerErrors:
    off = np.abs(predicted / measured - 1)
    return PowerErrors(float(off.mean()), float(np.quantile(off, 0.9)), len(off))
