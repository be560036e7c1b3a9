"""Launches over HTTP: what requests may say, what readers see, what is counted."""

import logging
import os
import threading
from collections.abc import Collection, Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ended_launches import ended_launch, launch_id
from hypothesis import given, strategies as st
from prometheus_client import CollectorRegistry
from store_points import observation, point

from advisor.core.gpu import NINE, Gpu
from advisor.core.job import Job
from advisor.core.objectives import Interval
from advisor.core.telemetry import POWER_GPU, Readings
from advisor.errors import BusyError, InputError, SourceError, StoreError, UnsafeFileError
from advisor.formats.moments import now
from advisor.formats.wire import read, write
from advisor.launch import guard
from advisor.launch.folder import (
    OBSERVATIONS,
    LaunchFolder,
    StatusWriter,
    append_observation,
    create_folder,
    first_status,
    list_folders,
)
from advisor.launch.spec import (
    Drift,
    Forecast,
    JobForecast,
    JobStatus,
    LaunchPart,
    LaunchSet,
    LaunchSpec,
    LaunchStatus,
    Ledger,
)
from advisor.runtime.processes import wait_until
from advisor.settings import Settings, read_settings
from advisor.wire.answers import AuditEntry
from advisor.wire.requests import LaunchRequest
from advisor_api.http.access import Caller, ServeOptions
from advisor_api.launches import cards, reconciler as housekeeping, reconciler as launch_reconciler
from advisor_api.launches.cards import HostCards
from advisor_api.launches.launching import (
    HIDDEN,
    last_heard,
    release_gpus,
    request_hash,
    row_of,
    start_supervisor,
    visible_launch,
)
from advisor_api.launches.reconciler import (
    TRIES,
    Housekeeping,
    LaunchMetrics,
    ObservationImporter,
    Reconciler,
    reconciling,
)
from advisor_api.service import Metrics, Service, open_service
from advisor_data import open_store
from advisor_data.state import LaunchRow
from advisor_profiling import SUPERVISOR

GPU = Gpu(uuid="GPU-1", model="NVIDIA H200", memory_mib=1000)
READER = Caller(name="r", scopes=frozenset({"read"}))
LAUNCHER = Caller(name="l", scopes=frozenset({"read", "launch"}))
FORECAST = Forecast(
    model_version="m1",
    jobs=(
        JobForecast(rate=Interval(100, 90, 110), solo_rate=200),
        JobForecast(rate=Interval(50, 45, 55), solo_rate=100),
    ),
    power_w=Interval(400, 380, 420),
    work_per_joule=Interval(0.0025, 0.0023, 0.0027),
    coverage=0.9,
)
PAIR = LaunchSet(
    split=NINE[2],
    parts=(
        LaunchPart(job=Job(name="zed", command=("a",))),
        LaunchPart(job=Job(name="abe", command=("b",))),
    ),
    forecast=FORECAST,
)
SPEC = LaunchSpec(launch_id="20260131-120000-abcdef", gpu="GPU-1", pairs=(PAIR,))
SEEN = observation(
    launch_id=SPEC.launch_id,
    job_1="abe",
    job_2="zed",
    share_1_percent=70,
    share_2_percent=30,
    rate_1=51.0,
    rate_2=200.0,
    power_w=401.0,
    work_per_joule=0.001,
    predicted_rate_1=50,
    predicted_rate_2=100,
    predicted_power_w=400,
    predicted_work_per_joule=0.0025,
    state="stopped",
)


def request(**more: Any) -> LaunchRequest:
    return read(LaunchRequest, write({"jobs": pair("zed", "abe"), **more}))


def pair(*names: str, **limits: float) -> list[dict[str, Any]]:
    return [{"job": name, **limits} for name in names]


# requests


@given(st.text(max_size=30))
def test_no_other_split_is(text: str) -> None:
    """Whatever is sent, it is refused as input, or it is a split that the launcher reads."""
    try:
        split = request(split=text).split
    except InputError:
        return
    assert split is not None
    assert split in ("uncapped", "time-sliced") or all(
        0 < float(p) <= 100 for p in split.split("/")
    )


