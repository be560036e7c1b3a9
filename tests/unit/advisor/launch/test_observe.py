"""The record of a pair that ran on a clock of its own."""

import json
import os
import socket
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from ended_launches import PAIR
from hypothesis import given, strategies as st
from scripted_jobs import GPU, Clock, Meter, Script, Watch

import advisor
from advisor.core.gpu import EQUAL, UNCAPPED, Split, without_limits
from advisor.core.job import Job, ProgressSettings, Reported
from advisor.core.objectives import Interval
from advisor.core.records import WATCHED, Observation, Record, SoloPoint
from advisor.core.telemetry import ENERGY_GPU, POWER_GPU, Readings, TelemetrySource
from advisor.errors import StoreError
from advisor.launch import observe as observing
from advisor.launch.folder import (
    DRAFT,
    OBSERVATIONS,
    LaunchFolder,
    append_observation,
    create_folder,
    observation_lines,
)
from advisor.launch.meter import LaunchMeter, timed
from advisor.launch.observe import (
    DRAFT_S,
    SURE_S,
    Keeper,
    forecast_news,
    observe,
    pace_news,
    shown,
    unsaid,
)
from advisor.launch.spec import Forecast, JobForecast, LaunchSpec

FORECAST = Forecast(
    model_version="v1",
    jobs=tuple(
        JobForecast(rate=Interval(rate, 0, 99), solo_rate=100.0, rest_energy_saved=rest)
        for rate, rest in ((55.0, 0.1), (75.0, 0.2))
    ),
    power_w=Interval(410.0, 0, 999),
    work_per_joule=Interval(0.003, 0, 1),
    coverage=0.9,
    energy_saved=Interval(0.25, 0, 1),
)


THREE = replace(FORECAST, jobs=(*FORECAST.jobs, replace(FORECAST.jobs[0], rest_energy_saved=0.3)))


def records(watch: Watch, state: Any = "finished") -> tuple[Observation, ...]:
    began = "2026-01-31T12:00:00Z"
    return observe(watch.monitor, GPU, launch_id="l1", started_at=began, state=state)


def record(watch: Watch, state: Any = "finished") -> Observation:
    return records(watch, state)[0]


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    found = Watch(
        monkeypatch, Script(rate=50, ends_s=20), Script(rate=80, ends_s=30),
        split=Split((30.0, 50.0)), forecast=FORECAST,
        parts={"idle_power_w": 80.0, "share_rate": 60.0},
    )  # fmt: skip
    found.go_on(60)
    return found


def test_what_the_pair_did(watch: Watch) -> None:
    seen = record(watch)
    assert (seen.launch_id, seen.state, seen.mode) == ("l1", "finished", "mps")
    assert (seen.gpu_model, seen.gpu_uuid, seen.units_total) == ("Card", "GPU-1", 132)
    assert (seen.power_limit_w, seen.driver) == (700.0, "580")
    assert seen.started_at == "2026-01-31T12:00:00Z"
    assert (seen.host, seen.tool_version) == (socket.gethostname(), advisor.__version__)
    assert (seen.overlap_s, seen.rest_s) == (pytest.approx(20), pytest.approx(10))
    assert (seen.energy_j, seen.rest_energy_j) == (pytest.approx(8000), pytest.approx(4000))
    assert (seen.power_w, seen.settled_s) == (pytest.approx(400), pytest.approx(16.5))
    assert seen.work_per_joule == pytest.approx(1.3 / 400)
    assert seen.energy_saved == pytest.approx(1 - 400 / 390)
    assert seen.rest_energy_saved == pytest.approx(1 - 400 / 240)
    alone_j = (1000 + 2400) / 100 * 300
    assert seen.energy_saved_to_end == pytest.approx(1 - 12_000 / alone_j)
    assert (seen.stranded_unit_s, seen.flags) == (pytest.approx(660), ("too-fast",))


