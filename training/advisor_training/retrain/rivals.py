"""Champion and challenger on the same rows, neither having seen the job that is asked for.

The champion has learned from its own jobs, so what it says of them is no measure. What is compared
is what each set of points teaches: for each job, the learner is fitted to the champion's points
without that job and to the challenger's without it, and both answer every row with the job.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.core.objectives import DEFAULT_OBJECTIVE, OBJECTIVES
from advisor.decide.recommendation import TIE
from advisor.errors import InputError
from advisor.predict.profiles import Floats
from advisor_training.dataset.rows import Names, Rows
from advisor_training.learn.held_out import HeldOut, OnFold, joined, predicted
from advisor_training.learn.learners import Learner
from advisor_training.learn.scoring import fractions


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Scores:
    """How good answers are, one value for each of n (left-out job, measurement).

    Attributes:
        error: Mean relative error of both rates and of the power, at splits; shape (n,).
        regret: What the chosen split is worth less than the best of the nine, as a part of that;
            NaN where the nine were not all measured; shape (n,).
    """

    error: Floats
    regret: Floats


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Questions:
    """What both were asked: n (left-out job, measurement).

    Attributes:
        left_out: The job that neither had seen; shape (n,).
        row: A row of the measurement; shape (n,).
    """

    left_out: Names
    row: Sequence[int]
    pairs: tuple[tuple[str, str], ...]


def answers(
    learned: Rows, asked: Rows, learner: Learner, progress: OnFold | None = None
) -> HeldOut:
    """For each job asked for, what a learner fitted to rows without it says of its rows.

    Raises:
        InputError: without a job there is nothing to learn from.
    """
    parts: list[HeldOut] = []
    for count, job in enumerate(asked.jobs, 1):
        rest = ~learned.of(job)
        if not rest.any():
            raise InputError(
                f"there is nothing to learn from without {job}",
                why="all pairs that the champion has learned from have it",
                fix="measure pairs of other jobs: advisor colocate",
            )
        fitted = learner(learned.take(rest))
        parts.append(predicted(fitted, asked, asked.of(job), job))
        if progress is not None:
            progress(job, count, len(asked.jobs))
    return joined(parts)


def questions_of(rows: Rows, held_out: HeldOut) -> Questions:
    """What was asked, in the order of the scores."""
    found = [(name, int(held_out.row[places[0]])) for name, places in _tests(rows, held_out)]
    return Questions(
        left_out=np.array([name for name, _ in found]),
        row=[row for _, row in found],
        pairs=tuple((str(rows.job_a[row]), str(rows.job_b[row])) for _, row in found),
    )


def scores(rows: Rows, held_out: HeldOut) -> Scores:
    """How good answers are, test by test."""
    places = [which for _, which in _tests(rows, held_out)]
    return Scores(error=_each(_error, rows, held_out, places),
                  regret=_each(_regret, rows, held_out, places))  # fmt: skip


def _tests(rows: Rows, held_out: HeldOut) -> Iterator[tuple[str, list[int]]]:
    """Places in the answers of each (left-out job, measurement), splits without limits aside."""
    groups: dict[tuple[str, int], list[int]] = {}
    for place, (name, row) in enumerate(zip(held_out.left_out, held_out.row, strict=True)):
        if rows.kind[row] != "uncapped":
            groups.setdefault((str(name), int(rows.measurement[row])), []).append(place)
    return ((name, places) for (name, _), places in sorted(groups.items()))


def _each(
    score: Callable[[Rows, HeldOut], float],
    rows: Rows,
    held_out: HeldOut,
    places: Sequence[list[int]],
) -> Floats:
    return np.array([score(rows, held_out.take(np.array(which))) for which in places])


def _error(rows: Rows, of_test: HeldOut) -> float:
    row = of_test.row
    measured = np.column_stack([rows.speed_a[row], rows.speed_b[row], rows.power_w[row]])
    expected = np.column_stack([of_test.speed, of_test.power_w])
    known = measured > 0  # a rate of 0 has no relative error
    return float(np.abs(expected[known] / measured[known] - 1).mean()) if known.any() else 0.0


def _regret(rows: Rows, of_test: HeldOut) -> float:
    if not (rows.kind[of_test.row] == "nine").all():
        return np.nan
    found = fractions(rows, of_test, OBJECTIVES[DEFAULT_OBJECTIVE], TIE)
    return 1 - float(found[0]) if len(found) else np.nan