def test_least_speeds_are_of_jobs_that_are_launched() -> None:
    """One number is for all of them; a name that is not there was misspelled."""
    asked = request(min_speed=0.5, then=[[*pair("abe"), {"job": "c", "min_speed": 0.7}]])
    assert asked.min_speeds() == {"zed": 0.5, "abe": 0.5, "c": 0.7}
    with pytest.raises(InputError, match="abe comes twice with two limits"):
        request(jobs=[*pair("abe", min_speed=0.5), *pair("abe")], min_speed=0.4).min_speeds()


@pytest.mark.parametrize(
    ("fields", "with_split"),
    [
        ({"objective": "throughput"}, False),
        ({"memory_mib": 80_000}, False),
        ({"max_power_w": 300}, True),
        ({"min_speed": 0}, True),
        ({"jobs": [{"job": "zed", "max_p99_ms": 50}, {"job": "abe"}]}, True),
    ],
)
def test_a_split_is_given_or_recommended(fields: dict[str, Any], *, with_split: bool) -> None:
    """Limits are kept at a given split, too; what chooses one would do nothing."""
    request(**fields).check()
    refused = pytest.raises(InputError, match="given or recommended")
    with nullcontext() if with_split else refused:
        request(split="30/70", **fields).check()
    with refused:
        request(share_percent=30, **fields).check()


@pytest.mark.parametrize("given", [{"split": "30/70"}, {"then": [pair("abe") * 2]}])
def test_ways_are_tried_of_one_set_without_a_split(given: dict[str, Any]) -> None:
    request(tries=2).check()
    with pytest.raises(InputError, match="2 ways cannot be tried"):
        request(tries=2, **given).check()


def test_work_is_not_ignored_in_silence() -> None:
    """A launch goes on until its jobs end, in the first pair and in those that follow."""
    told = pair("abe", work_s=60.0)
    for asked in (request(jobs=[*told, *pair("zed")]), request(then=[told * 2])):
        with pytest.raises(InputError, match="work_s of abe does not count in a launch"):
            asked.check()


def test_the_same_request_has_the_same_hash_however_it_is_written() -> None:
    """Defaults that are sent change nothing; everything else does."""
    assert request_hash(request()) == request_hash(request(dry_run=False, hang_s=None))
    others = [
        {"jobs": pair("abe", "zed")}, {"gpu": "1"}, {"split": "50/50"}, {"duration_s": 1},
        {"when_one_ends": "stop"}, {"then": [pair("zed", "abe")]}, {"min_speed": 0.1},
    ]  # fmt: skip
    assert len({request_hash(request(**other)) for other in [*others, {}]}) == len(others) + 1


# views


def test_a_reader_sees_nothing_that_a_job_wrote() -> None:
    """Causes and errors may hold secrets; warnings lose addresses and paths, and nothing else."""
    first = first_status(SPEC, "2026-01-31T12:00:00Z", GPU)
    status = replace(
        first,
        state="failed",
        code="job",
        cause="zed wrote: password=x",
        jobs=(replace(first.jobs[0], outcome="failed", error="password=x"), first.jobs[1]),
        warnings=(
            "rate of zed is 120 images/s, +20% against the prediction of 100 at 30/70",
            "not in the store: the database sqlite:////home/me/advisor.db did not answer",
            "no space left in /var/lib/advisor: 'x'",
            "postgresql://me:pass@db.local/advisor is away",
        ),
    )
    assert visible_launch(status, LAUNCHER).cause == "zed wrote: password=x"
    told = visible_launch(status, READER)
    assert (told.cause, told.jobs[0].error, told.jobs[1].error) == (
        HIDDEN, HIDDEN, None
    )  # fmt: skip
    assert list(told.warnings) == [
        status.warnings[0],
        "not in the store: the database … did not answer",
        "no space left in …: 'x'",
        "… is away",
    ]
    hidden: Any = {"cause": None, "jobs": (), "warnings": ()}
    assert replace(told, **hidden) == replace(visible_launch(status, LAUNCHER), **hidden)


@given(st.text(max_size=60))
def test_no_path_and_no_address_stays_in_a_warning(text: str) -> None:
    status = LaunchStatus(
        launch_id="x", state="running", updated_at="t",
        warnings=(f"{text} /srv/secret/file", f"{text} sqlite:////srv/secret {text}"),
    )  # fmt: skip
    assert not any("secret" in one for one in visible_launch(status, READER).warnings)


# what the reconciler counts and brings in


def sample(launch_metrics: LaunchMetrics, name: str, **labels: str) -> float | None:
    registry = CollectorRegistry()
    registry.register(launch_metrics)
    return registry.get_sample_value(f"advisor_{name}", labels)