def test_what_was_expected_with_a_newcomer_is_of_that_stretch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watch = Watch(monkeypatch, Script(rate=50), Script(rate=80), forecast=FORECAST)
    watch.go_on(10)
    more = replace(THREE, power_w=Interval(500.0, 0, 999))
    watch.join(Script(rate=20), forecast=more)
    assert [one.status().predicted_rate for one in watch.monitor.jobs] == [
        job.rate for job in more.jobs
    ]
    assert watch.monitor.expected_power_w == more.power_w
    watch.go_on(10)
    watch.join(Script(rate=10))
    assert watch.monitor.jobs[0].expected is watch.monitor.expected_power_w is None
    watch.go_on(10)
    ledger = shown(watch.monitor)["ledger"]
    assert ledger.alone_j == pytest.approx((50 * 30 + 80 * 30 + 20 * 20 + 10 * 10) * 300 / 100)
    first, second, third = records(watch, "stopped")
    assert [seen.predicted_power_w for seen in (first, second, third)] == [410.0, 500.0, None]
    assert [part.predicted_rate for part in first.parts] == [55.0, 75.0]
    assert [part.predicted_rate for part in second.parts] == [55.0, 75.0, 55.0]
    assert [part.predicted_rate for part in third.parts] == [None] * 4


def test_work_to_the_end_with_wrong_results_saves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where a newcomer computes nonsense quickly; the sets before stay in the launch's sums."""
    watch = Watch(monkeypatch, Script(rate=50, ends_s=20), Script(rate=80))
    watch.go_on(10)
    sound = shown(watch.monitor)["ledger"]
    assert sound is not None
    watch.join(Script(rate=90, reported=Reported(count=1, not_finite=1)))
    watch.go_on(20)
    whole, beside = records(watch, "stopped")[:2]
    assert (whole.flags, beside.flags) == ((), ("wrong-results",))
    assert whole.energy_saved is not None
    assert (whole.energy_saved_to_end, whole.rest_energy_saved) == (None, None)
    assert whole.energy_apart_j is shown(watch.monitor)["ledger"] is None
    assert shown(watch.monitor, sound)["ledger"] == sound


def test_latencies_are_of_the_time_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests of the first seconds took a minute; of the rest nine of ten 5 ms, the others 40."""
    server = Script(rate=80, late_ms=(*9 * [5.0], 40.0))
    watch = Watch(monkeypatch, Script(rate=50, ends_s=20), server)
    watch.go_on(30)
    first, second = record(watch).parts
    assert (first.latency_p50_ms, first.latency_p99_ms) == (None, None)
    assert second.latency_p50_ms == pytest.approx(5, rel=0.03)
    assert second.latency_p99_ms == pytest.approx(40, rel=0.03)


def test_what_each_job_did(watch: Watch) -> None:
    first, second = record(watch).parts
    assert (first.job, first.share_percent, first.units) == ("a", 30.0, 66)
    assert (second.job, second.share_percent) == ("b", 50.0)
    assert (first.rate, second.rate) == (pytest.approx(50), pytest.approx(80))
    assert (first.rate_unit, first.solo_rate, first.solo_power_w) == ("steps", 100.0, 300.0)
    assert (first.predicted_rate, second.predicted_rate) == (55.0, 75.0)
    assert (first.rest_rate, second.rest_rate) == (None, pytest.approx(80))
    assert (first.ended_first, second.ended_first) == (True, False)
    assert (first.job_hash, first.libraries) == (watch.pair.jobs[0].job_hash, None)
    assert first.energy_j
    assert second.energy_j
    assert first.energy_j + second.energy_j == pytest.approx(8000)
    # Idle power by units, the rest by use: 5 and 8 parts of it.
    assert first.energy_j == pytest.approx(20 * (40 + 320 * 5 / 13))


def test_what_was_expected_is_of_the_job_that_goes_on(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = record(watch)
    assert (seen.model_version, seen.predicted_power_w) == ("v1", 410.0)
    assert (seen.predicted_work_per_joule, seen.predicted_energy_saved) == (0.003, 0.25)
    assert seen.predicted_rest_energy_saved == 0.2
    other = Watch(monkeypatch, b=Script(ends_s=20), forecast=FORECAST)
    other.go_on(30)
    assert record(other).predicted_rest_energy_saved == 0.1


def test_each_stretch_of_a_set_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    scripts = [
        Script(units=66, rate=50, ends_s=10, status=1, tail="out of disk"),
        Script(units=40, rate=20, ends_s=20, late_ms=(5.0,)),
        Script(units=26, rate=80, ends_s=40),
        Script(units=26, rate=10, ends_s=30),
    ]
    watch = Watch(monkeypatch, *scripts, split=Split((50.0, 40.0, 20.0, 20.0)), forecast=None)
    watch.go_on(60)
    whole, three, two = kept = records(watch, "failed")
    assert [(len(one.parts), one.stretch) for one in kept] == [(4, 0), (3, 1), (2, 2)]
    assert (three.jobs, two.jobs) == (("b", "c", "d"), ("c", "d"))
    for one, overlap_s in ((whole, 10), (three, 10), (two, 10)):
        assert one.overlap_s == pytest.approx(overlap_s, abs=1)
        assert one.energy_j == pytest.approx(400 * one.overlap_s)
        assert one.power_w == pytest.approx(400)
        # On a clock of its own the first seconds are in no mean.
        assert one.settled_s == pytest.approx(6.5, abs=1)
    assert [part.rate for part in three.parts] == [pytest.approx(rate) for rate in (20, 80, 10)]
    assert [part.rate for part in two.parts] == [pytest.approx(80), pytest.approx(10)]
    assert three.work_per_joule == pytest.approx(1.1 / 400)
    assert [part.latency_p99_ms is not None for part in three.parts] == [True, False, False]
    assert [part.ended_first for part in three.parts] == [True, False, False]
    assert [part.ended_first for part in two.parts] == [False, True]
    # Who had failed before is no part of it.
    assert [one.state for one in kept] == ["failed", "finished", "finished"]
    assert whole.rest_s == pytest.approx(30, abs=1)
    assert (three.rest_s, three.stranded_unit_s) == (None, 0)
    assert len({one.point_id for one in kept}) == 3


def test_what_makes_a_record_doubtful_is_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Reported(((48, 1.0),), count=1, not_finite=1, last=float("nan"))
    watch = Watch(monkeypatch, Script(reported=wrong))
    watch.go_on(2)
    watch.monitor.limit_broken = True
    assert record(watch).flags == ("not-settled", "limit-broken", "wrong-results")


def test_a_rate_just_within_the_noise_of_the_profile_is_none_too_fast(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Beyond it, it is; and one that all but stands still is too slow to teach."""
    for rate, flags in ((64.0, ()), (66.0, ("too-fast",)), (2.0, ("too-slow",)), (3.0, ())):
        watch = Watch(monkeypatch, Script(rate=rate), parts={"share_rate": 50.0})
        watch.go_on(10)
        assert record(watch).flags == flags


