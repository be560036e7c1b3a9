"""Scores of answers to jobs that were left out."""

import dataclasses

import numpy as np
from retraining import BUNDLED_POINTS, NEW_POINTS

from advisor_training.held_out import HeldOut, leave_one_job_out
from advisor_training.learners import as_predicted, extra_trees, fit, physical
from advisor_training.retrain.challenger import answers, questions_of, scores, training_set

ROWS = training_set(NEW_POINTS | BUNDLED_POINTS).rows


def exact(factor: float = 1.0) -> HeldOut:
    asked = answers(ROWS, ROWS, physical)
    row = asked.row
    speed = np.column_stack([ROWS.speed_a[row], ROWS.speed_b[row]])
    found = as_predicted(factor * speed, factor * ROWS.power_w[row])
    return dataclasses.replace(asked, predicted=found)


def test_exact_answers_have_no_error_and_no_regret() -> None:
    found = scores(ROWS, exact())
    assert np.allclose(found.error, 0)
    assert np.allclose(found.regret, 0, atol=0.02)  # ties go to the more even split
    assert np.allclose(scores(ROWS, exact(1.1)).error, 0.1)


def test_each_measurement_is_asked_once_for_each_of_its_jobs() -> None:
    """In the same order for both rivals, whatever they have learned."""
    asked = answers(ROWS, ROWS, physical)
    other = answers(training_set(BUNDLED_POINTS).rows, ROWS, physical)
    tests = questions_of(ROWS, asked)
    assert (tests.left_out == questions_of(ROWS, other).left_out).all()
    assert list(tests.row) == list(questions_of(ROWS, other).row)
    for left_out, pair in zip(tests.left_out, tests.pairs, strict=True):
        assert left_out in pair
    beside_itself = sum(a == b for a, b in set(tests.pairs))
    assert len(set(zip(tests.left_out, tests.pairs, strict=True))) == 2 * 15 - beside_itself


def test_the_same_points_give_the_same_answers_as_the_figures_of_a_model() -> None:
    """Leaving jobs out of the challenger's own rows is what its held-out figures are made of."""
    rows = training_set(BUNDLED_POINTS).rows
    mine = answers(rows, rows, lambda some: fit(extra_trees, some))
    known = leave_one_job_out(rows, lambda some: fit(extra_trees, some))
    assert (mine.speed == known.speed).all()
    assert (mine.power_w == known.power_w).all()
