"""Power of one operation over time, from many short runs and a slow sensor (docs/kernel-power.md).

The method is FinGraV (Singhania, Aga, Ibrahim, "Methodology for Fine-Grain GPU Power Visibility
and Insights", ISPASS 2025, arXiv 2412.12426), adapted to NVML, whose readings are means over a
window that is longer than most executions. It finds how long a run must be, then makes long and
short runs in turn. Runs are kept on disk: what is done survives Ctrl-C, and is not done again. A
replay is the table of measured kernels that comes with the package, instead of a GPU.

A reading at tau is `1/W * integral of P over [tau - W, tau]`, or of an exponential response; P
before the run is known. With P constant within bins that is a linear system. Its plain solution is
the recursion `P(tau) = W R'(tau) + P(tau - W)`, which multiplies noise by the window over the bin
and adds it up once per window: the power of a bin of width delta that m readings fell into is known
to `sqrt(2) * (W / delta) * sigma_R / sqrt(m)`. So differences of neighbouring bins are held down
(Tikhonov, first differences), by as much as generalised cross validation says (Golub, Heath, Wahba,
1979). Where the delay of the sensor varies, a reading is taken for the mean of what it would be at
each delay, and counts the less the more these differ: near a step of power it says little of when
the step was.
"""

import json
import math
import random
import re
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any, TextIO, TypeAlias

import numpy as np

