"""What learns from rows, and the estimator by itself."""

import dataclasses
from typing import Any, cast

import numpy as np
import pytest
import synthetic_pairs as made_up
from made_up_rows import full_solo_points, training_set
from sklearn import model_selection
from sklearn.linear_model import Ridge
from sklearn.utils import estimator_checks

import advisor
from advisor.errors import InputError
from advisor.predict.profiles import Floats
from advisor_training.learners import (
    LEARNERS,
    LEAST_IN_LEAF,
    LEAST_SPEED,
    SPEED_LEARNER,
    Predicted,
    PriorRegressor,
    extra_trees,
    fit,
    learned_from,
    paper_features,
    paper_learner,
    physical,
)
from advisor_training.rows import flat, make_data

pytestmark = pytest.mark.figures

ROWS = training_set().rows


def values(predicted: Predicted) -> Floats:
    return np.concatenate([flat(predicted.speed), predicted.power_w])


def test_a_starved_job_has_a_logarithm() -> None:
    starved = ROWS.assign(speed_a=np.zeros(len(ROWS)))
    np.testing.assert_array_equal(learned_from(SPEED_LEARNER, starved).y[: len(ROWS)], LEAST_SPEED)


@pytest.mark.parametrize("name", [name for name in LEARNERS if name != "physical"])
def test_learners_learn(name: str) -> None:
    measured = np.concatenate([ROWS.speed_a, ROWS.speed_b, ROWS.power_w])
    learned = np.abs(values(LEARNERS[name](ROWS)(ROWS)) / measured - 1).mean()
    without = np.abs(values(physical(ROWS)(ROWS)) / measured - 1).mean()
    assert learned < 0.5 * without


def test_a_server_is_learned_from_where_it_falls_short() -> None:
    """A row in which it served everything says only that it could do no less."""
    half = np.arange(len(ROWS)) < len(ROWS) // 2
    full = np.where(half, 0.98, np.inf)
    rows = ROWS.assign(all_served_a=full, speed_a=np.where(half, 1.0, ROWS.speed_a))
    told = rows.assign(speed_a=np.where(half, 1.05, ROWS.speed_a))
    learned, again = (fit(extra_trees, each)(rows) for each in (rows, told))
    np.testing.assert_array_equal(learned.speed, again.speed)


def test_a_server_serves_no_more_than_its_demand() -> None:
    """What it could do is known next to that; no other job is faster than alone."""
    speed = dataclasses.replace(ROWS.heads["speed"], prior=np.full((len(ROWS), 2), 3.0))
    served = ROWS.assign(all_served_a=np.full(len(ROWS), 0.98))
    rows = dataclasses.replace(served, heads={**ROWS.heads, "speed": speed})
    found = physical(rows)(rows)
    assert [set(each[:, 0]) for each in (found.speed, found.heads["speed"])] == [{1.0}, {3.0}]
    assert set(found.speed[:, 1]) == {1.0}


def test_a_weight_changes_what_is_learned() -> None:
    noise = np.random.default_rng(0).normal(0, 0.2, len(ROWS))
    noisy = ROWS.assign(power_w=ROWS.power_w * np.exp(noise))
    half = noisy.assign(weight=np.where(ROWS.job_a == "climber", 0.1, 1.0))
    for name in ("extra-trees", "linear"):
        plain, weighed = (LEARNERS[name](rows)(ROWS).power_w for rows in (noisy, half))
        assert not np.array_equal(plain, weighed)


CHECKS, SELECTION = cast("Any", estimator_checks), cast("Any", model_selection)
"""They have no types."""

COUNTS_ROWS = {
    "check_sample_weight_equivalence_on_dense_data": f"a leaf has {LEAST_IN_LEAF} rows, whatever "
    "they weigh: ExtraTreesRegressor(min_samples_leaf=4) fails this by itself"
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("regressor", "expected"), [(None, COUNTS_ROWS), (Ridge(), {})], ids=["trees", "ridge"]
)
def test_scikit_learn_takes_it_for_its_own(regressor: Any, expected: dict[str, str]) -> None:
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


@pytest.mark.slow
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


PAPER_DATA = make_data(
    made_up.pair_points([(made_up.CLIMBER, made_up.SITTER), (made_up.HOG, made_up.CLIMBER)]),
    full_solo_points(),
)


def test_features_of_the_paper_are_averaged_or_summed() -> None:
    """For a row whose jobs are known in closed form, and the slopes of both jobs."""
    rows, profiles = PAPER_DATA.rows, PAPER_DATA.profiles
    at = (rows.job_a == "climber") & (rows.job_b == "sitter") & (rows.share_a == 30)
    [found] = paper_features(rows.take(at), profiles).tolist()
    pair = [profiles[name, made_up.GPU_MODEL] for name in ("climber", "sitter")]
    slopes = [np.polyfit(p.shares, p.values["rate"], 1)[0] for p in pair]
    assert slopes[0] == pytest.approx(2, rel=0.01), "200 steps per second over 100 %"
    rates = 200 * made_up.CLIMBER.speed(30) + 900 * made_up.SITTER.speed(70)
    assert (found[0], found[2]) == pytest.approx(((95 * 0.3 + 15 * 0.7) / 2, 10))
    assert found[5:] == pytest.approx([20, 20, rates, sum(slopes)])


def test_the_papers_method_gives_back_the_sums_that_it_learned() -> None:
    nine = PAPER_DATA.rows.take(PAPER_DATA.rows.kind == "nine")
    found = paper_learner(PAPER_DATA.profiles)(PAPER_DATA.rows)(nine)
    rates = np.column_stack([nine.solo_rate_a, nine.solo_rate_b])
    measured = np.column_stack([nine.speed_a, nine.speed_b])
    np.testing.assert_allclose((found.speed * rates).sum(1), (measured * rates).sum(1))
    np.testing.assert_allclose(found.power_w, nine.power_w)
