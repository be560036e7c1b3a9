"""A promised p99, on a clock of its own: what breaks it, and what is done then."""

from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_jobs import GPU, Script, Watch

from advisor.core.job import Job
from advisor.core.split import without_limits
from advisor.launch.job_monitor import LEAST_REQUESTS, WINDOW_S, WINDOWS, P99Watch
from advisor.launch.observe import observe
from advisor.progress import LATENCY_BUCKETS, latency_bucket
from advisor.runtime.running_job import RunningJob

SERVER = Job(name="serve", command=("true",), max_p99_ms=50)
TRAIN, SCORE = (Job(name=name, command=("true",)) for name in ("train", "score"))
OTHER = Job(name="other", command=("true",), offered_rate=10.0)
SLOW, FAST = Script(late_ms=(80.0,)), Script(late_ms=(20.0,))
LONG_S = 3 + WINDOWS * (WINDOW_S + 1)


def watched(patch: pytest.MonkeyPatch, server: Script, *jobs: Job, **spec: Any) -> Watch:
    """A server beside others."""
    others = [Script() for _ in jobs[1:]]
    return Watch(patch, server, *others, jobs=jobs, **spec)


def test_a_promise_that_is_broken_for_some_windows_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not after one window; nobody is ended, and the stretch says it."""
    watch = watched(monkeypatch, SLOW, SERVER, TRAIN)
    watch.go_on(3 + WINDOW_S + 1)
    assert watch.monitor.jobs[0].status().latency_p99_ms == pytest.approx(80, rel=0.03)
    assert watch.monitor.alarms() == []
    watch.go_on(LONG_S)
    (said, *_) = watch.monitor.alarms()
    assert "the p99 of serve is 8" in said
    assert f"above the 50 ms that are promised, in {WINDOWS} windows in a row" in said
    assert watch.outcomes == ["running", "running"]
    watch.monitor.stop()
    seen = observe(watch.monitor, GPU, launch_id="l", started_at="", state="stopped")[0]
    assert "p99-broken" in seen.flags


@pytest.mark.parametrize(
    ("bounds_ms", "said"),
    [
        ((40.0, 60.0, 100.0), "the p99 of serve is between 60 and 100 ms, above the 50 ms"),
        ((40.0, 60.0, float("inf")), "the p99 of serve is above 60 ms, above the 50 ms"),
        ((40.0, 100.0), "the p99 of serve is between 40 and 100 ms, as one bucket"),
    ],
)
def test_a_promise_within_a_bucket_of_the_server_is_not_known_to_be_broken(
    monkeypatch: pytest.MonkeyPatch, bounds_ms: tuple[float, ...], said: str
) -> None:
    """Requests of a wide bucket are spread over it, so its p99 is anywhere in it."""
    watch = watched(monkeypatch, replace(SLOW, bounds_ms=bounds_ms), SERVER, TRAIN)
    watch.go_on(LONG_S)
    (told,) = watch.monitor.alarms()
    assert told.startswith(said)


def test_a_promise_that_is_kept_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = watched(monkeypatch, FAST, SERVER, TRAIN)
    watch.go_on(2 * LONG_S)
    assert watch.monitor.alarms() == []
    status = watch.monitor.jobs[0].status()
    assert (status.max_p99_ms, status.latency_p99_ms) == (50, pytest.approx(20, rel=0.03))


def test_the_newest_batch_job_is_ended_where_that_was_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One at a time, each after windows of its own; no server, and no more than there are."""
    watch = watched(
        monkeypatch, SLOW, SERVER, TRAIN, SCORE, OTHER, when_p99_breaks="end-newest",
        when_one_ends="stop", split=without_limits("uncapped", 4),
    )  # fmt: skip
    watch.go_on(LONG_S)
    assert watch.outcomes == ["running", "running", "stopped", "running"]
    one = watch.monitor.jobs[2].status()
    assert "ended since the p99 of serve is 8" in (one.error or "")
    assert (one.ended_at is not None, watch.monitor.jobs[2].code) == (True, None)
    assert watch.monitor.alarms()[0].startswith("score was ended: the p99 of serve")
    watch.go_on(LONG_S)
    assert watch.outcomes == ["running", "stopped", "stopped", "running"]
    watch.go_on(LONG_S)
    assert watch.outcomes == ["running", "stopped", "stopped", "running"]
    assert watch.monitor.alarms()[-1].startswith("the p99 of serve is")
    watch.monitor.stop()
    seen = observe(watch.monitor, GPU, launch_id="l", started_at="", state="stopped")
    assert [len(one.parts) for one in seen] == [4, 3, 2]
    assert all("p99-broken" in one.flags for one in seen)
    assert not any(part.ended_first for part in seen[0].parts)


def test_who_joins_is_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the windows begin anew with it."""
    watch = watched(monkeypatch, SLOW, SERVER, TRAIN, when_p99_breaks="end-newest")
    watch.go_on(LONG_S - WINDOW_S - 2)
    watch.join(Script())
    watch.go_on(WINDOW_S + 4)
    assert watch.outcomes == ["running"] * 3
    watch.go_on(LONG_S)
    assert watch.outcomes == ["running", "running", "stopped"]


@given(
    st.lists(st.lists(st.sampled_from([20.0, 49.0, 54.0, 80.0]), min_size=10, max_size=10)),
    st.integers(1, 400),
)
def test_only_whole_windows_in_a_row_break_it(windows: list[list[float]], each: int) -> None:
    """A window with too few requests goes on; within the width of a bucket nothing is broken."""
    counts = [0] * LATENCY_BUCKETS

    class Server:
        def latencies(self) -> tuple[int, ...]:
            return tuple(counts)

        def latency_bounds_ms(self) -> tuple[float, ...]:
            return ()

    watch, now_s = P99Watch(cast("RunningJob", Server()), 50.0, 0.0), 3.0
    assert not watch.look(now_s)
    row, asked, late = 0, 0, 0
    for window in windows:
        for late_ms in window:
            counts[latency_bucket(late_ms / 1000)] += each
            asked += each
            late += each * (late_ms > 50)
        now_s += WINDOW_S
        told = watch.look(now_s)
        if asked < LEAST_REQUESTS:
            assert not told
            continue
        row = row + 1 if asked - late < 0.99 * asked else 0
        assert told == (row > 0 and row % WINDOWS == 0)
        asked = late = 0