def test_faster_than_alone_by_a_profile_of_another_host_is_no_gain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing counts as saved, nothing is learned, and it is said what to do."""
    for rate, spread, doubtful in ((143.0, 0.5, True), (143.0, 0.0, False), (110.0, 0.5, False)):
        watch = Watch(monkeypatch, Script(rate=rate), parts={"host_spread": spread})
        watch.go_on(10)
        account, seen = watch.monitor.account, record(watch)
        flags = ("foreign-host",) if doubtful else ()
        assert (seen.flags, seen.doubt) == (flags, flags[0] if flags else None)
        claimed = (
            seen.energy_saved, seen.energy_saved_to_end, account.mean_energy_saved(),
            account.recent_energy_saved(), account.ledger(),
        )  # fmt: skip
        assert [one is None for one in claimed] == [doubtful] * 5
        told = [text.partition("; ")[::2] for _, text in pace_news(watch.monitor)]
        assert [(what[:14], fix) for what, fix in told] == [
            ("a runs at 1.43", "advisor profile a")
        ] * doubtful


def test_a_record_that_cannot_be_written_leaves_the_others_whole(
    watch: Watch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a line would spoil the next one."""
    append_observation(tmp_path, record(watch))
    path = tmp_path / OBSERVATIONS
    before, write = path.read_bytes(), os.write

    def full(descriptor: int, data: bytes) -> int:
        if len(data) < 100:
            raise OSError("no space left")
        return write(descriptor, data[:100])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="no space left"):
        append_observation(tmp_path, record(watch))
    assert path.read_bytes() == before


class Kept:
    def __init__(self, patch: pytest.MonkeyPatch, root: Path) -> None:
        spec = LaunchSpec(launch_id="l1", gpu="0", pairs=(PAIR,))
        self.folder = create_folder(root / "home" / "launches", spec)
        self.watch = Watch(patch, Script(ends_s=20), Script())
        patch.setattr(observing, "time", self.watch.clock)
        self.remembered: list[Any] = []
        self.warnings: list[str] = []
        began = "2026-01-31T12:00:00.000000Z"
        self.keeper = Keeper(
            self.folder, self.watch.monitor, GPU, began, self.remembered.append,
            self.warnings.append,
        )  # fmt: skip
        self.go_on(10)
        self.watch.join(Script())
        self.go_on(0.5)

    def go_on(self, seconds: float) -> None:
        for _ in range(round(seconds * 2)):
            self.watch.go_on(0.5)
            self.keeper.look()

    def rows(self, name: str) -> list[tuple[int, str, int]]:
        path = self.folder.path / name
        return [told(line) for line in path.read_text().splitlines()] if path.exists() else []

    def read(self) -> list[tuple[int, str, int]]:
        return [told(line) for line in observation_lines(self.folder)]


