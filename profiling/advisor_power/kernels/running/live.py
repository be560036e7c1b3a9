"""A real GPU as a bench: a worker that runs the operation, and a poller that reads the power."""

import math
import statistics
import time
from collections.abc import Callable, Collection, Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from advisor.core.telemetry import COUNTERS, ENERGY_GPU, TelemetrySource, counters_of
from advisor.errors import SourceError
from advisor.runtime.backends.backend import Backend
from advisor.settings import Settings
from advisor.validity.sensor_record import PowerChannel
from advisor_power.kernels.executions import durations_ms
from advisor_power.kernels.running.bench import Ready, RunRequest
from advisor_power.kernels.running.polled import PolledReadings
from advisor_power.kernels.running.worker import Worker
from advisor_power.kernels.trace import Run, Stretch, Tick
from advisor_power.sensor.poller import Poller
from advisor_profiling.telemetry.nvml import NvmlSource
from advisor_profiling.testbed.answering import script_workload
from advisor_profiling.testbed.live import newcomers

_LATE_S = 0.005
"""Beyond the delay of the sensor: until a reading is in the file of the poller."""

_TICK_WITHIN_S = 1.0
_TICK_POLL_S = 0.005

STRANGER = "another process on the GPU"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelBench:
    """One operation on one GPU.

    Attributes:
        source: For the energy counter.
        newcomers: Lists processes that have come to the GPU since the worker was ready.
    """

    worker: Worker
    poller: Poller
    polled: PolledReadings
    source: TelemetrySource
    channel: PowerChannel
    newcomers: Callable[[], Collection[int]]

    @property
    def ready(self) -> Ready:
        """What the workload says of itself."""
        return self.worker.ready

    def run(self, request: RunRequest) -> Run:
        """One run with its readings."""
        run = self.worker.run(request)
        begin_s, end_s = run.starts_s[0] - run.lead_s, run.ends_s[-1]
        seen_s = end_s + self.channel.longest_delay_s
        time.sleep(max(0.0, seen_s + _LATE_S - time.monotonic()))
        changes = self.read()
        dropped = self._stranger() or changes.held_back(run.starts_s[0], end_s)
        return replace(run, readings=changes.between(begin_s, seen_s), dropped=dropped)

    def stretch(self, seconds: float) -> Stretch:
        """The operation without a gap for so long."""
        executions = math.ceil(seconds / self.ready.execution_s)
        self.source.start_window()
        run = self.worker.run(RunRequest(executions, 0.0))
        counters = counters_of(self.source.read(COUNTERS))
        begin_s, end_s = run.starts_s[0], run.ends_s[-1]
        changes = self.read()
        return Stretch(
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
        """All that was polled so far.

        Raises:
            SourceError: nothing polls any more.
        """
        self.poller.check()
        self.polled.read()
        return self.polled

    def tick(self) -> Tick | None:
        """The next change of the energy counter; None where it does not come."""
        first, end_s = self._energy_j(), time.monotonic() + _TICK_WITHIN_S
        while first is not None and time.monotonic() < end_s:
            time.sleep(_TICK_POLL_S)
            now_s, energy_j = time.monotonic(), self._energy_j()
            if energy_j is not None and energy_j != first:
                return Tick(now_s, energy_j)
        return None

    def _stranger(self) -> str:
        return STRANGER if self.newcomers() else ""

    def _energy_j(self) -> float | None:
        return self.source.read([ENERGY_GPU])[ENERGY_GPU]


@contextmanager
def kernel_bench(
    backend: Backend,
    settings: Settings,
    channel: PowerChannel,
    *,
    python: str,
    operation: tuple[str, ...],
    units: int | None,
    folder: Path,
    peer_gpu: str | None = None,
) -> Generator[KernelBench]:
    """The operation on a GPU that is ours alone; all that was started ends at the end.

    Args:
        backend: Of the GPU.
        settings: Of the user.
        channel: The instant one.
        python: Interpreter that has PyTorch.
        operation: Options of the workload.
        units: SMs under MPS; None: the whole GPU.
        folder: Empty.
        peer_gpu: UUID of a second GPU, for collectives.

    Raises:
        JobError: the operation failed, was not ready in time, or needs more memory than there is.
        SourceError: the card has no instant power reading.
    """
    uuid = backend.gpu.uuid
    peer = ("--peer-gpu", peer_gpu) if peer_gpu else ()
    options = (*operation, *peer)
    workload = script_workload(
        backend, settings, "kernel_power.py", *options, python=python, units=units, folder=folder
    )
    file = folder / "power.jsonl"
    file.touch(mode=0o600)
    with closing(NvmlSource(uuid)) as source:
        if source.name != "nvml":
            raise no_instant(backend.gpu.model)
        with (
            closing(Worker(workload)) as worker,
            closing(Poller(uuid, file, "bursts", settings.environment)) as poller,
            closing(PolledReadings(file)) as polled,
        ):
            poller.wait_ready()
            yield KernelBench(
                worker=worker,
                poller=poller,
                polled=polled,
                source=source,
                channel=channel,
                newcomers=newcomers(uuid),
            )


def no_instant(model: str) -> SourceError:
    """What to say of a card whose power is only read as a mean over a second."""
    return SourceError(
        f"{model} has no instant power reading",
        why="its driver gives only a mean over a second, in which single executions are lost",
        fix="measure energy with `advisor profile`; a driver of 550 or newer may have the reading",
    )
