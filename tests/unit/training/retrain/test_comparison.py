"""When a challenger counts as better or worse, on scores that are made up."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from advisor_training.retrain.comparison import ALL, Compared, compare, decide
from advisor_training.retrain.rivals import Questions, Scores

JOBS = [f"job{n}" for n in range(8)]
PAIRS = tuple(itertools.combinations(JOBS, 2))
TESTS = Questions(
    left_out=np.array([job for pair in PAIRS for job in pair]),
    row=list(range(2 * len(PAIRS))),
    pairs=tuple(pair for pair in PAIRS for _ in range(2)),
)
NOISE = np.random.default_rng(0).normal(0, 0.02, len(TESTS.pairs))


def compared(gain: float, noise: float = 1.0, tests: Questions = TESTS) -> tuple[Compared, ...]:
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


def test_noise_promotes_nothing_but_what_has_seen_more() -> None:
    """No better: the champion stays, unless the challenger knows jobs that it does not."""
    [found] = compared(0.0)
    assert not found.is_better
    assert not found.is_worse
    assert not decide([found], []).promote
    assert decide([found], ["new-job"]).promote


def test_a_loss_smaller_than_a_rate_repeats_is_none() -> None:
    """However sure it is."""
    [found] = compared(-0.009, noise=0.0)
    assert found.high_percent < 0
    assert not found.is_worse


def test_few_jobs_decide_nothing() -> None:
    """Two jobs drawn again show one sign only."""
    few = Questions(left_out=TESTS.left_out[:2], row=[0, 1], pairs=TESTS.pairs[:2])
    for gain in (0.05, -0.05):
        [found] = compared(gain, tests=few)
        assert not found.decides
        assert not found.is_better
        assert not found.is_worse


@given(st.floats(-0.05, 0.05))
def test_no_challenger_is_both(gain: float) -> None:
    """And swapping champion and challenger swaps the sign."""
    [found], [mirrored] = compared(gain, noise=0), compared(-gain, noise=0)
    assert not (found.is_better and found.is_worse)
    assert abs(found.gain_percent + mirrored.gain_percent) < 0.002