def told(line: str | bytes) -> tuple[int, str, int]:
    row = json.loads(line)
    return row["stretch"], row["state"], round(row["overlap_s"])


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Kept:
    return Kept(monkeypatch, tmp_path)


def test_each_stretch_is_written_at_its_end(kept: Kept) -> None:
    """As a draft, since it may turn out to be of no use; the one that lasts every few seconds."""
    assert kept.rows(DRAFT)[0] == (0, "stopped", 10)
    kept.go_on(10)
    assert kept.rows(DRAFT)[:2] == [(0, "stopped", 10), (1, "finished", 10)]
    drafts = set[str]()
    for _ in range(20):
        kept.go_on(0.5)
        drafts.add((kept.folder.path / DRAFT).read_text())
    assert len(drafts) <= 1 + 10 / DRAFT_S
    number, state, overlap_s = kept.rows(DRAFT)[2]
    assert (number, state, 10 - overlap_s <= DRAFT_S) == (2, "stopped", True)
    assert (kept.rows(OBSERVATIONS), kept.remembered) == ([], [])


def test_a_limit_that_did_not_hold_is_told_of_the_stretch_before(kept: Kept) -> None:
    kept.go_on(15)
    kept.watch.monitor.limit_broken = True
    kept.watch.monitor.stop()
    kept.keeper.close("failed")
    rows = [json.loads(line) for line in observation_lines(kept.folder)]
    assert ["limit-broken" in row["flags"] for row in rows] == [True] * 3


def test_at_the_end_each_is_there_once(kept: Kept) -> None:
    kept.go_on(10 + SURE_S + DRAFT_S)
    kept.watch.monitor.stop()
    kept.keeper.close("stopped")
    assert not (kept.folder.path / DRAFT).exists()
    assert [number for number, _, _ in kept.read()] == [1, 0, 2]
    assert [seen.stretch for seen in kept.remembered] == [1, 0, 2]
    assert (kept.remembered[1].rest_s, kept.warnings) == (pytest.approx(45.5, abs=1), [])


def test_a_draft_counts_where_its_supervisor_is_gone(kept: Kept) -> None:
    kept.go_on(10 + DRAFT_S + 1)
    with LaunchFolder(kept.folder.path).supervising():
        assert kept.read() == []
    first, *_ = (kept.folder.path / DRAFT).read_bytes().splitlines()
    final = kept.folder.path / OBSERVATIONS
    final.write_bytes(first[:-5])
    assert [number for number, _, _ in kept.read()] == [0, 1, 2]
    final.write_bytes(first.replace(b'"stopped"', b'"finished"') + b"\n")
    assert [(number, state) for number, state, _ in kept.read()][:2] == [
        (0, "finished"),
        (1, "finished"),
    ]
    assert len(kept.read()) == 3


