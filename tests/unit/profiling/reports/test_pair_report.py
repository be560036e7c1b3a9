"""What a campaign says to a person: best splits, gains, what was left out, what it took."""

import io

import pytest
from rich.console import Console
from simple_pairs import SOLOS, nine, pair, solo

from advisor.core.records import DOUBTFUL, FLAGS, PairPoint, SoloPoint
from advisor_profiling.campaign.campaign import Cost
from advisor_profiling.reports import (
    PAIR_COLUMNS,
    WIDTH,
    PairResult,
    cost_text,
    left_out_text,
    nothing_to_do_text,
    pair_table,
    references,
    summarise,
    unknown_alone_text,
)

UNCAPPED = pair(100, 100, mode="uncapped", rate_1=0.6, rate_2=0.65)


def printed(results: list[PairResult]) -> list[list[str]]:
    """The lines of the table as a terminal of its width shows them, cut into words."""
    console = Console(width=WIDTH, file=io.StringIO())
    with console.capture() as capture:
        console.print(pair_table(results))
    return [line.split() for line in capture.get().splitlines()]


def test_best_split_has_the_most_work_per_joule() -> None:
    """Not the most work: at twice the power 1.6 of it is less than 1.5."""
    fast = pair(70, 30, rate_1=0.8, rate_2=0.8, power_w=200.0)
    points = [p for p in nine({30: 1.5}) if p.shares_percent[0] != 70]
    (found,) = summarise([*points, fast, UNCAPPED], SOLOS)
    assert found.best == next(p for p in points if p.shares_percent[0] == 30)
    assert (found.pair, found.windows) == (("a", "b"), 10)
    assert found.speeds == (0.75, 0.75)


def test_savings_stand_beside_those_at_equal_shares_and_without_limits() -> None:
    """A third of the energy at 1.5 of the work, a fifth uncapped, none at 50/50."""
    (found,) = summarise([*nine({30: 1.5}), UNCAPPED], SOLOS)
    assert found.saved == pytest.approx(1 / 3)
    assert found.equal_saved == pytest.approx(0)
    assert found.uncapped_saved == pytest.approx(1 - 1 / 1.25)


def test_speeds_are_relative_to_the_rates_alone() -> None:
    """A job that counts large numbers has no larger say.

    Those are means of good windows on the whole GPU; others would move every speed of their job.
    """
    solos = [solo("a", rate=1000.0), solo("b", rate=2.0)]
    points = [
        pair(30, 70, rate_1=300.0, rate_2=1.8),
        pair(70, 30, rate_1=700.0, rate_2=0.2),
    ]
    (found,) = summarise(points, solos)
    assert found.best == points[0]
    assert found.speeds == pytest.approx((0.3, 0.9))
    alone = [
        *(solo("a", rate=rate) for rate in (0.9, 1.1)),
        solo("a", rate=9.0, share_percent=50.0),
        solo("a", rate=9.0, flags=("not-settled",)),
        solo("b", rate=0.5),
        solo("b", flags=("throttled",), rate=0.5),
    ]
    (found,) = summarise([pair(50, 50)], alone)
    assert found.speeds == pytest.approx((0.5, 1.0))


def test_gain_of_an_equal_best_split_is_none_at_all() -> None:
    """Where 50/50 is the best it saves what the best one saves."""
    (found,) = summarise(nine({50: 1.5}), SOLOS)
    assert found.best is not None
    assert found.best.shares_percent[0] == 50
    assert found.saved == found.equal_saved == pytest.approx(1 / 3)


def test_repeats_of_the_equal_split_are_averaged() -> None:
    """One lucky window at 50/50 does not decide the gain."""
    equal = [pair(50, 50, rate_1=rate, rate_2=rate) for rate in (0.4, 0.6)]
    (found,) = summarise([*equal, pair(30, 70, rate_1=0.75, rate_2=0.75)], SOLOS)
    assert found.equal_saved == pytest.approx(0)


@pytest.mark.parametrize(("free_mode", "limit"), [("uncapped", "mps"), ("time-sliced", "cu_mask")])
def test_only_windows_under_limits_can_be_the_best_split(free_mode: str, limit: str) -> None:
    """No limit, and no MPS, are what a split is compared with; on AMD one is two masks."""
    free = pair(100, 100, mode=free_mode, rate_1=0.9, rate_2=0.9)
    (found,) = summarise([*nine(mode=limit), free], SOLOS)
    assert found.best is not None
    assert found.best.mode == limit
    assert found.windows == 10
    assert summarise([free], SOLOS) == [PairResult(("a", "b"), 1)]


@pytest.mark.parametrize("flag", sorted(DOUBTFUL))
def test_points_that_failed_a_check_are_left_out_of_the_table(flag: str) -> None:
    wrong = pair(10, 90, rate_1=3.0, rate_2=3.0, flags=(flag, "throttled"))
    (found,) = summarise([wrong, *nine({30: 1.5})[1:]], SOLOS)
    assert found.best is not None
    assert found.best.shares_percent[0] == 30
    assert found.windows == 8


@pytest.mark.parametrize("flag", sorted(FLAGS.keys() - DOUBTFUL))
def test_points_with_other_flags_stay(flag: str) -> None:
    """They tell of the job or the size of its error, not of a faulty window."""
    (found,) = summarise([pair(30, 70, flags=(flag,))], SOLOS)
    assert found.best is not None
    assert left_out_text([pair(30, 70, flags=(flag,))]) is None


def test_left_out_points_are_counted_by_flag() -> None:
    flags = [("failed",), ("cpu-steal", "throttled"), ("failed",), (), ("noisy-rate",)]
    points = [pair(30, 70, flags=found) for found in flags]
    assert left_out_text(points) == "left out of the table: 1 cpu-steal, 2 failed"
    assert left_out_text(points[3:]) is None
    assert left_out_text([]) is None


