"""The process that runs an operation, what polls the power meanwhile, and what both say."""

import gzip
import io
import json
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from made_up_kernel import COUNTER, INSTANT, MadeUpKernel, record
from reading import some
from workload_scripts import load

from advisor.core import job as core_job
from advisor.core.gpu import Gpu
from advisor.core.telemetry import POWER_GPU, POWER_MEMORY
from advisor.errors import (
    BusyError,
    InputError,
    JobError,
    LimitNotProvenError,
    SourceError,
    StoreError,
)
from advisor.files import gpu_lock
from advisor.predict.profiles import Floats
from advisor.validity.sensor_record import EnergyCounter, SensorRecord
from advisor.wire.power import KernelReport, StretchPower
from advisor_cli.power.kernel import report_lines
from advisor_data.bundled import KERNEL_REPORTS
from advisor_power import gpu_worker, kernels, sensor
from advisor_power.gpu_worker import GpuWorker, started
from advisor_power.kernels import (
    BLOCK_RUNS,
    Curve,
    KernelPlan,
    KernelReady,
    LiveKernelBench,
    PolledReadings,
    PowerReading,
    Run,
    Stitched,
    WantedKernel,
    bin_edges,
    check_resolution,
    deconvolve,
    fault_of,
    first_free,
    fit_clock,
    golden,
    guidance,
    make_plan,
    mean_of,
    measure_operation,
    memory_settle_s,
    naive_curve,
    run_of,
    search_ssp,
    sensors_of,
    shortest_run,
    sigma_power_w,
    steady_execution,
    stitch,
)
from advisor_profiling.window import CounterTick, Step

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
    operations = load("kernel_power")
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
    run = run_of(said, 0.15)
    assert (run.starts_s, run.ends_s, run.lead_s) == (
        pytest.approx((1000.2, 1000.21)),
        pytest.approx((1000.21, 1000.23)),
        0.15,
    )
    assert run.sync_error_s < 1e-4
    assert run_of(said, 0.15, lead_s=0.1).lead_s == pytest.approx(0.1)


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
    workload = core_job.Job(name="power-kernel", command=("python3", "x.py"))
    job, ready = started(workload, KernelReady, backend, {}, folder, units)
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