from advisor.core.gpu import Gpu, named_model
from advisor.core.records import Counters
from advisor.core.telemetry import COUNTERS, POWER_CAPS, counters_of
from advisor.core.wording import listed
from advisor.errors import BusyError, InputError, SourceError, StoreError
from advisor.files import gpu_lock, open_home
from advisor.formats.wire import RecordLines, read, slug, write
from advisor.predict.profiles import Floats
from advisor.settings import Settings
from advisor.validity.sensor_record import AVERAGE_SETTLE_S, PowerChannel, SensorRecord, record_for
from advisor.wire.power import CurveBin, Difference, Estimate, Histogram, KernelReport, StretchPower
from advisor_data.bundled import KERNEL_REPORTS, bundled_kernels
from advisor_power.gpu_worker import (
    Conditions,
    GpuWorker,
    WorkerPlace,
    WorkerReady,
    open_worker,
)
from advisor_power.sensor import INSTANT, MEMORY, Poller, level_times, slope, window_parts
from advisor_profiling.testbed import check_alone, find_gpu, list_gpus
from advisor_profiling.window import FEWEST_READINGS, Clock as LiveClock, CounterTick, Step

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

    Args:
        values: One at least.
    """
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
class _TraceBlock:
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


def start_s(runs: Sequence[Run], executions: int) -> float:
    """When so many executions are over, median of the runs that have as many."""
    return statistics.median(
        (*run.starts_s, run.ends_s[-1])[executions] - run.starts_s[0]
        for run in runs
        if run.executions >= executions
    )


def duration_s(runs: Sequence[Run], execution: int) -> float:
    """Of one execution, counted from 1, median."""
    return statistics.median(_durations_ms(run)[execution - 1] for run in runs) / 1000


def _durations_ms(run: Run) -> list[float]:
    return [(end - start) * 1000 for start, end in zip(run.starts_s, run.ends_s, strict=True)]


def _energy_by_difference(blocks: Sequence[_TraceBlock], idle_w: float) -> Estimate | str:
    """Energy of one of the executions that the longer runs have more; else why there is none.

    Args:
        blocks: In the order in which they were run; two neighbours of different length are a pair.
        idle_w: Power between the runs.
    """
    runs_j = [(b, joules) for b in blocks if (joules := _run_j(b, idle_w)) is not None]
    if stuck := len(blocks) - len(runs_j):
        return f"the energy counter stood still or went back in {stuck} of {len(blocks)} blocks"
    energies_j = [
        (block_j - other_j) / (block.executions - other.executions)
        for (block, block_j), (other, other_j) in pairwise(runs_j)
        if block.executions != other.executions
    ]
    return (
        mean_of(energies_j)
        if energies_j
        else "it takes a block of longer runs and one of shorter runs"
    )


def _run_j(block: _TraceBlock, idle_w: float) -> float | None:
    """Energy of one run of a block; None where the counter did not move forward."""
    if (first := block.began) is None or (last := block.ended) is None:
        return None
    counted_j, time_s = last.energy_j - first.energy_j, last.at_s - first.at_s
    idle_s = time_s - sum(run.length_s for run in block.runs)
    spent_j = (counted_j - idle_w * idle_s) / len(block.runs)
    return spent_j if counted_j > 0 and time_s > 0 else None


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
    best = np.concatenate([h[: max(1, len(h) // 5)] for h in (usable[early], usable[~early])])
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


def _end_powers(runs: Sequence[Run], sensor: PowerChannel) -> list[float]:
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
    tau_s, power_w = np.array(readings, dtype=np.float64).reshape(-1, 2).T
    counts, _ = np.histogram(tau_s, edges_s)
    sums, _ = np.histogram(tau_s, edges_s, weights=power_w)
    return [s / n if n else None for s, n in zip(sums.tolist(), counts.tolist(), strict=True)]


def _in_run(run: Run, delay_s: float) -> list[tuple[float, PowerReading]]:
    return [(reading.at_s - (run.starts_s[0] + delay_s), reading) for reading in run.readings]


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


def _least_gap_s(channel: PowerChannel) -> float:
    """Nothing runs for so long before a run, so that a reading can be of that alone.

    What comes on top is random and up to a period of the sensor, so that readings fall at all times
    of a run. The readings of the run before have been waited for.
    """
    return (channel.window_ms + channel.delay_spread_ms) / 1000


def make_plan(
    channel: PowerChannel, *, bin_ms: float, run_s: float, runs: int, lead_s: float = 0.0
) -> KernelPlan:
    """What so many runs give and cost, with `lead_s` of another operation before each."""
    sigma = sigma_power_w(
        channel.window_ms, bin_ms, channel.noise_w, runs * bin_ms / channel.period_ms
    )
    busy = runs * (run_s + lead_s)
    # From the end of a run to the start of the next, mean.
    gap_s = channel.longest_delay_s + _least_gap_s(channel) + channel.period_ms / 2000
    return KernelPlan(
        runs=runs,
        sigma_w=sigma,
        sigma_end_w=sigma * math.sqrt(max(1.0, run_s * 1000 / channel.window_ms)),
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
        raise SourceError(
            f"{gpu.model} has no instant power reading",
            why="its driver gives only a mean over a second, in which single executions are lost",
            fix="measure energy with `advisor profile`; a driver of 550 or newer may have the "
            "reading",
        )
    return record, channel


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

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._half = ""
        self._readings = defaultdict[str, list[PowerReading]](list)
        self._looks: list[tuple[float, frozenset[str]]] = []

    def read(self) -> None:
        """Take in what was written since."""
        *lines, self._half = (self._half + self._file.read()).split("\n")
        for line in map(json.loads, lines):
            match line:
                case ["look", at_s, reasons, _]:
                    self._looks.append((at_s, frozenset(reasons)))
                case reading:
                    _, channel, at_s, power_w, _ = reading
                    self._readings[channel].append(PowerReading(at_s, power_w))

    def between(
        self, begin_s: float, end_s: float, channel: str = INSTANT
    ) -> tuple[PowerReading, ...]:
        """Readings of that time; older ones are forgotten."""
        kept = [r for r in self._readings[channel] if r.at_s >= begin_s]
        self._readings[channel] = kept
        return tuple(r for r in kept if r.at_s <= end_s)

    def held_back(self, begin_s: float, end_s: float) -> str:
        """Why the clock was held back at any moment of that time; the power limit is no reason."""
        caps = self._reasons(begin_s, end_s) - POWER_CAPS
        return f"clock held back: {', '.join(sorted(caps))}" if caps else ""

    def power_capped(self, begin_s: float, end_s: float) -> bool:
        """Whether the power limit held the clock back at any moment of that time."""
        return not POWER_CAPS.isdisjoint(self._reasons(begin_s, end_s))

    def _reasons(self, begin_s: float, end_s: float) -> frozenset[str]:
        before = [names for at_s, names in self._looks if at_s <= begin_s][-1:]
        within = (names for at_s, names in self._looks if begin_s < at_s <= end_s)
        return frozenset[str]().union(*before, *within)


SPARE_S = 30.0  # a run that takes so much longer than its executions never ends


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

    def timed(self, executions: int, gap_s: float, lead_s: float = 0.0) -> Run:
        """Times of one run in the host's clock, without readings.

        It comes after `gap_s` of nothing, and `lead_s` of the operation before it, if any.
        """
        self.worker.job.ask({"executions": executions, "gap_s": gap_s, "lead_s": lead_s})
        busy_s = executions * self.ready.execution_s + gap_s + lead_s
        return run_of(
            self.worker.job.answer(2 * busy_s + SPARE_S, "did not end")["run"], gap_s, lead_s
        )

    def run(self, executions: int, gap_s: float, lead_s: float = 0.0) -> Run:
        """As `timed`, with the run's readings; `dropped` says where it cannot be used.

        Raises:
            JobError: the operation failed, did not end, or needs more memory than there is.
            SourceError: the sensor does not answer.
        """
        run = self.timed(executions, gap_s, lead_s)
        begin_s, end_s = run.starts_s[0] - run.lead_s, run.ends_s[-1]
        read_s = end_s + self.channel.longest_delay_s
        # 5 ms later the last reading is in the file of the poller.
        time.sleep(max(0.0, read_s + 0.005 - time.monotonic()))
        changes = self.read()
        dropped = self._stranger() or changes.held_back(run.starts_s[0], end_s)
        return replace(run, readings=changes.between(begin_s, read_s), dropped=dropped)

    def stretch(self, settle_s: float) -> StretchPower:
        """The operation without a gap, for slow sensors that settle in so long; raises as `run`."""
        self.worker.source.start_window()
        run = self.timed(math.ceil((settle_s + STRETCH_S) / self.ready.execution_s), 0.0)
        counters = counters_of(self.worker.source.read(COUNTERS))
        span_s = run.starts_s[0], run.ends_s[-1]
        changes = self.read()
        dropped = self._stranger() or changes.held_back(*span_s)
        return stretch_power(
            replace(run, readings=changes.between(*span_s), dropped=dropped),
            changes.between(*span_s, MEMORY),
            settle_s,
            counters,
            power_capped=changes.power_capped(*span_s),
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
        InputError: there is no second GPU.
        BusyError: another process computes on one of the GPUs.
    """
    if second_gpu and place.units:
        raise InputError(
            f"a collective at {place.units} SMs cannot be measured",
            why="NCCL needs all of its blocks to run at once, on both GPUs",
            fix="leave out --units",
        )
    with (
        _second_gpu(settings, place.gpu) if second_gpu else nullcontext() as peer_gpu,
        open_worker(
            settings,
            place,
            "power-kernel",
            "kernel_power.py",
            *operation,
            *(("--peer-gpu", peer_gpu) if peer_gpu else ()),
            ready=KernelReady,
        ) as worker,
    ):
        file = worker.folder / "power.jsonl"
        file.touch(mode=0o600)
        with (
            closing(Poller(worker.gpu.uuid, file, "bursts", settings.environment)) as poller,
            file.open() as lines,
        ):
            poller.wait_ready()
            yield LiveKernelBench(
                worker=worker,
                ready=worker.ready,
                poller=poller,
                polled=PolledReadings(lines),
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
    first, *others = gpus
    with suppress(BusyError) if others else nullcontext(), ExitStack() as stack:
        stack.enter_context(gpu_lock(lock_dir, first.uuid))
        check_alone(first)
        held.push(stack.pop_all())
        return first
    return first_free(others, held, lock_dir)


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
    return Run(
        starts_s=tuple(start for start, _ in pairwise(marks)),
        ends_s=tuple(end for _, end in pairwise(marks)),
        lead_s=marks[0] - host_s(said["lead_began_s"]) if lead_s else gap_s,
        readings=(),
        sync_error_s=error_s,
    )


# Of an operation; others have m alone.
_SIZES = {"gemm": "mnk", "gemv": "mk", "all-gather": ("bytes",), "all-reduce": ("bytes",)}


_NAMED = 12  # how many of many measured kernels a message names


def operation_name(name: str, sizes: dict[str, int], dtype: str, *, rotate: bool) -> str:
    """An operation as profiling/workloads/kernel_power.py names it in reports."""
    words = name, *(f"{size}={sizes[size]}" for size in _SIZES.get(name, "m")), dtype
    return " ".join(words) + (" rotating" if rotate else "")


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
    named = gpu_model and named_model(gpu_model, (report.gpu_model for report in table))
    reports = [
        report
        for report in table
        if (report.operation, report.before) == (operation, before)
        and units in (None, report.units)
        and named in (None, report.gpu_model)
    ]
    if not reports:
        there = sorted(
            f"{_words(report.operation, report.before, report.units)} on {report.gpu_model}"
            for report in table
        )
        more = f", and {len(there) - _NAMED} more" if len(there) > _NAMED else ""
        raise InputError(
            f"{_words(operation, before, units)} is not among the measured kernels that come with "
            f"advisor{f' on {gpu_model}' if gpu_model else ''}"
            if there
            else "no measured kernel comes with this version of advisor",
            why="a replay has only what was measured",
            fix=f"there is {listed(there[:_NAMED])}{more}"
            if there
            else "measure it: advisor power kernel, on a GPU",
        )
    return replace(max(reports, key=lambda report: report.units or 0), source="replay")


def _words(operation: str, before: str, units: int | None) -> str:
    return f"{operation} after {before}" + (f" at {units} SMs" if units else "")


# Of the power limit: bands of operations at it went up to 1.5 times (docs/measurements).
_MOST_OF_LIMIT = 1.6

# Part by which curve and energy counter may differ.
_MOST_DIFFER = 0.03


# Of each bin, in which power is taken as constant: in whole bins it is not, and what a window that
# begins within a bin sees of that would be taken for a difference between bins.
_PARTS = 4

_DELAYS = 8  # of those within the spread, how many are looked at


@dataclass(frozen=True, slots=True)
class Curve:
    """Power in bins since the start of a run.

    Attributes:
        edges_s: Of the bins, shape (bins + 1,).
        power_w: Mean of each bin, shape (bins,).
        covariance: Of these means, W^2, shape (bins, bins).
        readings: Windows that ended in each bin, shape (bins,).
    """

    edges_s: Floats
    power_w: Floats
    covariance: Floats
    readings: Floats

    @property
    def band_w(self) -> Floats:
        """Half of the 95 % interval of each bin."""
        return STANDARD_ERRORS_95 * np.sqrt(np.diag(self.covariance))

    def mean_w(self, begin_s: float, end_s: float) -> tuple[float, float]:
        """Mean power between two times, and half of its 95 % interval."""
        bins = [level_times([bin_s]) for bin_s in pairwise(self.edges_s.tolist())]
        (weights,) = window_parts(bins, np.array([end_s]), end_s - begin_s)
        variance = weights @ self.covariance @ weights
        return float(weights @ self.power_w), STANDARD_ERRORS_95 * float(np.sqrt(variance))


def fault_of(
    band_w: tuple[float, float], idle_w: float, limit_w: float | None, differ: float | None
) -> str:
    """Why a curve is no result; "": it is one.

    Readings that are few, or late by another time each, can be explained by power that swings by
    thousands of watts.

    Args:
        band_w: The lowest and the highest power within its 95 % band.
        idle_w: The least that the GPU draws.
        limit_w: Its power limit; None: not known.
        differ: By which part energy by the counter is off that of the curve; None: not compared.
    """
    low_w, high_w = band_w
    limit_w, off = math.inf if limit_w is None else limit_w, differ or 0.0
    reasons = {
        f"its band goes down to {low_w:.0f} W, and the idle GPU draws {idle_w:.0f} W": (
            low_w < idle_w
        ),
        f"its band goes up to {high_w:.0f} W, over {_MOST_OF_LIMIT:g} times the limit of "
        f"{limit_w:.0f} W": high_w > _MOST_OF_LIMIT * limit_w,
        f"the energy counter says {off:+.1%}, and {_MOST_DIFFER:.0%} is allowed": (
            abs(off) > _MOST_DIFFER
        ),
    }
    return next((why for why, is_so in reasons.items() if is_so), "")


def bin_edges(length_s: float, execution_s: float, resolution_s: float) -> Floats:
    """Bins near the resolution that begin and end with executions.

    Executions longer than the resolution are cut into equal bins, shorter ones are put together.
    """
    if execution_s >= resolution_s:
        width = execution_s / int(execution_s / resolution_s)
    else:
        width = execution_s * round(resolution_s / execution_s)
    count = max(1, int(length_s / width + 1e-6))
    return np.linspace(0.0, count * width, count + 1, dtype=np.float64)


def deconvolve(stitched: Stitched, sensor: PowerChannel, edges_s: Floats) -> Curve:
    """The power in each bin, by readings of golden runs; edges begin with 0, shape (bins + 1,)."""
    bins = len(edges_s) - 1
    parts_s = np.interp(np.arange(bins * _PARTS + 1) / _PARTS, np.arange(bins + 1), edges_s)
    inside = stitched.tau_s <= edges_s[-1] - sensor.late_s
    tau_s, power_w = stitched.tau_s[inside], stitched.power_w[inside]
    late = (np.arange(_DELAYS) + 0.5) / _DELAYS - 0.5 if sensor.late_s else np.zeros(1)
    ends_s = tau_s + sensor.delay_spread_ms / 1000 * late[:, None]
    # Power is that of before the runs since 100 s ago: longer than any window.
    levels = [level_times([span_s]) for span_s in ((-100.0, 0.0), *pairwise(parts_s.tolist()))]
    parts = window_parts(levels, ends_s.ravel(), sensor.window_ms / 1000, sensor.response)
    parts = parts.reshape(*ends_s.shape, len(levels))
    matrices, before_w = parts[:, :, 1:], stitched.base_w * parts[:, :, 0]
    matrix, wanted = matrices.mean(axis=0), power_w - before_w.mean(axis=0)
    solution, covariance = _solve(matrix, wanted, sensor.noise_w)
    # Readings are weighed anew by the curve that came out.
    for _ in range(3 if sensor.late_s else 0):
        scatter_w = np.std(matrices @ solution + before_w, axis=0)
        weight = sensor.noise_w / np.hypot(sensor.noise_w, scatter_w)
        solution, covariance = _solve(matrix * weight[:, None], wanted * weight, sensor.noise_w)
    means = np.kron(np.eye(bins), np.full((1, _PARTS), 1 / _PARTS))
    counts, _ = np.histogram(tau_s, edges_s)
    return Curve(edges_s, means @ solution, means @ covariance @ means.T, counts.astype(np.float64))


def _solve(matrix: Floats, wanted: Floats, noise_w: float) -> tuple[Floats, Floats]:
    """Least squares with differences held down, and the covariance of the solution.

    Both quadratic forms are made diagonal at once, so that each strength costs next to nothing:
    `matrix.T @ matrix + s * scale * smooth` is `inv(V).T @ diag(1 + (s - 1) * share) @ inv(V)`.
    """
    differences = np.diff(np.eye(matrix.shape[1]), axis=0)
    normal, smooth = matrix.T @ matrix, differences.T @ differences
    smooth = smooth * (float(np.trace(normal)) / float(np.trace(smooth)))
    half = np.linalg.inv(np.linalg.cholesky(normal + smooth))
    share, turned = np.linalg.eigh(half @ smooth @ half.T)
    basis = half.T @ turned
    projected, right = matrix @ basis, basis.T @ (matrix.T @ wanted)

    def residual_and_freedom(strength: float) -> tuple[float, float]:
        weight = 1 / (1 + (strength - 1) * share)
        residual = wanted - projected @ (weight * right)
        freedom = len(wanted) - float(np.sum(weight * (1 - share)))
        return float(residual @ residual), max(freedom, 1.0)

    def cross_validation(strength: float) -> float:
        residual, freedom = residual_and_freedom(strength)
        return residual / freedom**2

    # The weight of neighbouring differences against that of the readings.
    best = min(np.logspace(-6, 4, 41).tolist(), key=cross_validation)
    weight = 1 / (1 + (best - 1) * share)
    residual, freedom = residual_and_freedom(best)
    # The larger of what the sensor does on a steady load and of what is really seen here.
    noise = max(noise_w**2, residual / freedom)
    # Bayesian covariance (Wahba, 1983): it holds the bias of smoothing, too.
    return basis @ (weight * right), noise * (basis * weight) @ basis.T


# With fewer runs a curve would show single runs, not the operation.
_LEAST_GOLDEN = 20


# FinGraV, Table I: up to which execution time, ms, how many runs and which `golden` margin.
_TABLE_I = ((0.05, (400, 0.05)), (0.2, (200, 0.05)), (math.inf, (200, 0.02)))


def guidance(execution_ms: float) -> tuple[int, float]:
    """Runs and margin by Table I; an execution below its 25 us takes the first row."""
    return next((row for up_to_ms, row in _TABLE_I if execution_ms < up_to_ms), _TABLE_I[-1][1])


def golden(times_ms: Sequence[float], margin: float) -> list[int]:
    """Positions of the runs of the bin of times with most runs in it; of equal bins the fastest.

    The longest time of a bin is at most this part above its shortest. There is a run at least.
    """
    order = np.argsort(times_ms, kind="stable")
    ordered = np.asarray(times_ms)[order]
    # A bin begins at each time; how far it reaches is found at once for all of them.
    ends = np.searchsorted(ordered, ordered * (1 + margin), side="right")
    begin = int(np.argmax(ends - np.arange(len(ordered))))
    return sorted(map(int, order[begin : ends[begin]]))


# Two run lengths whose power differs by less than this part are the same.
_STEADY_WITHIN = 0.01


def steady_execution(times_ms: Sequence[Sequence[float]], margin: float) -> int:
    """SSE: the first execution, counted from 1, after which times fall no further.

    Args:
        times_ms: Of each run, the time of each execution; runs may differ in length.
        margin: Times that differ by less than this part are the same.
    """
    medians = np.median([*zip(*times_ms, strict=False)], axis=1)
    least_left = np.minimum.accumulate(medians[::-1])[::-1]
    return int(np.argmax(medians <= (1 + margin) * least_left)) + 1


def shortest_run(execution_s: float, window_s: float) -> int:
    """Executions of the shortest run that is tried."""
    # Four, as FinGraV begins with, and three windows of the sensor with the spread of its delay:
    # readings of its end are of it alone.
    return max(4, math.ceil(3 * window_s / execution_s))


def search_ssp(
    power_w: Callable[[int], float], start: int, least: int, most: int
) -> tuple[int | None, dict[int, float]]:
    """Double the length of runs until two neighbours agree, or halve it for as long as they do.

    The last one is not doubled beyond `most`, but one and a half times as long at least.

    Args:
        power_w: Mean power at the end of runs of so many executions, W.
        start: Executions of the first runs.
        least: Executions of the shortest runs that the sensor can tell anything about.
        most: Executions of the longest runs that may be tried.

    Returns:
        Executions of the shortest run that ends in steady power, None where none was long enough;
        and the power at the end of each length that was tried, W.
    """
    tried: dict[int, float] = {}

    def agree(short: int, long: int) -> bool:
        for length in (short, long):
            if length not in tried:
                tried[length] = power_w(length)
        return abs(tried[short] - tried[long]) <= _STEADY_WITHIN * abs(tried[long])

    length = start
    while not agree(length, min(2 * length, most)):
        length *= 2
        # Means of a few runs differ by over 1 % now and then: the longest allowed run counts, too.
        if 3 * length > 2 * most:
            return None, tried
    while length == start or length < start:
        shorter = length // 2
        if shorter < least or not agree(shorter, length):
            break
        length = start = shorter
    return length, tried


STRETCH_S = 2.0  # after the memory's sensor has settled: eight readings, at four a second


def stretch_power(
    stretch: Run,
    memory: Sequence[PowerReading],
    settle_s: float,
    counters: Counters,
    *,
    power_capped: bool,
) -> StretchPower:
    """Power of the whole GPU and of its memory, once the sensor of that has settled.

    Args:
        stretch: The operation without a gap for some seconds.
        memory: Of the power of the memory, meanwhile; empty where the card does not read it.
        settle_s: After its beginning the memory's reading is of the operation alone.
        counters: Of the hardware over the stretch.
        power_capped: Whether the card's power limit held the clock back at any moment.
    """
    begin_s, end_s = stretch.starts_s[0] + settle_s, stretch.ends_s[-1]
    power = [r.power_w for r in stretch.readings if begin_s <= r.at_s <= end_s]
    power_w = mean_of(power) if power and not stretch.dropped else None
    inside_w = [r.power_w for r in memory if begin_s <= r.at_s <= end_s]
    if power_w is None:
        why = stretch.dropped or "the instant power of the GPU did not change in the stretch"
    elif not memory:
        why = "this card does not read the power of its memory"
    elif not all(0 < r.power_w < power_w.value for r in memory):
        why = "the power of the memory reads 0, or more than that of the whole GPU"
    elif len(inside_w) < FEWEST_READINGS:
        why = f"the power of the memory changed only {len(inside_w)} times: it is stuck"
    else:
        why = ""
    return StretchPower(
        power_w=power_w,
        # Windows of its readings overlap, so that there is no error, but a lowest and a highest.
        memory_power_w=None
        if why
        else Estimate(sum(inside_w) / len(inside_w), min(inside_w), max(inside_w)),
        no_memory_power=why,
        execution_ms=statistics.median(_durations_ms(stretch)),
        seconds=stretch.length_s,
        tensor_active_percent=counters.tensor_active_percent,
        dram_active_percent=counters.dram_active_percent,
        power_capped=power_capped,
    )


def memory_settle_s(record: SensorRecord) -> float:
    """After the beginning of a load the memory's reading is of that load alone."""
    channel = record.channel("memory")
    channel_s = channel.settle_s if channel is not None and channel.accepted else 0.0
    return max(channel_s, AVERAGE_SETTLE_S)


# Stretch of settled power, once the operation before has left the sensor.
_LOOKED_AT_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class _RunLengths:
    """How long a run is, found before the blocks.

    Attributes:
        execution_s: As timed then.
        executions: Of a long run.
        ssp_execution: Of the shortest run that ends in steady power; None: none was found, or
            looked for.
        stretch: Without a gap for seconds; None where another operation is before the runs.
    """

    execution_s: float
    executions: int
    ssp_execution: int | None
    stretch: StretchPower | None


def analyse(
    blocks: Sequence[_TraceBlock],
    sensors: Sensors,
    wanted: WantedKernel,
    gpu: Gpu,
    ready: KernelReady,
    lengths: _RunLengths,
    seconds: float,
) -> KernelReport:
    """The report of an operation, from blocks of long and short runs that took so many seconds.

    Raises:
        SourceError: no run can be used.
    """
    (record, channel), after_idle = sensors, wanted.before == IDLE
    every = [run for block in blocks for run in block.runs]
    usable = [run for run in every if not run.dropped]
    dropped = Counter(run.dropped for run in every if run.dropped)
    if not usable:
        reason, count = next(iter(dropped.most_common(1)), ("no run", 0))
        raise SourceError(
            f"none of {len(every)} runs can be used",
            why=f"{count} of them: {reason}",
            fix="see what holds the card back (`nvidia-smi -q -d PERFORMANCE`), and run it again",
        )
    _, margin = guidance(lengths.execution_s * 1000)
    sse = steady_execution([_durations_ms(run) for run in usable], margin)
    times_ms = [float(np.median(_durations_ms(run)[sse - 1 :])) for run in usable]
    chosen = golden(times_ms, margin)
    runs, golden_ms = [usable[place] for place in chosen], [times_ms[place] for place in chosen]
    execution_s = float(np.median(golden_ms)) / 1000
    curve, before_w, no_curve = _curve(runs, execution_s, channel, wanted.resolution_ms / 1000)
    difference = _difference(blocks, record, curve, runs, before_w, after_idle)
    if curve is not None:
        differ = None if isinstance(difference, str) else difference.differ
        idle_w = before_w if before_w is not None and after_idle else 0.0
        low_w, high_w = curve.power_w - curve.band_w, curve.power_w + curve.band_w
        band_w = float(low_w.min()), float(high_w.max())
        if fault := fault_of(band_w, idle_w, gpu.power_limit_w, differ):
            curve, no_curve = None, f"the curve that readings give is not to be believed: {fault}"
            if not isinstance(difference, str):
                difference = replace(difference, curve_j=None, differ=None)
    settled_s = channel.settle_s, channel.settle_s + _LOOKED_AT_S
    sse_w = curve and _execution_power(curve, runs, sse)
    first = lengths.ssp_execution or math.inf
    powers = _end_powers([run for run in runs if run.executions >= first], channel)
    ssp_w = mean_of(powers) if powers else None
    ssp_j = ssp_w and ssp_w.times(execution_s)
    if others := len(usable) - len(runs):
        dropped["other execution time"] = others
    counts, edges = np.histogram(times_ms, bins=20)
    return KernelReport(
        gpu_model=gpu.model,
        gpu_uuid=gpu.uuid,
        driver=gpu.driver or "",
        measured_at=LiveClock().utc(),
        units=ready.units,
        operation=ready.operation,
        launches=ready.launches,
        captured=ready.captured,
        launch_flop=ready.launch_flop,
        launch_bytes=ready.launch_bytes,
        libraries=ready.libraries,
        before=wanted.before,
        window_ms=channel.window_ms,
        delay_ms=channel.delay_ms,
        noise_w=channel.noise_w,
        period_ms=channel.period_ms,
        gpu_busy_s=sum(run.length_s + wanted.lead_s for run in every),
        seconds=seconds,
        before_w=before_w,
        execution_ms=execution_s * 1000,
        sse_execution=sse,
        sse_power_w=sse_w,
        ssp_execution=lengths.ssp_execution,
        ssp_power_w=ssp_w,
        settled_power_w=around(*curve.mean_w(*settled_s))
        if curve and settled_s[1] <= curve.edges_s[-1]
        else None,
        sse_energy_j=sse_w and sse_w.times(duration_s(runs, sse)),
        ssp_energy_j=ssp_j,
        launch_energy_j=ssp_j and ssp_j.times(1 / ready.launches),
        difference=None if isinstance(difference, str) else difference,
        no_difference=difference if isinstance(difference, str) else "",
        histogram=Histogram(tuple(map(float, edges)), tuple(map(int, counts))),
        bin_low_ms=min(golden_ms),
        bin_high_ms=max(golden_ms),
        runs=len(every),
        golden_runs=len(runs),
        dropped=dict(dropped),
        resolution_ms=_width_ms(curve) if curve else wanted.resolution_ms,
        sigma_w=curve
        and sigma_power_w(
            channel.window_ms, _width_ms(curve), channel.noise_w, float(curve.readings.mean())
        ),
        curve=_points(curve, runs) if curve else (),
        no_curve=no_curve,
        stretch=lengths.stretch,
    )


def _curve(
    runs: Sequence[Run], execution_s: float, channel: PowerChannel, resolution_s: float
) -> tuple[Curve | None, float | None, str]:
    """The curve of golden runs, power before them, and why there is no curve."""
    stitched = stitch(runs, channel)
    if stitched is None:
        return None, None, "no reading fell before a run, so it is not known what was drawn then"
    if len(runs) < _LEAST_GOLDEN:
        why = f"only {len(runs)} golden runs: it takes {_LEAST_GOLDEN} (more with --runs)"
        return None, stitched.base_w, why
    most = max(run.executions for run in runs)
    length_s = float(np.median([run.length_s for run in runs if run.executions == most]))
    edges_s = bin_edges(length_s, execution_s, resolution_s)
    if len(stitched.tau_s) < len(edges_s):
        why = f"{len(stitched.tau_s)} readings are too few for {len(edges_s) - 1} bins"
        return None, stitched.base_w, f"{why}: more with --runs, or a longer --resolution-ms"
    return deconvolve(stitched, channel, edges_s), stitched.base_w, ""


def _difference(
    blocks: Sequence[_TraceBlock],
    record: SensorRecord,
    curve: Curve | None,
    runs: Sequence[Run],
    before_w: float | None,
    after_idle: bool,
) -> Difference | str:
    """The second instrument, or why it says nothing."""
    if record.energy is None:
        return "this card has no energy counter"
    # Runs begin at random, so that what a counter overlooks now and then is the same for all.
    if record.energy.covers_everything is False:
        return "the energy counter of this card does not add up everything that is drawn"
    if not after_idle:
        return "with another operation before the runs, idle power between them is not known"
    if before_w is None:
        return "no reading fell before a run, so it is not known what was drawn between runs"
    whole = [block for block in blocks if not any(run.dropped for run in block.runs)]
    counter = _energy_by_difference(whole, before_w)
    if isinstance(counter, str):
        return counter
    short, long = min(b.executions for b in whole), max(b.executions for b in whole)
    difference = Difference(first=short + 1, last=long, counter=counter)
    if curve is None:
        return difference
    # What the curve says of the same executions.
    begin_s, end_s = (start_s(runs, place) for place in (short, long))
    mean_w, _ = curve.mean_w(begin_s, min(end_s, float(curve.edges_s[-1])))
    curve_j = mean_w * (end_s - begin_s) / (long - short)
    return replace(difference, curve_j=curve_j, differ=counter.value / curve_j - 1)


def _execution_power(curve: Curve, runs: Sequence[Run], execution: int) -> Estimate:
    """Power of one execution, counted from 1, by the curve."""
    begin_s = start_s(runs, execution - 1)
    end_s = begin_s + duration_s(runs, execution)
    return around(*curve.mean_w(begin_s, min(end_s, float(curve.edges_s[-1]))))


def _width_ms(curve: Curve) -> float:
    return float(curve.edges_s[1] - curve.edges_s[0]) * 1000


def _points(curve: Curve, runs: Sequence[Run]) -> tuple[CurveBin, ...]:
    raw_w, band_w = naive_curve(runs, curve.edges_s), curve.band_w
    return tuple(
        CurveBin(
            begin_ms=float(curve.edges_s[place]) * 1000,
            end_ms=float(curve.edges_s[place + 1]) * 1000,
            power_w=float(curve.power_w[place]),
            low_w=float(curve.power_w[place] - band_w[place]),
            high_w=float(curve.power_w[place] + band_w[place]),
            raw_w=raw_w[place],
            readings=int(curve.readings[place]),
        )
        for place in range(len(curve.power_w))
    )


BLOCK_RUNS = 20  # between two ticks of the counter: some seconds, of which a tick is 0.1
_LONGEST_RUN_S = 2.0  # power that still changes after so long has no steady state

_LEAST_READINGS = 6

_FRESH = "remove it, or measure again with --fresh"


Report = Callable[[Step], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Head:
    """First line of a file of runs; those under other conditions are in other files."""

    conditions: Mapping[str, Any]
    found: _RunLengths


# Makes a run of so many executions.
_MakeRun = Callable[[int], Run]


def measure_operation(
    bench: LiveKernelBench,
    gpu: Gpu,
    sensors: Sensors,
    wanted: WantedKernel,
    home: Path,
    report: Report,
    planned: Callable[[KernelPlan], object],
) -> KernelReport:
    """Measure an operation; its runs are kept in the home.

    `report` is called after each run, `planned` with the plan before the blocks.
    """
    begun, (record, channel) = time.monotonic(), sensors
    execution_s = bench.ready.execution_s
    if 2 * shortest_run(execution_s, channel.smear_s) * execution_s > _LONGEST_RUN_S:
        raise InputError(
            f"one execution takes {execution_s * 1000:.4g} ms",
            why="a run is several of them, so that their power can be told to be steady; power of "
            f"more than {_LONGEST_RUN_S:g} s needs no putting together of runs",
            fix="measure it with `advisor profile`, or take a smaller part of it",
        )
    chance = random.Random(0)

    def make_run(executions: int) -> Run:
        """One run after a random gap."""
        gap_s = _least_gap_s(channel) + chance.uniform(0, channel.period_ms / 1000)
        return bench.run(executions, gap_s, wanted.lead_s)

    conditions = {
        "where": Conditions.of(gpu, bench.ready),
        "operation": bench.ready.operation,
        "before": wanted.before,
        "lead_s": wanted.lead_s,
        "launches": bench.ready.launches,
        "sensor_measured_at": record.measured_at,
    }
    # 4 is the form of the lines; runs in another form are left where they are.
    digest = sha256(f"4 {write(conditions)}".encode()).hexdigest()[:8]
    key = slug(bench.ready.operation)[:80].strip("-"), digest
    lines: RecordLines[_Head | _TraceBlock] = RecordLines(
        open_home(home, KERNEL_REPORTS.name) / f"{slug(*key)}.jsonl.gz",
        "advisor power kernel",
        lambda text: read(_Head if text.startswith(b'{"conditions"') else _TraceBlock, text),
        _FRESH,
    )
    run_lengths, blocks = (None, []) if wanted.fresh else _kept(lines)
    if run_lengths is None:
        run_lengths = _run_lengths(bench, make_run, sensors, wanted, report)
        lines.path.unlink(missing_ok=True)
        lines.add(_Head(conditions=conditions, found=run_lengths))
    # Whole blocks, as many of long runs as of short ones.
    runs = wanted.runs or guidance(run_lengths.execution_s * 1000)[0]
    plan = make_plan(
        channel,
        bin_ms=wanted.resolution_ms,
        run_s=run_lengths.executions * run_lengths.execution_s,
        runs=math.ceil(runs / (2 * BLOCK_RUNS)) * 2 * BLOCK_RUNS,
        lead_s=wanted.lead_s,
    )
    planned(plan)
    # Short runs, for the energy of single executions as a difference, need idle before the runs.
    short = max(1, run_lengths.executions // 2) if wanted.before == IDLE else run_lengths.executions
    lengths, count = (run_lengths.executions, short), plan.runs // BLOCK_RUNS
    blocks = _run_blocks(bench, make_run, lengths, count, blocks, lines.add, report)
    made = analyse(blocks, sensors, wanted, gpu, bench.ready, run_lengths, time.monotonic() - begun)
    KERNEL_REPORTS.keep(made, home, *key)
    return made


def _kept(
    lines: RecordLines[_Head | _TraceBlock],
) -> tuple[_RunLengths | None, list[_TraceBlock]]:
    """Lengths and blocks that are in the file; None and none where there is nothing yet."""
    first, *rest = lines.resume() or [None]
    if first is None:
        return None, []
    blocks = [line for line in rest if isinstance(line, _TraceBlock)]
    if not isinstance(first, _Head) or len(blocks) < len(rest):
        raise StoreError(f"{lines.path} does not begin with conditions", fix=_FRESH)
    return first.found, blocks


def _run_lengths(
    bench: LiveKernelBench,
    make_run: _MakeRun,
    sensors: Sensors,
    wanted: WantedKernel,
    report: Report,
) -> _RunLengths:
    """How long a run is, and what slow sensors say of the operation without a gap."""
    execution_s, (record, channel) = bench.ready.execution_s, sensors
    if wanted.before != IDLE:
        # Runs last until the operation before has left the sensor, and a little longer.
        late_s = (2 * wanted.resolution_ms + channel.delay_spread_ms) / 1000
        least = math.ceil((channel.settle_s + _LOOKED_AT_S + late_s) / execution_s)
        return _RunLengths(
            execution_s=execution_s,
            executions=max(shortest_run(execution_s, channel.smear_s), least),
            ssp_execution=None,
            stretch=None,
        )
    report(Step("without a gap, for sensors that are slow", 1))
    stretch = bench.stretch(memory_settle_s(record))
    steady, tried = _find_ssp(make_run, execution_s, channel, report)
    return _RunLengths(
        execution_s=execution_s,
        executions=steady or max(tried),
        ssp_execution=steady,
        stretch=stretch,
    )


def _find_ssp(
    make_run: _MakeRun, execution_s: float, channel: PowerChannel, report: Report
) -> tuple[int | None, dict[int, float]]:
    """How long a run must be for its power to be steady at its end.

    Raises:
        SourceError: hardly any reading falls into the runs.
    """
    runs_made, dropped = 0, Counter[str]()

    def end_power_w(executions: int) -> float:
        nonlocal runs_made
        powers: list[float] = []
        for made in range(60):  # so many for `_LEAST_READINGS` readings
            if made % 4 == 0 and _enough(powers, made):
                break
            run = make_run(executions)
            if run.dropped:
                dropped[run.dropped] += 1
            else:
                powers += _end_powers([run], channel)
            runs_made += 1
            report(Step(f"power after {executions} executions", runs_made))
        if len(powers) < 2:
            if not dropped:
                raise SourceError(
                    f"hardly any power reading fell into {runs_made} runs",
                    why="the instant reading of this card changes less often than the record of "
                    "its sensor says, or not at all",
                    fix="run `advisor power sensor` again",
                )
            why, times = dropped.most_common(1)[0]
            raise SourceError(
                f"{dropped.total()} of {runs_made} runs could not be used",
                why=f"of {times} of them: {why}",
                fix="measure when the GPU is cool and otherwise idle, or another GPU"
                if "thermal" in why or "slowdown" in why
                else "measure when the GPU is otherwise idle",
            )
        return float(np.mean(powers))

    least = shortest_run(execution_s, channel.smear_s)
    return search_ssp(
        end_power_w, 2 * least, least, max(4 * least, math.floor(_LONGEST_RUN_S / execution_s))
    )


def _enough(powers_w: Sequence[float], runs: int) -> bool:
    if len(powers_w) < _LEAST_READINGS:
        return False
    error_w = float(np.std(powers_w, ddof=1)) / math.sqrt(len(powers_w))
    # Within a third of what lengths may differ by they can be compared; 20 runs must do.
    return error_w <= _STEADY_WITHIN / 3 * float(np.mean(powers_w)) or runs >= 20


def _run_blocks(
    bench: LiveKernelBench,
    make_run: _MakeRun,
    executions: tuple[int, int],
    blocks: int,
    kept: Sequence[_TraceBlock],
    keep: Callable[[_TraceBlock], object],
    report: Report,
) -> list[_TraceBlock]:
    """Long and short runs in turn, so that both meet the same card; goes on after what is kept.

    Executions are of a long run and of a short one; blocks are those in all.
    """
    done, begun, total = list(kept), time.monotonic(), blocks * BLOCK_RUNS
    for number in range(len(done), blocks):
        length = executions[number % 2]
        began, runs = bench.tick(), list[Run]()
        for _ in range(BLOCK_RUNS):
            runs.append(make_run(length))
            made = number * BLOCK_RUNS + len(runs)
            eta_s = (total - made) * (time.monotonic() - begun) / (made - len(kept) * BLOCK_RUNS)
            report(Step(f"runs of {length} executions", made, total, eta_s))
        block = _TraceBlock(runs=tuple(runs), began=began, ended=bench.tick())
        keep(block)
        done.append(block)
    return done
