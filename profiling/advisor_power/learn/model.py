"""The predictor of power by data: physics first, Extra Trees on what it leaves, cards, intervals.

The physics is that of `advisor_power.model.physics`; its weights are fitted to relative errors
(non-negative least squares), for each type.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from advisor.errors import InputError
from advisor.predict.features import rounded
from advisor.predict.profiles import Floats
from advisor.wire.input_power import InputPoint
from advisor_power.components.least_squares import non_negative_least_squares
from advisor_power.model.physics import columns, parts
from advisor_training.learn.learners import extra_trees
from advisor_training.learn.residuals import Residuals

Points: TypeAlias = Sequence[InputPoint]
Fitted: TypeAlias = Callable[[Points], Floats]
"""Expected power of points, W; shape (points,). It looks at no measured power."""
Learner: TypeAlias = Callable[[Points], Fitted]

LEAST_POINTS = 8
"""Of a type: fewer say nothing about its features."""

LEAST_SPREAD = 0.05
"""Of calibration points, as a part of their mean: nearer ones tell no offset from a factor."""


@dataclass(frozen=True, slots=True, eq=False)
class InputModel:
    """Weights, and the trees behind them, by type.

    Attributes:
        weights: Of `physics.PARTS`.
        trees: As scikit-learn has them; none: the physics alone.
    """

    weights: Mapping[str, Floats]
    trees: Mapping[str, Any]

    def __call__(self, points: Points) -> Floats:
        """Expected power, W.

        Raises:
            InputError: a type was not learned.
        """
        if missing := {p.dtype for p in points} - self.weights.keys():
            raise InputError(
                f"no point of {', '.join(sorted(missing))} was learned from",
                fix="measure inputs of that type",
            )
        found = np.array([p.idle_w for p in points])
        for dtype, weights in self.weights.items():
            which = [i for i, p in enumerate(points) if p.dtype == dtype]
            if which:
                found[which] += self._above_idle([points[i] for i in which], dtype, weights)
        return found

    def _above_idle(self, points: Points, dtype: str, weights: Floats) -> Floats:
        physical = parts(points) @ weights
        if (trees := self.trees.get(dtype)) is None:
            return physical
        return physical * np.exp(trees.predict(columns(points)))


def above_idle_w(points: Points) -> Floats:
    """What the product draws, W; shape (points,)."""
    return np.array([p.power_w - p.idle_w for p in points])


def physics(points: Points) -> InputModel:
    """The sum of parts alone, for each type.

    Raises:
        InputError: a type has too few points.
    """
    return InputModel({d: _weights(_of_type(points, d)) for d in types_of(points)}, {})


def physics_and_trees(points: Points) -> InputModel:
    """The model.

    Raises:
        InputError: a type has too few points.
    """
    weights = physics(points).weights
    trees = {d: _trees(_of_type(points, d), w) for d, w in weights.items()}
    return InputModel(weights, trees)


def carried_over(fitted: Fitted, known: Points) -> Fitted:
    """What was learned on one card, for another one of which a few points are known.

    Power above idle is taken times a factor and moved, for each type by its points there; where
    they lie too close, by a factor alone. Types without a point stay as they are.
    """
    by_dtype: dict[str, tuple[float, float]] = {}
    for dtype in types_of(known):
        of = _of_type(known, dtype)
        expected = fitted(of) - np.array([p.idle_w for p in of])
        by_dtype[dtype] = _line(expected, above_idle_w(of))

    def predict(points: Points) -> Floats:
        idle_w = np.array([p.idle_w for p in points])
        lines = np.array([by_dtype.get(p.dtype, (1.0, 0.0)) for p in points]).reshape(-1, 2)
        return idle_w + np.maximum(lines[:, 0] * (fitted(points) - idle_w) + lines[:, 1], 0)

    return predict


def calibration_points(fitted: Fitted, candidates: Points) -> tuple[InputPoint, ...]:
    """Two points of each type: the usual random numbers, and the lowest expected power above idle.

    Of a type without a reference the highest. The reference is what anybody measures first, and
    what was learned best; the highest expected power is that of the pattern that is known least.
    """
    chosen: list[InputPoint] = []
    for dtype in types_of(candidates):
        of = _of_type(candidates, dtype)
        above = (fitted(of) - np.array([p.idle_w for p in of])).tolist()
        usual = [i for i, p in enumerate(of) if p.is_reference]
        low, high = above.index(min(above)), usual[0] if usual else above.index(max(above))
        chosen += [of[i] for i in dict.fromkeys((low, high))]
    return tuple(chosen)


def residuals_of(points: Points, expected_w: Floats) -> Residuals:
    """Logarithms of measured over expected power above idle, of points by their groups."""
    idle_w = np.array([p.idle_w for p in points])
    values = np.log(above_idle_w(points) / np.maximum(expected_w - idle_w, 1e-9))
    names = np.array([p.group for p in points])
    return Residuals(values, names, names, np.array([p.dtype for p in points]))


def types_of(points: Points) -> list[str]:
    """The types of points, by name."""
    return sorted({p.dtype for p in points})


def _of_type(points: Points, dtype: str) -> list[InputPoint]:
    return [p for p in points if p.dtype == dtype]


def _weights(points: Points) -> Floats:
    if len(points) < LEAST_POINTS:
        raise InputError(
            f"{points[0].dtype} has {len(points)} points",
            fix=f"measure {LEAST_POINTS} or more",
        )
    measured = above_idle_w(points)
    return non_negative_least_squares(parts(points) / measured[:, None], np.ones(len(points)))


def _trees(points: Points, weights: Floats) -> Any:
    return extra_trees().fit(
        columns(points), rounded(np.log(above_idle_w(points) / (parts(points) @ weights)))
    )


def _line(expected: Floats, measured: Floats) -> tuple[float, float]:
    """Factor and offset that bring the expected to the measured."""
    factor = float(measured.mean() / expected.mean())
    if np.ptp(expected) < LEAST_SPREAD * expected.mean():
        return factor, 0.0
    slope, offset = np.polyfit(expected, measured, 1)
    return (float(slope), float(offset)) if slope > 0 else (factor, 0.0)
