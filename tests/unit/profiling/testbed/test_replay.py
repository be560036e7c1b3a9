"""Recorded points through the whole path of a sweep."""

import dataclasses
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from pair_points import pair_point
from store_points import point
from watching import Watching

from advisor.core.gpu import Share
from advisor.core.records import Counters, PairPoint, SoloPoint
from advisor.core.telemetry import ENERGY_GPU, POWER_GPU
from advisor.errors import InputError, JobError
from advisor_data import open_store
from advisor_profiling.campaign.campaign import SweepResult, measure_target, sweep
from advisor_profiling.testbed import JobAtShare, Recordings, ReplayTestbed
from advisor_profiling.window import ProcessSpec, Target, pair, rules_for, solo

COUNTERS = {field.name: 11.0 + n for n, field in enumerate(dataclasses.fields(Counters))}


def recorded(share: float, **fields: Any) -> SoloPoint:
    """A point with every reading there is."""
    readings: dict[str, Any] = {
        "rate_unit": "images",
        "rate": 4 * share,
        "power_w": 100 + 5 * share,
        "idle_power_w": 76.0,
        "active_idle_power_w": 126.0,
        "units_granted": int(share),
        "units_total": 132,
        "sm_clock_mhz": 1980.0,
        "memory_clock_mhz": 3201.0,
        "temperature_c": 41.0,
        "power_limit_w": 700.0,
        "memory_used_mib": 3000.0,
        "job_cpu_percent": 50.0,
        "throttled": False,
        "driver": "580",
        **COUNTERS,
    }
    return point(share_percent=share, **{**readings, **fields})


def replay(points: list[SoloPoint], folder: Path, *shares: float) -> SweepResult:
    """Replay the shares of the first recorded job."""
    testbed = ReplayTestbed(points)
    job = testbed.jobs[points[0].job]
    targets = [solo(job, Share(share)) for share in shares]
    with open_store(None, folder) as store:
        return sweep(targets, "r9", testbed, store, Watching(), rules_for(0.5))


def test_recorded_values_come_back(tmp_path: Path) -> None:
    """Of the newest recording; a point that failed a check fails it again."""
    points = [
        recorded(20.0),
        recorded(50.0, counter_power_w=400.0),
        recorded(100.0, throttled=True),
    ]
    older = recorded(50.0, rate=1.0, started_at="2026-01-01T00:00:00Z")
    found = replay([older, *points, older], tmp_path, 100, 20, 50)
    assert (found.idle_before_w, found.idle_after_w) == pytest.approx((76, 76))
    again = sorted(found.points, key=lambda p: p.share_percent)
    for then, now in zip(points, again, strict=True):
        same = (*COUNTERS, "job", "rate_unit", "units_granted", "units_total", "throttled",
                "sm_clock_mhz", "memory_clock_mhz", "temperature_c", "power_limit_w",
                "memory_used_mib", "gpu_model", "gpu_uuid", "mode", "driver")  # fmt: skip
        assert {k: getattr(now, k) for k in same} == {k: getattr(then, k) for k in same}
        counted_w = then.counter_power_w or then.power_w
        assert (now.rate, now.power_w, now.counter_power_w, now.job_cpu_percent) == (
            pytest.approx((then.rate, then.power_w, counted_w, 50), rel=0.01)
        )
        assert now.source == "replay"
    assert [p.flags for p in again] == [(), ("counter-mismatch",), ("throttled",)]


@settings(max_examples=20, deadline=None)
@given(rate=st.floats(0.01, 1e6), power_w=st.floats(20, 1400))
def test_any_rate_and_power_come_back(rate: float, power_w: float) -> None:
    """A job of a step a minute and one of a million a second are replayed alike."""
    testbed = ReplayTestbed([recorded(50.0, rate=rate, power_w=power_w)])
    process = testbed.start(testbed.jobs["gemm"], Share(50))
    process.go()
    before = np.array([process.count(), testbed.source.read((ENERGY_GPU,))[ENERGY_GPU]])
    testbed.clock.sleep(10.0)
    after = np.array([process.count(), testbed.source.read((ENERGY_GPU,))[ENERGY_GPU]])
    assert after - before == pytest.approx(np.array([10 * rate, 10 * power_w]), rel=0.02)