def forecasts(launch_metrics: LaunchMetrics, which: str) -> list[float | None]:
    """Forecasts that were judged or missed: of rates, of the power, and of work per joule."""
    quantities = ("rate", "power", "work_per_joule")
    return [sample(launch_metrics, f"forecasts_{which}_total", quantity=q) for q in quantities]


def test_forecasts_are_held_against_what_the_pair_did() -> None:
    """Each rate with its own forecast, though the jobs stand in the other order."""
    launch_metrics = LaunchMetrics()
    assert forecasts(launch_metrics, "judged") == [None, None, None]
    # A mean of a moment is no observation, and without a forecast nothing was missed.
    launch_metrics.score(replace(SEEN, overlap_s=2), SPEC)
    launch_metrics.score(SEEN, replace(SPEC, pairs=(replace(PAIR, forecast=None),)))
    launch_metrics.score(SEEN, SPEC)
    launch_metrics.complete = True
    assert forecasts(launch_metrics, "judged") == [2, 1, 1]
    assert forecasts(launch_metrics, "missed") == [1, 0, 1]


def test_what_runs_is_shown_in_watts_speeds_and_seconds() -> None:
    """Copies of a job are told apart, and one that stands still has an expectation all the same.

    A launch that is over leaves its state, and no rate that stands still; without a profile there
    is no energy saved, which may be below 0.
    """
    first = JobStatus(job="abe", rate_unit="steps", share_percent=30, outcome="running", rate=40.0,
                      relative_speed=0.4, predicted_rate=Interval(50, 45, 55),
                      latency_p99_ms=30.0, max_p99_ms=50.0, drift=Drift(0.8, 0.9, 1.1))  # fmt: skip
    jobs = (first, replace(first, rate=0.0, relative_speed=0.0), replace(first, outcome="finished"))
    status = replace(
        first_status(SPEC, now(), GPU), state="running", jobs=jobs, work_per_joule=0.002,
        power_w=410.0, predicted_power_w=Interval(400, 380, 420), energy_saved=-0.02,
        speed_drift=Drift(0.85, 0.9, 1.1), work_drift=Drift(0.95, 0.8, 1.2),
        forecast=replace(FORECAST, energy_saved=Interval(0.1, -0.05, 0.2)),
    )  # fmt: skip
    launch_metrics = LaunchMetrics()
    launch_metrics.complete = True

    def shown(which: str, *names: str, **labels: str) -> list[float | None]:
        return [sample(launch_metrics, f"{which}_{name}", gpu="GPU-1", **labels) for name in names]

    of_gpu, speeds = ("work_per_joule", "power_watts", "energy_saved"), ("relative_speed",)
    launch_metrics.set_status(replace(status, jobs=jobs[:2]))
    assert shown("observed", *of_gpu) == [0.002, 410, -0.02]
    assert shown("predicted", *of_gpu) == [0.0025, 400, 0.1]
    for slot, observed in (("0", 0.4), ("1", 0)):
        assert shown("observed", *speeds, job="abe", slot=slot) == [observed]
        assert shown("predicted", *speeds, job="abe", slot=slot) == [0.5]
    for ends, of_promised in (("", 0.8), ("_low", 0.9), ("_high", 1.1)):
        assert shown("speed", f"drift{ends}", job="abe", slot="0") == [of_promised]
    assert shown("launch", "speed_drift", "work_per_joule_drift") == [0.85, 0.95]
    p99 = "latency_p99_seconds"
    assert shown("observed", p99, job="abe", slot="0") == [0.03]
    assert shown("promised", p99, job="abe", slot="0") == [0.05]
    assert sample(launch_metrics, "launches", state="running") == 1
    launch_metrics.set_status(replace(status, jobs=jobs[2:], energy_saved=None, forecast=FORECAST))
    assert shown("observed", *speeds, job="abe", slot="0") == [None]
    assert [shown(which, of_gpu[2]) for which in ("observed", "predicted")] == [[None], [None]]
    launch_metrics.set_status(replace(status, state="finished"))
    assert shown("observed", of_gpu[0]) == [None]
    assert [sample(launch_metrics, "launches", state=s) for s in ("running", "finished")] == [0, 1]


