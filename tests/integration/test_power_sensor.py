"""`advisor power sensor` from end to end: real processes, a fake driver, a load that sets power."""

import gzip
import json
import os
import signal
import time
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_nvml import FakeNvml, error
from host import FAKES, UUID, FakeHost
from made_up_kernel import FAST as FAST_CHANNEL, record
from reading import some
from synthetic_sensor import HEADER
from typer.testing import CliRunner
from unsafe_counts import checked_with
from waiting import eventually

from advisor.core.gpu import Gpu
from advisor.core.job import Job
from advisor.errors import InputError, JobError, SourceError
from advisor.formats.wire import read
from advisor.runtime.backend import UncappedBackend
from advisor.runtime.processes import wait_until
from advisor.runtime.running_job import leftovers
from advisor.settings import workload_path
from advisor.validity.safe_counts import keep_check
from advisor.validity.sensor_record import (
    SENSOR_RECORDS,
    PowerChannel,
    keep_record,
)
from advisor.wire.power import KernelReport
from advisor_cli.app import app
from advisor_power import sensor
from advisor_power.gpu_worker import AnsweringJob, WorkerReady, started
from advisor_power.sensor import (
    LoadStage,
    Trace,
    append,
    begin_trace,
    read_trace,
    recorders,
    run_stage,
)

PYTHON = str(FAKES / "fake_power_load.py")


def state(host: FakeHost) -> FakeNvml:
    return FakeNvml(host.libraries, host.folder / "nvml")


@contextmanager
def load(
    folder: Path, environment: Mapping[str, str], program: str = PYTHON
) -> Generator[AnsweringJob]:
    """The load of the command, on the fake card."""
    folder.mkdir()
    backend = UncappedBackend(Gpu(uuid=UUID, model="Fake H200"))
    workload = Job(name="power-load", command=(program, str(workload_path("power_load.py"))))
    job, _ = started(workload, WorkerReady, backend, environment, folder)
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
    assert trace.looks[0][1:] == (("sw-thermal",), {os.getpid(), 77})
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
    monkeypatch.setattr(sensor, "_STAGE_LATE_S", 1.0)
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


# `advisor power input` from end to end: real processes, a fake driver, no GPU.


WORKER = ("--python", str(FAKES / "fake_input_worker.py"))
FAST = replace(FAST_CHANNEL, period_ms=20.0, window_ms=20.0)
SHAPE = ("--shape", "64x32x128", "--window", "0.5")
HALF = "normal(0,1)|sparse(0.5)"
KEYS = {
    "operands", "shape", "dtype", "work", "conditions", "session", "is_reference", "measured_at",
    "power_w", "rate", "counter_power_w", "memory_power_w", "idle_w", "sm_clock_mhz",
    "temperature_c", "power_limit_w", "throttle_reasons", "settled", "settle_s", "window_s", "a",
    "b", "fingerprint", "outputs", "reference_ratio", "unit", "work_per_s", "energy_pj",
    "energy_above_idle_pj", "at_limit", "flags",
}  # fmt: skip


def lines_kept(host: FakeHost) -> list[dict[str, Any]]:
    """What is kept of the card: results of inputs, blocks of runs of a kernel."""
    home = host.folder / "home"
    files = [*home.glob("inputs/*.jsonl"), *home.glob("kernels/*.jsonl.gz")]
    data = files[0].read_bytes() if files else b""
    lines = gzip.decompress(data) if data and files[0].suffix == ".gz" else data
    return [json.loads(line) for line in lines.splitlines()]


def measured(host: FakeHost, *words: str, code: int = 0, **more: str) -> dict[str, Any]:
    know_sensor(host, FAST)
    done = host.advisor("power", "input", *words, *SHAPE, *WORKER, "--json", **more)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def interrupted(host: FakeHost, *command: str) -> list[dict[str, Any]]:
    """What is kept of the card when Ctrl-C has ended a command of power; nothing runs on."""
    with host.start_advisor("power", *command) as process:
        assert wait_until(lambda: len(lines_kept(host)) >= 2 or process.poll() is not None, 90)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "the same command goes on from here" in errors
    assert leftovers(UUID, Path(host.folder / "run")) == []
    return lines_kept(host)


@pytest.mark.slow
def test_power_follows_the_data_and_is_kept(host: FakeHost) -> None:
    """Zeros draw 200 W, half of them 300 W; a second time nothing is measured."""
    found = measured(host, "zeros", HALF)
    zeros, half = found["inputs"]
    assert (set(zeros), zeros["power_w"]["value"]) == (KEYS, pytest.approx(200, abs=3))
    assert half["power_w"]["value"] == pytest.approx(300, abs=6)
    assert zeros["reference_ratio"]["value"] == pytest.approx(0.5, abs=0.02)
    assert half["operands"] == f"a={HALF}; b={HALF}; align=true; seed=0"
    assert (zeros["shape"], zeros["unit"]) == ({"m": 64, "n": 32, "k": 128}, "operation")
    assert (half["work_per_s"], half["energy_pj"] * half["work_per_s"]) == (
        pytest.approx(500 * 2 * 64 * 32 * 128, rel=0.15),
        pytest.approx(half["power_w"]["value"] * 1e12),
    )
    assert (half["outputs"]["right"], half["a"]["non_finite"]) == (True, 0)
    assert 0.45 < half["fingerprint"]["a"]["zeros"] < 0.55
    kept = lines_kept(host)
    assert [line["is_reference"] for line in kept] == [True, False, False, True]
    assert (measured(host, "zeros", HALF), lines_kept(host)) == (found, kept)