@settings(max_examples=5, deadline=None)
@given(rate=st.floats(0.05, 1e4), p50_ms=st.floats(0.02, 1e4), slower=st.floats(1, 100))
def test_latencies_and_demand_come_back(
    rate: float, p50_ms: float, slower: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A server is replayed with its percentiles, which are one bucket wide, at any rate."""
    of_server = {"latency_p50_ms": p50_ms, "latency_p99_ms": p50_ms * slower}
    then = recorded(50.0, rate=rate, offered_rate=2 * rate, **of_server)
    (now,) = replay([then], tmp_path_factory.mktemp("replay"), 50).points
    assert now.offered_rate == 2 * rate
    assert (now.latency_p50_ms, now.latency_p99_ms) == pytest.approx(
        (p50_ms, min(p50_ms * slower, 59_000)), rel=0.026
    )


def test_missing_readings_stay_missing(tmp_path: Path) -> None:
    unknown = pair_point(30.0, 70.0, power_w=None, power_stderr_w=5.0)
    testbed = ReplayTestbed(ALONE, [unknown], noise="seed")
    assert [power_w for _, power_w in show(testbed, THIRTY_SEVENTY)] == [None]
    (now,) = replay([point(share_percent=30.0)], tmp_path, 30).points
    readings = ("offered_rate", "latency_p50_ms", "latency_p99_ms",
                "power_w", "counter_power_w", "idle_power_w", "throttled", "units_granted",
                "memory_used_mib", "job_cpu_percent", *COUNTERS)  # fmt: skip
    assert {getattr(now, name) for name in readings} == {None}
    assert (now.flags, now.rate) == (("counters-missing",), pytest.approx(100, rel=0.01))


def test_without_points_there_is_no_bench() -> None:
    with pytest.raises(InputError, match="no recorded points"):
        ReplayTestbed([])


ALONE = [
    recorded(share, job=job, rate_stderr=0.04 * share, power_stderr_w=2.0)
    for job in ("gemm", "triad")
    for share in (30.0, 50.0, 70.0, 100.0)
]
TOGETHER = [
    pair_point(a, b, rate_1_stderr=0.6, rate_2_stderr=35.0, power_stderr_w=5.0)
    for a, b in ((30.0, 70.0), (50.0, 50.0), (70.0, 30.0), (100.0, 100.0))
]
THIRTY_SEVENTY = (("gemm", 30.0), ("triad", 70.0))

Shown = tuple[tuple[float, ...], float | None]
"""Rates and power of one window."""


def target_of(testbed: ReplayTestbed, slots: Sequence[JobAtShare]) -> Target:
    """The window of two jobs."""
    (a, share_a), (b, share_b) = slots
    return pair(testbed.jobs[a], Share(share_a), testbed.jobs[b], Share(share_b))


def show(testbed: ReplayTestbed, slots: Sequence[JobAtShare], times: int = 1) -> list[Shown]:
    """Open the gates of these so many times, in this order, and look what they do for a second."""
    processes = [testbed.start(testbed.jobs[job], Share(share)) for job, share in slots]
    shown: list[Shown] = []
    for _ in range(times):
        for slot, process in enumerate(processes):
            process.go(slot)
        before = [process.count() for process in processes]
        testbed.clock.sleep(1.0)
        rates = [process.count() - begun for process, begun in zip(processes, before, strict=True)]
        shown.append((tuple(rates), testbed.source.read((POWER_GPU,))[POWER_GPU]))
        for process in processes:
            process.hold()
    return shown


def test_job_goes_on_alone_when_its_partner_stops() -> None:
    testbed = ReplayTestbed(ALONE, TOGETHER)
    first, second = (testbed.start(testbed.jobs[job], Share(s)) for job, s in THIRTY_SEVENTY)
    readings: list[float | None] = [testbed.source.read((POWER_GPU,))[POWER_GPU]]
    for step in (first.go, second.go, first.stop, second.hold, second.stop):
        step()
        readings.append(testbed.source.read((POWER_GPU,))[POWER_GPU])
    assert readings == [126, 100 + 5 * 30, 500, 100 + 5 * 70, 126, 76]


def test_split_without_a_record_is_refused_by_its_name() -> None:
    """Also before, and the processes can go on with the next window: it is no starved job."""
    testbed = ReplayTestbed(ALONE, TOGETHER)
    unknown = (("gemm", 70.0), ("triad", 70.0))
    asked = (THIRTY_SEVENTY, THIRTY_SEVENTY[::-1], unknown)
    refused = [testbed.refuses(target_of(testbed, slots)) for slots in asked]
    assert (refused[2], any(refused[:2])) == ("not recorded", False)
    processes = [testbed.start(testbed.jobs[job], Share(share)) for job, share in unknown]
    processes[0].go(0)
    testbed.check_limits()
    processes[1].go(1)
    with pytest.raises(JobError, match="recorded window of gemm at 70 % with triad at 70 %"):
        testbed.check_limits()
    for process in processes:
        process.hold()
    assert testbed.source.read((POWER_GPU,))[POWER_GPU] == 126
    assert show(testbed, THIRTY_SEVENTY) == [(pytest.approx((30, 700)), 500)]


def test_three_jobs_are_replayed_of_which_no_two_were_recorded() -> None:
    """While gates open one after the other there is no window yet, and that is no fault."""
    three = pair_point(100.0, 100.0, job_3="gemm", share_3_percent=100.0, rate_3=9.0, power_w=610.0)
    testbed = ReplayTestbed(ALONE, [three])
    jobs = testbed.jobs
    specs = tuple(ProcessSpec(jobs[job], Share(100.0)) for job in ("gemm", "triad", "gemm"))
    processes = [testbed.start(spec.job, spec.share) for spec in specs]
    result = measure_target(Target(specs), processes, testbed, rules_for(0.5))
    measured = [
        *(part.rate for part in result.parts),
        result.window.power and result.window.power.mean,
    ]
    assert measured == pytest.approx([100, 1000, 9, 610])


AGAIN = [
    pair_point(30.0, 70.0, rate_1=rate, repeat=number, power_w=480.0 + 10 * number)
    for number, rate in enumerate((28.0, 30.0, 33.0))
]
TWIN = pair_point(50.0, 50.0, job_2="gemm", rate_1=20.0, rate_2=21.0)


@pytest.mark.parametrize(
    ("pairs", "noise", "slots", "shown"),
    [
        (TOGETHER, None, THIRTY_SEVENTY, [((30, 700), 500)]),
        (TOGETHER, None, THIRTY_SEVENTY[::-1], [((700, 30), 500)]),
        # No standard error is made up where none was recorded.
        ([pair_point()], "seed", THIRTY_SEVENTY, [((30, 700), 500)]),
        # Measured again a window differs by more than its own standard error.
        (AGAIN, "seed", THIRTY_SEVENTY, [((28, 700), 480), ((30, 700), 490), ((33, 700), 500)]),
        ([TWIN], None, (("gemm", 50.0), ("gemm", 50.0)), [((20, 21), 500)]),
    ],
)
def test_recorded_means_come_back(
    pairs: list[PairPoint], noise: str | None, slots: Sequence[JobAtShare], shown: list[Shown]
) -> None:
    """However often a window is replayed, and in whatever order gates open."""
    found = show(ReplayTestbed(ALONE, pairs, noise=noise), slots, times=60)
    rounded = {(tuple(round(rate, 6) for rate in rates), power_w) for rates, power_w in found}
    assert rounded == set(shown)


def test_same_seed_gives_the_same_noise() -> None:
    one, same, other = (
        show(ReplayTestbed(ALONE, TOGETHER, noise=seed), THIRTY_SEVENTY, times=5)
        for seed in ("a", "a", "b")
    )
    assert (one, len({*one, *other})) == (same, 10)


def test_noise_has_the_size_of_the_recorded_errors() -> None:
    """Of pairs, and of jobs alone: speeds are relative to windows that were not exact either."""
    windows = 2000
    shown = show(ReplayTestbed(ALONE, TOGETHER, noise="seed"), THIRTY_SEVENTY, windows)
    values = np.array([(*rates, power_w) for rates, power_w in shown], float).T
    stderrs = np.array([0.6, 35, 5])
    assert (abs(values.mean(1) - (30, 700, 500)) < 5 * stderrs / windows**0.5).all()
    assert values.std(1, ddof=1) == pytest.approx(stderrs, rel=0.1)
    assert (abs(np.corrcoef(values) - np.eye(3)) < 0.1).all()
    alone = show(ReplayTestbed(ALONE, noise="seed"), [("gemm", 50.0)], times=500)
    assert statistics.stdev(rates[0] for rates, _ in alone) == pytest.approx(2, rel=0.15)


def test_without_mps_only_time_sliced_pairs_are_replayed() -> None:
    """At 100/100 with MPS a pair behaves as it never does without."""
    sliced = pair_point(100.0, 100.0, mode="time-sliced", rate_1=40.0, rate_2=400.0, power_w=300.0)
    full = (("gemm", 100.0), ("triad", 100.0))
    limited, free = (ReplayTestbed(ALONE, [*TOGETHER, sliced], m) for m in (None, "uncapped"))
    assert show(free, full) == [(pytest.approx((40, 400)), 300)]
    assert show(limited, full) == [(pytest.approx((100, 1000)), 500)]
    assert (limited.mode, free.mode) == ("mps", "uncapped")
    assert not free.refuses(target_of(free, full))
    assert free.refuses(target_of(free, THIRTY_SEVENTY))


@pytest.mark.parametrize("mode", ["mps", "cu_mask", "uncapped"])
def test_replay_has_limits_where_some_points_had(mode: str) -> None:
    """The way of sharing does not hang on which point comes first in a file."""
    assert ReplayTestbed([recorded(100.0, mode="uncapped"), recorded(50.0, mode=mode)]).mode == mode


SPLITS = ((30.0, 70.0), (50.0, 50.0), (70.0, 30.0), (100.0, 100.0))
SOLO = [
    point(job=job, share_percent=share, units_granted=int(share))
    for job in ("triad", "gemm")
    for share in (100.0, 30.0, 70.0)
]


def campaign(run: str, day: int, *splits: tuple[float, float], **fields: object) -> list[PairPoint]:
    """Windows of a run, one a minute."""
    return [
        pair_point(a, b, run=run, started_at=f"2026-01-{day:02}T00:{minute:02}:00Z", **fields)
        for minute, (a, b) in enumerate(splits)
    ]


def preferred(pairs: list[PairPoint], mode: str = "mps") -> dict[tuple[float, float], PairPoint]:
    """The window of each split that a replay shows."""
    recordings = Recordings(SOLO, pairs, mode)
    found = {
        (a, b): recordings.find([("gemm", a), ("triad", b)])
        for a, b in {p.shares_percent for p in pairs}
    }
    points = {split: windows[0] for split, windows in found.items() if windows}
    return {split: p for split, p in points.items() if isinstance(p, PairPoint)}


WHOLE = campaign("whole", 1, *SPLITS)


FAILED = campaign("tried", 9, *SPLITS[:3], rate_1=None, rate_2=None, flags=("failed",))


@pytest.mark.parametrize(
    ("other", "shown"),
    [
        (campaign("newer", 9, *SPLITS[:2]), "whole"),
        ([p for _ in range(3) for p in campaign("again", 9, *SPLITS[:2])], "whole"),
        (campaign("new", 2, *SPLITS), "new"),
        # A pair that was begun on one card and finished on another is whole on that one.
        (campaign("whole", 9, *SPLITS[:3], gpu_uuid="GPU-2"), "whole"),
        (FAILED + campaign("tried", 8, SPLITS[3]), "whole"),
    ],
)
def test_run_that_has_most_splits_is_preferred_then_the_newest(
    other: list[PairPoint], shown: str
) -> None:
    """Splits of a pair are compared with each other; the same split again is no other split."""
    for found in (preferred(other + WHOLE), preferred(WHOLE + other)):
        assert {(p.run, p.gpu_uuid) for p in found.values()} == {(shown, WHOLE[0].gpu_uuid)}
        assert found.keys() == set(SPLITS)
    assert preferred(FAILED) == {}
    # The preferred run hides nothing.
    assert preferred(WHOLE + campaign("fine", 2, (31.0, 69.0)))[31.0, 69.0].run == "fine"


def test_runs_side_by_side_are_not_mixed() -> None:
    """Two cards of a host that measured a pair in turns are still two cards."""
    first, second = campaign("one", 1, *SPLITS), campaign("two", 1, *reversed(SPLITS))
    for points in (first + second, second + first):
        assert len({found.run for found in preferred(points).values()}) == 1


@pytest.mark.parametrize(
    ("mode", "modes"),
    [
        ("mps", {"mps", "uncapped"}),
        ("cu_mask", {"cu_mask", "uncapped"}),
        ("uncapped", {"time-sliced"}),
    ],
)
def test_only_windows_of_the_way_of_sharing_are_found(mode: str, modes: set[str]) -> None:
    """At 100/100 a pair may have been measured with MPS and without: those are two results."""
    pairs = [
        pair_point(share, 100 - share, mode=recorded)
        for share, recorded in ((30, "mps"), (40, "cu_mask"), (50, "uncapped"), (60, "time-sliced"))
    ]
    assert {p.mode for p in preferred(pairs, mode).values()} == modes


@pytest.mark.parametrize("mode", ["mps", "uncapped"])
def test_job_alone_is_found_as_it_was_with_or_without_mps(mode: str) -> None:
    """The way of sharing counts more than the day; only what has no window of it has another."""
    other = "mps" if mode == "uncapped" else "uncapped"
    asked = point(share_percent=100.0, mode=mode, started_at="2026-01-01T00:00:00Z")
    newer = point(share_percent=100.0, mode=other, started_at="2026-02-01T00:00:00Z")
    for points, found in (([newer, asked], mode), ([newer], other)):
        (one,) = Recordings(points, [], mode).find([("gemm", 100)])
        assert one.mode == found


def test_parts_are_in_the_order_of_the_seats() -> None:
    """Whichever job is named first, each gets its own rate, memory and CPU time."""
    values = {"memory_used_1_mib": 1.0, "memory_used_2_mib": 2.0, "cpu_1_percent": 3.0}
    recordings = Recordings(SOLO, [pair_point(30, 70, rate_1_stderr=0.5, **values)], "mps")
    (found,) = cast("list[PairPoint]", recordings.find([("triad", 70), ("gemm", 30)]))
    assert recordings.find([("gemm", 30), ("triad", 70)]) == [found]
    assert [(p.rate, p.rate_stderr, p.memory_used_mib, p.cpu_percent) for p in found.parts] == [
        (30, 0.5, 1, 3), (700, None, 2, None)
    ]  # fmt: skip
    assert recordings.find([("gemm", 70), ("triad", 30)]) == []
    # Of a job beside itself parts are in the order of shares; a table may have them otherwise.
    uneven = pair_point(70, 30, job_2="gemm", rate_1=7.0, rate_2=3.0)
    (found,) = cast(
        "list[PairPoint]", Recordings(SOLO, [uneven], "mps").find([("gemm", 70), ("gemm", 30)])
    )
    assert [part.rate for part in found.parts] == [3, 7]


def test_share_that_only_pairs_have_can_be_started() -> None:
    """Exact counts of units are measured in pairs, not in profiles."""
    recordings = Recordings(SOLO, [pair_point(29, 71, units_1=38, units_2=92)], "mps")
    asked = (("gemm", 29), ("triad", 71), ("gemm", 30))
    assert [recordings.granted(job, Share(s)).units for job, s in asked] == [38, 92, 30]


@pytest.mark.parametrize(
    ("job", "percent", "words"),
    [
        ("gemm", 40, r"gemm at 40 %.*are: 5 %, 30 %, 70 %, 100 %"),
        ("sort", 30, r"of sort at 30 %.*are: gemm, triad"),
    ],
)
def test_what_was_not_recorded_is_refused_with_what_there_is(
    job: str, percent: int, words: str
) -> None:
    with pytest.raises(InputError, match=words):
        Recordings(SOLO, [pair_point(5, 95)], "mps").granted(job, Share(percent))