def test_energy_is_counted_from_zero_and_told_while_a_launch_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A counter that begins at its first value hides it; what is counted is not told twice.

    Nor is what has grown old since somebody could look, as where a database hangs.
    """
    ledger = Ledger(held_s=9, energy_j=1000, alone_s=12, alone_j=1300, freed_idle_j=None)
    one = JobStatus(job="abe", rate_unit="steps", share_percent=30, outcome="running")
    status = replace(first_status(SPEC, now(), GPU), state="running", jobs=(one,), energy_j=400.0)
    status = replace(status, rest_s=3.0, rest_energy_j=100.0, ledger=ledger)
    launch_metrics = LaunchMetrics()
    launch_metrics.set_status(status)
    for name in ("energy", "energy_saved", "energy_lost"):
        assert sample(launch_metrics, f"{name}_joules_total", gpu="GPU-1") == 0
    assert sample(launch_metrics, "job_energy_joules_total", job="abe") == 0
    assert sample(launch_metrics, "running_energy_joules", gpu="GPU-1") == 500
    assert sample(launch_metrics, "running_energy_saved_joules", gpu="GPU-1") == 300
    launch_metrics.count_energy(
        replace(SEEN, launch_id=status.launch_id, energy_j=500.0, energy_saved_to_end=0.2)
    )
    assert sample(launch_metrics, "running_energy_saved_joules", gpu="GPU-1") == 300 - 125
    assert sample(launch_metrics, "launches_silent") == 0
    with monkeypatch.context() as later:
        later.setattr("advisor.launch.spec.SILENT_S", 0.0)
        assert sample(launch_metrics, "running_energy_joules", gpu="GPU-1") is None
        assert sample(launch_metrics, "launches_silent") == 1
    launch_metrics.set_status(replace(status, state="finished"))
    assert sample(launch_metrics, "running_energy_joules", gpu="GPU-1") is None


def test_energy_of_launches_only_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    """What sharing lost is a number of its own, and names of jobs have an end."""
    monkeypatch.setattr("advisor_api.launches.reconciler._MOST_JOBS", 1)
    saved = replace(
        SEEN,
        parts=tuple(replace(part, energy_j=300.0) for part in SEEN.parts),
        energy_j=500.0, rest_s=1.0, rest_energy_j=100.0, energy_saved_to_end=0.25,
    )  # fmt: skip
    launch_metrics = LaunchMetrics()
    wrong = replace(saved, gpu_uuid="GPU-wrong", flags=("wrong-results",))
    for seen in (saved, replace(saved, energy_saved_to_end=-0.5), replace(saved, stretch=1), wrong):
        launch_metrics.count_energy(seen)

    def joules(name: str, **labels: str) -> float | None:
        return sample(launch_metrics, f"{name}_joules_total", **labels)

    assert joules("energy", gpu=SEEN.gpu_uuid) == 1200
    assert joules("energy_saved", gpu=SEEN.gpu_uuid) == 200
    assert joules("energy_lost", gpu=SEEN.gpu_uuid) == 200
    assert joules("energy", gpu="GPU-wrong") == 600
    assert joules("energy_saved", gpu="GPU-wrong") is None
    assert (joules("job_energy", job="abe"), joules("job_energy", job="other")) == (900, 900)


def test_observations_are_brought_in_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often a folder is looked at, with a line that is half or none in between.

    What could not be stored while the database was away is stored later, and counted once.
    """

    def fail(*_: object) -> int:
        raise StoreError("away")

    folder, launch_metrics = create_folder(tmp_path / "launches", SPEC), LaunchMetrics()
    with open_store(f"sqlite:///{tmp_path}/a.db", tmp_path) as store:
        observations = ObservationImporter(store, launch_metrics)
        observations.bring_in(folder)
        append_observation(folder.path, SEEN)
        with (folder.path / "observations.jsonl").open("ab") as file:
            file.write(b'{"launch_id": 1}\n{"half')
        with monkeypatch.context() as away:
            away.setattr(type(store), "add", fail)
            for _ in range(2):
                with pytest.raises(StoreError):
                    observations.bring_in(folder)
        for _ in range(2):
            observations.bring_in(folder)
        assert store.observations() == [SEEN]
        # A service that was started again: what is stored is no new energy.
        again = LaunchMetrics()
        ObservationImporter(store, again).bring_in(folder)
    launch_metrics.complete = True
    assert forecasts(launch_metrics, "judged") == [2, 1, 1]
    of = {"gpu": SEEN.gpu_uuid}
    assert sample(launch_metrics, "energy_joules_total", **of) == SEEN.energy_j
    assert sample(again, "energy_joules_total", **of) is None