def test_a_full_disk_costs_what_is_new(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """The room that is reserved is not touched before the end; the draft stays where that fails."""
    kept.go_on(10)
    before = kept.rows(DRAFT)
    kept.folder.keep_reserve()

    def full(_: int) -> None:
        raise OSError(28, "no space left")

    monkeypatch.setattr(os, "fsync", full)
    kept.go_on(SURE_S + DRAFT_S)
    assert (kept.folder.path / "reserve").exists()
    assert (kept.rows(OBSERVATIONS), kept.rows(DRAFT)[:2]) == ([], before[:2])
    kept.keeper.close("stopped")
    assert kept.warnings == ["the observation could not be written: no space left"]
    assert [number for number, _, _ in kept.read()][:2] == [0, 1]
    monkeypatch.undo()


def test_a_store_that_is_away_costs_nothing(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_: Observation) -> None:
        raise StoreError("no database")

    monkeypatch.setattr(kept.keeper, "_remember", away)
    kept.keeper.close("stopped")
    assert len(kept.warnings) == len(kept.read()) == 2


def forecast(
    rate_a: float = 50.0, rate_b: float = 80.0, power_w: float = 400.0, work: float = 1.3 / 400
) -> Forecast:
    def around(value: float) -> Interval:
        return Interval(value, 0.8 * value, 1.2 * value)

    return Forecast(
        model_version="v1",
        jobs=tuple(JobForecast(rate=around(rate), solo_rate=100.0) for rate in (rate_a, rate_b)),
        power_w=around(power_w),
        work_per_joule=around(work),
        coverage=0.9,
    )


def watched(monkeypatch: pytest.MonkeyPatch, expected: Forecast | None, *jobs: Job) -> Watch:
    a, b = Script(rate=50), Script(rate=80)
    return Watch(monkeypatch, a, b, forecast=expected, jobs=jobs)


OF_NOTHING = "rate of a is 50 steps/s, far from the prediction of 0 (0 to 0)"


@pytest.mark.parametrize(
    ("expected", "seconds", "texts"),
    [
        (None, 20, []),
        (forecast(), 20, []),
        # Means of a short time are not judged.
        (forecast(rate_a=0.0), 7.5, []),
        (forecast(rate_a=0.0), 8, [OF_NOTHING]),
    ],
)
def test_news_is_what_is_far_from_its_prediction_after_some_seconds(
    monkeypatch: pytest.MonkeyPatch, expected: Forecast | None, seconds: float, texts: list[str]
) -> None:
    watch = watched(monkeypatch, expected)
    watch.go_on(seconds)
    assert [text for _, text in forecast_news(watch.pair, watch.monitor)] == texts


def test_each_quantity_that_is_far_off_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With both values, and by how much it is off."""
    watch = watched(monkeypatch, forecast(100.0, 40.0, 200.0, 1.3 / 800))
    told = set[str]()
    watch.go_on(20)
    assert unsaid(forecast_news(watch.pair, watch.monitor), told) == [
        "rate of a is 50 steps/s, -50% against the prediction of 100 (80 to 120)",
        "rate of b is 80 steps/s, +100% against the prediction of 40 (32 to 48)",
        "power is 400 W, +100% against the prediction of 200 (160 to 240)",
        "work per joule is 3.25 per kJ, +100% against the prediction of 1.625 (1.3 to 1.95)",
    ]
    watch.go_on(20)
    assert unsaid(forecast_news(watch.pair, watch.monitor), told) == []


def test_two_jobs_of_one_name_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    twin = Job(name="a", command=("true",), progress=ProgressSettings(unit="images"))
    watch = watched(monkeypatch, forecast(100.0, 80.0), twin, twin)
    told = set[str]()
    watch.go_on(20)
    (first,) = unsaid(forecast_news(watch.pair, watch.monitor), told)
    assert first.startswith("rate of a is 50 images/s")
    watch.jobs[1].script.hangs_s = 21.0
    watch.go_on(60)
    later = unsaid(forecast_news(watch.pair, watch.monitor), told)
    assert [text.split(" is ")[0] for text in later] == ["rate of a", "work per joule"]


def kept_of(watch: Watch, patch: pytest.MonkeyPatch, home: Path, seconds: int) -> list[Record]:
    """What is kept of jobs that are stopped after so long, where nothing goes wrong."""
    folder = create_folder(home / "launches", LaunchSpec(launch_id="l1", gpu="0", pairs=(PAIR,)))
    patch.setattr(observing, "time", watch.clock)
    kept, warned = list[Record](), list[str]()
    keeper = Keeper(folder, watch.monitor, GPU, "2026-01-31", kept.append, warned.append)
    for _ in range(2 * seconds):
        watch.go_on(0.5)
        keeper.look()
    watch.monitor.stop()
    keeper.close("finished")
    assert warned == []
    return kept


@pytest.mark.parametrize(("split", "seconds"), [((100.0,), 70), ((100.0,), 40), ((50.0,), 70)])
def test_a_job_that_had_the_gpu_to_itself_is_kept_as_seen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, split: tuple[float, ...], seconds: int
) -> None:
    """For a minute at least, and all of the GPU; beside another there is an observation instead."""
    kept = kept_of(Watch(monkeypatch, Script(), split=Split(split)), monkeypatch, tmp_path, seconds)
    if seconds < 60 or split != (100.0,):
        assert kept == []
        return
    (point,) = kept
    assert isinstance(point, SoloPoint)
    assert (point.flags, point.run, point.memory_used_mib) == ((WATCHED,), "l1", 5000.0)
    assert (point.rate, point.power_w) == (pytest.approx(50.0), pytest.approx(400.0))
    assert point.job_cpu_percent == pytest.approx(50.0)


@pytest.mark.parametrize(
    ("split", "seconds", "names"),
    [(UNCAPPED, 150, ["b"]), (UNCAPPED, 80, []), (EQUAL, 150, [])],
)
def test_who_is_left_without_a_limit_is_kept_as_seen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, split: Split, seconds: int, names: list[str]
) -> None:
    """For a minute at least: its own pace and watts, not those of both."""
    later = Script(steps=lambda s: 20.0 * s if s < 30 else 600 + 60.0 * (s - 30))
    watch = Watch(monkeypatch, Script(ends_s=30.0), later, split=split)
    kept = kept_of(watch, monkeypatch, tmp_path, seconds)
    points = [one for one in kept if isinstance(one, SoloPoint)]
    assert [point.job for point in points] == names
    for point in points:
        assert (point.rate, point.power_w) == (pytest.approx(60.0), pytest.approx(400.0))
        assert point.window_s == pytest.approx(117, abs=2), "without the first seconds"
        assert point.started_at > watch.monitor.account.first.started_at


def test_the_last_of_three_is_kept_as_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of the time after the second end, at its own pace; not the two that were left before."""
    jobs = tuple(Job(name=name, command=("true",)) for name in "abc")
    last = Script(steps=lambda s: 20.0 * s if s < 50 else 1000 + 60.0 * (s - 50))
    scripts = Script(ends_s=30.0), last, Script(ends_s=50.0)
    watch = Watch(monkeypatch, *scripts, jobs=jobs, split=without_limits("uncapped", 3))
    kept = kept_of(watch, monkeypatch, tmp_path, 150)
    (point,) = [one for one in kept if isinstance(one, SoloPoint)]
    assert (point.job, point.rate) == ("b", pytest.approx(60.0))
    assert point.window_s == pytest.approx(97, abs=2)


# Energy of a launch from taking its GPU, with its starts told apart, on a clock of its own.


class PowerAlone(Meter):
    def read(self, names: Collection[str]) -> Readings:
        found = super().read(names)
        known = {ENERGY_GPU: None, POWER_GPU: 400.0}
        return {name: known.get(name, value) for name, value in found.items()}


@pytest.mark.parametrize(("step_s", "known"), [(1.0, True), (30.0, False)])
def test_without_a_counter_it_is_known_where_it_was_looked_at(step_s: float, known: bool) -> None:
    """Power is integrated between looks; a gap of 10 s and more stays one."""
    clock = Clock()
    meter = LaunchMeter(cast("TelemetrySource", PowerAlone(clock)), clock.monotonic)
    with meter.starting():
        for _ in range(round(60 / step_s)):
            clock.sleep(step_s)
            meter.look()
    assert meter.joules == (pytest.approx(60 * 400) if known else None)
    assert meter.starts_j == (pytest.approx(60 * 400) if known else None)


STOPS_S = st.lists(st.floats(0, 2), max_size=20)


class Host:
    def __init__(self, before_s: list[float], after_s: list[float]) -> None:
        self.now_s, self.reads = 100.0, 0
        self._before_s, self._after_s = iter(before_s), iter(after_s)

    def read(self) -> float:
        self.reads += 1
        self.now_s += next(self._before_s, 0.0)
        counted = 400 * self.now_s
        self.now_s += next(self._after_s, 0.0)
        return counted


@given(STOPS_S, STOPS_S)
def test_the_moment_is_known_as_well_as_it_says(
    before_s: list[float], after_s: list[float]
) -> None:
    host = Host(before_s, after_s)
    counted, moment = timed(host.read, lambda: host.now_s)
    assert abs(counted / 400 - moment.at_s) <= moment.slack_s + 1e-9
    assert host.reads <= 5
    assert moment.slack_s <= (before_s or [0.0])[0] / 2 + (after_s or [0.0])[0] / 2 + 1e-9


@pytest.mark.parametrize(
    ("stops_s", "reads", "slack_s"),
    [([0.004] * 9, 1, 0.002), ([0.3], 2, 0.0), ([0.3, 0.03, 0.3, 0.3, 0.3], 5, 0.015)],
)
def test_it_is_read_again_while_that_helps(
    stops_s: list[float], reads: int, slack_s: float
) -> None:
    host = Host(stops_s, [])
    _, moment = timed(host.read, lambda: host.now_s)
    assert (host.reads, moment.slack_s) == (reads, pytest.approx(slack_s))
    assert moment.is_reliable
