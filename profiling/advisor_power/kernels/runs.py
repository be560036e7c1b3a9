"""Runs of an operation: their times and readings, and what a wanted resolution costs in runs.

Differentiating a reading that is the mean of a window W multiplies its noise: the power of a bin of
width delta that m readings fell into is known to `sqrt(2) * (W / delta) * sigma_R / sqrt(m)`, and
noise adds up once per window along the run.

A bench runs an operation and reads the sensors meanwhile: a GPU, or one that is made up. A replay
is the table of measured kernels that comes with the package, instead of a GPU.
"""

import json
import math
import re
import statistics
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from advisor.core.gpu import Gpu
from advisor.core.records import Counters
from advisor.core.telemetry import COUNTERS, POWER_CAPS, counters_of
from advisor.core.wording import listed
from advisor.errors import BusyError, InputError, SourceError
from advisor.files import gpu_lock
from advisor.predict.profiles import Floats
from advisor.settings import Settings
from advisor.validity.sensor_record import PowerChannel, SensorRecord, record_for
from advisor.wire.power import Estimate, KernelReport
from advisor_data.bundled import bundled_kernels
from advisor_power.gpu_worker import GpuWorker, WorkerPlace, WorkerReady, open_worker
from advisor_power.sensor.analysis import slope
from advisor_power.sensor.recording import Poller
from advisor_power.sensor.trace import MEMORY
from advisor_profiling.testbed import check_alone, find_gpu, list_gpus
from advisor_profiling.window import CounterTick

# Student's t for 95 %, by degrees of freedom from 1 on.
_T_95 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)


STANDARD_ERRORS_95 = 1.96
"""In half an interval of 95 % of a normal value."""


def around(value: float, half: float) -> Estimate:
    """A value with an interval of half this width."""
    return Estimate(value, value - half, value + half)


def standard_error(estimate: Estimate) -> float:
    """By its interval; 0 where it has none."""
    return 0.0 if estimate.high is None else (estimate.high - estimate.value) / STANDARD_ERRORS_95


def mean_of(values: Sequence[float]) -> Estimate:
    """Mean of independent values, with an interval by Student's t.

    Raises:
        ValueError: there are none.
    """
    if not values:
        raise ValueError("no values have no mean")
    mean, freedom = float(np.mean(values)), len(values) - 1
    if not freedom:
        return Estimate(mean, None, None)
    t = _T_95[freedom - 1] if freedom <= len(_T_95) else 2.0
    return around(mean, t * float(np.std(values, ddof=1)) / math.sqrt(len(values)))


IDLE = "idle"
"""What was before a run, where no operation was."""


