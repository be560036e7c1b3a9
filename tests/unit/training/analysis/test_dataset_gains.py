"""What the oracle gains, where sharing loses, and what finer splits add."""

import random
from collections.abc import Callable

import pytest
import synthetic_pairs as made_up
from hypothesis import assume, given
from hypothesis import strategies as st
from made_up_results import pair_result
from simple_pairs import SOLOS, nine, pair, solo

from advisor.core.objectives import OBJECTIVES, SplitResult
from advisor.core.records import PairPoint
from advisor_training.analysis.gains import (
    BASELINES,
    Bin,
    gain,
    histogram,
    job_gains,
    oracle_value,
    relative,
)
from advisor_training.analysis.grid import grid_gain
from advisor_training.analysis.losses import losses
from advisor_training.dataset.pairs import MeasuredPair, make_pairs

THROUGHPUT = OBJECTIVES["throughput"]
FLAT = dict.fromkeys(range(10, 100, 10), 1.0)


def pairs_of(points: list[PairPoint]) -> list[MeasuredPair]:
    """Pairs of the jobs "a" and "b"."""
    return make_pairs(points, SOLOS)[0]


def busier(job: str | None) -> Callable[[MeasuredPair], str | None]:
    """The same job for every pair."""
    return lambda _pair: job


def bins(points: list[PairPoint], job: str | None = "a", tie: float = 0.0) -> dict[int, Bin]:
    """The histogram's bins that are not empty."""
    found = histogram(pairs_of(points), THROUGHPUT, tie, busier(job))
    assert sum(b.to_busier + b.to_other + b.undirected for b in found) == len(pairs_of(points))
    return {b.larger_share_percent: b for b in found if b.to_busier or b.to_other or b.undirected}


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
def test_the_oracle_is_the_best_of_the_construction(name: str) -> None:
    """What is found in the points is what their rules say is best."""
    pairs, _ = make_pairs(made_up.pair_points(), made_up.solo_points())
    jobs = {job.name: job for job in made_up.JOBS}
    for found in pairs:
        job_a, job_b = (jobs[name] for name in found.jobs)
        values: list[float] = []
        for split in made_up.NINE:
            a, b, power_w = made_up.speeds_and_power(job_a, job_b, "mps", *split)
            result = made_up_result(job_a, job_b, a, b, power_w)
            values.append(OBJECTIVES[name].value(result))
        assert oracle_value(found.main.nine, OBJECTIVES[name]) == pytest.approx(max(values))


def made_up_result(
    job_a: made_up.MadeUpJob,
    job_b: made_up.MadeUpJob,
    speed_a: float,
    speed_b: float,
    power_w: float,
) -> SplitResult:
    """A result from relative speeds."""
    alone_w = [min(made_up.POWER_LIMIT_W, made_up.IDLE_W + j.power_w) for j in (job_a, job_b)]
    return pair_result(
        rate_a=job_a.rate * speed_a,
        rate_b=job_b.rate * speed_b,
        solo_rate_a=job_a.rate,
        solo_rate_b=job_b.rate,
        solo_power_a_w=alone_w[0],
        solo_power_b_w=alone_w[1],
        power_w=power_w,
    )


def test_a_planted_best_split_is_found() -> None:
    """A job that needs a tenth of the GPU next to one that uses all it gets: 90 for the second."""
    pairs, _ = make_pairs(
        made_up.pair_points([(made_up.SITTER, made_up.CLIMBER)]), made_up.solo_points()
    )
    found = relative(pairs[0], THROUGHPUT, 0.0, None)
    assert (pairs[0].jobs[0], found.best_split, found.beyond_noise) == ("climber", "90/10", True)
    assert found.oracle_percent == pytest.approx(100 * (1.89 / 1.5 - 1), abs=1)


def test_gains_by_hand() -> None:
    """Mean, median, extremes and lost pairs, over each baseline."""
    uncapped = pair(100, 100, mode="uncapped", rate_1=0.2, rate_2=0.2)
    sliced = pair(100, 100, mode="time-sliced", rate_1=1.0, rate_2=1.0)
    points = [
        *nine({**FLAT, 20: 1.5}),
        uncapped,
        sliced,
        *nine({**FLAT, 80: 1.2}, job_2="a"),
    ]
    over_equal = gain(pairs_of(points), THROUGHPUT, "equal", 0.0)
    assert (over_equal.pairs, over_equal.zero_pairs, over_equal.loses_percent) == (2, 0, 0)
    # A job next to itself is at 20/80 what it is at 80/20: the median of 1.0 and 1.2.
    assert over_equal.mean_percent == pytest.approx((50 + 10) / 2)
    assert over_equal.median_percent == pytest.approx(30)
    assert over_equal.most_percent == pytest.approx(50)
    assert over_equal.least_percent == pytest.approx(10)
    over_uncapped = gain(pairs_of(points), THROUGHPUT, "uncapped", 0.0)
    assert (over_uncapped.pairs, over_uncapped.mean_percent) == (1, pytest.approx(275))
    over_sliced = gain(pairs_of(points), THROUGHPUT, "time-sliced", 0.0)
    assert (over_sliced.mean_percent, over_sliced.loses_percent) == (pytest.approx(-25), 100)
    over_exclusive = gain(pairs_of(points), THROUGHPUT, "exclusive", 0.0)
    assert over_exclusive.mean_percent == pytest.approx((50 + 10) / 2)