# The GPUs of a host, and what those draw that nobody holds.


GPUS = [Gpu(uuid="GPU-1", model="H200"), Gpu(uuid="GPU-2", model="H200")]


class Source:
    """Telemetry that fails as often as it is told to."""

    def __init__(self, fails: int = 0) -> None:
        self.fails, self.is_closed = fails, False

    def read(self, names: Collection[str]) -> Readings:
        self.fails -= 1
        if self.fails >= 0:
            raise SourceError("the driver was unloaded")
        return {POWER_GPU: 80.0}

    def close(self) -> None:
        self.is_closed = True


def settings() -> Settings:
    return read_settings({"ADVISOR_HOME": "/nonexistent", "XDG_CONFIG_HOME": "/nonexistent"})


def test_free_ones_are_read_and_a_source_that_fails_is_opened_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a card that is held others read the power; a driver that was loaded again is found."""
    opened = [Source(fails=1), Source()]
    left = [*opened]
    monkeypatch.setattr(cards, "list_gpus", lambda: GPUS)

    def open_source(*_: object) -> Source:
        return left.pop(0)

    monkeypatch.setattr(cards, "open_source", open_source)
    found = HostCards(settings())
    assert found.look({"GPU-2"}) == [(GPUS[0], None), (GPUS[1], None)]
    assert opened[0].is_closed
    assert found.look({"GPU-2"}) == [(GPUS[0], 80.0), (GPUS[1], None)]
    found.close()
    assert opened[1].is_closed


def test_without_a_driver_there_are_none_and_nobody_asks_all_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    def no_driver() -> list[Gpu]:
        asked.append(1)
        raise SourceError("no driver answers")

    monkeypatch.setattr(cards, "list_gpus", no_driver)
    found = HostCards(settings())
    assert found.look(()) == found.look(()) == []
    assert len(asked) == 1


H200 = Gpu(uuid="H200-1", model="NVIDIA H200")
AB = LaunchSet(
    split=NINE[2],
    parts=(
        LaunchPart(job=Job(name="a", command=("a",))),
        LaunchPart(job=Job(name="b", command=("b",))),
    ),
)
DAY_S = 86_400
LAUNCH = "20260131-120000-abcdef"
LONG_AGO = "2020-01-31T12:00:00+00:00"


def row(launch_id: str = LAUNCH, gpu: Gpu = H200, home: str = "ours") -> LaunchRow:
    spec = LaunchSpec(launch_id=launch_id, gpu=gpu.uuid, pairs=(AB,))
    return row_of(spec, first_status(spec, LONG_AGO, gpu), home, "")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    settings = read_settings({"ADVISOR_HOME": str(tmp_path), "ADVISOR_JOBS": str(tmp_path)})
    with open_service(settings, ServeOptions(launching=True), Metrics()) as opened:
        yield replace(opened, home="ours")


@pytest.fixture
def spawned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Launches whose supervisors were started; none of them ever begins."""
    found: list[str] = []

    def spawn(folder: LaunchFolder, settings: Settings, program: str) -> None:
        assert (program, folder.path.parent) == (SUPERVISOR, settings.home / "launches")
        found.append(folder.launch_id)

    monkeypatch.setattr("advisor_api.launches.launching.spawn_supervisor", spawn)
    return found


def kept(service: Service, launch_id: str = LAUNCH) -> LaunchStatus:
    found = service.state.launch(launch_id)
    assert found is not None
    status = read(LaunchStatus, found.status)
    assert status.state == found.state
    return status


def made(service: Service, row: LaunchRow) -> LaunchFolder:
    return create_folder(service.settings.home / "launches", read(LaunchSpec, row.spec))


def look(service: Service) -> None:
    """What a service that has just begun does first."""
    Reconciler(service, LaunchMetrics()).look()