def test_operation_that_never_ends_is_given_up(
    job: Job, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(kernels, "SPARE_S", 0.05)
    monkeypatch.setattr(gpu_worker, "os", Said())
    running = start(tmp_path)
    with pytest.raises(JobError, match="did not end within"):
        running.timed(4, 0.0)
    running.worker.job.close()
    assert job.stopped


def test_interpreter_without_pytorch_is_named() -> None:
    fault = {"memory": False, "message": "ModuleNotFoundError: No module named 'torch'"}
    said = str(gpu_worker.failed(fault, Path("output.log")))
    assert all(part in said for part in ("this interpreter has no PyTorch", "--python"))


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


@pytest.mark.parametrize(
    ("name", "value", "error", "said"),
    [
        ("START_S", 0.05, JobError, "was not ready within"),
        ("os", Said(), LimitNotProvenError, "sees 132 SMs, and should have 66"),
    ],
)
def test_operation_that_is_not_ready_or_not_under_its_limit_is_ended(
    job: Job, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    name: str, value: Any, error: type[Exception], said: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(gpu_worker, name, value)
    with pytest.raises(error, match=said):
        start(tmp_path, 66)
    assert job.stopped


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
    poll, found = sensor.burst_poll(cast("Any", source), lambda: source.now_s), list[list[Any]]()
    for _ in range(polls):
        found += poll(source.now_s)
        source.now_s = round(source.now_s + 0.001, 6)
    return [
        [kind, rest[1]] if kind == "look" else [kind, rest[0], rest[2]] for kind, *rest in found
    ]


@pytest.mark.parametrize(
    ("watts", "late", "changes_w", "looks"),
    [
        # The age of the first value is unknown, so it does not count; nor does a missing one.
        ([None, 100.0, 100.0, 200.0, None, 200.0, *[300.0] * 95], {}, [200.0, 300.0], 1),
        # The host may stop the poller between the clock and the sensor, before it or after it.
        ([100.0, 200.0, 300.0, 400.0, 500.0], {0.002: 0.3}, [200.0, 500.0], 0),
    ],
)
def test_poller_writes_changes_that_it_can_date(
    watts: list[float | None], late: dict[float, float], changes_w: list[float], looks: int
) -> None:
    assert lines_of(Source(watts, late), len(watts)) == [
        *(["reading", "instant", power_w] for power_w in changes_w),
        *[["look", ["sw-thermal"]]] * looks,
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
    monkeypatch.setattr(sensor, "LATE_S", 0.0005)
    assert lines_of(Source([100.0, *[200.0] * 49]), 50) == []


def test_readings_and_reasons_are_found_by_time(tmp_path: Path) -> None:
    """The power limit is no fault; what began before a run and holds on counts."""
    file = tmp_path / "power.jsonl"
    file.touch()
    polled = file.open()
    seen = PolledReadings(polled)

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
    assert (seen.between(2.0, 3.0, "memory"), seen.between(2.3, 3.0, "memory")) == (
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
    polled.close()


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


# The single steps: clocks, golden runs, steady executions, steady power, and what a plan costs.


# clocks


@given(
    offset_s=st.floats(-1e4, 1e4),
    drift=st.floats(-1e-4, 1e-4),
    trips_us=st.lists(st.floats(5, 500), min_size=20, max_size=60),
    seed=st.integers(0, 2**16),
)
def test_clock_is_off_by_no_more_than_it_says(
    offset_s: float, drift: float, trips_us: list[float], seed: int
) -> None:
    random = np.random.default_rng(seed)
    pings: list[tuple[float, float, float]] = []
    for gpu_s, trip_us in zip(np.linspace(0, 10, len(trips_us)), trips_us, strict=True):
        at_s, part = offset_s + float(gpu_s) * (1 + drift), float(random.uniform())
        trip_s = trip_us * 1e-6
        pings.append((at_s - part * trip_s, float(gpu_s), at_s + (1 - part) * trip_s))
    host_s, error_s = fit_clock(pings)
    for gpu_s in (0.0, 5.0, 10.0):
        assert abs(host_s(gpu_s) - (offset_s + gpu_s * (1 + drift))) <= 3 * error_s + 1e-9
    assert error_s <= 500e-6 * 2


def test_one_slow_answer_moves_nothing() -> None:
    """Of round trips the shortest count."""
    quick = [(100 + t, t, 100 + t + 1e-5) for t in np.linspace(0, 1, 20).tolist()]
    slow = [(100 + t, t + 0.009, 100 + t + 0.01) for t in (0.1, 0.9)]
    host_s, error_s = fit_clock([*quick, *slow])
    assert host_s(0.5) == pytest.approx(100.5, abs=1e-5)
    assert error_s < 2e-5


def test_clock_without_an_answer_is_an_error() -> None:
    for pings in ([], [(2.0, 1.0, 1.0)]):
        with pytest.raises(SourceError, match="cannot be compared"):
            fit_clock(pings)


# golden runs


@given(times=st.lists(st.floats(0.01, 100), min_size=1, max_size=60), margin=st.floats(0.001, 0.2))
def test_golden_runs_agree_and_no_other_bin_has_more(times: list[float], margin: float) -> None:
    found = golden(times, margin)
    chosen = [times[place] for place in found]
    assert max(chosen) <= min(chosen) * (1 + margin) * (1 + 1e-12)
    assert found == sorted(set(found))
    for low in times:
        assert len(chosen) >= sum(low <= time <= low * (1 + margin) for time in times)


def test_outliers_are_dropped_and_counted() -> None:
    """The slow mode of two is left out, whichever came first."""
    assert golden([1.3, 1.0, 1.01, 1.31, 1.005, 5.0], 0.02) == [1, 2, 4]


def test_margins_are_those_of_table_i() -> None:
    assert [guidance(time_ms) for time_ms in (0.01, 0.03, 0.1, 0.5, 20.0, math.inf)] == [
        (400, 0.05), (400, 0.05), (200, 0.05), (200, 0.02), (200, 0.02), (200, 0.02),
    ]  # fmt: skip


# steady executions and power


RUN = [2.0, 1.5, 1.1, 1.0, 1.01, 1.0, 1.0]


"""Three warm-up executions, as from idle."""


@pytest.mark.parametrize(
    ("runs", "first"),
    [
        ([RUN, RUN, [2.1, 1.4, 1.2, 1.0, 1.0, 1.6, 1.0]], 4),  # one slow one changes nothing
        ([RUN, RUN[:5]], 4),  # compared as far as both go
        ([[1.0, 1.0]], 1),
        ([[1.0, 1.2, 1.3, 1.4]], 1),  # a clock that falls under load is no warm-up
    ],
)
def test_steady_execution_is_the_first_after_which_times_fall_no_further(
    runs: list[list[float]], first: int
) -> None:
    assert steady_execution(runs, 0.02) == first


@given(rise=st.floats(0.002, 0.3), start=st.integers(4, 32))
def test_ssp_is_where_two_neighbouring_lengths_agree(rise: float, start: int) -> None:
    """Power that rises to a level: from the found length on, twice as long changes under 1 %."""

    def power_w(executions: int) -> float:
        return 500 * (1 - 0.3 * math.exp(-executions * 0.0015 / rise))

    found, tried = search_ssp(power_w, start, 4, 10_000)
    steady = some(found)
    longer = power_w(2 * steady)
    assert abs(power_w(steady) - longer) <= 0.01 * longer
    half = steady // 2
    if half >= 4 and half in tried:
        assert abs(power_w(half) - power_w(steady)) > 0.01 * power_w(steady)


def test_ends_of_the_search_for_ssp() -> None:
    """Power that never settles has none; flat power is steady in the shortest run allowed."""
    found, tried = search_ssp(lambda executions: 100.0 * executions, 4, 4, 100)
    assert found is None
    assert max(tried) <= 100
    assert search_ssp(lambda _: 300.0, 64, 10, 1000)[0] == 16
    # Lengths of a product of 4.6 ms: twice the second one is beyond the longest run.
    assert search_ssp({114: 462.0, 228: 470.0, 433: 469.0}.__getitem__, 114, 57, 433)[0] == 228
    assert (shortest_run(0.002, 0.0251), shortest_run(0.05, 0.025)) == (38, 4)


# plan


def test_resolution_is_that_of_the_formula() -> None:
    """sqrt(2) * (W / delta) * sigma_R / sqrt(m), at W = 25 ms and 2 W."""
    assert sigma_power_w(25, 5, 2, 1) == pytest.approx(14.14, abs=0.01)
    assert sigma_power_w(25, 1, 2, 1) == pytest.approx(70.7, abs=0.1)
    plan = make_plan(replace(INSTANT, period_ms=5.0), bin_ms=5, run_s=0.025, runs=8)
    assert plan.sigma_w == pytest.approx(5, abs=0.01)


@given(bin_ms=st.floats(0.5, 25), runs=st.integers(1, 2000))
def test_a_plan_says_what_runs_of_four_windows_give(bin_ms: float, runs: int) -> None:
    plan = make_plan(INSTANT, bin_ms=bin_ms, run_s=0.1, runs=runs)
    assert (plan.sigma_end_w, plan.gpu_busy_s) == (
        pytest.approx(2 * plan.sigma_w),
        pytest.approx(runs * 0.1),
    )


@pytest.mark.parametrize(
    ("bin_ms", "said"),
    [
        (0.001, "cannot be resolved"),
        (0.0, "cannot be resolved"),
        (math.nan, "cannot be resolved"),
        (26, "longer than the 25 ms window"),
    ],
)
def test_what_no_number_of_readings_resolves_is_refused(bin_ms: float, said: str) -> None:
    with pytest.raises(InputError, match=said):
        check_resolution(INSTANT, bin_ms)
    check_resolution(INSTANT, 25)


# estimates


def test_mean_has_the_interval_of_student() -> None:
    """Two values 2 apart: 12.71 standard errors of 1; one value has no interval."""
    found = mean_of([9.0, 11.0])
    assert (found.value, found.low) == (10, pytest.approx(10 - 12.71))
    assert mean_of([3.0]).low is None


# an operation without a gap for seconds


def stretched(**more: Any) -> StretchPower:
    """A flat operation of 400 W with 50 W of the memory's, in which something is different."""
    return MadeUpKernel(lambda _: 400.0).stretch(memory_settle_s(record()), **more)


def test_slow_sensors_are_read_once_they_have_settled() -> None:
    """The mean over a second rises at first: that is left out."""
    found = stretched()
    assert (some(found.power_w).value, some(found.memory_power_w).value, found.no_memory_power) == (
        pytest.approx(400, rel=0.01),
        pytest.approx(50, rel=0.01),
        "",
    )
    slow = record(replace(INSTANT, name="memory", window_ms=1500.0))
    assert memory_settle_s(slow) == pytest.approx(1.512)


@pytest.mark.parametrize(
    ("memory", "said"),
    [
        ((), "does not read the power of its memory"),
        ((PowerReading(0.5, 0.0),), "reads 0, or more than that of the whole GPU"),
        (tuple(PowerReading(2 + n / 4, 900.0 + n) for n in range(6)), "reads 0, or more"),
        ((PowerReading(0.5, 50.0), PowerReading(2.5, 51.0)), "changed only 1 times: it is stuck"),
    ],
)
def test_sensor_of_the_memory_that_is_absent_zero_too_high_or_stuck(
    memory: tuple[PowerReading, ...], said: str
) -> None:
    found = stretched(memory=memory)
    assert found.memory_power_w is None
    assert said in found.no_memory_power


def test_stretch_that_was_held_back_says_nothing() -> None:
    found = stretched(dropped="clock held back: hw-thermal")
    assert (found.power_w, found.memory_power_w, found.no_memory_power) == (
        None,
        None,
        "clock held back: hw-thermal",
    )


# power over time out of readings that are means over a window: what was put in comes out


BASE_W = 120.0


LENGTH_S = 0.1


def readings(
    power_w: Callable[[Floats], Floats], count: int = 1200, noise_w: float = 2.0, seed: int = 0
) -> Stitched:
    """What a sensor would have read at random times of a run, with power known exactly."""
    random = np.random.default_rng(seed)
    tau = np.sort(random.uniform(0, LENGTH_S, count))
    step, width_s = 1e-4, INSTANT.window_ms / 1000
    grid = np.arange(-width_s, LENGTH_S, step)
    watts = np.where(grid + step / 2 < 0, BASE_W, power_w(grid + step / 2))
    joules = np.concatenate([[0], np.cumsum(watts) * step])
    at = np.append(grid, grid[-1] + step)
    mean = (np.interp(tau, at, joules) - np.interp(tau - width_s, at, joules)) / width_s
    return Stitched(tau, mean + random.normal(0, noise_w, count), BASE_W)


def square(period_s: float, low_w: float = 200, high_w: float = 600) -> Callable[[Floats], Floats]:
    """High in the first half of each period."""
    return lambda t: np.where(np.mod(t + 1e-9, period_s) < period_s / 2, high_w, low_w)


def bin_means(power_w: Callable[[Floats], Floats], edges_s: Floats) -> Floats:
    ends: list[float] = edges_s.tolist()
    fine: list[Floats] = [np.linspace(a, b, 200, endpoint=False) for a, b in pairwise(ends)]
    return np.array([float(np.mean(power_w(part))) for part in fine])


def curve_of(stitched: Stitched, bin_s: float = 0.005) -> Curve:
    return deconvolve(stitched, INSTANT, np.linspace(0, LENGTH_S, round(LENGTH_S / bin_s) + 1))


@pytest.mark.parametrize("period_s", [0.01, 0.02, 0.025, 0.05])
def test_square_wave_is_recovered_within_five_percent(period_s: float) -> None:
    curve = curve_of(readings(square(period_s)))
    true = bin_means(square(period_s), curve.edges_s)
    assert float(np.sqrt(np.mean(((curve.power_w - true) / true) ** 2))) <= 0.05
    # Each level by itself, in the bins that are whole within it.
    for level in (200, 600):
        inside = np.isclose(true, level)
        if inside.any():
            assert np.mean(curve.power_w[inside]) == pytest.approx(level, rel=0.05)


@settings(max_examples=6)
@given(
    rise_s=st.floats(0.005, 0.1),
    end_w=st.floats(150, 700),
    seed=st.integers(0, 1000),
)
def test_band_holds_the_truth(rise_s: float, end_w: float, seed: int) -> None:
    def power_w(t: Floats) -> Floats:
        return np.asarray(end_w + (300 - end_w) * np.exp(-t / rise_s), dtype=np.float64)

    curve = curve_of(readings(power_w, count=400, seed=seed))
    inside = np.abs(curve.power_w - bin_means(power_w, curve.edges_s)) <= curve.band_w
    assert float(np.mean(inside)) >= 0.75


@settings(max_examples=6)
@given(level_w=st.floats(150, 700), base_w=st.floats(60, 140))
def test_flat_power_without_noise_comes_back_exactly(level_w: float, base_w: float) -> None:
    """However far it is from what was before."""
    tau = np.linspace(0.0005, LENGTH_S, 400)
    before = np.clip(INSTANT.window_ms / 1000 - tau, 0, None) / (INSTANT.window_ms / 1000)
    stitched = Stitched(tau, before * base_w + (1 - before) * level_w, base_w)
    assert curve_of(stitched).power_w == pytest.approx(np.full(20, level_w), rel=1e-3)


def test_band_is_of_the_readings_that_are_seen() -> None:
    """About as the square root of their number, and wider where they are noisier than recorded."""
    few, many = (curve_of(readings(square(0.02), n)).band_w.mean() for n in (300, 2700))
    assert 2 < few / many < 4.5
    quiet, loud = (curve_of(readings(square(0.02), noise_w=n)).band_w.mean() for n in (2.0, 20.0))
    assert loud > 4 * quiet


def test_mean_between_two_times_is_that_of_the_bins() -> None:
    curve = Curve(np.linspace(0, 0.02, 5), np.array([100.0, 200, 300, 400]), np.eye(4), np.ones(4))
    assert (curve.mean_w(0.0, 0.02)[0], curve.mean_w(0.0025, 0.01)[0]) == (
        pytest.approx(250),
        pytest.approx((0.5 * 100 + 200) / 1.5),
    )
    assert curve.mean_w(0.005, 0.01)[1] == pytest.approx(1.96)


@given(execution_s=st.floats(1e-4, 0.05), length=st.integers(4, 400))
def test_bins_begin_and_end_with_executions(execution_s: float, length: int) -> None:
    """Near the resolution; a bin is whole executions, or an execution whole bins."""
    edges = bin_edges(length * execution_s, execution_s, 0.005)
    width = float(edges[1] - edges[0])
    ratio = width / execution_s
    nearest = round(ratio) if ratio >= 1 else 1 / round(1 / ratio)
    assert ratio == pytest.approx(nearest, rel=1e-6)
    assert 0.6 * 0.005 <= width <= 2 * 0.005
    assert edges[-1] <= length * execution_s * (1 + 1e-6) or len(edges) == 2


def run_with(tau_and_watts: list[tuple[float, float]], length_s: float = 0.05) -> Run:
    """A run at 100 s; readings come a delay after the end of their window."""
    at = [(100 + tau + INSTANT.delay_ms / 1000, watts) for tau, watts in tau_and_watts]
    return Run(
        starts_s=(100.0,),
        ends_s=(100 + length_s,),
        lead_s=0.06,
        readings=tuple(PowerReading(at_s, watts) for at_s, watts in at),
    )


def test_stitching_takes_readings_by_their_window() -> None:
    """Before the run they say what was before; a window half before or beyond says neither."""
    run = run_with(
        [(-0.05, 999), (-0.03, 100), (-0.01, 110), (0.01, 300), (0.04, 400), (0.06, 999)]
    )
    found = some(stitch([run], INSTANT))
    # The window of the reading at -0.05 began before the lead of 0.06 s.
    assert (found.base_w, found.power_w.tolist(), found.tau_s) == (
        pytest.approx(105),
        [300, 400],
        pytest.approx([0.01, 0.04]),
    )


def test_without_a_reading_before_a_run_nothing_is_stitched() -> None:
    assert stitch([run_with([(0.01, 300)])], INSTANT) is None


def test_naive_curve_dates_readings_when_they_were_seen() -> None:
    run = run_with([(0.001, 300), (0.006, 320), (0.02, 400)])
    assert naive_curve([run], np.array([0.0, 0.01, 0.02, 0.05])) == [None, 310, 400]


@pytest.mark.parametrize(
    ("band_w", "limit_w", "differ", "said"),
    [
        ((451, 1048), 700, 0.002, ""),
        ((154, 170), 700, -0.053, "the energy counter says -5.3%, and 3% is allowed"),
        ((130, 1121), 700, None, "goes up to 1121 W, over 1.6 times the limit of 700 W"),
        ((130, 1121), None, None, ""),
        ((-27816, 30397), None, -0.206, "goes down to -27816 W, and the idle GPU draws 128 W"),
        ((127, 200), 700, None, "goes down to 127 W"),
    ],
)
def test_what_a_gpu_cannot_draw_is_no_curve(
    band_w: tuple[float, float], limit_w: float | None, differ: float | None, said: str
) -> None:
    """Bands as they were measured (docs/measurements/power/fingrav) and beside the bounds."""
    found = fault_of(band_w, 128.0, limit_w, differ)
    assert said in found
    assert bool(said) == bool(found)


GPU = Gpu(uuid="GPU-1", model="Fake H200", driver="580.00.00", units_total=132)
FEW = WantedKernel(runs=80)


def rising(tau_s: float) -> float:
    """From 300 W to 500 W in some tens of milliseconds."""
    return 500 - 200 * math.exp(-tau_s / 0.02)


def measured(
    bench: MadeUpKernel,
    home: Path,
    wanted: WantedKernel = FEW,
    sensors: SensorRecord | None = None,
    steps: list[Step] | None = None,
    plans: list[KernelPlan] | None = None,
    gpu: Gpu = GPU,
) -> KernelReport:
    """The report, from a home that may have runs in it."""
    found = sensors or record()
    return measure_operation(
        cast("Any", bench),
        gpu,
        (found, found.channel("instant") or INSTANT),
        wanted,
        home,
        (steps if steps is not None else []).append,
        (plans if plans is not None else []).append,
    )


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> KernelReport:
    """An operation of 1.5 ms that is slow at first, and in five runs."""
    bench = MadeUpKernel(rising, first_slower=(1.5, 1.2), slow=frozenset(range(100, 105)))
    return measured(bench, tmp_path_factory.mktemp("home"), WantedKernel(runs=160))


def test_steady_points_are_found(found: KernelReport) -> None:
    assert (found.sse_execution, some(found.ssp_power_w).value) == (3, pytest.approx(500, rel=0.01))
    assert (some(found.sse_power_w).value, found.before_w) == (
        pytest.approx(rising(0.0048), rel=0.1),
        pytest.approx(120, abs=1),
    )


def test_two_instruments_agree_within_three_percent(found: KernelReport) -> None:
    assert found.difference is not None, found.no_difference
    assert abs(some(found.difference.differ)) <= 0.03
    assert (found.difference.counter.value, some(found.ssp_energy_j).value) == (
        pytest.approx(0.75, rel=0.03),
        pytest.approx(0.75, rel=0.01),
    )


def test_curve_is_within_five_percent_of_the_truth(found: KernelReport) -> None:
    """In every bin; as it was read, the first bins are off by more than half."""
    curve = found.curve
    assert found.resolution_ms == pytest.approx(4.5)
    for point in curve:
        true = rising((point.begin_ms + point.end_ms) / 2000)
        assert point.power_w == pytest.approx(true, rel=0.05)
        assert point.low_w < point.power_w < point.high_w
    assert curve[1].raw_w is None or curve[1].raw_w < 0.5 * rising(0.007)


def test_slow_runs_are_dropped_and_counted(found: KernelReport) -> None:
    assert (
        found.dropped,
        found.runs,
        found.golden_runs,
        found.bin_low_ms,
        sum(found.histogram.counts),
    ) == ({"other execution time": 5}, 160, 155, pytest.approx(1.5), 160)


@pytest.mark.slow
@pytest.mark.parametrize("execution_s", [0.0003, 0.02])
def test_steady_power_repeats_within_one_percent(execution_s: float, tmp_path: Path) -> None:
    values: list[float] = []
    for seed in (1, 2):
        bench = MadeUpKernel(rising, execution_s=execution_s, seed=seed)
        values.append(some(measured(bench, tmp_path / str(seed)).ssp_power_w).value)
    assert values[0] == pytest.approx(values[1], rel=0.01)


def test_what_was_before_does_not_count_as_power_of_the_operation(tmp_path: Path) -> None:
    """A light operation after 500 W: read, it seems to inherit power; corrected, it does not."""
    bench = MadeUpKernel(lambda _: 250.0, lead_w=500.0)
    power = measured(bench, tmp_path, WantedKernel(runs=160, before="gemm", lead_s=0.1))
    assert (power.before_w, some(power.settled_power_w).value) == (
        pytest.approx(500, rel=0.01),
        pytest.approx(250, rel=0.015),
    )
    early = [p for p in power.curve if p.end_ms <= 30]
    raw = [p.raw_w for p in early if p.raw_w is not None]
    assert sum(raw) / len(raw) > 1.2 * 250
    assert sum(p.power_w for p in early) / len(early) == pytest.approx(250, rel=0.015)
    assert power.difference is None
    assert "another operation before" in power.no_difference


# faults


class Late(MadeUpKernel):
    """The search for the length of runs goes well; then only the first `spared` runs do."""

    spared = 0
    blocks_begun = False

    def run(self, executions: int, gap_s: float, lead_s: float = 0.0) -> Run:
        run = super().run(executions, gap_s, lead_s)
        if not self.blocks_begun:
            return run
        self.spared -= 1
        return replace(run, dropped="clock held back: hw-thermal") if self.spared < 0 else run

    def tick(self) -> CounterTick | None:
        self.blocks_begun = True
        return super().tick()


def test_too_few_golden_runs_make_no_curve(tmp_path: Path) -> None:
    bench = Late(lambda _: 300.0)
    bench.spared = 12
    power = measured(bench, tmp_path, WantedKernel(runs=40))
    assert (power.golden_runs, power.dropped) == (12, {"clock held back: hw-thermal": 28})
    assert power.no_curve.startswith("only 12 golden runs: it takes 20")
    assert (power.curve, power.sse_power_w, power.sigma_w, power.settled_power_w) == (
        (),
        None,
        None,
        None,
    )


class Miscounts(MadeUpKernel):
    """Its counter says a tenth too much."""

    def tick(self) -> CounterTick | None:
        found = super().tick()
        return found and CounterTick(found.at_s, 1.1 * found.energy_j)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bench", "gpu", "said"),
    [
        (Miscounts(rising), GPU, "the energy counter says +"),
        (MadeUpKernel(lambda _: 60.0), GPU, "and the idle GPU draws 120 W"),
        (
            MadeUpKernel(rising),
            replace(GPU, power_limit_w=300.0),
            "over 1.6 times the limit of 300 W",
        ),
    ],
)
def test_curve_that_is_not_to_be_believed_is_no_result(
    bench: MadeUpKernel, gpu: Gpu, said: str, tmp_path: Path
) -> None:
    """It says why; what does not need the curve stays, such as energy by the counter."""
    power = measured(bench, tmp_path, WantedKernel(runs=160), gpu=gpu)
    assert power.no_curve.startswith("the curve that readings give is not to be believed: ")
    assert said in power.no_curve
    assert (power.curve, power.sse_power_w, power.sse_energy_j, power.sigma_w) == (
        (),
        None,
        None,
        None,
    )
    assert power.ssp_power_w is not None
    assert some(power.difference).counter.value > 0
    assert (some(power.difference).curve_j, some(power.difference).differ) == (None, None)
    assert f"no curve    {power.no_curve}" in "\n".join(report_lines(power))
    assert measured(MadeUpKernel(rising), tmp_path / "other", WantedKernel(runs=160)).curve


class Hot(MadeUpKernel):
    """Every run is held back."""

    def run(self, executions: int, gap_s: float, lead_s: float = 0.0) -> Run:
        return replace(
            super().run(executions, gap_s, lead_s), dropped="clock held back: hw-thermal"
        )


@pytest.mark.parametrize(
    ("bench", "said"),
    [
        (Late(rising), r"none of 40 runs can be used.*hw-thermal"),
        (Hot(rising), r"60 of 60 runs could not be used.*hw-thermal.*GPU is cool"),
    ],
)
def test_nothing_but_throttled_runs_is_an_error(
    bench: MadeUpKernel, said: str, tmp_path: Path
) -> None:
    with pytest.raises(SourceError, match=f"(?s){said}"):
        measured(bench, tmp_path, WantedKernel(runs=40))


class GoesBack(MadeUpKernel):
    """The driver was loaded again: its counter began at 0."""

    ticks = 0

    def tick(self) -> CounterTick | None:
        self.ticks += 1
        found = some(super().tick())
        return CounterTick(found.at_s, 1.0) if self.ticks == 4 else found


class NoCounter(MadeUpKernel):
    """Its counter does not answer."""

    def tick(self) -> CounterTick | None:
        return None


WINDOWS = replace(COUNTER, coverage_spread=0.08, covers_everything=False)


@pytest.mark.parametrize(
    ("bench", "energy", "said"),
    [
        (MadeUpKernel(rising, stuck_counter=True), COUNTER, "still or went back in 4 of 4 blocks"),
        (GoesBack(rising), COUNTER, "stood still or went back in 1 of 4 blocks"),
        (NoCounter(rising), COUNTER, "stood still or went back in 4 of 4 blocks"),
        (MadeUpKernel(rising), None, "no energy counter"),
        (MadeUpKernel(rising), WINDOWS, "does not add up everything"),
    ],
)
def test_counter_that_is_stuck_was_reset_or_overlooks_some_is_not_used(
    bench: MadeUpKernel, energy: EnergyCounter | None, said: str, tmp_path: Path
) -> None:
    power = measured(bench, tmp_path, sensors=record(energy=energy))
    assert power.difference is None
    assert said in power.no_difference
    assert power.ssp_power_w is not None


def test_sensor_that_does_not_change_is_an_error(tmp_path: Path) -> None:
    bench = MadeUpKernel(rising, channel=replace(INSTANT, period_ms=1e9))
    with pytest.raises(SourceError, match="hardly any power reading fell into 60 runs"):
        measured(bench, tmp_path)


def test_power_that_never_settles_has_no_ssp(tmp_path: Path) -> None:
    bench = MadeUpKernel(lambda tau_s: 200 + 300 * tau_s, execution_s=0.02)
    power = measured(bench, tmp_path, WantedKernel(runs=40, resolution_ms=25))
    assert (power.ssp_execution, power.ssp_power_w, power.ssp_energy_j) == (None, None, None)


def test_operation_that_is_too_long_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="one execution takes 400 ms"):
        measured(MadeUpKernel(rising, execution_s=0.4), tmp_path, FEW)


def test_sensors_of_a_card_that_nobody_measured() -> None:
    with pytest.raises(InputError, match="run `advisor power sensor` first"):
        sensors_of(GPU, [record(driver="570.1")])
    with pytest.raises(SourceError, match="no instant power reading"):
        sensors_of(GPU, [record(None)])
    assert (sensors_of(GPU, [record()])[1], record().energy) == (INSTANT, COUNTER)


# going on


class Interrupted(MadeUpKernel):
    """Ctrl-C in the middle of the second block."""

    def tick(self) -> CounterTick | None:
        if getattr(self, "in_blocks", None) is None:
            self.in_blocks = self.runs
        return super().tick()

    def run(self, executions: int, gap_s: float, lead_s: float = 0.0) -> Run:
        begun = getattr(self, "in_blocks", None)
        if begun is not None and self.runs >= begun + BLOCK_RUNS + 5:
            raise KeyboardInterrupt
        return super().run(executions, gap_s, lead_s)


@pytest.mark.slow
def test_interrupted_measurement_goes_on(tmp_path: Path) -> None:
    """The finished block is kept, the search is not made again, half a line does no harm."""
    with pytest.raises(KeyboardInterrupt):
        measured(Interrupted(rising), tmp_path)
    (file,) = (tmp_path / "kernels").glob("*.jsonl.gz")
    assert len(gzip.decompress(file.read_bytes()).splitlines()) == 2
    with file.open("ab") as half:
        half.write(gzip.compress(b'{"runs": [{"starts_s": [0.1')[:20])
    steps: list[Step] = []
    again = MadeUpKernel(rising, seed=3)
    power = measured(again, tmp_path, steps=steps)
    assert (power.runs, again.runs) == (80, 60)
    assert (steps[0].done, steps[-1].total, steps[-1].eta_s) == (
        BLOCK_RUNS + 1,
        80,
        pytest.approx(0),
    )

    third = MadeUpKernel(rising)
    assert measured(third, tmp_path).curve == power.curve
    assert [kept.curve for kept in KERNEL_REPORTS.read(tmp_path)] == [power.curve]
    assert third.runs == 0
    fresh = MadeUpKernel(rising)
    measured(fresh, tmp_path, WantedKernel(runs=40, fresh=True))
    assert fresh.runs > 40


def test_runs_under_other_conditions_are_kept_apart(tmp_path: Path) -> None:
    """After another operation the length of runs need not be looked for."""
    measured(MadeUpKernel(rising), tmp_path, WantedKernel(runs=40))
    other = MadeUpKernel(rising)
    measured(other, tmp_path, WantedKernel(runs=40, before="triad", lead_s=0.1))
    assert other.runs == 40
    assert len(list((tmp_path / "kernels").glob("*.jsonl.gz"))) == 2


def test_broken_file_of_runs_says_what_to_do(tmp_path: Path) -> None:
    measured(MadeUpKernel(rising), tmp_path, WantedKernel(runs=40))
    (file,) = (tmp_path / "kernels").glob("*.jsonl.gz")
    file.write_text("{}\n")
    with pytest.raises(StoreError, match=r"does not hold results.*--fresh"):
        measured(MadeUpKernel(rising), tmp_path, WantedKernel(runs=40))
