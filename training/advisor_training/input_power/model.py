"""The predictor of power by data: physics first, Extra Trees on what it leaves, intervals, cards.

Power above idle is a sum of parts that cannot be negative: one that is always there, one for each
SM, and for each operation an energy and one for each bit that switches, is set, or is not zero. An
energy has a constant part and one that grows with the square of the clock, as the voltage does. The
weights are fitted to relative errors (non-negative least squares). The trees learn the logarithm of
measured over physical power above idle.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from advisor.errors import InputError
from advisor.predict.components.least_squares import non_negative_least_squares
from advisor.predict.profiles import Floats
from advisor_models.intervals import LogBounds
from advisor_training.input_power.points import (
    FEATURES,
    InputPoint,
    above_idle_w,
    feature_matrix,
)
from advisor_training.learn.conformal import bounds_of
from advisor_training.learn.learners import extra_trees
from advisor_training.learn.residuals import Residuals

Points: TypeAlias = Sequence[InputPoint]
Fitted: TypeAlias = Callable[[Points], Floats]
"""Expected power of points, W; shape (points,). It looks at no measured power."""
Learner: TypeAlias = Callable[[Points], Fitted]

SAVING = ("a_zeros", "b_zeros", "zero_products", "sum_non_finite")
"""Features that lower power: their opposite has a weight, since none can be negative."""

LEAST_POINTS = 8
"""Of a type: fewer say nothing about its features."""

LEAST_SPREAD = 0.05
"""Of calibration points, as a part of their mean: nearer ones tell no offset from a factor."""


def physics(points: Points) -> Fitted:
    """The sum of parts alone, for each type."""
    return _by_dtype(points, _physics_above_idle)


def physics_and_trees(points: Points) -> Fitted:
    """The model.

    Raises:
        InputError: a type has too few points; of the result: a type has none.
    """
    return _by_dtype(points, _model_above_idle)


def carried_over(fitted: Fitted, known: Points) -> Fitted:
    """What was learned on one card, for another one of which a few points are known.

    Power above idle is taken times a factor and moved, for each type by its points there; where
    they lie too close, by a factor alone. Types without a point stay as they are.
    """
    by_dtype: dict[str, tuple[float, float]] = {}
    for dtype in {p.dtype for p in known}:
        of = [p for p in known if p.dtype == dtype]
        expected = fitted(of) - np.array([p.idle_w for p in of])
        by_dtype[dtype] = _line(expected, above_idle_w(of))

    def predict(points: Points) -> Floats:
        idle_w = np.array([p.idle_w for p in points])
        lines = np.array([by_dtype.get(p.dtype, (1.0, 0.0)) for p in points]).reshape(-1, 2)
        return idle_w + np.maximum(lines[:, 0] * (fitted(points) - idle_w) + lines[:, 1], 0)

    return predict


def calibration_points(fitted: Fitted, candidates: Points) -> tuple[InputPoint, ...]:
    """Two points of each type: those with the lowest and the highest expected power above idle."""
    chosen: list[InputPoint] = []
    for dtype in sorted({p.dtype for p in candidates}):
        of = [p for p in candidates if p.dtype == dtype]
        above = fitted(of) - np.array([p.idle_w for p in of])
        chosen += [of[i] for i in dict.fromkeys((int(above.argmin()), int(above.argmax())))]
    return tuple(chosen)


def group_residuals(points: Points, learner: Learner = physics_and_trees) -> Residuals:
    """Logarithms of measured over predicted power above idle, each group left out in its turn.

    Raises:
        InputError: all points are of one group.
    """
    groups = sorted({p.group for p in points})
    if len(groups) < 2:
        raise InputError("all points are of one group", fix="measure other sweeps, too")
    tested: list[InputPoint] = []
    values: list[Floats] = []
    for group in groups:
        of = [p for p in points if p.group == group]
        fitted = learner([p for p in points if p.group != group])
        idle_w = np.array([p.idle_w for p in of])
        values.append(np.log(above_idle_w(of) / np.maximum(fitted(of) - idle_w, 1e-9)))
        tested += of
    names = np.array([p.group for p in tested])
    return Residuals(np.concatenate(values), names, names, np.array([p.dtype for p in tested]))


def intervals(points: Points) -> Mapping[str, LogBounds]:
    """Conformal intervals of power above idle at 90 %, by type, for groups that were not seen.

    Raises:
        InputError: all points are of one group.
    """
    return bounds_of(group_residuals(points))


def _by_dtype(points: Points, fit: Callable[[Points], Fitted]) -> Fitted:
    known = {d: fit([p for p in points if p.dtype == d]) for d in {p.dtype for p in points}}

    def predict(asked: Points) -> Floats:
        if missing := {p.dtype for p in asked} - known.keys():
            raise InputError(
                f"no point of {', '.join(sorted(missing))} was learned from",
                fix="measure inputs of that type",
            )
        found = np.array([p.idle_w for p in asked])
        for dtype, fitted in known.items():
            which = [i for i, p in enumerate(asked) if p.dtype == dtype]
            if which:
                found[which] += fitted([asked[i] for i in which])
        return found

    return predict


def _physics_above_idle(points: Points) -> Fitted:
    if len(points) < LEAST_POINTS:
        raise InputError(
            f"{points[0].dtype} has {len(points)} points",
            fix=f"measure {LEAST_POINTS} or more",
        )
    measured = above_idle_w(points)
    weights = non_negative_least_squares(_parts(points) / measured[:, None], np.ones(len(points)))
    return lambda asked: _parts(asked) @ weights


def _model_above_idle(points: Points) -> Fitted:
    physical = _physics_above_idle(points)
    trees = extra_trees().fit(_columns(points), np.log(above_idle_w(points) / physical(points)))
    return lambda asked: physical(asked) * np.exp(trees.predict(_columns(asked)))


def _parts(points: Points) -> Floats:
    """What each weight is multiplied with, W at weight 1; shape (points, parts)."""
    features = feature_matrix(points)
    saving = np.isin(FEATURES, SAVING)
    of_operation = np.column_stack([np.ones(len(points)), np.where(saving, 1 - features, features)])
    tera_per_s = np.array([p.flop_per_s / 1e12 for p in points])[:, None]
    voltage = np.array([(p.clock_mhz / 1000) ** 2 for p in points])[:, None]
    units = np.array([p.units for p in points], dtype=float)
    by_rate = of_operation * tera_per_s
    return np.column_stack([np.ones(len(points)), units, by_rate, by_rate * voltage])


def _columns(points: Points) -> Floats:
    """What the trees see."""
    others = [[*np.log(p.shape), p.units, p.clock_mhz] for p in points]
    return np.column_stack([feature_matrix(points), np.array(others)])


def _line(expected: Floats, measured: Floats) -> tuple[float, float]:
    """Factor and offset that bring the expected to the measured."""
    factor = float(measured.mean() / expected.mean())
    if np.ptp(expected) < LEAST_SPREAD * expected.mean():
        return factor, 0.0
    slope, offset = np.polyfit(expected, measured, 1)
    return (float(slope), float(offset)) if slope > 0 else (factor, 0.0)