def test_a_baseline_that_nobody_measured_has_no_gain() -> None:
    """A mean over nothing is None, not 0."""
    found = gain(pairs_of(nine()), THROUGHPUT, "uncapped", 0.0)
    assert (found.pairs, found.mean_percent, found.loses_percent) == (0, None, None)


def test_a_baseline_worth_nothing_is_counted_apart() -> None:
    """Uncapped sharing that starves a job makes no endless gain."""
    starved = pair(100, 100, mode="uncapped", rate_1=0.0)
    found = gain(pairs_of([*nine(), starved]), OBJECTIVES["max-min"], "uncapped", 0.0)
    assert (found.pairs, found.zero_pairs, found.mean_percent) == (1, 1, None)
    value = relative(pairs_of([*nine(), starved])[0], OBJECTIVES["max-min"], 0.0, None)
    assert value.uncapped_percent == -100


def test_a_baseline_of_another_run_is_compared_within_that_run() -> None:
    """Where the fullest run lacks a baseline, another run that has both stands in."""
    points = [
        *nine({**FLAT, 20: 1.5}, run="r1"),
        pair(70, 70, run="r1", units_1=92, units_2=92),
        pair(80, 80, run="r1", units_1=92, units_2=92),
        *nine({**FLAT, 20: 2.0}, run="r2"),
        pair(100, 100, mode="uncapped", run="r2"),
    ]
    found = pairs_of(points)
    assert found[0].main.run == "r1"
    assert gain(found, THROUGHPUT, "equal", 0.0).mean_percent == pytest.approx(50)
    assert gain(found, THROUGHPUT, "uncapped", 0.0).mean_percent == pytest.approx(100)


def test_a_pair_that_was_repeated_counts_once() -> None:
    """Repeats are for the noise; they give a pair no second vote."""
    points = [*nine({**FLAT, 20: 1.5}, run="r1"), *nine({**FLAT, 20: 1.5}, run="r2")]
    found = [gain(pairs_of(points), THROUGHPUT, name, 0.0) for name in BASELINES]
    assert [over.pairs for over in found] == [1, 0, 0, 1]


def test_gains_by_job_as_the_paper_averages() -> None:
    """First the mean part of the oracle over a job's pairs, then the gain, then over jobs."""
    points = [*nine({**FLAT, 20: 2.0}), *nine(job_2="a")]
    found = job_gains(pairs_of(points), THROUGHPUT)
    assert found is not None
    # Job a: 50/50 is 0.5 and 1 of the oracle, on average 0.75. Job b: 0.5.
    assert found.jobs == 2
    assert found.least_percent == pytest.approx(100 * (1 / 0.75 - 1))
    assert found.most_percent == pytest.approx(100)
    assert found.mean_percent == pytest.approx((100 + 100 / 3) / 2)


@pytest.mark.parametrize(
    ("share_a", "job", "direction"),
    [
        (80, "a", "to_busier"),
        (80, "b", "to_other"),
        (20, "a", "to_other"),
        (20, "b", "to_busier"),
        (80, None, "undirected"),
    ],
)
def test_the_histogram_tells_who_gets_more(share_a: int, job: str | None, direction: str) -> None:
    """Which name comes first says nothing; which job is busier does."""
    found = bins(nine({**FLAT, share_a: 2.0}), job)
    assert [*found] == [80]
    assert getattr(found[80], direction) == 1


def test_a_job_beside_itself_has_no_direction() -> None:
    """Both are equally busy."""
    assert bins(nine({**FLAT, 30: 2.0, 70: 2.0}, job_2="a"))[70].undirected == 1


def test_a_gain_within_the_noise_is_a_tie() -> None:
    """3 % more at 20/80 counts for 50/50 when the noise is 5 %, and for 20/80 when it is 1 %."""
    points = nine({**FLAT, 20: 1.03})
    assert [*bins(points, tie=0.05)] == [50]
    assert [*bins(points, tie=0.01)] == [80]
    found = pairs_of(points)[0]
    assert not relative(found, THROUGHPUT, 0.05, "a").beyond_noise
    assert relative(found, THROUGHPUT, 0.01, "a").beyond_noise
    assert relative(found, THROUGHPUT, 0.05, "a").best_split == "20/80"
    directions = [
        relative(found, THROUGHPUT, 0.01, busier).direction for busier in ("a", "b", None)
    ]
    assert directions == ["to_other", "to_busier", "undirected"]
    assert relative(found, THROUGHPUT, 0.05, "a").direction == "undirected"