@pytest.mark.slow
def test_interrupt_then_the_same_command_goes_on(host: FakeHost) -> None:
    know_sensor(host, FAST)
    before = interrupted(host, "input", "zeros", HALF, "ones", *SHAPE, *WORKER, "--units", "66")
    assert before[0]["conditions"]["units"] == 66
    assert len(measured(host, "zeros", HALF, "ones", "--units", "66")["inputs"]) == 3
    assert lines_kept(host)[: len(before)] == before
    operands = [line["case"]["operands"] for line in lines_kept(host) if not line["is_reference"]]
    assert len(operands) == len(set(operands)) == 3


@pytest.mark.slow
def test_case_that_does_not_fit_into_memory_is_named(host: FakeHost) -> None:
    found = measured(host, "zeros", code=5, FAKE_REFUSE="bf16")
    assert found["inputs"] == []
    _, zeros = sorted(found["refused"], key=lambda r: r["operands"])
    assert zeros["operands"].startswith("a=zeros;")
    assert "needs more memory than the GPU has free" in zeros["message"]


@pytest.mark.slow
def test_workload_that_dies_leaves_what_was_measured(host: FakeHost) -> None:
    know_sensor(host, FAST)
    command = ("power", "input", "zeros", "ones", *SHAPE, *WORKER, "--json")
    done = host.advisor(*command, FAKE_CRASH_AT="3")
    assert done.returncode == 5
    assert "illegal memory access" in json.loads(done.stdout)["error"]["message"]
    assert len(lines_kept(host)) == 2
    assert leftovers(UUID, Path(host.folder / "run")) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("input",), "no operands were given"),
        (("input", "zeros", "--dtype", "fp4"), "--dtype fp4 is not known"),
        (("input", "zeros", "--shape", "64x64"), "is no shape"),
        (("input", "zeros", "--preset", "T16"), "--preset T16 is not known"),
        (("input", "norml(0,1)"), "did you mean normal?"),
        (("input", "zeros", "--dtype", "fp8", "--shape", "64x64x60"), "in multiples of 16"),
        (("input", "zeros", "--dtype", "int8", "--shape", "8x64x64"), "from 17 rows on"),
        (("kernel", "gemm", "--call", "a:b"), "both gemm and --call"),
        (("kernel",), "no operation was named"),
    ],
)
def test_bad_request_is_refused_before_the_gpu_is_looked_for(
    words: tuple[str, ...], said: str
) -> None:
    done = CliRunner().invoke(app, ["power", *words])
    assert isinstance(done.exception, InputError)
    assert said in str(done.exception)


# `advisor power kernel` from end to end: real processes, a fake driver, no gpu


COMMAND = (
    "power",
    "kernel",
    "gemm",
    "--m",
    "64",
    "--python",
    str(FAKES / "fake_kernel_worker.py"),
    "--runs",
    "20",
    "--resolution-ms",
    "4",
)
FASTER = replace(FAST_CHANNEL, period_ms=5.0, window_ms=4.0)


def know_sensor(host: FakeHost, channel: PowerChannel) -> None:
    keep_record(record(channel, gpu_uuid=UUID), host.folder / "home")


def refused(host: FakeHost, *options: str, code: int, **more: str) -> str:
    """What the command said when it ended with this code."""
    done = host.advisor(*(options or COMMAND), "--json", **more)
    assert done.returncode == code, done.stderr
    return str(json.loads(done.stdout)["error"]["message"])


@pytest.mark.slow
def test_interrupt_then_the_same_command_goes_on_kernel_command(host: FakeHost) -> None:
    know_sensor(host, FASTER)
    command = (*COMMAND, "--runs", "80")  # four blocks, to be met in one of them
    before = interrupted(host, *command[1:])
    assert 2 <= len(before) < 5

    done = host.advisor(*command, "--json")
    assert done.returncode == 0, done.stderr
    answer = read(KernelReport, done.stdout, tolerant=True)
    assert (lines_kept(host)[: len(before)], len(lines_kept(host))) == (before, 5)
    assert (answer.operation, answer.before, answer.runs, answer.golden_runs, answer.dropped) == (
        "gemm m=64 n=64 k=64 bf16",
        "idle",
        80,
        80,
        {},
    )
    assert answer.execution_ms == pytest.approx(2.0)
    assert answer.stretch
    assert 300 < some(answer.ssp_power_w).value < 450
    # Two launches are one execution.
    assert some(answer.launch_energy_j).value == pytest.approx(some(answer.ssp_energy_j).value / 2)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("memory", "needs more memory than the GPU has free"),
        ("crash", "an illegal memory access was encountered"),
    ],
)
def test_operation_that_fails_is_named_and_leaves_nothing(
    host: FakeHost, fault: str, said: str
) -> None:
    know_sensor(host, FASTER)
    assert said in refused(host, code=5, FAKE_FAULT=fault)
    assert leftovers(UUID, Path(host.folder / "run")) == []


def test_unsafe_count_is_refused(host: FakeHost) -> None:
    know_sensor(host, FASTER)
    keep_check(checked_with(132, {92}, gpu_model="Fake H200"), host.folder / "home")
    assert "92" in refused(host, *COMMAND, "--units", "92", code=12)


def test_collective_on_a_host_with_one_gpu_is_refused(host: FakeHost) -> None:
    """And one under a limit, or after another operation."""
    know_sensor(host, FASTER)
    for options, said in (
        (("--bytes", "64KiB"), "a collective needs two GPUs, and this host has 1"),
        (("--units", "66"), "a collective at 66 SMs cannot be measured"),
        (("--after", "gemm"), "goes with neither --after nor --rotate"),
    ):
        words = ("power", "kernel", "all-reduce", "--resolution-ms", "4", *options)
        assert said in refused(host, *words, code=2)
