"""Predictions of rows that the learner was not fitted to, and how they are scored."""

import numpy as np
import pytest
from made_up_rows import as_held_out, training_set

from advisor.errors import InputError
from advisor_training.learners import (
    POWER_LEARNER,
    Fitted,
    Predicted,
    as_predicted,
    leave_one_job_out,
)
from advisor_training.rows import Rows
from advisor_training.scoring import head_errors, speed_errors

ROWS = training_set().rows


def knowing(rows: Rows) -> Fitted:
    """A learner that knows what was measured, and tells how many rows it was fitted to."""

    def predict(asked: Rows) -> Predicted:
        speeds = np.column_stack([asked.speed_a, asked.speed_b])
        return as_predicted(speeds, asked.power_w + len(rows))

    return predict


def test_no_row_of_the_job_is_learned_from() -> None:
    told: list[tuple[str, int, int]] = []

    def tell(job: str, done: int, total: int) -> None:
        told.append((job, done, total))

    held_out = leave_one_job_out(ROWS, knowing, progress=tell)
    assert told == [(job, number, 5) for number, job in enumerate(ROWS.jobs, 1)]
    for job in ROWS.jobs:
        tests = held_out.left_out == job
        np.testing.assert_array_equal(held_out.row[tests], np.flatnonzero(ROWS.of(job)))
        others = held_out.power_w[tests] - ROWS.power_w[held_out.row[tests]]
        np.testing.assert_allclose(others, np.count_nonzero(~ROWS.of(job)))


def test_a_job_of_every_row_cannot_be_left_out() -> None:
    only = ROWS.take((ROWS.job_a == "climber") & (ROWS.job_b == "hog"))
    with pytest.raises(InputError, match="climber cannot be left out"):
        leave_one_job_out(only, knowing)


def test_errors_are_relative_and_of_one_kind_of_split() -> None:
    factor, n = np.where(ROWS.share_a == 50, 1.5, 1.0), len(ROWS)
    speeds = np.column_stack([ROWS.speed_a * factor, ROWS.speed_b * factor])
    found = as_held_out(np.full(n, "any"), np.arange(n), as_predicted(speeds, ROWS.power_w))
    errors, count = speed_errors(ROWS, found), np.count_nonzero(ROWS.kind == "nine")
    assert dict(zip(*np.unique(errors.round(9), return_counts=True), strict=True)) == {
        0: 2 * count - 30, 0.5: 30
    }  # fmt: skip
    assert speed_errors(ROWS, found, "uncapped").max() == 0
    assert head_errors(ROWS, found, POWER_LEARNER).max() == 0