@dataclass(frozen=True, slots=True)
class PowerReading:
    """A change of the instant channel: when it was seen, and what it read."""

    at_s: float
    power_w: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Executions without a gap, after a while of something else.

    Attributes:
        starts_s: Of each execution.
        lead_s: How long that which was before it had lasted.
        readings: From the beginning of the lead until the last execution can be seen.
        sync_error_s: How far off the times of executions can be.
        dropped: Why it cannot be used; empty where it can.
    """

    starts_s: tuple[float, ...]
    ends_s: tuple[float, ...]
    lead_s: float
    readings: tuple[PowerReading, ...]
    sync_error_s: float = 0.0
    dropped: str = ""

    @property
    def executions(self) -> int:
        """How many."""
        return len(self.starts_s)

    @property
    def length_s(self) -> float:
        """From the start of the first execution to the end of the last."""
        return self.ends_s[-1] - self.starts_s[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceBlock:
    """Runs of as many executions each, between two ticks of the energy counter.

    Attributes:
        began: None where there is no counter, or it did not move.
    """

    runs: tuple[Run, ...]
    began: CounterTick | None = None
    ended: CounterTick | None = None

    @property
    def executions(self) -> int:
        """Of each run."""
        return self.runs[0].executions


@dataclass(frozen=True, slots=True, kw_only=True)
class GaplessRun:
    """The operation without a gap for some seconds, which shows it to sensors that are slow.

    Attributes:
        execution_s: Median.
        readings: Of the instant channel, meanwhile.
        memory: Of the power of the memory, meanwhile; empty where the card does not read it.
        counters: Of the hardware over the stretch.
        power_capped: Whether the card's power limit held the clock back at any moment.
        dropped: Why it cannot be used; empty where it can.
    """

    begin_s: float
    end_s: float
    execution_s: float
    readings: tuple[PowerReading, ...]
    memory: tuple[PowerReading, ...]
    counters: Counters
    power_capped: bool
    dropped: str = ""


def start_s(runs: Sequence[Run], executions: int) -> float:
    """When so many executions are over, median of the runs that have as many."""
    over_s = (
        (*run.starts_s, run.ends_s[-1])[executions] - run.starts_s[0]
        for run in runs
        if run.executions >= executions
    )
    return statistics.median(over_s)


def duration_s(runs: Sequence[Run], execution: int) -> float:
    """Of one execution, counted from 1, median."""
    return statistics.median(durations_ms(run)[execution - 1] for run in runs) / 1000


def durations_ms(run: Run) -> list[float]:
    """Of each execution of a run."""
    return [(end - start) * 1000 for start, end in zip(run.starts_s, run.ends_s, strict=True)]


def energy_by_difference(blocks: Sequence[TraceBlock], idle_w: float) -> Estimate | str:
    """Energy of one of the executions that the longer runs have more; else why there is none.

    Args:
        blocks: In the order in which they were run; two neighbours of different length are a pair.
        idle_w: Power between the runs.
    """
    usable = [block for block in blocks if _moved(block)]
    if len(usable) < len(blocks):
        stuck = len(blocks) - len(usable)
        return f"the energy counter stood still or went back in {stuck} of {len(blocks)} blocks"
    energies_j = [
        (_run_j(block, idle_w) - _run_j(other, idle_w)) / (block.executions - other.executions)
        for block, other in pairwise(usable)
        if block.executions != other.executions
    ]
    return (
        mean_of(energies_j)
        if energies_j
        else "it takes a block of longer runs and one of shorter runs"
    )


def _moved(block: TraceBlock) -> bool:
    return (
        block.began is not None
        and block.ended is not None
        and block.ended.energy_j > block.began.energy_j
        and block.ended.at_s > block.began.at_s
    )


def _run_j(block: TraceBlock, idle_w: float) -> float:
    assert block.began is not None  # seen to in _moved
    assert block.ended is not None
    idle_s = block.ended.at_s - block.began.at_s - sum(run.length_s for run in block.runs)
    return (block.ended.energy_j - block.began.energy_j - idle_w * idle_s) / len(block.runs)


def fit_clock(
    ping_pongs: Sequence[tuple[float, float, float]],
) -> tuple[Callable[[float], float], float]:
    """The host's time of a time of the GPU, s; and how far it may be off.

    That is half of the longest round trip that was used, plus how far it is off the line.
    Of each ping-pong the host's clock before, the GPU's, and the host's after, s.

    Raises:
        SourceError: there are no ping-pongs, or time ran backwards in all of them.
    """
    tried = np.array(ping_pongs, dtype=np.float64).reshape(-1, 3)
    trips_s = tried[:, 2] - tried[:, 0]
    usable: Floats = tried[np.argsort(trips_s)][np.count_nonzero(trips_s < 0) :]
    if not usable.size:
        raise SourceError(
            f"the clocks of host and GPU cannot be compared: {len(ping_pongs)} tries",
            why="the GPU did not answer, or the host's clock went back in all of them",
            fix="look at `nvidia-smi` and run it again",
        )
    # The shortest of the earlier and of the later half, so that a line has two ends.
    early = usable[:, 1] <= (usable[:, 1].min() + usable[:, 1].max()) / 2
    # A fifth is used: others met an interrupt or a busy core.
    halves = (usable[early], usable[~early])
    best = np.concatenate([h[: max(1, len(h) // 5)] for h in halves])
    gpu: Floats = best[:, 1]
    offsets: Floats = (best[:, 0] + best[:, 2]) / 2 - gpu
    # Over less time a slope says more about the noise than about the clocks.
    drift = slope(gpu, offsets) if np.ptp(gpu) >= 0.05 else 0.0
    left = offsets - drift * gpu
    offset = float(np.mean(left))
    error = float(np.max(best[:, 2] - best[:, 0])) / 2 + float(np.max(np.abs(left - offset)))
    return lambda gpu_s: offset + gpu_s * (1 + drift), error


@dataclass(frozen=True, slots=True)
class Stitched:
    """Readings of all runs, ordered by time.

    Attributes:
        tau_s: Time in the run at which each reading's window ended, shape (readings,).
        power_w: What it read, shape (readings,).
        base_w: Power before the runs, from readings whose whole window lay there.
    """

    tau_s: Floats
    power_w: Floats
    base_w: float


def stitch(runs: Sequence[Run], sensor: PowerChannel) -> Stitched | None:
    """Readings whose window ended within the run; None without a reading before a run.

    What is drawn after the end of a run is not known, so a window that reaches beyond is left out.
    """
    inside, before = list[tuple[float, float]](), list[float]()
    for run in runs:
        for tau_s, reading in _in_run(run, sensor.delay_ms / 1000):
            if -sensor.late_s < tau_s <= run.length_s - sensor.late_s:
                inside.append((tau_s, reading.power_w))
            elif sensor.memory_s + sensor.late_s - run.lead_s <= tau_s <= -sensor.late_s:
                before.append(reading.power_w)
    if not before:
        return None
    table = np.array(sorted(inside), dtype=np.float64).reshape(-1, 2)
    return Stitched(table[:, 0], table[:, 1], float(np.mean(before)))


def end_powers(runs: Sequence[Run], sensor: PowerChannel) -> list[float]:
    """Readings whose whole window lay in the second half of their run, W."""
    return [
        reading.power_w
        for run in runs
        for tau_s, reading in _in_run(run, sensor.delay_ms / 1000)
        if run.length_s / 2 + sensor.memory_s + sensor.late_s <= tau_s
        and tau_s <= run.length_s - sensor.late_s
    ]


def naive_curve(runs: Sequence[Run], edges_s: Floats) -> list[float | None]:
    """Mean of what was read while the run was that old, as if readings were of the moment."""
    readings = [
        (tau_s, reading.power_w)
        for run in runs
        for tau_s, reading in _in_run(run, 0.0)
        if tau_s <= run.length_s
    ]
    table = np.array(readings, dtype=np.float64).reshape(-1, 2)
    counts, _ = np.histogram(table[:, 0], edges_s)
    sums, _ = np.histogram(table[:, 0], edges_s, weights=table[:, 1])
    return [s / n if n else None for s, n in zip(sums.tolist(), counts.tolist(), strict=True)]


def _in_run(run: Run, delay_s: float) -> list[tuple[float, PowerReading]]:
    start_s = run.starts_s[0] + delay_s
    return [(reading.at_s - start_s, reading) for reading in run.readings]


# The sensor is asked every 0.3 ms, so when a reading changed is not known better than this.
_FINEST_MS = 0.5


LEAD_S = 0.1  # of the operation before each run: several windows of the sensor


Sensors: TypeAlias = tuple[SensorRecord, PowerChannel]
"""Record of a card's sensors, and its instant channel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedKernel:
    """How an operation is measured.

    Attributes:
        resolution_ms: Width of the curve's bins.
        runs: How many; None: by Table I.
        before: Operation before each run, or idle.
        lead_s: How long that runs.
        fresh: Measure again what was measured before.
    """

    resolution_ms: float = 5.0
    runs: int | None = None
    before: str = IDLE
    lead_s: float = 0.0
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class KernelPlan:
    """How many runs are made, and what they cost and give.

    Attributes:
        sigma_w: Standard error of the power of one bin within the first window of a run, W.
        sigma_end_w: The same at the end of a run.
        gpu_busy_s: Executions alone.
        seconds: With the idle gaps.
    """

    runs: int
    sigma_w: float
    sigma_end_w: float
    gpu_busy_s: float
    seconds: float


