"""What learns from rows."""

import dataclasses

import numpy as np
import pytest
from made_up_rows import training_set
from sklearn.ensemble import ExtraTreesRegressor

from advisor.predict.profiles import Floats
from advisor_training.dataset.rows import Rows
from advisor_training.learn.learners import (
    LEARNERS,
    LEAST_SPEED,
    Predicted,
    extra_trees,
    fit,
    physical,
    power_targets,
    speed_targets,
)

pytestmark = pytest.mark.figures

ROWS = training_set().rows


def values(predicted: Predicted) -> Floats:
    """All that was predicted."""
    return np.concatenate([predicted.speed_a, predicted.speed_b, predicted.power_w])


def swapped(rows: Rows) -> Rows:
    """The same rows with the jobs the other way round."""
    names = ("job_{}", "share_{}", "features_{}", "alone_{}", "speed_{}", "solo_rate_{}")
    turned = {n.format(x): getattr(rows, n.format(y)) for n in names for x, y in ("ab", "ba")}
    return dataclasses.replace(rows, **turned)


def test_targets_are_what_predictions_undo() -> None:
    """A regressor that were right about its targets would predict what was measured."""
    kept = np.exp(speed_targets(ROWS)) * np.tile(ROWS.prior, 2)
    alone = np.concatenate([ROWS.alone_a, ROWS.alone_b])
    np.testing.assert_allclose(kept * alone, np.concatenate([ROWS.speed_a, ROWS.speed_b]))
    np.testing.assert_allclose(np.exp(power_targets(ROWS)) * ROWS.physical_w, ROWS.power_w)


def test_a_starved_job_has_a_target() -> None:
    """A rate of 0 has no logarithm; a very small one is taken."""
    starved = dataclasses.replace(ROWS, speed_a=np.zeros(len(ROWS)))
    targets = speed_targets(starved)[: len(ROWS)]
    np.testing.assert_allclose(np.exp(targets) * ROWS.prior * ROWS.alone_a, LEAST_SPEED)


@pytest.mark.parametrize("name", [name for name in LEARNERS if name != "physical"])
def test_learners_learn(name: str) -> None:
    """Each is nearer to the rows that it was fitted to than physics without learning."""
    measured = np.concatenate([ROWS.speed_a, ROWS.speed_b, ROWS.power_w])
    learned = np.abs(values(LEARNERS[name](ROWS)(ROWS)) / measured - 1).mean()
    without = np.abs(values(physical(ROWS)(ROWS)) / measured - 1).mean()
    assert learned < 0.5 * without


@pytest.mark.parametrize("name", LEARNERS)
def test_swapping_the_jobs_swaps_the_answer(name: str) -> None:
    """Exactly, whichever job comes first."""
    fitted = LEARNERS[name](ROWS)
    one, other = fitted(ROWS), fitted(swapped(ROWS))
    np.testing.assert_array_equal(one.speed_a, other.speed_b)
    np.testing.assert_array_equal(one.speed_b, other.speed_a)
    np.testing.assert_array_equal(one.power_w, other.power_w)


def test_the_same_rows_give_the_same_predictions() -> None:
    """Bit for bit."""
    one, other = (values(fit(extra_trees, ROWS)(ROWS)) for _ in range(2))
    np.testing.assert_array_equal(one, other)


def test_the_number_of_threads_does_not_matter() -> None:
    """Trees grown side by side are the trees grown one after the other."""

    def side_by_side() -> ExtraTreesRegressor:
        return extra_trees().set_params(n_jobs=2)

    threaded = fit(side_by_side, ROWS)
    for regressor in (threaded.speed, threaded.power):
        regressor.set_params(n_jobs=None)  # threads would add the trees up in any order
    one, other = values(fit(extra_trees, ROWS)(ROWS)), values(threaded(ROWS))
    np.testing.assert_array_equal(one, other)


def test_physics_takes_nothing_from_what_was_measured() -> None:
    """Rates alone at the shares times the prior, and both powers less one idle power."""
    predicted = physical(ROWS)(ROWS)
    np.testing.assert_array_equal(predicted.speed_a, ROWS.prior * ROWS.alone_a)
    np.testing.assert_array_equal(predicted.speed_b, ROWS.prior * ROWS.alone_b)
    np.testing.assert_array_equal(predicted.power_w, ROWS.physical_w)


def test_a_server_is_learned_from_where_it_falls_short() -> None:
    """A row in which it served everything says only that it could do no less."""
    half = np.arange(len(ROWS)) < len(ROWS) // 2
    full = np.where(half, 0.98, np.inf)
    rows = dataclasses.replace(ROWS, all_served_a=full, speed_a=np.where(half, 1.0, ROWS.speed_a))
    told = dataclasses.replace(rows, speed_a=np.where(half, 1.05, ROWS.speed_a))
    learned, again = (fit(extra_trees, each)(rows) for each in (rows, told))
    np.testing.assert_array_equal(learned.speed_a, again.speed_a)
    np.testing.assert_array_equal(learned.speed_b, again.speed_b)


def test_a_server_serves_no_more_than_its_demand() -> None:
    """What it could do is known beside that; another job may be faster than alone."""
    rows = dataclasses.replace(
        ROWS,
        alone_a=np.full(len(ROWS), 3.0),
        alone_b=np.full(len(ROWS), 3.0),
        prior=np.ones(len(ROWS)),
        all_served_a=np.full(len(ROWS), 0.98),
    )
    found = physical(rows)(rows)
    assert found.capacity is not None
    assert set(found.speed_a) == {1.0}
    assert set(found.speed_b) == set(found.capacity[0]) == {3.0}
