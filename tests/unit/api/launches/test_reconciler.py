"""Who looks after launches: every half launch has a defined end, and nothing stops the looking."""

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from store_points import point

from advisor.core.gpu import NINE, Gpu
from advisor.core.job import Job
from advisor.errors import BusyError, StoreError, UnsafeFileError
from advisor.launch import guard
from advisor.launch.folder import (
    LaunchFolder,
    StatusWriter,
    create_folder,
    dumps,
    first_status,
    loads,
)
from advisor.launch.spec import JobStatus, LaunchPart, LaunchSet, LaunchSpec, LaunchStatus
from advisor.runtime.processes import wait_until
from advisor.settings import Settings, read_settings
from advisor_api.http.options import ServeOptions
from advisor_api.launches import reconciler as launch_reconciler
from advisor_api.launches.launch_metrics import LaunchMetrics
from advisor_api.launches.launching import last_heard, release_gpus, row_of, start_supervisor
from advisor_api.launches.reconciler import TRIES, Reconciler, reconciling
from advisor_api.service import Metrics, Service, open_service
from advisor_data import open_store
from advisor_data.state import LaunchRow
from advisor_profiling import SUPERVISOR

GPU = Gpu(uuid="GPU-1", model="NVIDIA H200")
PAIR = LaunchSet(
    split=NINE[2],
    parts=(
        LaunchPart(job=Job(name="a", command=("a",))),
        LaunchPart(job=Job(name="b", command=("b",))),
    ),
)
DAY_S = 86_400
LAUNCH = "20260131-120000-abcdef"
LONG_AGO = "2020-01-31T12:00:00+00:00"


def row(launch_id: str = LAUNCH, gpu: Gpu = GPU, home: str = "ours") -> LaunchRow:
    spec = LaunchSpec(launch_id=launch_id, gpu=gpu.uuid, pairs=(PAIR,))
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
        assert program == SUPERVISOR
        assert folder.path.parent == settings.home / "launches"
        found.append(folder.launch_id)

    monkeypatch.setattr("advisor_api.launches.launching.spawn_supervisor", spawn)
    return found


def kept(service: Service, launch_id: str = LAUNCH) -> LaunchStatus:
    found = service.state.launch(launch_id)
    assert found is not None
    status = loads(LaunchStatus, found.status.encode())
    assert status.state == found.state
    return status


def made(service: Service, row: LaunchRow) -> LaunchFolder:
    return create_folder(service.settings.home / "launches", loads(LaunchSpec, row.spec.encode()))


def look(service: Service) -> None:
    """What a service that has just begun does first."""
    Reconciler(service, LaunchMetrics()).look()


def test_a_supervisor_that_never_begins_is_given_up(
    service: Service, spawned: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is started a few times, then the launch is failed, and the GPU is free for the next."""
    monkeypatch.setattr(launch_reconciler, "HALF_S", 0.0)
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
    assert spawned == []
    assert kept(service, young.launch_id).state == "accepted"
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
    assert spawned == []
    assert kept(service).state == "accepted"


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
    """A folder that was lost is not begun again, and a spec that cannot be read holds no GPU."""
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
    monkeypatch.setattr(guard, "STOP_S", 0.0)
    monkeypatch.setattr(guard, "SILENT_S", 0.0)
    monkeypatch.setattr(guard, "end_supervisor", ended)
    reconciler = Reconciler(service, metrics := LaunchMetrics())
    running = LaunchStatus(
        launch_id=LAUNCH,
        state="running",
        updated_at=LONG_AGO,
        gpu_uuid="GPU-1",
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
        assert shown["advisor_observed_work_per_joule"] == []
        assert caplog.text == ""
        folder.ask_stop()
        reconciler.look()
        reconciler.look()
    assert f"{LAUNCH}, process 7, did not heed the stop" in caplog.text
    other = replace(row(), host="elsewhere", status=dumps(running).decode())
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
    """Anyone who asked is told, and the GPU is free: nothing begins behind their back."""
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
        other_gpu = Gpu(uuid="GPU-2", model="NVIDIA H200")
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
