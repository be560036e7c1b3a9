"""Recorded points through the whole path of a sweep."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_points import point
from watching import Watching

from advisor.errors import InputError
from advisor.gpu import Share
from advisor.records import Counters, SoloPoint
from advisor_data.file_store import FileStore
from advisor_profiling.replay import ReplayBench
from advisor_profiling.sweep import SweepResult, sweep, unfinished_run
from advisor_profiling.targets import solo
from advisor_profiling.window import rules_for

COUNTERS = {field.name: 11.0 + n for n, field in enumerate(dataclasses.fields(Counters))}


def recorded(share: float, **fields: Any) -> SoloPoint:
    """A point with every reading there is."""
    readings: dict[str, Any] = {
        "rate_unit": "images",
        "rate": 4 * share,
        "power_w": 100 + 5 * share,
        "idle_power_w": 76.0,
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
    bench = ReplayBench(points)
    job = bench.jobs()[points[0].job]
    targets = [solo(job, Share(share)) for share in shares]
    with FileStore(folder) as store:
        return sweep(targets, "r9", bench, store, Watching(), rules_for(0.5))


def test_recorded_values_come_back(tmp_path: Path) -> None:
    """What was measured is what a replay shows: rate, power, counters, state, units."""
    points = [recorded(20.0), recorded(50.0), recorded(100.0, throttled=True)]
    found = replay(points, tmp_path, 100, 20, 50)
    assert (found.idle_before_w, found.idle_after_w) == pytest.approx((76, 76))
    again = sorted(found.points, key=lambda p: p.share_percent)
    for then, now in zip(points, again, strict=True):
        same = (*COUNTERS, "job", "rate_unit", "units_granted", "units_total", "throttled",
                "sm_clock_mhz", "memory_clock_mhz", "temperature_c", "power_limit_w",
                "memory_used_mib", "gpu_model", "gpu_uuid", "mode", "driver")  # fmt: skip
        assert {k: getattr(now, k) for k in same} == {k: getattr(then, k) for k in same}
        assert now.rate == pytest.approx(then.rate, rel=0.01)
        assert now.power_w == pytest.approx(then.power_w, rel=0.01)
        assert now.counter_power_w == pytest.approx(then.power_w, rel=0.01)
        assert now.job_cpu_percent == pytest.approx(50, rel=0.01)
        assert now.source == "replay"
    assert [p.flags for p in again] == [(), (), ("throttled",)]


@settings(max_examples=20, deadline=None)
@given(rate=st.floats(0.01, 1e6), power_w=st.floats(20, 1400))
def test_any_rate_and_power_come_back(rate: float, power_w: float) -> None:
    """A job of a step a minute and one of a million a second are replayed alike."""
    bench = ReplayBench([recorded(50.0, rate=rate, power_w=power_w)])
    client = bench.start(bench.jobs()["gemm"], Share(50))
    client.go()
    before = client.count(), bench.source.energy_j()
    bench.clock.sleep(10.0)
    after = client.count(), bench.source.energy_j()
    assert before[1] is not None
    assert after[1] is not None
    assert after[0] - before[0] == pytest.approx(10 * rate)
    assert after[1] - before[1] == pytest.approx(10 * power_w, rel=0.02)


def test_missing_readings_stay_missing(tmp_path: Path) -> None:
    """A replay invents no power and no counter, and flags what the models will miss."""
    (now,) = replay([point(share_percent=30.0)], tmp_path, 30).points
    readings = ("power_w", "counter_power_w", "idle_power_w", "throttled", "units_granted",
                "memory_used_mib", "job_cpu_percent", *COUNTERS)  # fmt: skip
    assert {k for k in readings if getattr(now, k) is not None} == set()
    assert now.flags == ("counters-missing",)
    assert now.rate == pytest.approx(100, rel=0.01)


def test_stored_replay_is_gone_on_with(tmp_path: Path) -> None:
    """What an interrupted run stored is found again, point for point."""
    points = [recorded(20.0), recorded(50.0), recorded(100.0)]
    first = replay(points, tmp_path, 50, 100)
    bench = ReplayBench(points)
    with FileStore(tmp_path) as store:
        stored = store.solo_points()
    found = unfinished_run(stored, bench.jobs()["gemm"], bench.gpu, bench.mode)
    assert found == ("r9", list(first.points))


def test_newest_of_several_recordings_is_replayed(tmp_path: Path) -> None:
    """A job that was measured twice at a share has one rate in a replay."""
    old = recorded(50.0, rate=1.0, started_at="2026-01-01T00:00:00Z")
    new = recorded(50.0, rate=9.0, started_at="2026-02-01T00:00:00Z")
    (now,) = replay([old, new, old], tmp_path, 50).points
    assert now.rate == pytest.approx(9, rel=0.01)


def test_share_that_was_not_recorded_is_refused(tmp_path: Path) -> None:
    """Nothing is interpolated; the shares that there are come in their order."""
    points = [recorded(100.0), recorded(20.0), recorded(70.0, job="other")]
    with pytest.raises(InputError, match=r"no recorded point of gemm at 70 %.*: 20 %, 100 %"):
        replay(points, tmp_path, 70)
    assert not list(tmp_path.rglob("*.jsonl"))


def test_job_that_was_not_recorded_is_refused() -> None:
    """The recorded jobs are named."""
    bench = ReplayBench([recorded(20.0), recorded(20.0, job="other")])
    job = dataclasses.replace(bench.jobs()["gemm"], name="mine")
    with pytest.raises(InputError, match=r"no recorded point of mine at 20 %.*: gemm, other"):
        bench.start(job, Share(20))


def test_without_points_there_is_no_bench() -> None:
    """An empty file is told, not replayed as an empty GPU."""
    with pytest.raises(InputError, match="no recorded points"):
        ReplayBench([])