@pytest.mark.parametrize(
    "solos",
    [
        [],
        [solo("a")],
        [solo("a"), solo("b", share_percent=90.0)],
        [solo("a"), solo("b", rate=0.0)],
        [solo("a"), solo("b", flags=("not-settled",))],
    ],
)
def test_pair_without_known_solo_rates_shows_dashes(solos: list[SoloPoint]) -> None:
    (found,) = summarise([*nine(), UNCAPPED], solos)
    assert found == PairResult(("a", "b"), 10)
    assert printed([found])[1] == ["a", "+", "b", "10", *"-------"]


def test_points_without_power_are_no_candidates() -> None:
    (found,) = summarise([pair(30, 70, power_w=None), pair(50, 50)], SOLOS)
    assert found.best == pair(50, 50)
    assert summarise([pair(30, 70, power_w=None)], SOLOS)[0].best is None


def test_pairs_come_in_the_order_of_their_names() -> None:
    points = [pair(job_1="b", job_2="c"), pair(job_1="a", job_2="c"), pair(job_1="a", job_2="a")]
    assert [line.pair for line in summarise(points, SOLOS)] == [("a", "a"), ("a", "c"), ("b", "c")]
    assert summarise([], SOLOS) == []


def test_line_of_the_table() -> None:
    (found,) = summarise([*nine({30: 1.5}), UNCAPPED], SOLOS)
    head, line = printed([found])
    assert " ".join(head) == " ".join(PAIR_COLUMNS)
    assert line == ["a", "+", "b", "10", "30/70", "0.75", "0.75", "100",
                    "33.3", "%", "0.0", "%", "20.0", "%"]  # fmt: skip
    # Sharing that costs more than one after the other stands there with its sign.
    dear = pair(100, 100, mode="uncapped", power_w=150.0)
    assert printed(summarise([*nine(), dear], SOLOS))[1][-2:] == ["-50.0", "%"]


def test_cost_of_a_campaign() -> None:
    cost = Cost(600.0, measuring_s=480.0, window_s=300.0, starting_s=60.0, waiting_s=6.0, starts=24)
    assert cost_text(cost, 100) == (
        "100 pair points in 10.0 GPU-minutes: 6.0 GPU-seconds a pair point, 24 starts, "
        "80 % of the time measuring (50 % in windows, the rest settling), 10 % starting, "
        "1 % waiting for other GPUs"
    )
    # No point is not a point of no cost: nothing is divided by zero.
    assert cost_text(Cost(), 0) == "nothing was measured"
    spent = Cost(duration_s=60.0, starts=3)
    assert cost_text(spent, 0) == "no pair was measured in 1.0 GPU-minutes"


def test_campaign_with_nothing_to_do_says_why() -> None:
    """A finished campaign is not called one in which nothing was measured."""
    assert nothing_to_do_text(88, 0, dry_run=False) == "all 88 windows were measured before"
    assert nothing_to_do_text(88, 5, dry_run=True) == "dry run: nothing was measured"
    assert nothing_to_do_text(88, 5, dry_run=False) is None
    assert nothing_to_do_text(0, 0, dry_run=False) is None


def test_lucky_window_is_not_the_best() -> None:
    """Windows of one split and card are averaged before one is chosen."""
    lucky = [pair(30, 70, rate_1=rate, rate_2=rate) for rate in (0.2, 0.9)]
    steady = [pair(40, 60, rate_1=0.6, rate_2=0.6)] * 2
    (found,) = summarise([*lucky, *steady], SOLOS)
    assert found.best == steady[0]
    assert found.windows == 4


@pytest.mark.parametrize("others", [[], [pair(50, 50, gpu_uuid="GPU-2")]])
def test_what_was_not_measured_on_the_card_has_no_gain(others: list[PairPoint]) -> None:
    """Another card's 50/50 is no reference."""
    (found,) = summarise([pair(30, 70, rate_1=0.9, rate_2=0.9), *others], SOLOS)
    assert found.best is not None
    assert (found.equal_saved, found.uncapped_saved) == (None, None)
    assert printed([found])[1][-2:] == ["-", "-"]


@pytest.mark.parametrize("units", [{}, {"units_1": 92, "units_2": 92}])
def test_over_subscribed_split_is_not_the_best(units: dict[str, int]) -> None:
    """Its windows are counted all the same."""
    both = pair(70, 70, rate_1=1.0, rate_2=1.0, **units)
    (found,) = summarise([both, pair(50, 50)], SOLOS)
    assert found.best == pair(50, 50)
    assert found.windows == 2


def test_rates_alone_of_other_runs_fill_gaps_only() -> None:
    """The newest good one of each job that the run has not measured alone."""
    own = [solo("a", rate=2.0), solo("b", flags=("failed",))]
    new = solo("b", rate=4.0, started_at="2026-02-02T12:00:00Z")
    others = [
        new,
        solo("b", rate=3.0),
        solo("b", flags=("not-settled",), started_at="2026-02-03T12:00:00Z"),
        solo("b", share_percent=50.0, started_at="2026-02-03T12:00:00Z"),
        solo("a", rate=9.0, started_at="2026-02-03T12:00:00Z"),
    ]
    assert references(own, others) == [*own, new]
    assert unknown_alone_text([pair()], references(own, others)) == []


def test_job_without_a_rate_alone_is_named() -> None:
    """With the command that measures it."""
    assert unknown_alone_text([pair(), pair()], [solo("a"), solo("b", rate=0.0)]) == [
        "no rate and power of b alone at 100 % are known: advisor profile b"
    ]
