"""Tables of pairs and sets: best splits, speeds, savings, what was left out, what it took."""

import io
from typing import Any

import pytest
from flat_records import from_flat
from rich.console import Console
from rich.table import Table
from simple_pairs import SOLOS, nine, pair, solo

from advisor.core.records import DOUBTFUL, FLAGS, PairPoint, SoloPoint
from advisor_profiling.campaign.campaign import Cost
from advisor_profiling.reports import (
    PAIR_COLUMNS,
    SET_COLUMNS,
    WIDTH,
    PairResult,
    SetResult,
    cost_text,
    left_out_text,
    nothing_to_do_text,
    pair_table,
    references,
    set_table,
    unknown_alone_text,
)

UNCAPPED = pair(100, 100, mode="uncapped", rate_1=0.6, rate_2=0.65)


def printed(table: Table) -> list[list[str]]:
    """The lines of a table as a terminal of its width shows them, cut into words."""
    console = Console(width=WIDTH, file=io.StringIO())
    with console.capture() as capture:
        console.print(table)
    return [line.split() for line in capture.get().splitlines()]


FAST = pair(70, 30, rate_1=0.8, rate_2=0.8, power_w=200.0)
EQUAL = [pair(50, 50, rate_1=rate, rate_2=rate) for rate in (0.4, 0.6)]
STEADY = [pair(40, 60, rate_1=0.6, rate_2=0.6)] * 2
OVER = {"rate_1": 1.0, "rate_2": 1.0}


@pytest.mark.parametrize(
    ("points", "best", "windows"),
    [
        # Not the most work: at twice the power 1.6 of it is less than 1.5.
        ([*nine({30: 1.5}), FAST, UNCAPPED], 30, 11),
        ([*[pair(30, 70, rate_1=rate, rate_2=rate) for rate in (0.2, 0.9)], *STEADY], 40, 4),
        # Over-subscribed splits are counted, and are never the best.
        ([pair(70, 70, **OVER), pair(50, 50)], 50, 2),
        ([pair(70, 70, units_1=92, units_2=92, **OVER), pair(50, 50)], 50, 2),
        ([pair(30, 70, power_w=None), pair(50, 50)], 50, 2),
        ([pair(30, 70, power_w=None)], None, 1),
        ([UNCAPPED], None, 1),
        *(([pair(flags=(flag,), **OVER), *nine({30: 1.5})[1:]], 30, 8) for flag in DOUBTFUL),
        *(([pair(30, 70, flags=(flag,))], 30, 1) for flag in sorted(FLAGS.keys() - DOUBTFUL)),
    ],
)
def test_best_split_has_the_most_work_per_joule(
    points: list[PairPoint], best: int | None, windows: int
) -> None:
    """Windows of a split and card are averaged; windows that failed a check are left out."""
    (found,) = PairResult.of(points, SOLOS)
    assert (found.best and found.best.shares_percent[0], found.windows) == (best, windows)


@pytest.mark.parametrize(
    ("points", "saved", "equal", "uncapped"),
    [
        ([*nine({30: 1.5}), UNCAPPED], 1 / 3, 0, 1 - 1 / 1.25),
        (nine({50: 1.5}), 1 / 3, 1 / 3, None),
        # One lucky window at 50/50 does not decide the gain.
        (
            [*EQUAL, *STEADY],
            1 / 6,
            0,
            None,
        ),
        # The 50/50 of another card is no reference.
        ([*STEADY, pair(50, 50, gpu_uuid="GPU-2")], 1 / 6, None, None),
    ],
)
def test_savings_stand_beside_those_at_equal_shares_and_without_limits(
    points: list[PairPoint], saved: float, equal: float | None, uncapped: float | None
) -> None:
    (found,) = PairResult.of(points, SOLOS)
    assert [found.saved, found.equal_saved, found.uncapped_saved] == [
        value if value is None else pytest.approx(value) for value in (saved, equal, uncapped)
    ]


def test_speeds_are_relative_to_the_rates_alone() -> None:
    """A job that counts large numbers has no larger say.

    Rates alone are means of good windows on the whole GPU.
    """
    solos = [solo("a", rate=1000.0), solo("b", rate=2.0)]
    points = [
        pair(30, 70, rate_1=300.0, rate_2=1.8),
        pair(70, 30, rate_1=700.0, rate_2=0.2),
    ]
    (found,) = PairResult.of(points, solos)
    assert (found.best, found.speeds) == (points[0], pytest.approx((0.3, 0.9)))
    alone = [
        *(solo("a", rate=rate) for rate in (0.9, 1.1)),
        solo("a", rate=9.0, share_percent=50.0),
        solo("a", rate=9.0, flags=("not-settled",)),
        solo("b", rate=0.5),
        solo("b", flags=("throttled",), rate=0.5),
    ]
    (found,) = PairResult.of([pair(50, 50)], alone)
    assert found.speeds == pytest.approx((0.5, 1.0))


