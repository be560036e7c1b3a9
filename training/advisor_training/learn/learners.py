"""What learns from measured pairs, by name: the model, what it is compared with, and physics."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from advisor.predict.features import Float32s, rounded
from advisor.predict.profiles import Floats
from advisor_training.dataset.rows import Rows, flat
from advisor_training.learn.head_learners import HEAD_LEARNERS, HeadLearner

TREES = 60
"""A hundred reach the same fraction of the oracle, within what another seed changes, and take
longer in serving in proportion."""

LEAST_IN_LEAF = 4
PART_OF_FEATURES = 0.5
SEED = 0


@dataclass(frozen=True, slots=True, eq=False)
class Predicted:
    """What a learner expects of n rows.

    Attributes:
        speed: Relative speed of each job, shape (n, 2).
        heads: What each head says, shape (n, parts): "power" in W, and "speed" as it would be if
            there were always something to do, where the learner tells that from the speeds.
    """

    speed: Floats
    heads: Mapping[str, Floats]

    @property
    def power_w(self) -> Floats:
        """Power of the GPU, W; shape (n,)."""
        return self.heads["power"][:, 0]


Fitted: TypeAlias = Callable[[Rows], Predicted]
Learner: TypeAlias = Callable[[Rows], Fitted]


@dataclass(frozen=True, slots=True, eq=False)
class Regressors:
    """The regressors of a model by head, as scikit-learn has them."""

    by_head: Mapping[str, Any]

    def __call__(self, rows: Rows) -> Predicted:
        """Expected speeds and power of rows."""
        return served(rows, {name: self._values(name, rows) for name in self.by_head})

    def _values(self, head: str, rows: Rows) -> Floats:
        seen = rows.heads[head]
        parts = np.moveaxis(seen.features, 1, 0)
        # One by one: where a value stands in an array may change the last bit of numpy's exp.
        return np.stack([np.exp(self.by_head[head].predict(p)) for p in parts], 1) * seen.prior


def as_predicted(speed: Floats, power_w: Floats) -> Predicted:
    """Speeds of jobs with always something to do, shape (n, 2), and the power, shape (n,)."""
    return Predicted(speed, {"speed": speed, "power": power_w[:, None]})


def served(rows: Rows, heads: Mapping[str, Floats]) -> Predicted:
    """Speeds by what jobs could do: none is faster than alone, or serves more than is asked."""
    return Predicted(np.minimum(heads["speed"], 1), heads)


def fit(
    make: Callable[[], Any], rows: Rows, learners: Sequence[HeadLearner] = HEAD_LEARNERS
) -> Regressors:
    """Regressors of one kind, one for each head, fitted to rows.

    Of a job that served all of its demand a row only says that it could do no less, so speeds are
    learned from the others.
    """
    return Regressors({learner.head.name: _fitted(make(), rows, learner) for learner in learners})


@dataclass(frozen=True, slots=True)
class Untold:
    """In place of a regressor that nothing was there to learn from: it expects NaN."""

    def predict(self, features: Float32s) -> Floats:
        return np.full(len(features), np.nan)


def _fitted(regressor: Any, rows: Rows, learner: HeadLearner) -> Any:
    told = learner.is_told(rows)
    if not told.any():
        return Untold()
    features = flat(rows.heads[learner.head.name].features)
    weights = rounded(flat(np.repeat(rows.weight[:, None], len(told) // len(rows), axis=1)))
    step = "ridge__" if hasattr(regressor, "steps") else ""
    return regressor.fit(
        features[told], learner.targets(rows)[told], **{f"{step}sample_weight": weights[told]}
    )


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
    return lambda rows: served(rows, {name: seen.prior for name, seen in rows.heads.items()})


LEARNERS: Mapping[str, Learner] = MappingProxyType(
    {
        "extra-trees": lambda rows: fit(extra_trees, rows),
        "linear": lambda rows: fit(_linear, rows),
        "physical": physical,
    }
)
"""Every learner by name; the first one is the model."""
