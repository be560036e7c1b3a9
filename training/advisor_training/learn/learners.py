"""What learns from measured pairs, by name: the model, what it is compared with, and physics.

Each learns the logarithm of what a job keeps of its rate at the share, over the prior, and the
logarithm of the power over the physical one. Logarithms, since errors count relative to the value.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from advisor.predict.profiles import Floats
from advisor_training.dataset.rows import Rows

TREES = 60
"""A hundred reach the same fraction of the oracle, within what another seed changes, and take
longer in serving in proportion."""

LEAST_IN_LEAF = 4
PART_OF_FEATURES = 0.5
SEED = 0

LEAST_SPEED = 1e-4
"""Relative speeds below are taken as this, so that a starved job has a logarithm."""


@dataclass(frozen=True, slots=True, eq=False)
class Predicted:
    """What a learner expects of rows, each shape (n,).

    Attributes:
        speed_a: Relative speed of the first job; `speed_b` of the second.
        power_w: Power, W.
        capacity: Both speeds as they would be if there were always something to do; None: a
            learner that does not tell them from the speeds.
    """

    speed_a: Floats
    speed_b: Floats
    power_w: Floats
    capacity: tuple[Floats, Floats] | None = None


Fitted: TypeAlias = Callable[[Rows], Predicted]
Learner: TypeAlias = Callable[[Rows], Fitted]


@dataclass(frozen=True, slots=True, eq=False)
class Regressors:
    """The two regressors of a model, as scikit-learn has them."""

    speed: Any
    power: Any

    def __call__(self, rows: Rows) -> Predicted:
        """Expected speeds and power of rows."""
        return served(
            rows,
            np.exp(self.speed.predict(rows.features_a)) * rows.prior * rows.alone_a,
            np.exp(self.speed.predict(rows.features_b)) * rows.prior * rows.alone_b,
            np.exp(self.power.predict(rows.power_features)) * rows.physical_w,
        )


def served(rows: Rows, capacity_a: Floats, capacity_b: Floats, power_w: Floats) -> Predicted:
    """Speeds by what jobs could do: a job with a fixed demand does no more than that."""
    speed_a = np.where(np.isfinite(rows.all_served_a), np.minimum(capacity_a, 1), capacity_a)
    speed_b = np.where(np.isfinite(rows.all_served_b), np.minimum(capacity_b, 1), capacity_b)
    return Predicted(speed_a, speed_b, power_w, (capacity_a, capacity_b))


def speed_targets(rows: Rows) -> Floats:
    """What the speed regressor learns: of all first jobs, then of all second ones; (2n,)."""
    speeds = np.concatenate([rows.speed_a, rows.speed_b])
    alone = np.concatenate([rows.alone_a, rows.alone_b]) * np.tile(rows.prior, 2)
    return np.log(np.maximum(speeds, LEAST_SPEED) / alone)


def power_targets(rows: Rows) -> Floats:
    """What the power regressor learns; shape (n,)."""
    return np.log(rows.power_w / rows.physical_w)


def fit(make: Callable[[], Any], rows: Rows) -> Regressors:
    """Two regressors of one kind, fitted to rows.

    Of a job that served all of its demand a row only says that it could do no less, so speeds are
    learned from the others.
    """
    speed, power = make(), make()
    features = np.concatenate([rows.features_a, rows.features_b])
    short = np.concatenate([rows.speed_a < rows.all_served_a, rows.speed_b < rows.all_served_b])
    speed.fit(features[short], speed_targets(rows)[short])
    power.fit(rows.power_features, power_targets(rows))
    return Regressors(speed, power)


def extra_trees(seed: int = SEED) -> Any:
    """The regressor of the model; the same data and seed give the same trees.

    One thread: several fit no faster at this size, and add up the trees in any order.
    """
    return ExtraTreesRegressor(
        TREES,
        min_samples_leaf=LEAST_IN_LEAF,
        max_features=PART_OF_FEATURES,
        random_state=seed,
    )


def _linear() -> Any:
    return Pipeline([("scale", StandardScaler()), ("ridge", Ridge(alpha=10.0))])


def physical(rows: Rows) -> Fitted:
    """No learning: what the model learns the distance to.

    Rates alone at the shares, less what the supply of bandwidth and power takes (`prior_kept`);
    both powers less one idle power, up to the limit.
    """

    def predict(rows: Rows) -> Predicted:
        kept = rows.prior
        return served(rows, kept * rows.alone_a, kept * rows.alone_b, rows.physical_w)

    return predict


LEARNERS: Mapping[str, Learner] = MappingProxyType(
    {
        "extra-trees": lambda rows: fit(extra_trees, rows),
        "linear": lambda rows: fit(_linear, rows),
        "physical": physical,
    }
)
"""Every learner by name; the first one is the model."""
