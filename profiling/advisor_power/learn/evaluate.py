"""How far predictors of power by data are off, where it counts: on data and cards never seen.

They must beat medians, and lines through one or two metrics. All of these know idle power and rate,
and expect an energy for each operation.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from advisor.errors import InputError
from advisor.predict.profiles import Floats
from advisor_power.learn.held_out import HeldOutInputs, OnGroup, expected, group_left_out
from advisor_power.learn.model import (
    FittedPower,
    Points,
    PowerLearner,
    above_idle_w,
    physics,
    physics_and_trees,
    types_of,
)
from advisor_power.model.pace import known_of

DRAWS = 4000
"""Of patterns, for an interval."""


def _median(points: Points) -> Floats:
    return np.ones((len(points), 1))


def _zeros(points: Points) -> Floats:
    return np.array([[1, p.features["zero_products"]] for p in points])


def _two_metrics(points: Points) -> Floats:
    """Hamming weight and alignment of bits, each the mean of both operands.

    Gregersen et al., "Input-Dependent Power Usage in GPUs" (2024), section V, have one alignment,
    between multiplied elements. Here it is that between neighbours of an operand, which the
    fingerprint has.
    """
    return np.array([[1, *(_mean(p.features, n) for n in ("weight", "along"))] for p in points])


def _mean(features: Mapping[str, float], name: str) -> float:
    return (features[f"a_{name}"] + features[f"b_{name}"]) / 2


def _linear(metrics: Callable[[Points], Floats]) -> PowerLearner:
    def learn(points: Points) -> FittedPower:
        lines = {d: _line(metrics, points, d) for d in types_of(points)}

        def predict(asked: Points) -> Floats:
            energies = [
                float(row @ lines[p.dtype]) for row, p in zip(metrics(asked), asked, strict=True)
            ]
            return np.array([p.idle_w for p in asked]) + np.array(energies) * _rates(asked)

        return predict

    return learn


def _line(metrics: Callable[[Points], Floats], points: Points, dtype: str) -> Floats:
    of = [p for p in points if p.dtype == dtype]
    energy, columns = above_idle_w(of) / _rates(of), metrics(of)
    if columns.shape[1] == 1:
        return np.array([np.median(energy)])
    found = np.linalg.lstsq(columns / energy[:, None], np.ones(len(of)), rcond=None)[0]
    return np.asarray(found, dtype=np.float64)


def _rates(points: Points) -> Floats:
    return np.array([p.flop_per_s for p in points])


BASELINES: Mapping[str, PowerLearner] = MappingProxyType(
    {
        "median": _linear(_median),
        "two-metrics": _linear(_two_metrics),
        "zeros": _linear(_zeros),
    }
)
"""By name."""


METHODS: Mapping[str, PowerLearner] = MappingProxyType(
    {"model": physics_and_trees, "physics": physics, **BASELINES}
)
"""Every learner by name; the first one is the model."""


@dataclass(frozen=True, slots=True)
class RelativeErrors:
    """|predicted / measured - 1|."""

    mean: float
    """Over all points."""
    p90: float
    """That nine of ten points do not exceed."""
    points: int
    low: float
    """Of 95 % of the means, were other patterns of data measured, the least."""
    high: float
    """The most."""


@dataclass(frozen=True, slots=True)
class InputErrors:
    """Errors of a method; None: there is no such point."""

    power: RelativeErrors | None
    """Where nothing held the clock back, by the data alone."""
    speed: RelativeErrors | None
    """Where power limit or heat did, by the data and the power that was left."""
    energy: RelativeErrors
    """Of power at the speed that was measured, everywhere."""


def sweep_left_out(points: Points, progress: OnGroup | None = None) -> dict[str, HeldOutInputs]:
    """Each method on drawn operands, each pattern of operands left out in its turn.

    Raises:
        InputError: there is one pattern, or a type has too few points.
    """
    return group_left_out([p for p in points if not p.real], METHODS, progress)


def real_left_out(points: Points) -> dict[str, InputErrors]:
    """Each method, learned from drawn operands, on tensors of networks.

    Raises:
        InputError: there are none of either.
    """
    drawn, real = [p for p in points if not p.real], [p for p in points if p.real]
    if not drawn or not real:
        raise InputError("drawn operands and tensors of networks are needed, and one is missing")
    known = known_of(drawn)
    return {
        name: errors_of(expected(learner(drawn), known, real)) for name, learner in METHODS.items()
    }


def errors_of(found: HeldOutInputs) -> InputErrors:
    """Of points where nothing held the clock back by power, of the others by speed."""
    held_back = np.array([p.held_back for p in found.points], dtype=bool)
    power_w = np.array([p.power_w for p in found.points])
    rates = np.array([p.flop_per_s for p in found.points])
    groups = np.array([p.group for p in found.points])

    def errors(
        which: NDArray[np.bool_], predicted: Floats, measured: Floats
    ) -> RelativeErrors | None:
        if not which.any():
            return None
        return relative_errors(predicted[which], measured[which], groups[which].tolist())

    return InputErrors(
        errors(~held_back, found.power_w, power_w),
        errors(held_back, found.flop_per_s, rates),
        relative_errors(found.as_run_w, power_w, groups.tolist()),
    )


def noise_floor(points: Points) -> float | None:
    """Mean |energy / median - 1| of the repeated reference: nothing can be better.

    Energy above idle for each operation; the median is of one card, type, shape and number of SMs.
    None: none was measured twice.
    """
    found: dict[tuple[object, ...], list[float]] = {}
    for p in points:
        if p.is_reference:
            found.setdefault((p.gpu_uuid, p.dtype, p.shape, p.units), []).append(
                (p.power_w - p.idle_w) / p.flop_per_s
            )
    repeated = [energies for energies in found.values() if len(energies) > 1]
    off = [abs(e / float(np.median(energies)) - 1) for energies in repeated for e in energies]
    return float(np.mean(off)) if off else None


def relative_errors(predicted: Floats, measured: Floats, groups: Sequence[str]) -> RelativeErrors:
    """Of points that took no part in fitting, and the patterns of data that they are of.

    Raises:
        InputError: there are none.
    """
    if not len(measured):
        raise InputError("no point is left to test on", fix="measure more")
    off = np.abs(predicted / measured - 1)
    low, high = _interval(off, groups)
    return RelativeErrors(float(off.mean()), float(np.quantile(off, 0.9)), len(off), low, high)


def _interval(off: Floats, groups: Sequence[str]) -> tuple[float, float]:
    """95 % of the mean by a bootstrap of patterns: points of one are off alike."""
    names, place = np.unique(np.array(groups), return_inverse=True)
    sums = np.column_stack([np.bincount(place, off), np.bincount(place)])
    drawn = np.random.default_rng(0).integers(0, len(names), (DRAWS, len(names)))
    totals = sums[drawn].sum(axis=1)
    low, high = np.quantile(totals[:, 0] / totals[:, 1], (0.025, 0.975))
    return float(low), float(high)
