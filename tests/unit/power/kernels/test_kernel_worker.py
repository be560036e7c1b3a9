"""The process that runs an operation, what polls the power meanwhile, and what both say."""

import io
import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from workload_scripts import load

from advisor.core.gpu import Gpu
from advisor.core.telemetry import POWER_GPU, POWER_MEMORY
from advisor.errors import BusyError, JobError, LimitNotProvenError
from advisor.runtime.lock import gpu_lock
from advisor_power import gpu_worker
from advisor_power.gpu_worker import AnsweringSpec, GpuWorker, started
from advisor_power.kernels import runs
from advisor_power.kernels.runs import (
    KernelReady,
    LiveKernelBench,
    PolledReadings,
    PowerReading,
    RunRequest,
    first_free,
    run_of,
)
from advisor_power.sensor import polled

PIPES = ["--commands", "c", "--answers", "a"]


@pytest.fixture(scope="module")
def script() -> Any:
    return load("kernel_power")


# the workload


class Player:
    """Answers with what it was asked."""

    operation = "x"

    def ready(self) -> dict[str, Any]:
        return {"operation": self.operation}

    def run(self, executions: int, gap_s: float, lead_s: float) -> dict[str, Any]:
        return {"asked": [executions, gap_s, lead_s]}


def test_workload_answers_each_command_in_a_line(script: Any) -> None:
    answers = io.StringIO()
    script.serve(Player(), ['{"executions": 4, "gap_s": 0.1, "lead_s": 0.0}'], answers)
    said = [json.loads(line) for line in answers.getvalue().splitlines()]
    assert said == [{"ready": {"operation": "x"}}, {"run": {"asked": [4, 0.1, 0.0]}}]


@pytest.mark.parametrize(
    ("words", "flop", "held"),
    [
        (["gemm", "--m", "8", "--n", "4", "--k", "2"], 128.0, 112.0),
        (["gemv", "--m", "8", "--k", "2"], 32.0, 52.0),
        (["triad", "--m", "8", "--dtype", "fp32"], 16.0, 96.0),
        (["copy", "--m", "8"], 0.0, 32.0),
        (["--call", "a:b"], None, None),
    ],
)
def test_workload_says_what_a_launch_does(
    script: Any, words: list[str], flop: float | None, held: float | None
) -> None:
    done = script.work(script.operation_options(words))
    assert done == {"launch_flop": flop, "launch_bytes": held}


def test_workload_takes_one_operation_and_one_before_it(script: Any) -> None:
    args = script.options(["gemm", "--m", "8", "--n", "16", "--after", "gemv --k 32", *PIPES])
    names = script.canonical
    assert (names(args), names(args.before)) == (
        "gemm m=8 n=16 k=4096 bf16",
        "gemv m=4096 k=32 bf16",
    )
    assert names(script.options(["--call", "a:b", *PIPES])) == "a:b"