def sigma_power_w(window_ms: float, bin_ms: float, noise_w: float, readings: float) -> float:
    """Standard error of the power of one bin, W."""
    return math.sqrt(2) * (window_ms / bin_ms) * noise_w / math.sqrt(readings)


def least_gap_s(channel: PowerChannel) -> float:
    """Nothing runs for so long before a run, so that a reading can be of that alone.

    What comes on top is random and up to a period of the sensor, so that readings fall at all times
    of a run. The readings of the run before have been waited for.
    """
    return (channel.window_ms + channel.delay_spread_ms) / 1000


def make_plan(
    channel: PowerChannel, *, bin_ms: float, run_s: float, runs: int, lead_s: float = 0.0
) -> KernelPlan:
    """What so many runs give and cost, with `lead_s` of another operation before each."""
    readings = runs * bin_ms / channel.period_ms
    sigma = sigma_power_w(channel.window_ms, bin_ms, channel.noise_w, readings)
    windows = max(1.0, run_s * 1000 / channel.window_ms)
    busy = runs * (run_s + lead_s)
    # From the end of a run to the start of the next, mean.
    gap_s = channel.longest_delay_s + least_gap_s(channel) + channel.period_ms / 2000
    return KernelPlan(
        runs=runs,
        sigma_w=sigma,
        sigma_end_w=sigma * math.sqrt(windows),
        gpu_busy_s=busy,
        seconds=busy + runs * gap_s,
    )