@pytest.mark.parametrize(("free_mode", "limit"), [("uncapped", "mps"), ("time-sliced", "cu_mask")])
def test_only_windows_under_limits_can_be_the_best_split(free_mode: str, limit: str) -> None:
    """On AMD a limit is two masks."""
    free = pair(100, 100, mode=free_mode, rate_1=0.9, rate_2=0.9)
    (found,) = PairResult.of([*nine(mode=limit), free], SOLOS)
    assert (found.best and found.best.mode, found.windows) == (limit, 10)


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (
            [("failed",), ("cpu-steal", "throttled"), ("failed",), (), ("noisy-rate",)],
            "left out of the table: 1 cpu-steal, 2 failed",
        ),
        ([(), ("noisy-rate",)], None),
    ],
)
def test_left_out_points_are_counted_by_flag(
    flags: list[tuple[str, ...]], text: str | None
) -> None:
    assert left_out_text([pair(30, 70, flags=found) for found in flags]) == text


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
    (found,) = PairResult.of([*nine(), UNCAPPED], solos)
    assert found == PairResult(("a", "b"), 10)
    assert printed(pair_table([found]))[1] == ["a", "+", "b", "10", *"-------"]


def test_lines_of_the_table() -> None:
    """In the order of names; sharing that costs more than one after the other has its sign."""
    dear = pair(100, 100, mode="uncapped", power_w=150.0, job_1="a", job_2="a")
    found = PairResult.of([*nine({30: 1.5}), UNCAPPED, pair(job_1="a", job_2="a"), dear], SOLOS)
    head, *lines = printed(pair_table(found))
    assert " ".join(head) == " ".join(name for name, _ in PAIR_COLUMNS)
    assert [line[:3] for line in lines] == [["a", "+", "a"], ["a", "+", "b"]]
    assert lines[0][-2:] == ["-50.0", "%"]
    assert lines[1][3:] == ["10", "30/70", "0.75", "0.75", "100",
                            "33.3", "%", "0.0", "%", "20.0", "%"]  # fmt: skip


COST = Cost(600.0, measuring_s=480.0, window_s=300.0, starting_s=60.0, waiting_s=6.0, starts=24)


@pytest.mark.parametrize(
    ("cost", "pairs", "text"),
    [
        (
            COST,
            100,
            "100 pair points in 10.0 GPU-minutes: 6.0 GPU-seconds a pair point, 24 starts, "
            "80 % of the time measuring (50 % in windows, the rest settling), 10 % starting, "
            "1 % waiting for other GPUs",
        ),
        (Cost(), 0, "nothing was measured"),
        (Cost(duration_s=60.0, starts=3), 0, "no pair was measured in 1.0 GPU-minutes"),
    ],
)
def test_cost_of_a_campaign(cost: Cost, pairs: int, text: str) -> None:
    assert cost_text(cost, pairs) == text


@pytest.mark.parametrize(
    ("windows", "to_measure", "dry_run", "text"),
    [
        (88, 0, False, "all 88 windows were measured before"),
        (88, 5, True, "dry run: nothing was measured"),
        (88, 5, False, None),
        (0, 0, False, None),
    ],
)
def test_campaign_with_nothing_to_do_says_why(
    windows: int, to_measure: int, dry_run: bool, text: str | None
) -> None:
    assert nothing_to_do_text(windows, to_measure, dry_run=dry_run) == text


def test_rates_alone_of_other_runs_fill_gaps_only() -> None:
    """The newest good one of each job without a rate; a job without any is named."""
    own = [solo("a", rate=2.0), solo("b", flags=("failed",))]
    new = solo("b", rate=4.0, started_at="2026-02-02T12:00:00Z")
    later = {"started_at": "2026-02-03T12:00:00Z"}
    others = [
        new,
        solo("b", rate=3.0),
        solo("b", flags=("not-settled",), **later),
        solo("b", share_percent=50.0, **later),
        solo("a", rate=9.0, **later),
    ]
    assert references(own, others) == [*own, new]
    assert unknown_alone_text([pair()], references(own, others)) == []
    assert unknown_alone_text([pair(), pair()], [solo("a"), solo("b", rate=0.0)]) == [
        "no rate and power of b alone at 100 % are known: advisor profile b"
    ]