def test_a_supervisor_that_never_begins_is_given_up(
    service: Service, spawned: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is started a few times, then the launch is failed, and the H200 is free for the next."""
    monkeypatch.setattr(launch_reconciler, "_HALF_S", 0.0)
    service.state.add_launch(row())
    reconciler = Reconciler(service, LaunchMetrics())
    for _ in range(TRIES + 3):
        reconciler.look()
    assert spawned == [LAUNCH] * (TRIES + 1)
    status = kept(service)
    assert (status.state, status.code) == ("failed", "supervisor-gone")
    assert LaunchFolder(service.settings.home / "launches" / LAUNCH).claimed()
    assert service.state.add_launch(row("20260131-120001-abcdef")).state == "accepted"


def test_a_launch_that_may_just_be_beginning_is_left_alone(
    service: Service, spawned: list[str]
) -> None:
    """Anyone who asked for it needs a moment to make its folder and start its supervisor."""
    young = replace(row(), created_at=datetime.now(UTC).isoformat())
    service.state.add_launch(young)
    look(service)
    made(service, young)
    look(service)
    assert (spawned, kept(service, young.launch_id).state) == ([], "accepted")
    LaunchFolder(service.settings.home / "launches" / LAUNCH).ask_stop()
    look(service)
    assert (spawned, kept(service).state) == ([], "stopped")
    # From before the clock was set back: it does not wait until the clock has caught up.
    again = replace(row("20260131-120001-abcdef"), created_at="2999-01-31T12:00:00+00:00")
    service.state.add_launch(again)
    look(service)
    assert spawned == [again.launch_id]


def test_a_clock_that_jumps_neither_delays_nor_hurries_a_launch(
    service: Service, spawned: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A supervisor gets its time to begin, and is started again when that is over."""
    made_s = (made(service, service.state.add_launch(row())).path / "spec.json").stat().st_mtime
    at = {"monotonic": 100.0, "jump": 0.0}
    clock = SimpleNamespace(
        monotonic=lambda: at["monotonic"],
        time=lambda: made_s + at["monotonic"] - 100 + at["jump"],
    )
    monkeypatch.setattr(launch_reconciler, "time", clock)
    reconciler = Reconciler(service, LaunchMetrics())
    started: list[int] = []
    for monotonic_s, jump_s in (
        (101, 0), (104, -DAY_S), (104.5, DAY_S), (105, -DAY_S), (109, DAY_S), (111, -DAY_S)
    ):  # fmt: skip
        at.update(monotonic=monotonic_s, jump=jump_s)
        reconciler.look()
        started.append(len(spawned))
    assert started == [0, 1, 1, 1, 1, 2]


def test_a_service_that_may_not_launch_begins_nothing(service: Service, spawned: list[str]) -> None:
    """It keeps what is there up to date, and leaves the rest to one that may."""
    service.state.add_launch(row())
    Reconciler(replace(service, options=ServeOptions()), LaunchMetrics()).look()
    assert (spawned, kept(service).state) == ([], "accepted")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"state": "running"}, "supervisor-gone"),
        ({"spec": '{"later": "version"}'}, "internal"),
        # A container that got a new name: the home says whose launches are, not the host.
        ({"state": "running", "host": "before"}, "supervisor-gone"),
    ],
)
def test_a_launch_that_cannot_be_gone_on_with_has_failed(
    service: Service, spawned: list[str], changes: dict[str, str], code: str
) -> None:
    """A folder that was lost is not begun again, and a spec that cannot be read holds no H200."""
    service.state.add_launch(replace(row(), **changes))
    look(service)
    assert spawned == []
    assert (kept(service).state, kept(service).code) == ("failed", code)


def ended(_folder: LaunchFolder, pid: int | None) -> int:
    return pid or 0