def check_resolution(channel: PowerChannel, bin_ms: float) -> None:
    """Refuse a bin that no number of readings resolves.

    Raises:
        InputError: it is below what the sensor can be asked for, or longer than its window.
    """
    if not bin_ms >= _FINEST_MS:
        raise InputError(
            f"{bin_ms:g} ms cannot be resolved",
            why="the sensor is asked every 0.3 ms: what happens within "
            f"{_FINEST_MS:g} ms cannot be told apart, however many readings there are",
            fix="ask for --resolution-ms 5, or for 1 with many more runs",
        )
    if bin_ms > channel.window_ms:
        raise InputError(
            f"{bin_ms:g} ms is longer than the {channel.window_ms:g} ms window of this sensor",
            why="such a curve needs no deconvolution: a reading is finer than that by itself",
            fix=f"ask for --resolution-ms {channel.window_ms:g} or less",
        )


def sensors_of(gpu: Gpu, records: Iterable[SensorRecord]) -> Sensors:
    """Sensors of a card by the records that there are.

    Raises:
        InputError: there is none of the card.
        SourceError: the card has no instant channel.
    """
    record = record_for(gpu.uuid, gpu.model, gpu.driver or "", records)
    if record is None:
        raise InputError(
            f"there is no record of the power sensors of {gpu.model} with driver {gpu.driver}",
            why="the time of a reading follows from its window, delay and noise",
            fix="run `advisor power sensor` first: a few minutes, once for a card and driver",
        )
    channel = record.channel("instant")
    if channel is None:
        raise _no_instant(gpu.model)
    return record, channel


