"""When a challenger counts as better or worse."""

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from retraining import BUNDLED_POINTS, NEW_POINTS

from advisor_training.learners import as_predicted, leave_one_job_out, physical
from advisor_training.retrain import (
    ALL,
    ComparedFigure,
    compare,
    decide,
    scores,
    training_set,
)

JOBS = [f"job{n}" for n in range(8)]
PAIRS = tuple(itertools.combinations(JOBS, 2))
NOISE = np.random.default_rng(0).normal(0, 0.02, 2 * len(PAIRS))


def compared(
    gain: float, noise: float = 1.0, pairs: Sequence[tuple[str, str]] = PAIRS
) -> tuple[ComparedFigure, ...]:
    """A challenger whose errors are smaller by a gain, each off by some noise.

    Each job of each pair is left out once.
    """
    both = [(job, a, b) for a, b in pairs for job in (a, b)]
    tests = pd.DataFrame(both, columns=["left_out", "job_a", "job_b"])
    tests = tests.assign(error=0.1, regret=np.nan)
    challenger = tests.assign(error=0.1 - gain + noise * NOISE[: len(tests)])
    return compare(tests, challenger, {ALL: np.ones(len(tests), dtype=bool)})


@pytest.mark.parametrize("factor", [1.0, 1.1])
def test_scores_of_left_out_jobs(factor: float) -> None:
    rows = training_set(NEW_POINTS | BUNDLED_POINTS).rows
    asked = leave_one_job_out(rows, physical)
    speed = np.column_stack([rows.speed_a, rows.speed_b])[asked.row]
    exact = as_predicted(factor * speed, factor * rows.power_w[asked.row])
    found = scores(rows, dataclasses.replace(asked, speed=exact.speed, heads=exact.heads))
    assert np.allclose(found["error"], factor - 1)
    assert np.allclose(found["regret"], 0, atol=0.02)  # ties go to the more even split
    other = leave_one_job_out(training_set(BUNDLED_POINTS).rows, physical, asked=rows)
    names = ["left_out", "row", "job_a", "job_b"]
    assert scores(rows, other)[names].equals(found[names])
    asked_of = found[["left_out", "job_a", "job_b"]].drop_duplicates()
    assert all(name in pair for name, *pair in asked_of.itertuples(index=False))
    assert len(asked_of) == 2 * 15 - (asked_of["job_a"] == asked_of["job_b"]).sum()


@pytest.mark.parametrize(
    ("gain", "noise", "better", "worse"),
    [
        (0.03, 1.0, True, False),
        (-0.03, 1.0, False, True),
        (0.0, 1.0, False, False),
        (-0.009, 0.0, False, False),  # less than a rate repeats
    ],
)
def test_what_is_not_worse_beyond_noise_is_promoted(
    gain: float, noise: float, better: bool, worse: bool
) -> None:
    """New jobs are no excuse for what is worse, and nor is another group that is better."""
    [found] = compared(gain, noise)
    assert (found.is_better, found.is_worse) == (better, worse)
    decisions = [decide([found], []), decide([found], ["new-job"])]
    assert [one.promote for one in decisions] == [not worse] * 2
    assert decide([*compared(0.03), found], []).promote != worse


def test_what_is_not_worse_is_promoted_since_it_is_newer() -> None:
    [found] = compared(0.0)
    assert (found.champion_percent, found.jobs, found.tests) == (10.0, 8, 56)
    assert abs(found.gain_percent - (found.champion_percent - found.challenger_percent)) < 0.002
    assert "newer points" in decide([found], []).why
    assert "new-job" in decide([found], ["new-job"]).why


@pytest.mark.parametrize("pairs", [PAIRS[:1], [("a", "b"), ("c", "d"), ("e", "f")]])
def test_few_jobs_and_few_pairs_decide_nothing(pairs: Sequence[tuple[str, str]]) -> None:
    """Two jobs drawn again show one sign only; so do three pairs that share no job."""
    found = [*compared(0.05, pairs=pairs), *compared(-0.05, pairs=pairs)]
    assert not any(one.decides or one.is_better or one.is_worse for one in found)


@settings(max_examples=10)
@given(st.floats(-0.05, 0.05))
def test_no_challenger_is_both(gain: float) -> None:
    [found], [mirrored] = compared(gain, noise=0), compared(-gain, noise=0)
    assert not (found.is_better and found.is_worse)
    assert abs(found.gain_percent + mirrored.gain_percent) < 0.002
