"""The predictor of power by data: physics first, Extra Trees on what it leaves, cards, intervals.

The physics is that of `advisor_power.model.physics`; its weights are fitted to relative errors
(non-negative least squares), for each type.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from advisor.errors import InputError
from advisor.predict.profiles import Floats
from advisor.wire.power import InputPoint
from advisor_power.components.least_squares import non_negative_least_squares
from advisor_power.model.physics import columns, parts
from advisor_training.intervals import Residuals
from advisor_training.learners import PriorRegressor

Points: TypeAlias = Sequence[InputPoint]
FittedPower: TypeAlias = Callable[[Points], Floats]
"""Expected power of points, W; shape (points,). It looks at no measured power."""
PowerLearner: TypeAlias = Callable[[Points], FittedPower]

LEAST_POINTS = 8
"""Of a type: fewer say nothing about its features."""


@dataclass(frozen=True, slots=True, eq=False)
class InputModel:
    """Weights, and the trees behind them, by type."""

    weights: Mapping[str, Floats]
    """Of `physics.PARTS`."""
    trees: Mapping[str, Any]
    """Estimators of what the physics leaves; none: the physics alone."""

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
        if (trees := self.trees.get(dtype)) is None:
            return parts(points) @ weights
        return trees.predict(_inputs(points, weights))


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
    return PriorRegressor(prior_column=0).fit(_inputs(points, weights), above_idle_w(points))


def _inputs(points: Points, weights: Floats) -> Floats:
    """What the physics expects above idle, then the features."""
    return np.column_stack([parts(points) @ weights, columns(points)])
