"""The estimator that a model is made of, by itself."""

from typing import Any, cast

import numpy as np
import pytest
from sklearn import model_selection
from sklearn.linear_model import Ridge
from sklearn.utils import estimator_checks

import advisor
from advisor.errors import InputError
from advisor_training.learners import LEAST_IN_LEAF, PriorRegressor

pytestmark = pytest.mark.figures

CHECKS, SELECTION = cast("Any", estimator_checks), cast("Any", model_selection)
"""They have no types."""

COUNTS_ROWS = {
    "check_sample_weight_equivalence_on_dense_data": f"a leaf has {LEAST_IN_LEAF} rows, whatever "
    "they weigh: ExtraTreesRegressor(min_samples_leaf=4) fails this by itself"
}


@pytest.mark.parametrize(
    ("regressor", "expected"), [(None, COUNTS_ROWS), (Ridge(), {})], ids=["trees", "ridge"]
)
def test_scikit_learn_takes_it_for_its_own(regressor: Any, expected: dict[str, str]) -> None:
    """Cloning, pipelines, searches and weights work as with its own estimators."""
    found = CHECKS.check_estimator(
        PriorRegressor(regressor), expected_failed_checks=expected, on_fail=None, on_skip=None
    )
    failed = {each["check_name"]: each["exception"] for each in found if each["status"] == "failed"}
    assert failed == {}
    assert {each["check_name"] for each in found if each["status"] == "xfail"} == expected.keys()


def test_a_prior_is_no_feature() -> None:
    """What is learned is the distance to it: right everywhere, there is nothing to learn."""
    prior = np.linspace(1, 100, 50)
    X = np.column_stack([np.zeros(50), prior])  # noqa: N806
    fitted = PriorRegressor(Ridge(), prior_column=1).fit(X, 2 * prior)
    np.testing.assert_allclose(fitted.predict(X), 2 * prior, rtol=1e-5)
    with pytest.raises(ValueError, match="must be above 0"):
        fitted.fit(X, prior - 1)


def test_another_regressor_can_be_left_out_job_by_job() -> None:
    """On the rows of the trainer, in the folds of the trainer, with the tools of scikit-learn."""
    data = advisor.training_data("power")
    assert data.X.columns[0] == "prior"
    assert not data.X.isna().any(axis=None)
    folds = list(data.folds())[:3]
    for train, test in folds:
        assert not {*data.jobs[train].ravel()} >= {*data.jobs[test].ravel()}
    estimator = advisor.PriorRegressor(Ridge(), prior_column=0)
    assert SELECTION.cross_val_score(estimator, data.X, data.y, cv=folds).min() > 0.5
    with pytest.raises(InputError, match="no head watts"):
        advisor.training_data("watts")
