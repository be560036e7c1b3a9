"""When a challenger counts as better or worse, on scores that are made up."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor_training.retrain.challenger import (
    ALL,
    ComparedFigure,
    Questions,
    Scores,
    compare,
    decide,
)

JOBS = [f"job{n}" for n in range(8)]
PAIRS = tuple(itertools.combinations(JOBS, 2))


def questions(pairs: Sequence[tuple[str, str]]) -> Questions:
    """Each job of each pair left out once."""
    return Questions(
        left_out=np.array([job for pair in pairs for job in pair]),
        row=list(range(2 * len(pairs))),
        pairs=tuple(pair for pair in pairs for _ in range(2)),
    )


TESTS = questions(PAIRS)
NOISE = np.random.default_rng(0).normal(0, 0.02, len(TESTS.pairs))


def compared(
    gain: float, noise: float = 1.0, tests: Questions = TESTS
) -> tuple[ComparedFigure, ...]:
    """A challenger whose errors are smaller by a gain, each off by some noise."""
    champion = np.full(len(tests.pairs), 0.1)
    regret = np.full(len(tests.pairs), np.nan)
    challenger = champion - gain + noise * NOISE[: len(champion)]
    rivals = Scores(error=champion, regret=regret), Scores(error=challenger, regret=regret)
    return compare(rivals, tests, {ALL: np.ones(len(champion), dtype=bool)})


def test_what_is_better_beyond_noise_is_promoted() -> None:
    """The figures are those of both, and the gain is paired."""
    [found] = compared(0.03)
    assert (found.champion_percent, found.jobs, found.tests) == (10.0, 8, 56)
    assert abs(found.gain_percent - (found.champion_percent - found.challenger_percent)) < 0.002
    assert found.is_better
    assert not found.is_worse
    assert decide([found], []).promote


def test_what_is_worse_beyond_noise_is_not_promoted_whatever_it_has_seen() -> None:
    """New jobs are no excuse."""
    [found] = compared(-0.03)
    assert found.is_worse
    assert decide([found], ["new-job"]) == decide([found], [])
    assert not decide([found], ["new-job"]).promote
    better = compared(0.03)
    assert not decide([*better, found], []).promote


def test_what_is_not_worse_is_promoted_since_it_is_newer() -> None:
    """What was learned of a job cannot show where the job is left out."""
    [found] = compared(0.0)
    assert not found.is_better
    assert not found.is_worse
    assert decide([found], []).promote
    assert "newer points" in decide([found], []).why
    assert "new-job" in decide([found], ["new-job"]).why


def test_a_loss_smaller_than_a_rate_repeats_is_none() -> None:
    [found] = compared(-0.009, noise=0.0)
    assert found.high_percent < 0
    assert not found.is_worse


@pytest.mark.parametrize("pairs", [PAIRS[:1], [("a", "b"), ("c", "d"), ("e", "f")]])
def test_few_jobs_and_few_pairs_decide_nothing(pairs: Sequence[tuple[str, str]]) -> None:
    """Two jobs drawn again show one sign only; so do three pairs that share no job."""
    for gain in (0.05, -0.05):
        [found] = compared(gain, tests=questions(pairs))
        assert not found.decides
        assert not found.is_better
        assert not found.is_worse


@given(st.floats(-0.05, 0.05))
def test_no_challenger_is_both(gain: float) -> None:
    [found], [mirrored] = compared(gain, noise=0), compared(-gain, noise=0)
    assert not (found.is_better and found.is_worse)
    assert abs(found.gain_percent + mirrored.gain_percent) < 0.002
