"""`advisor power sensor` from end to end: real processes, a fake driver, a load that sets power."""

import os
import signal
import time
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from fake_nvml import FakeNvml, error
from host import FAKES, UUID, FakeHost
from reading import some
from synthetic_sensor import HEADER
from waiting import eventually

from advisor.core.gpu import Gpu
from advisor.errors import JobError, SourceError
from advisor.runtime.backend import UncappedBackend
from advisor.settings import workload_path
from advisor.validity.sensor_record import (
    SENSOR_RECORDS,
)
from advisor_power.gpu_worker import AnsweringJob, AnsweringSpec, WorkerReady, started
from advisor_power.sensor import recording
from advisor_power.sensor.recording import recorders, run_stage
from advisor_power.sensor.trace import LoadStage, Trace, append, begin_trace, read_trace

PYTHON = str(FAKES / "fake_power_load.py")


def state(host: FakeHost) -> FakeNvml:
    return FakeNvml(host.libraries, host.folder / "nvml")


@contextmanager
def load(
    folder: Path, environment: Mapping[str, str], program: str = PYTHON
) -> Generator[AnsweringJob]:
    """The load of the command, on the fake card."""
    folder.mkdir()
    workload = AnsweringSpec(
        command=(program, str(workload_path("power_load.py"))),
        units=None,
        backend=UncappedBackend(Gpu(uuid=UUID, model="Fake H200")),
        base=environment,
        folder=folder,
    )
    job, _ = started("power-load", workload, WorkerReady)
    with closing(job):
        yield job


def short_recording(host: FakeHost, file: Path, environment: Mapping[str, str]) -> Trace:
    """One second of load between idle times, by the real processes."""
    begin_trace(file, HEADER)
    stages = (LoadStage("idle", 0.5), LoadStage("flat", 1.5, ((0.0, 1.0),)))
    folder = file.with_name("load")
    with load(folder, environment) as job, recorders(UUID, file, environment) as watching:
        for stage in stages:
            for line in run_stage(job, stage):
                append(file, line)
        # Both have written what they saw.
        eventually(lambda: read_trace(file).series["instant"].values[-1] == 80)
        assert not any(recorder.gone for recorder in watching)
    return read_trace(file)


@pytest.mark.slow
def test_recording_shows_the_load(host: FakeHost, tmp_path: Path) -> None:
    """Readings change when the load does, with looks at the card; a memory that reads 0 is none."""
    state(host).write(gpu=0, power_memory_average_mw=0, throttle=0x20)
    state(host).write(gpu=0, compute_processes=f"{os.getpid()} 500\n77 500")
    trace = short_recording(host, tmp_path / "r.jsonl", host.environment())
    assert [stage.name for stage in trace.stages] == ["idle", "flat"]
    ((begun_s, ended_s),) = trace.stages[1].on
    instant = trace.series["instant"]
    assert set(instant.values) == {80, 500}
    first_load_s = instant.times_s[instant.values == 500][0]
    assert begun_s <= first_load_s <= ended_s
    # To its end, but for what a busy host is late with.
    assert instant.times_s[-1] >= (first_load_s + ended_s) / 2
    assert set(trace.series) == {"instant", "energy"}
    assert (trace.series["energy"].values > 0).all()
    assert (trace.looks[0].reasons, trace.looks[0].processes) == (
        ("sw-thermal",),
        {os.getpid(), 77},
    )
    assert not trace.whole


def test_card_that_is_lost_ends_the_recorders(host: FakeHost, tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    begin_trace(file, HEADER)
    with recorders(UUID, file, host.environment()) as watching:
        eventually(lambda: "instant" in read_trace(file).series)
        state(host).write(gpu=0, every=error(15))
        eventually(lambda: all(recorder.gone for recorder in watching))
        says = str(watching[0].failed())
    assert "NVML error 15" in says
    assert read_trace(file).series["instant"].values[0] == 80


def test_card_that_is_not_there_cannot_be_recorded(host: FakeHost, tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    begin_trace(file, HEADER)
    with (
        pytest.raises(SourceError, match="nvmlDeviceGetHandleByUUID failed"),
        recorders("GPU-none", file, host.environment()),
    ):
        pass


@pytest.mark.slow
@pytest.mark.parametrize(
    ("python", "more", "says"),
    [
        ("/nonexistent/python", {}, "no program /nonexistent"),
        (PYTHON, {"FAKE_LOAD_FAILS": "1"}, "illegal memory access"),
        (PYTHON, {"FAKE_LOAD_HANGS": "1"}, "did not end a stage within"),
    ],
)
def test_load_that_fails_says_why(
    host: FakeHost,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    python: str,
    more: dict[str, str],
    says: str,
) -> None:
    monkeypatch.setattr(recording, "_LATE_S", 1.0)
    with (
        pytest.raises(JobError, match=says),
        load(tmp_path / "load", host.environment(**more), python) as job,
    ):
        list(run_stage(job, LoadStage("flat", 0.1, ((0.0, 0.1),))))


@pytest.mark.slow
def test_interrupt_keeps_what_was_recorded(host: FakeHost) -> None:
    """Ctrl-C says where the recording is; nothing is taken for a result, and nothing runs on."""
    with host.start_advisor("power", "sensor", "--python", PYTHON) as process:
        for line in some(process.stderr):
            if line.strip().startswith("idle"):
                break
        (file,) = (host.folder / "home/sensors/recordings").glob("*.jsonl")
        eventually(lambda: "instant" in read_trace(file).series)
        process.send_signal(signal.SIGINT)
        rest = some(process.stderr).read()
    assert process.returncode == 130, rest
    assert f"what was recorded is in {file}" in rest
    assert read_trace(file).header.gpu_uuid == UUID
    assert SENSOR_RECORDS.read(host.folder / "home") == []
    length = file.stat().st_size
    time.sleep(0.6)  # more than twice as long as a recorder waits before it writes
    assert file.stat().st_size == length


@pytest.mark.slow
def test_gpu_that_others_use_is_not_recorded(host: FakeHost) -> None:
    state(host).write(gpu=0, compute_processes="77 500")
    done = host.advisor("power", "sensor", "--python", PYTHON)
    assert done.returncode == 8
    assert "use GPU" in done.stderr
    assert list((host.folder / "home/sensors/recordings").glob("*.jsonl")) == []