ALONE = [solo("a"), solo("b", rate=2.0, power_w=200.0)]


def three(**fields: Any) -> PairPoint:
    """Two of "a" at 0.5 and 0.6, "b" at 0.75 of its rate alone, on one card at 200 W."""
    values: dict[str, Any] = {
        "job_1": "a", "job_2": "a", "job_3": "b",
        "share_1_percent": 100.0, "share_2_percent": 100.0, "share_3_percent": 100.0,
        "rate_1": 0.5, "rate_2": 0.6, "rate_3": 1.5,
        "power_w": 200.0, "idle_power_w": 10.0, "mode": "uncapped",
        "gpu_model": "Card", "gpu_uuid": "GPU-1", "window_s": 5.0,
        "started_at": "2026-01-31T12:00:00Z", "run": "r1",
    }  # fmt: skip
    return from_flat(PairPoint, **{**values, **fields})


def test_same_work_on_a_card_each() -> None:
    """(0.5 + 0.6) at 100 W and 0.75 at 200 W are 260 W; two cards become free, at 10 W each."""
    (found,) = SetResult.of([three()], ALONE)
    assert ([part.job for part in found.parts], found.speeds) == (["a", "a", "b"], (0.5, 0.6, 0.75))
    assert (found.slowest, found.p99_ms, found.windows) == (0.5, None, 1)
    assert found.saved_off == pytest.approx(1 - 200 / 260)
    assert found.saved_idle == pytest.approx(1 - 220 / 260)
    (unread,) = SetResult.of([three(idle_power_w=None)], ALONE)
    assert (unread.saved_off, unread.saved_idle) == (found.saved_off, None)


def test_windows_of_one_set_and_card_are_averaged() -> None:
    """Those of other limits, cards and ways of sharing are lines of their own."""
    points = [
        three(),
        three(rate_1=0.7, power_w=220.0, latency_p99_3_ms=9.0),
        three(share_3_percent=50.0, mode="mps"),
        three(gpu_uuid="GPU-2"),
        three(mode="time-sliced"),
    ]
    found = SetResult.of(points, ALONE)
    assert len(found) == 4
    mean = next(r for r in found if r.windows == 2)
    assert (mean.speeds[0], mean.power_w, mean.p99_ms) == (pytest.approx(0.6), 210.0, 9.0)


@pytest.mark.parametrize(
    ("fields", "alone"),
    [
        ({"flags": ("failed",), "error": "gone"}, ALONE),
        ({"power_w": None}, ALONE),
        ({"rate_2": None}, ALONE),
        ({}, ALONE[:1]),
    ],
)
def test_what_failed_is_in_no_line(fields: dict[str, Any], alone: list[SoloPoint]) -> None:
    assert SetResult.of([three(**fields)], alone) == []


MOVING = {"flags": ("not-settled", "noisy-rate")}
SERVED = {"offered_rate_3": 2.0, "rate_3": 2.1, "latency_p99_3_ms": 40.0}


@pytest.mark.parametrize(
    ("fields", "alone", "speeds", "p99_ms"),
    [
        # Rates that never get flat: without them most sets of small jobs would have no line.
        (MOVING, [solo("a", **MOVING), ALONE[1]], [0.5, 0.6, 0.75], None),
        # Noise in arrivals is no speed; the tail of a set is the longest of its servers.
        ({**SERVED, "offered_rate_1": 1.0, "latency_p99_1_ms": 7.0}, ALONE, [0.5, 0.6, 1], 40),
    ],
)
def test_unsettled_and_served_sets(
    fields: dict[str, Any], alone: list[SoloPoint], speeds: list[float], p99_ms: float | None
) -> None:
    (found,) = SetResult.of([three(**fields)], alone)
    assert ([*found.speeds], found.p99_ms) == (speeds, p99_ms)


def test_table_names_copies_once_and_limits_with_their_job() -> None:
    limited = three(share_3_percent=50.0, mode="mps", latency_p99_3_ms=12.4)
    assert printed(set_table(SetResult.of([three(), limited], ALONE))) == [
        line.split()
        for line in (
            " ".join(name for name, _ in SET_COLUMNS),
            "2 x a 0.50, 0.60 + b@50 0.75 limits 200 0.50 12 23.1 % 15.4 %",
            "2 x a 0.50, 0.60 + b 0.75 uncapped 200 0.50 - 23.1 % 15.4 %",
        )
    ]
