"""A real GPU as a bench."""

from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from advisor.core.telemetry import TelemetrySource
from advisor.errors import BusyError
from advisor.runtime.backends.backend import Backend
from advisor.settings import Settings
from advisor_profiling.inputs.bench import Measured
from advisor_profiling.inputs.case import InputCase
from advisor_profiling.inputs.matrices import Matrices
from advisor_profiling.inputs.result import Conditions
from advisor_profiling.inputs.worker import InputWorker
from advisor_profiling.telemetry.nvml import NvmlSource, context_pids
from advisor_profiling.testbed.answering import Workload
from advisor_profiling.testbed.workloads import workload_path
from advisor_profiling.window.clock import Clock, LiveClock
from advisor_profiling.window.rules import WindowRules
from advisor_profiling.window.window import WindowInputs, measure, measure_idle


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveBench:
    """One worker on one GPU.

    Attributes:
        rules: Of windows, by what is known of the card's sensor.
        computing: Lists the processes on the GPU.
        ours: Those that were there when the worker was ready.
    """

    worker: InputWorker
    source: TelemetrySource
    rules: WindowRules
    conditions: Conditions
    computing: Callable[[], Collection[int]]
    ours: frozenset[int]
    clock: Clock

    def idle_w(self) -> float | None:
        """Power while nothing is computed; ends what runs."""
        self.worker.stop()
        return measure_idle(self.source, self.clock, self.rules)

    def measure(self, case: InputCase, matrices: Matrices) -> Measured:
        """One case, which runs on afterwards."""
        outputs = self.worker.load(case, matrices)
        watch = WindowInputs(
            counts=(self.worker.count,), source=self.source, clock=self.clock, check=self._check
        )
        return Measured(outputs, measure(watch, self.rules))

    def _check(self) -> None:
        self.worker.check()
        if others := frozenset(self.computing()) - self.ours:
            raise BusyError(
                f"processes {sorted(others)} have come to the GPU",
                why="power would be of both",
                fix="end them, and run the same command again: it goes on from here",
            )


@contextmanager
def live_bench(
    backend: Backend,
    settings: Settings,
    rules: WindowRules,
    *,
    python: str,
    units: int | None,
    folder: Path,
) -> Generator[LiveBench]:
    """A worker on a GPU that is ours alone; it ends at the end.

    Args:
        backend: Of the GPU.
        settings: Of the user.
        rules: Of windows.
        python: Interpreter that has PyTorch.
        units: SMs under MPS; None: the whole GPU.
        folder: Empty.

    Raises:
        JobError: the workload cannot be started.
        LimitNotProvenError: the limit is not in force.
    """
    gpu = backend.gpu
    workload = Workload(
        command=(python, str(workload_path("input_power.py"))),
        units=units,
        backend=backend,
        base=settings.job_environment(),
        folder=folder,
    )
    source = NvmlSource(gpu.uuid)
    try:
        worker = InputWorker(workload)
        try:
            yield LiveBench(
                worker=worker,
                source=source,
                rules=rules,
                conditions=Conditions(
                    gpu_model=gpu.model,
                    gpu_uuid=gpu.uuid,
                    driver=gpu.driver or "",
                    units=worker.ready.units,
                    torch=worker.ready.libraries.get("torch", ""),
                ),
                computing=lambda: context_pids(gpu.uuid),
                ours=frozenset(context_pids(gpu.uuid)),
                clock=LiveClock(),
            )
        finally:
            worker.close()
    finally:
        source.close()