def test_a_launch_that_nobody_hears_of_is_shown_so(
    service: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its power is no power of now; who keeps it from stopping, once asked, is ended."""
    folder = made(service, service.state.add_launch(row()))
    monkeypatch.setattr(guard, "_STOP_S", 0.0)
    monkeypatch.setattr(guard, "SILENT_S", 0.0)
    monkeypatch.setattr(guard, "end_supervisor", ended)
    reconciler = Reconciler(service, metrics := LaunchMetrics())
    running = LaunchStatus(
        launch_id=LAUNCH,
        state="running",
        updated_at=LONG_AGO,
        gpu_uuid="H200-1",
        supervisor_pid=7,
        work_per_joule=0.5,
        jobs=(JobStatus(job="a", rate_unit="steps", share_percent=30),),
    )
    with folder.supervising():
        folder.write_status(running)
        reconciler.look()
        assert (kept(service).state, (kept(service).silent_s or 0) > DAY_S) == ("running", True)
        shown = {one.name: one.samples for one in metrics.collect()}
        assert [one.value for one in shown["advisor_launches_silent"]] == [1]
        assert (shown["advisor_observed_work_per_joule"], caplog.text) == ([], "")
        folder.ask_stop()
        reconciler.look()
        reconciler.look()
    assert f"{LAUNCH}, process 7, did not heed the stop" in caplog.text
    other = replace(row(), host="elsewhere", status=write(running))
    assert (last_heard(other).silent_s or 0) > DAY_S


def test_one_bad_folder_holds_up_no_other(
    service: Service, spawned: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    bad = LaunchFolder(service.settings.home / "launches/20990131-120000-abcdef")
    bad.path.mkdir(parents=True)
    (bad.path / "spec.json").write_text("{}")
    (bad.path / "claim").touch()
    service.state.add_launch(row())
    reconciler = Reconciler(service, LaunchMetrics())
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            reconciler.look()
    assert spawned == [LAUNCH]
    assert len([one for one in caplog.records if bad.launch_id in one.getMessage()]) == 1


def test_a_launch_that_has_ended_lets_go_at_once(service: Service) -> None:
    folder = made(service, service.state.add_launch(row()))
    release_gpus(service.state, service.settings, service.home)
    assert kept(service).state == "accepted"
    with folder.supervising():
        StatusWriter(folder, folder.read_spec()).close("finished")
    release_gpus(service.state, service.settings, service.home)
    assert kept(service).state == "finished"
    service.state.add_launch(row("20260131-120001-abcdef"))


def test_a_folder_that_cannot_be_written_fails_the_launch(service: Service) -> None:
    """Anyone who asked is told, and the H200 is free: nothing begins behind their back."""
    (service.settings.home / "launches").write_text("in the way")
    asked = service.state.add_launch(row())
    with pytest.raises(UnsafeFileError, match="launches is not a folder"):
        start_supervisor(asked, service.state, service.settings)
    assert (kept(service).state, kept(service).code) == ("failed", "unsafe-file")


def test_a_damaged_page_is_in_the_log_of_a_service_that_starts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It starts all the same: the pages that it needs may be good."""
    settings = read_settings({"ADVISOR_HOME": str(tmp_path), "ADVISOR_JOBS": str(tmp_path)})
    with open_store(None, tmp_path) as store:
        store.add([point(number) for number in range(500)])
    file = tmp_path / "advisor.db"
    with file.open("r+b") as database:
        database.seek(file.stat().st_size // 2 // 4096 * 4096)
        database.write(bytes(4096))
    with caplog.at_level(logging.ERROR), open_service(settings, ServeOptions(), Metrics()):
        assert wait_until(lambda: "advisor.db is damaged" in caplog.text, 20)


# homes


def test_a_home_has_one_service(service: Service) -> None:
    """Two would start supervisors for the same launches; the second one is told of the first."""
    with (
        pytest.raises(BusyError, match=f"has a service already, process {os.getpid()}"),
        open_service(service.settings, service.options, Metrics()),
    ):
        pytest.fail("both have it")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", pytest.param("server", marks=pytest.mark.postgres)])
def test_two_homes_keep_off_each_others_launches(
    tmp_path: Path, spawned: list[str], kind: str, request: pytest.FixtureRequest
) -> None:
    """What has no folder here has one there: it is neither failed, nor begun, nor let go."""
    url = f"sqlite:///{tmp_path}/shared.db"
    if kind == "server":
        url = request.getfixturevalue("postgres_url")
    with ExitStack() as stack:
        opened: list[Service] = []
        for name in ("a", "b"):
            variables = {"ADVISOR_HOME": f"{tmp_path}/{name}", "ADVISOR_DATABASE_URL": url}
            settings = read_settings({**variables, "ADVISOR_JOBS": str(tmp_path)})
            one = open_service(settings, ServeOptions(launching=True), Metrics())
            opened.append(stack.enter_context(one))
        ours, theirs = opened
        runs = theirs.state.add_launch(replace(row(home=theirs.home), state="running"))
        other_gpu = Gpu(uuid="H200-2", model="NVIDIA H200")
        waits = theirs.state.add_launch(row("20260131-120001-abcdef", other_gpu, theirs.home))
        for _ in range(2):
            Reconciler(ours, LaunchMetrics()).look()
            release_gpus(ours.state, ours.settings, ours.home)
        assert spawned == []
        assert not (ours.settings.home / "launches").exists()
        assert [one.state for one in ours.state.launches()] == ["accepted", "running"]
        Reconciler(theirs, LaunchMetrics()).look()
        assert spawned == [waits.launch_id]
        assert kept(theirs, runs.launch_id).code == "supervisor-gone"


def test_nothing_ends_the_looking(
    service: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A database that is away is told once for each time, an internal error always; it goes on."""
    looks = iter([StoreError("away"), StoreError("away"), None, StoreError("away"), KeyError("x")])
    seen = list[object]()

    def look(_: Reconciler) -> None:
        error = next(looks, None)
        seen.append(error)
        if error is not None:
            raise error

    monkeypatch.setattr(Reconciler, "look", look)
    monkeypatch.setattr(launch_reconciler, "LOOK_S", 0.001)
    with caplog.at_level(logging.ERROR), reconciling(service):
        assert wait_until(lambda: len(seen) > 10, 20)
    assert "launches" not in {thread.name for thread in threading.enumerate()}
    said = [one.getMessage() for one in caplog.records]
    assert len([text for text in said if "launches go on" in text]) == 2
    assert len([text for text in said if "a look at launches failed" in text]) == 1


# What a service removes by itself: at its first look, then once an hour.


OLD = AuditEntry(
    at="2020-01-31T12:00:00.000+00:00", who="ci", action="x", subject="y", outcome="done"
)


@pytest.fixture(params=["", "0"])
def days(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def bounded(tmp_path: Path, days: str) -> Iterator[Service]:
    bounds = dict.fromkeys(("ADVISOR_KEEP_LAUNCHES_DAYS", "ADVISOR_KEEP_AUDIT_DAYS"), days)
    settings = read_settings({"ADVISOR_HOME": str(tmp_path), "ADVISOR_JOBS": ".", **bounds})
    with open_service(settings, ServeOptions(), Metrics()) as opened:
        yield opened


def test_what_is_beyond_its_bound_goes_and_is_in_both_logs(
    bounded: Service, days: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Launches are brought in first, as rows and observations; 0 keeps everything."""
    home = bounded.settings.home
    ended_launch(home, 1, 1000)
    ended_launch(home, 2, 1)
    bounded.state.audit(OLD)
    reconciler = Reconciler(bounded, LaunchMetrics())
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            reconciler.look_safely()
    assert len(bounded.store.observations()) == 2
    assert [row.state for row in bounded.state.launches()] == ["finished"] * 2
    left = {folder.launch_id for folder in list_folders(home / "launches")}
    actions = [entry.action for entry in bounded.state.audit_log()]
    texts = f"the launch {launch_id(1)}, which ended", "1 entries of the audit log before"
    assert (left, actions, [caplog.text.count(text) for text in texts]) == (
        ({launch_id(1), launch_id(2)}, ["x"], [0, 0])
        if days == "0"
        else ({launch_id(2)}, ["audit.prune", "launch.remove"], [1, 1])
    )


@pytest.mark.parametrize("days", [""], indirect=True)
def test_it_looks_once_an_hour(bounded: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a look failed: a database that is away is not asked for sizes of folders."""
    at = {"s": 100.0}
    monkeypatch.setattr(housekeeping.time, "monotonic", lambda: at["s"])
    keeper = Housekeeping(bounded)
    keeper.look()
    ended_launch(bounded.settings.home, 1, 1000)
    keeper.look()
    root = bounded.settings.home / "launches"
    assert list_folders(root)

    def away(before: str, who: str) -> int:
        raise StoreError("away")

    monkeypatch.setattr(bounded.state, "prune_audit_log", away)
    at["s"] += housekeeping.EVERY_S
    with pytest.raises(StoreError):
        keeper.look()
    assert not list_folders(root)
    keeper.look()


@pytest.mark.parametrize("days", [""], indirect=True)
def test_what_cannot_go_is_told_once_and_stops_nothing(
    bounded: Service, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "EVERY_S", 0.0)
    (ended_launch(bounded.settings.home, 1, 1000).path / OBSERVATIONS).write_text("{}\n")
    keeper = Housekeeping(bounded)
    for _ in range(3):
        keeper.look()
    assert caplog.text.count("cannot be read") == 1