def test_a_pair_that_loses_when_shared_is_listed() -> None:
    """Two jobs that each need all of the memory's bandwidth do more one after the other."""
    pairs, _ = make_pairs(made_up.pair_points(), made_up.solo_points())
    found = losses(pairs, THROUGHPUT, 0.0)
    assert [loss.jobs for loss in found] == [("hog", "hog")]
    assert found[0].solo_source == "same card"
    assert 0 < found[0].loss_percent < 100


def test_losses_by_hand() -> None:
    """The best of every split under limits and of uncapped; time slices do not count."""
    weak = nine(dict.fromkeys(FLAT, 0.5))
    over = pair(70, 70, rate_1=0.3, rate_2=0.3, units_1=92, units_2=92)
    free = pair(100, 100, mode="uncapped", rate_1=0.4, rate_2=0.4)
    sliced = pair(100, 100, mode="time-sliced", rate_1=0.9, rate_2=0.9)
    for points, best_shared, loss_percent in (
        ([*weak, over, sliced], "70/70", 40),
        ([*weak, over, free], "uncapped", 20),
    ):
        (found,) = losses(pairs_of(points), THROUGHPUT, 0.0)
        assert found.best_shared == best_shared
        assert found.loss_percent == pytest.approx(loss_percent)
    assert losses(pairs_of(nine()), THROUGHPUT, 0.0) == ()


@given(worth=st.floats(0.5, 1.5), tie=st.floats(0, 0.5))
def test_a_loss_within_the_noise_is_a_tie(worth: float, tie: float) -> None:
    """Both counts of losses ask for more than the noise, as gains over 50/50 do."""
    assume(abs(worth - (1 - tie)) > 1e-9)
    pairs = pairs_of(nine(dict.fromkeys(FLAT, worth)))
    lost = worth < 1 - tie
    assert len(losses(pairs, THROUGHPUT, tie)) == lost
    assert gain(pairs, THROUGHPUT, "exclusive", tie).loses_percent == 100 * lost


def test_noise_alone_makes_no_losses() -> None:
    """Pairs that are worth exactly what one after the other is, measured with noise."""
    dice = random.Random("losses")
    solos = [solo(f"j{n}", rate=1 + 0.012 * dice.gauss()) for n in range(40)]
    points = [
        point for n in range(0, 40, 2) for point in nine(FLAT, job_1=f"j{n}", job_2=f"j{n + 1}")
    ]
    pairs, _ = make_pairs(points, solos)
    assert len(losses(pairs, THROUGHPUT, 0.0)) > 3
    assert losses(pairs, THROUGHPUT, 0.039) == ()
    assert gain(pairs, THROUGHPUT, "exclusive", 0.039).loses_percent == 0


def test_the_worst_loss_comes_first() -> None:
    """A reader of a few lines reads the ones that matter."""
    solos = [*SOLOS, solo("c")]
    points = [
        *nine(dict.fromkeys(FLAT, 0.9)),
        *nine(dict.fromkeys(FLAT, 0.3), job_2="c"),
    ]
    found = losses(make_pairs(points, solos)[0], THROUGHPUT, 0.0)
    assert [loss.jobs[1] for loss in found] == ["c", "b"]


def test_what_a_finer_grid_adds() -> None:
    """The best of all against the best of the nine; never less than nothing."""
    counted = {"units_a": 14, "units_b": 118}
    better = [*nine(), pair(11, 90, rate_1=0.6, rate_2=0.6, **counted)]
    worse = [*nine(job_2="a"), pair(11, 90, job_2="a", rate_1=0.1, rate_2=0.1, **counted)]
    found = grid_gain(pairs_of([*better, *worse]), THROUGHPUT, 0.1)
    assert found is not None
    assert (found.pairs, found.above_noise_pairs) == (2, 1)
    assert found.mean_percent == pytest.approx(10)
    assert found.most_percent == pytest.approx(20)
    unsure = grid_gain(pairs_of(better), THROUGHPUT, 0.2)
    assert unsure is not None
    assert unsure.above_noise_pairs == 0
    assert grid_gain(pairs_of(nine()), THROUGHPUT, 0.0) is None


def test_the_made_up_grid_is_read_as_one() -> None:
    """Exact counts of units that add up to the whole GPU, and 66/66, which is 50/50."""
    both = (made_up.MIDDLE, made_up.SLOW)
    points = made_up.pair_points([both]) + made_up.grid_points(*both, range(20, 120, 2))
    pairs, _ = make_pairs(points, made_up.solo_points())
    assert len(pairs[0].main.splits["grid"]) == 49
    found = grid_gain(pairs, THROUGHPUT, 0.0)
    assert found is not None
    assert 0 < found.most_percent < 5
