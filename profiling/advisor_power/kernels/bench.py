"""What runs an operation and reads the sensors meanwhile: a GPU, or one that is made up."""

import json
import math
import statistics
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

from advisor.core.gpu import Gpu
from advisor.core.telemetry import COUNTERS, POWER_CAPS, counters_of
from advisor.errors import BusyError, InputError
from advisor.runtime.lock import gpu_lock
from advisor.settings import Settings
from advisor.validity.sensor_record import PowerChannel
from advisor_power.gpu_worker import GpuWorker, WorkerPlace, WorkerReady, open_worker
from advisor_power.kernels.runs import (
    GaplessRun,
    PingPong,
    PowerReading,
    Run,
    durations_ms,
    fit_clock,
    no_instant,
)
from advisor_power.sensor.recording import Poller
from advisor_power.sensor.trace import MEMORY
from advisor_profiling.testbed.live import check_alone, find_gpu, list_gpus
from advisor_profiling.window import CounterTick, next_tick


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


@dataclass(frozen=True, slots=True)
class RunRequest:
    """One run: after `gap_s` of nothing, the operation before it, if any, then it.

    Attributes:
        lead_s: Of the operation before it.
    """

    executions: int
    gap_s: float
    lead_s: float = 0.0


class KernelBench(Protocol):
    """Runs executions of one operation on one GPU."""

    @property
    def ready(self) -> KernelReady:
        """What the workload says of itself."""
        ...

    def run(self, request: RunRequest) -> Run:
        """One run with its readings; `dropped` says where it cannot be used.

        Raises:
            JobError: the operation failed, did not end, or needs more memory than there is.
            SourceError: the sensor does not answer.
        """
        ...

    def stretch(self, seconds: float) -> GaplessRun:
        """The operation without a gap for so long, with what slow sensors read; raises as `run`."""
        ...

    def tick(self) -> CounterTick | None:
        """Wait for a change of the energy counter; None where there is none in time."""
        ...


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
        found = self._reasons(begin_s, end_s) - POWER_CAPS
        return f"clock held back: {', '.join(sorted(found))}" if found else ""

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

    def timed(self, request: RunRequest) -> Run:
        """Times of one run in the host's clock, without readings."""
        self.worker.job.ask(
            {
                "executions": request.executions,
                "gap_s": request.gap_s,
                "lead_s": request.lead_s,
            }
        )
        busy_s = request.executions * self.ready.execution_s + request.gap_s + request.lead_s
        said = self.worker.job.answer(2 * busy_s + SPARE_S, "did not end")["run"]
        return run_of(said, request)

    def run(self, request: RunRequest) -> Run:
        """One run with its readings."""
        run = self.timed(request)
        begin_s, end_s = run.starts_s[0] - run.lead_s, run.ends_s[-1]
        seen_s = end_s + self.channel.longest_delay_s
        time.sleep(max(0.0, seen_s + _LATE_S - time.monotonic()))
        changes = self.read()
        dropped = self._stranger() or changes.held_back(run.starts_s[0], end_s)
        return replace(run, readings=changes.between(begin_s, seen_s), dropped=dropped)

    def stretch(self, seconds: float) -> GaplessRun:
        """The operation without a gap for so long."""
        executions = math.ceil(seconds / self.ready.execution_s)
        self.worker.source.start_window()
        run = self.timed(RunRequest(executions, 0.0))
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
        """The next change of the energy counter; None where it does not come."""
        return next_tick(self.worker.source, time.monotonic, 1.0, lambda: time.sleep(0.005))

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
        BusyError: somebody else computes on one of the GPUs.
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
                raise no_instant(worker.gpu.model)
            with _polling(worker, settings) as (poller, polled):
                yield LiveKernelBench(
                    worker=worker,
                    ready=worker.ready,
                    poller=poller,
                    polled=polled,
                    channel=channel,
                )


@contextmanager
def _polling(
    worker: GpuWorker[KernelReady], settings: Settings
) -> Generator[tuple[Poller, PolledReadings]]:
    file = worker.folder / "power.jsonl"
    file.touch(mode=0o600)
    with (
        closing(Poller(worker.gpu.uuid, file, "bursts", settings.environment)) as poller,
        closing(PolledReadings(file)) as polled,
    ):
        poller.wait_ready()
        yield poller, polled


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
    with ExitStack() as own:
        own.enter_context(gpu_lock(lock_dir, gpu.uuid))
        check_alone(gpu)
        held.push(own.pop_all())
    return gpu


def run_of(said: Mapping[str, Any], request: RunRequest) -> Run:
    """A run in the host's clock, from the GPU's times and ping-pongs.

    Args:
        said: `marks_s` between executions and `lead_began_s`, of the GPU's clock; `ping_pongs`.
        request: What was asked for.
    """
    clock = fit_clock([PingPong(*numbers) for numbers in said["ping_pongs"]])
    # Clocks are compared to a microsecond; more digits would fill the disk.
    marks = [round(clock.host_s(mark), 7) for mark in said["marks_s"]]
    began = clock.host_s(said["lead_began_s"])
    return Run(
        starts_s=tuple(start for start, _ in pairwise(marks)),
        ends_s=tuple(end for _, end in pairwise(marks)),
        lead_s=marks[0] - began if request.lead_s else request.gap_s,
        readings=(),
        sync_error_s=clock.error_s,
    )
