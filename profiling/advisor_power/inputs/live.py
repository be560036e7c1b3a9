"""A real GPU as a bench."""

from collections.abc import Callable, Collection, Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from advisor.core.telemetry import TelemetrySource
from advisor.errors import BusyError
from advisor.runtime.backends.backend import Backend
from advisor.settings import Settings
from advisor_power.inputs.bench import Measured
from advisor_power.inputs.case import InputCase
from advisor_power.inputs.matrices import Matrices
from advisor_power.inputs.result import Conditions
from advisor_power.inputs.worker import InputWorker
from advisor_profiling.telemetry.nvml import NvmlSource
from advisor_profiling.testbed.answering import script_workload
from advisor_profiling.testbed.live import newcomers
from advisor_profiling.window.clock import Clock, LiveClock
from advisor_profiling.window.rules import WindowRules
from advisor_profiling.window.window import WindowInputs, measure, measure_idle


@dataclass(frozen=True, slots=True, kw_only=True)
class InputBench:
    """One worker on one GPU.

    Attributes:
        rules: Of windows, by what is known of the card's sensor.
        newcomers: Lists processes that have come to the GPU since the worker was ready.
    """

    worker: InputWorker
    source: TelemetrySource
    rules: WindowRules
    conditions: Conditions
    newcomers: Callable[[], Collection[int]]
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
        if others := self.newcomers():
            raise BusyError(
                f"processes {sorted(others)} have come to the GPU",
                why="power would be of both",
                fix="end them, and run the same command again: it goes on from here",
            )


@contextmanager
def input_bench(
    backend: Backend,
    settings: Settings,
    rules: WindowRules,
    *,
    python: str,
    units: int | None,
    folder: Path,
) -> Generator[InputBench]:
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
    workload = script_workload(
        backend, settings, "input_power.py", python=python, units=units, folder=folder
    )
    with closing(NvmlSource(gpu.uuid)) as source, closing(InputWorker(workload)) as worker:
        conditions = Conditions(
            gpu_model=gpu.model,
            gpu_uuid=gpu.uuid,
            driver=gpu.driver or "",
            units=worker.ready.units,
            torch=worker.ready.libraries.get("torch", ""),
        )
        yield InputBench(
            worker=worker,
            source=source,
            rules=rules,
            conditions=conditions,
            newcomers=newcomers(gpu.uuid),
            clock=LiveClock(),
        )