def _no_instant(model: str) -> SourceError:
    """What to say of a card whose power is only read as a mean over a second."""
    return SourceError(
        f"{model} has no instant power reading",
        why="its driver gives only a mean over a second, in which single executions are lost",
        fix="measure energy with `advisor profile`; a driver of 550 or newer may have the reading",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelReady(WorkerReady):
    """What a workload says of its operation before the first run.

    Attributes:
        operation: Its canonical text.
        execution_s: One execution, median of some after warming up.
        launches: Of the operation in one execution, as many as make it long enough to be timed.
        captured: Whether an execution is one CUDA graph; else each launch is one by itself.
        launch_flop: Floating point operations of one launch, by its definition; None where the
            operation is not one of ours.
        launch_bytes: That its operands hold, the result included, each once; None as above.
    """

    operation: str
    execution_s: float
    launches: int
    captured: bool
    launch_flop: float | None = None
    launch_bytes: float | None = None


class PolledReadings:
    """Lines of a poller, as far as they are read."""

    def __init__(self, file: Path) -> None:
        self._file = file.open()
        self._half = ""
        self._readings: list[PowerReading] = []
        self._memory: list[PowerReading] = []
        self._looks: list[tuple[float, frozenset[str]]] = []

    def read(self) -> None:
        """Take in what was written since."""
        *lines, self._half = (self._half + self._file.read()).split("\n")
        self.take(lines)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def take(self, lines: Iterable[str]) -> None:
        """Take whole lines in."""
        for kind, *values in map(json.loads, lines):
            if kind == "look":
                at_s, reasons, _ = values
                self._looks.append((at_s, frozenset(reasons)))
            else:
                channel, at_s, power_w, _ = values
                (self._memory if channel == MEMORY else self._readings).append(
                    PowerReading(at_s, power_w)
                )

    def between(self, begin_s: float, end_s: float) -> tuple[PowerReading, ...]:
        """Readings of that time; older ones are forgotten."""
        self._readings = [r for r in self._readings if r.at_s >= begin_s]
        return tuple(r for r in self._readings if r.at_s <= end_s)

    def memory_between(self, begin_s: float, end_s: float) -> tuple[PowerReading, ...]:
        """Readings of the memory of that time."""
        return tuple(r for r in self._memory if begin_s <= r.at_s <= end_s)

    def held_back(self, begin_s: float, end_s: float) -> str:
        """Why the clock was held back at any moment of that time; the power limit is no reason."""
        caps = self._reasons(begin_s, end_s) - POWER_CAPS
        return f"clock held back: {', '.join(sorted(caps))}" if caps else ""

    def power_capped(self, begin_s: float, end_s: float) -> bool:
        """Whether the power limit held the clock back at any moment of that time."""
        return not POWER_CAPS.isdisjoint(self._reasons(begin_s, end_s))

    def _reasons(self, begin_s: float, end_s: float) -> frozenset[str]:
        before = [names for at_s, names in self._looks if at_s <= begin_s][-1:]
        within = [names for at_s, names in self._looks if begin_s < at_s <= end_s]
        return frozenset[str]().union(*before, *within)


SPARE_S = 30.0
"""A run that takes so much longer than its executions never ends."""

_LATE_S = 0.005  # beyond the delay of the sensor: until a reading is in the file of the poller


@dataclass(slots=True, kw_only=True)
class LiveKernelBench:
    """One operation on one GPU.

    Attributes:
        ready: What the workload says of the operation that it runs now.
    """

    worker: GpuWorker[KernelReady]
    ready: KernelReady
    poller: Poller
    polled: PolledReadings
    channel: PowerChannel

    @property
    def gpu(self) -> Gpu:
        """Where it runs, with its number of SMs."""
        return self.worker.gpu

    def timed(self, executions: int, gap_s: float, lead_s: float = 0.0) -> Run:
        """Times of one run in the host's clock, without readings.

        It comes after `gap_s` of nothing, and `lead_s` of the operation before it, if any.
        """
        self.worker.job.ask({"executions": executions, "gap_s": gap_s, "lead_s": lead_s})
        busy_s = executions * self.ready.execution_s + gap_s + lead_s
        said = self.worker.job.answer(2 * busy_s + SPARE_S, "did not end")["run"]
        return run_of(said, gap_s, lead_s)

    def run(self, executions: int, gap_s: float, lead_s: float = 0.0) -> Run:
        """As `timed`, with the run's readings; `dropped` says where it cannot be used.

        Raises:
            JobError: the operation failed, did not end, or needs more memory than there is.
            SourceError: the sensor does not answer.
        """
        run = self.timed(executions, gap_s, lead_s)
        begin_s, end_s = run.starts_s[0] - run.lead_s, run.ends_s[-1]
        read_s = end_s + self.channel.longest_delay_s
        time.sleep(max(0.0, read_s + _LATE_S - time.monotonic()))
        changes = self.read()
        dropped = self._stranger() or changes.held_back(run.starts_s[0], end_s)
        return replace(run, readings=changes.between(begin_s, read_s), dropped=dropped)

    def stretch(self, seconds: float) -> GaplessRun:
        """The operation without a gap for so long, with what slow sensors read; raises as `run`."""
        executions = math.ceil(seconds / self.ready.execution_s)
        self.worker.source.start_window()
        run = self.timed(executions, 0.0)
        counters = counters_of(self.worker.source.read(COUNTERS))
        begin_s, end_s = run.starts_s[0], run.ends_s[-1]
        changes = self.read()
        return GaplessRun(
            begin_s=begin_s,
            end_s=end_s,
            execution_s=statistics.median(durations_ms(run)) / 1000,
            readings=changes.between(begin_s, end_s),
            memory=changes.memory_between(begin_s, end_s),
            counters=counters,
            power_capped=changes.power_capped(begin_s, end_s),
            dropped=self._stranger() or changes.held_back(begin_s, end_s),
        )

    def read(self) -> PolledReadings:
        """All that was polled so far."""
        self.poller.check()
        self.polled.read()
        return self.polled

    def tick(self) -> CounterTick | None:
        """Wait for a change of the energy counter; None where there is none in time."""
        return CounterTick.next(self.worker.source, time.monotonic, 1.0, lambda: time.sleep(0.005))

    def _stranger(self) -> str:
        return "another process on the GPU" if self.worker.later_strangers() else ""


@contextmanager
def open_kernel_bench(
    settings: Settings,
    channel: PowerChannel,
    place: WorkerPlace,
    operation: Sequence[str],
    *,
    second_gpu: bool = False,
) -> Generator[LiveKernelBench]:
    """An operation on a GPU that is ours alone; all that was started ends at the end.

    The operation is options of the workload. Collectives need a second GPU of the host.

    Raises:
        JobError: as `open_worker`, or the operation needs more memory than there is.
        SourceError: the card has no instant power reading.
        InputError: there is no second GPU.
        BusyError: another process computes on one of the GPUs.
    """
    if second_gpu and place.units:
        raise InputError(
            f"a collective at {place.units} SMs cannot be measured",
            why="NCCL needs all of its blocks to run at once, on both GPUs",
            fix="leave out --units",
        )
    with _second_gpu(settings, place.gpu) if second_gpu else nullcontext() as peer_gpu:
        peer = ("--peer-gpu", peer_gpu) if peer_gpu else ()
        with open_worker(
            settings,
            place,
            "power-kernel",
            "kernel_power.py",
            *operation,
            *peer,
            ready=KernelReady,
        ) as worker:
            if worker.source.name != "nvml":
                raise _no_instant(worker.gpu.model)
            file = worker.folder / "power.jsonl"
            file.touch(mode=0o600)
            with (
                closing(Poller(worker.gpu.uuid, file, "bursts", settings.environment)) as poller,
                closing(PolledReadings(file)) as polled,
            ):
                poller.wait_ready()
                yield LiveKernelBench(
                    worker=worker,
                    ready=worker.ready,
                    poller=poller,
                    polled=polled,
                    channel=channel,
                )


@contextmanager
def _second_gpu(settings: Settings, measured: str) -> Generator[str]:
    """UUID of the first other GPU of the host that is free, ours alone for as long."""
    first, gpus = find_gpu(measured), list_gpus()
    others = [gpu for gpu in gpus if gpu.uuid != first.uuid and gpu.vendor == "nvidia"]
    if not others:
        raise InputError(
            f"a collective needs two GPUs, and this host has {len(gpus)}",
            why="it moves data from one to the other",
            fix="run it on a host with two",
        )
    with ExitStack() as held:
        yield first_free(others, held, settings.lock_dir).uuid


def first_free(gpus: Sequence[Gpu], held: ExitStack, lock_dir: Path) -> Gpu:
    """The first GPU that can be ours alone; it is, until `held` is closed."""
    *others, last = gpus
    for gpu in others:
        with suppress(BusyError):
            return _ours(gpu, held, lock_dir)
    return _ours(last, held, lock_dir)


def _ours(gpu: Gpu, held: ExitStack, lock_dir: Path) -> Gpu:
    with ExitStack() as stack:
        stack.enter_context(gpu_lock(lock_dir, gpu.uuid))
        check_alone(gpu)
        held.push(stack.pop_all())
    return gpu


def run_of(said: Mapping[str, Any], gap_s: float, lead_s: float = 0.0) -> Run:
    """A run in the host's clock, from the GPU's times and ping-pongs.

    Args:
        said: `marks_s` between executions and `lead_began_s`, of the GPU's clock; `ping_pongs`.
        gap_s: Of nothing before the run.
        lead_s: Of the operation before it.
    """
    host_s, error_s = fit_clock(said["ping_pongs"])
    # Clocks are compared to a microsecond; more digits would fill the disk.
    marks = [round(host_s(mark), 7) for mark in said["marks_s"]]
    began = host_s(said["lead_began_s"])
    return Run(
        starts_s=tuple(start for start, _ in pairwise(marks)),
        ends_s=tuple(end for _, end in pairwise(marks)),
        lead_s=marks[0] - began if lead_s else gap_s,
        readings=(),
        sync_error_s=error_s,
    )


# Of an operation; others have m alone.
_SIZES = {"gemm": "mnk", "gemv": "mk", "all-gather": ("bytes",), "all-reduce": ("bytes",)}


_NAMED = 12  # how many of many measured kernels a message names


def operation_name(name: str, sizes: dict[str, int], dtype: str, *, rotate: bool) -> str:
    """An operation as profiling/workloads/kernel_operations.py names it in reports."""
    shape = " ".join(f"{size}={sizes[size]}" for size in _SIZES.get(name, "m"))
    return f"{name} {shape} {dtype}" + (" rotating" if rotate else "")


def bytes_of(text: str) -> int:
    """A size such as 65536, 64KiB, 512MiB or 1GiB, in bytes.

    Raises:
        InputError: it is none.
    """
    match = re.fullmatch(r"([1-9][0-9]*)(|KiB|MiB|GiB)", text)
    if match is None:
        raise InputError(f"{text} is no size", fix="write it as 64KiB, 512MiB or 1GiB")
    return int(match[1]) * {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}[match[2]]


def recorded_kernel(
    operation: str, before: str, units: int | None = None, gpu_model: str | None = None
) -> KernelReport:
    """What was measured of a kernel; its source is replay.

    Args:
        operation: As reports name it.
        before: What ran before it, as reports name that.
        units: SMs; None: as many as there are.
        gpu_model: None: the first that there is.

    Raises:
        InputError: nothing is bundled, or not this kernel.
        StoreError: the installation is damaged.
    """
    table = bundled_kernels()
    if not table:
        raise InputError(
            "no measured kernel comes with this version of advisor",
            fix="measure it: advisor power kernel, on a GPU",
        )
    reports = [
        report
        for report in table
        if (report.operation, report.before) == (operation, before)
        and units in (None, report.units)
        and gpu_model in (None, report.gpu_model)
    ]
    if not reports:
        there = sorted({_words(report.operation, report.before, report.units) for report in table})
        more = f", and {len(there) - _NAMED} more" if len(there) > _NAMED else ""
        of = f" on {gpu_model}" if gpu_model else ""
        raise InputError(
            f"{_words(operation, before, units)} is not among the measured kernels that come with "
            f"advisor{of}",
            why="a replay has only what was measured",
            fix=f"there is {listed(there[:_NAMED])}{more}",
        )
    return replace(max(reports, key=lambda report: report.units or 0), source="replay")


def _words(operation: str, before: str, units: int | None) -> str:
    limit = f" at {units} SMs" if units else ""
    return f"{operation} after {before}{limit}"
