"""What learns from measured pairs, by name: the model, what it is compared with, and physics."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import Ridge
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from advisor.predict.profiles import Floats
from advisor_training.dataset.rows import Rows
from advisor_training.learn.estimator import PriorRegressor, extra_trees
from advisor_training.learn.head_learners import HEAD_LEARNERS, HeadLearner


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


PRIOR = 0
"""Column of the prior in what estimators take."""

Fitted: TypeAlias = Callable[[Rows], Predicted]
Learner: TypeAlias = Callable[[Rows], Fitted]


@dataclass(frozen=True, slots=True, eq=False)
class Regressors:
    """The estimators of a model by head."""

    by_head: Mapping[str, Any]

    def __call__(self, rows: Rows) -> Predicted:
        """Expected speeds and power of rows."""
        return served(rows, {name: self._values(name, rows) for name in self.by_head})

    def _values(self, head: str, rows: Rows) -> Floats:
        # Part by part: where a value stands in an array may change the last bit of numpy's exp.
        parts = range(rows.heads[head].prior.shape[1])
        return np.stack([self.by_head[head].predict(inputs(head, rows, n)) for n in parts], 1)


def as_predicted(speed: Floats, power_w: Floats) -> Predicted:
    """Speeds of jobs with always something to do, shape (n, 2), and the power, shape (n,)."""
    return Predicted(speed, {"speed": speed, "power": power_w[:, None]})


def served(rows: Rows, heads: Mapping[str, Floats]) -> Predicted:
    """Speeds by what jobs could do: none is faster than alone, or serves more than is asked."""
    return Predicted(np.minimum(heads["speed"], 1), heads)


def fit(
    make: Callable[[], Any], rows: Rows, learners: Sequence[HeadLearner] = HEAD_LEARNERS
) -> Regressors:
    """Estimators with regressors of one kind, one for each head, fitted to rows.

    Of a job that served all of its demand a row only says that it could do no less, so speeds are
    learned from the others.
    """
    return Regressors({learner.head.name: _fitted(make(), rows, learner) for learner in learners})


@dataclass(frozen=True, slots=True)
class Untold:
    """In place of a regressor that nothing was there to learn from: it expects NaN."""

    def predict(self, inputs: Floats) -> Floats:
        """NaN for each row; inputs have shape (n, 1 + features), the answer (n,)."""
        return np.full(len(inputs), np.nan)


def inputs(head: str, rows: Rows, part: int) -> Floats:
    """What the estimator of a head takes of one part of rows: its prior, then its features."""
    seen = rows.heads[head]
    return np.column_stack([seen.prior[:, part], seen.features[:, part].astype(np.float64)])


@dataclass(frozen=True, slots=True, eq=False)
class Learned:
    """What the estimator of a head learns from.

    Attributes:
        X: The prior, then the features; shape (m, columns).
        y: What was measured, in the unit of the head; shape (m,).
        weight: Shape (m,).
        row: Number of the row; one of two jobs has each row once for each job; shape (m,).
    """

    X: Floats
    y: Floats
    weight: Floats
    row: npt.NDArray[np.int64]


def learned_from(learner: HeadLearner, rows: Rows) -> Learned:
    """Those parts of rows that tell what the head learns, all of the first part first."""
    told = learner.is_told(rows)
    parts = len(told) // len(rows)
    seen = np.concatenate([inputs(learner.head.name, rows, part) for part in range(parts)])
    values = learner.possible(rows, learner.measured(rows))
    row = np.tile(np.arange(len(rows)), parts)[told]
    return Learned(seen[told], values[told], rows.weight[row], row)


def _fitted(regressor: Any, rows: Rows, learner: HeadLearner) -> Any:
    found = learned_from(learner, rows)
    if not len(found.y):
        return Untold()
    return PriorRegressor(regressor, PRIOR).fit(found.X, found.y, found.weight)


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