@pytest.mark.parametrize("words", [[], ["gemm", "--call", "a:b"], ["sort"]])
def test_workload_refuses_no_operation_and_two(
    script: Any, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        script.options([*words, *PIPES])
    assert "usage" in capsys.readouterr().err


def test_faults_are_told_apart(script: Any) -> None:
    assert script.fault_of(RuntimeError("CUDA out of memory. Tried"))["fault"]["memory"]
    other = script.fault_of(ValueError("bad\nstack"))["fault"]
    assert other == {"memory": False, "message": "ValueError: bad"}


def test_named_function_is_found_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_kernel.py").write_text("def go(): return 7\nvalue = 3\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    operations = load("kernel_operations")
    assert operations.called("own_kernel:go")() == 7
    with pytest.raises(TypeError, match="is no function"):
        operations.called("own_kernel:value")


# the worker


def test_run_is_put_on_the_clock_of_the_host() -> None:
    """The GPU's clock began at 1000 s of the host's; after idle the gap is the lead."""
    said = {
        "lead_began_s": 0.1,
        "marks_s": [0.2, 0.21, 0.23],
        "ping_pongs": [[1000.0, 0.00001, 1000.00002], [1000.5, 0.50001, 1000.50002]],
    }
    run = run_of(said, RunRequest(2, 0.15))
    assert (run.starts_s, run.ends_s, run.lead_s) == (
        pytest.approx((1000.2, 1000.21)),
        pytest.approx((1000.21, 1000.23)),
        0.15,
    )
    assert run.sync_error_s < 1e-4
    assert run_of(said, RunRequest(2, 0.15, lead_s=0.1)).lead_s == pytest.approx(0.1)


class Job:
    """A job that was started and says nothing."""

    output = Path("output.log")
    exit_code = None
    stopped = False

    count = check = staticmethod(lambda: None)

    def stop(self) -> None:
        self.stopped = True


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Job:
    """What every worker of the test starts."""
    started = Job()

    def prove(*_: object) -> SimpleNamespace:
        return SimpleNamespace(start=lambda: started)

    def found(*_: object) -> None:
        return None

    monkeypatch.setattr(gpu_worker, "prove", prove)
    monkeypatch.setattr(gpu_worker, "check_program", found)
    monkeypatch.setattr(gpu_worker, "_POLL_S", 0.01)
    return started


def start(folder: Path, units: int | None = None) -> LiveKernelBench:
    """A bench whose worker is started as `open_worker` starts it."""
    backend: Any = SimpleNamespace(gpu=Gpu(uuid="GPU-1", model="Fake", units_total=132))
    command = ("python3", "x.py")
    workload = AnsweringSpec(command=command, units=units, backend=backend, base={}, folder=folder)
    job, ready = started("power-kernel", workload, KernelReady)
    unused: Any = None
    worker = GpuWorker(
        job=job,
        ready=ready,
        gpu=backend.gpu,
        source=unused,
        later_strangers=tuple,
        folder=folder,
    )
    return LiveKernelBench(worker=worker, ready=ready, poller=unused, polled=unused, channel=unused)


def test_operation_that_is_never_ready_is_ended(
    job: Job, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(gpu_worker, "START_S", 0.05)
    with pytest.raises(JobError, match="was not ready within"):
        start(tmp_path)
    assert job.stopped


def test_operation_that_never_ends_is_given_up(
    job: Job, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(runs, "SPARE_S", 0.05)
    monkeypatch.setattr(gpu_worker, "os", Said())
    running = start(tmp_path)
    with pytest.raises(JobError, match="did not end within"):
        running.timed(RunRequest(4, 0.0))
    running.worker.job.close()
    assert job.stopped


def test_operation_that_is_not_under_its_limit_is_ended(
    job: Job, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(gpu_worker, "os", Said())
    with pytest.raises(LimitNotProvenError, match="sees 132 SMs, and should have 66"):
        start(tmp_path, 66)
    assert job.stopped


def test_interpreter_without_pytorch_is_named() -> None:
    fault = {"memory": False, "message": "ModuleNotFoundError: No module named 'torch'"}
    said = str(gpu_worker.failed(fault, Path("output.log")))
    assert "this interpreter has no PyTorch" in said
    assert "--python" in said


class Said:
    """The system, where a worker has said that it is ready before anybody asked."""

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def open(self, path: Path, flags: int) -> int:
        descriptor = os.open(path, flags)
        if path.name == "answers":
            ready: dict[str, Any] = {
                "operation": "x", "execution_s": 0.001, "launches": 1, "captured": True,
                "units": 132, "libraries": {},
            }  # fmt: skip
            os.write(descriptor, json.dumps({"ready": ready}).encode() + b"\n")
        return descriptor


# the poller


class Source:
    """Readings one after the other; throttled from the second look on."""

    memory_w: float | None = None

    def __init__(
        self, watts: list[float | None], stalls_s: dict[float, float] | None = None
    ) -> None:
        self._watts: Iterator[float | None] = iter(watts)
        self._looks, self._stalls_s, self.now_s = 0, stalls_s or {}, 0.0

    def throttle_reasons(self) -> tuple[str, ...]:
        self._looks += 1
        return ("sw-thermal",) if self._looks > 1 else ()

    def read(self, names: list[str]) -> dict[str, float | None]:
        if names == [POWER_MEMORY]:
            return {POWER_MEMORY: self.memory_w}
        self.now_s += self._stalls_s.get(self.now_s, 0.0)
        return {POWER_GPU: next(self._watts)}


def lines_of(source: Source, polls: int) -> list[list[Any]]:
    """What so many polls write, without times; a millisecond between two."""
    poll, found = polled.burst_poll(cast("Any", source), lambda: source.now_s), list[list[Any]]()
    for _ in range(polls):
        found += poll(source.now_s)
        source.now_s = round(source.now_s + 0.001, 6)
    return [
        [kind, rest[1]] if kind == "look" else [kind, rest[0], rest[2]] for kind, *rest in found
    ]


def test_poller_writes_changes_only() -> None:
    """The first reading is none, since nobody knows how old it is; nor is a missing one."""
    watts: list[float | None] = [None, 100.0, 100.0, 200.0, None, 200.0, 300.0] + [300.0] * 94
    assert lines_of(Source(watts), 101) == [
        ["reading", "instant", 200.0],
        ["reading", "instant", 300.0],
        ["look", ["sw-thermal"]],
    ]


def test_poller_writes_the_power_of_the_memory() -> None:
    """Where the card reads it, once for each change, 0 too: a sensor that reads 0 must show."""
    source = Source([100.0] * 100)
    source.memory_w = 0.0
    assert [line for line in lines_of(source, 50) if line[1] == "memory"] == [
        ["reading", "memory", 0.0]
    ]


def test_late_look_dates_no_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the host held the poller up, the change could be of any moment meanwhile."""
    monkeypatch.setattr(polled, "LATE_S", 0.0005)
    assert lines_of(Source([100.0, *[200.0] * 49]), 50) == []


def test_reading_that_takes_long_dates_no_change() -> None:
    """The host may stop the poller also between the clock and the sensor, before it or after it."""
    watts: list[float | None] = [100.0, 200.0, 300.0, 400.0, 500.0]
    assert lines_of(Source(watts, {0.002: 0.3}), 5) == [
        ["reading", "instant", 200.0],
        ["reading", "instant", 500.0],
    ]


def test_readings_and_reasons_are_found_by_time(tmp_path: Path) -> None:
    """The power limit is no fault; what began before a run and holds on counts."""
    file = tmp_path / "power.jsonl"
    file.touch()
    seen = PolledReadings(file)

    def append(text: str) -> None:
        with file.open("a") as held:
            held.write(text)

    append('["reading", "instant", 1.0, 100, null]\n["reading", "instant", 2.0, 200, null]\n["lo')
    seen.read()
    append(
        'ok", 2.5, ["sw-power-cap", "sw-thermal"], []]\n["reading", "instant", 3.0, 300, null]\n'
    )
    append('["look", 4.0, [], []]\n["reading", "memory", 2.2, 51.5, null]\n')
    seen.read()
    assert (seen.memory_between(2.0, 3.0), seen.memory_between(2.3, 3.0)) == (
        (PowerReading(2.2, 51.5),),
        (),
    )
    assert seen.power_capped(2.6, 2.7)
    assert not seen.power_capped(4.5, 5.0)
    assert (seen.between(1.5, 2.5), seen.held_back(0.0, 2.0), seen.held_back(3.0, 3.5)) == (
        (PowerReading(2.0, 200.0),),
        "",
        "clock held back: sw-thermal",
    )
    assert seen.held_back(4.5, 5.0) == ""
    seen.close()


# the other gpu of a collective


GPUS = [Gpu(vendor="amd", index=n, uuid=f"GPU-of-number-{n}", model="MI300X") for n in range(3)]
"""Of this vendor nobody is asked who computes there."""


def test_the_first_that_is_free_is_taken_and_held(tmp_path: Path) -> None:
    with gpu_lock(tmp_path, GPUS[0].uuid), ExitStack() as held:
        assert first_free(GPUS, held, tmp_path) == GPUS[1]
        with ExitStack() as more:
            assert first_free(GPUS, more, tmp_path) == GPUS[2]
            with pytest.raises(BusyError, match="number-2 is being measured"):
                first_free(GPUS, ExitStack(), tmp_path)
    with ExitStack() as held:
        assert first_free(GPUS, held, tmp_path) == GPUS[0]
