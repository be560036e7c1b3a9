"""What a model learns, as an estimator of scikit-learn: how far off a prior is.

The trainer fits one for each head, so whatever regressor stands in it is learned, left out and
scored as the model is.
"""

from collections.abc import Mapping
from typing import Any, Self, cast

import numpy as np
from sklearn import base, utils
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.utils import validation

from advisor.predict.features import rounded
from advisor.predict.profiles import Floats

TREES = 60
"""A hundred reach the same fraction of the oracle, within what another seed changes, and take
longer in serving in proportion."""

LEAST_IN_LEAF = 4
PART_OF_FEATURES = 0.5
SEED = 0


_BASE, _UTILS, _VALIDATION = cast("Any", base), cast("Any", utils), cast("Any", validation)
"""They have no types."""

_TAKES: Mapping[str, Any] = {"dtype": np.float64, "ensure_all_finite": "allow-nan"}
"""Trees learn from features that are missing; another regressor refuses them by itself."""


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


class PriorRegressor(RegressorMixin, BaseEstimator):
    """A quantity above 0, learned as the logarithm of what was measured over its prior.

    Logarithms, since errors count relative to the value. They and the weights are `rounded`, so
    that every processor learns the same.

    Args:
        regressor: What learns them, cloned when fitted; None: `extra_trees()`.
        prior_column: Column of X that holds the prior, in the unit of y, and is no feature; None:
            there is none, and the logarithm of y itself is learned.
    """

    def __init__(self, regressor: Any = None, prior_column: int | None = None) -> None:
        self.regressor = regressor
        self.prior_column = prior_column

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:  # noqa: N803
        """Learn from rows of X, shape (n, columns), and y above 0, shape (n,)."""
        given, y = _VALIDATION.validate_data(self, X, y, y_numeric=True, **_TAKES)
        prior, features = self._parts(given)
        if not (np.all(y > 0) and np.all(prior > 0)):
            raise ValueError("y and its prior must be above 0: logarithms of them are learned")
        self.regressor_: Any = _BASE.clone(
            extra_trees() if self.regressor is None else self.regressor
        )
        weights = {} if sample_weight is None else self._weights(sample_weight)
        self.regressor_.fit(features, rounded(np.log(y / prior)), **weights)
        return self

    def predict(self, X: Any) -> Floats:  # noqa: N803
        """What is expected, in the unit of y, shape (n,)."""
        _VALIDATION.check_is_fitted(self)
        prior, features = self._parts(_VALIDATION.validate_data(self, X, reset=False, **_TAKES))
        found: Floats = np.exp(self.regressor_.predict(features)) * prior
        return found

    def __sklearn_tags__(self) -> Any:
        tags = cast("Any", super()).__sklearn_tags__()
        tags.target_tags.positive_only = True
        own = _UTILS.get_tags(self._own())
        tags.input_tags.allow_nan = own.input_tags.allow_nan
        return tags

    def _own(self) -> Any:
        return extra_trees() if self.regressor is None else self.regressor

    def _parts(self, X: Floats) -> tuple[Floats | float, Floats]:  # noqa: N803
        if self.prior_column is None:
            return 1.0, X
        return X[:, self.prior_column], np.delete(X, self.prior_column, axis=1)

    def _weights(self, sample_weight: Any) -> dict[str, Floats]:
        """A pipeline has them for its last step."""
        steps = getattr(self.regressor_, "steps", None)
        step = f"{steps[-1][0]}__" if steps else ""
        return {f"{step}sample_weight": rounded(np.asarray(sample_weight, np.float64))}
