"""A real GPU as a bench: a worker that multiplies matrices, and who fills them."""

import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from advisor.errors import BusyError
from advisor.formats.kept import RecordLines
from advisor.formats.wire import read_tolerant, write
from advisor.settings import Settings
from advisor.validity.sensor_record import power_timing, record_for
from advisor_data.known import known_sensors
from advisor_power.gpu_worker import GpuWorker, WorkerPlace, open_worker
from advisor_power.inputs.bench import InputBench, MeasuredCase, RefusedError
from advisor_power.inputs.case import InputCase
from advisor_power.inputs.keeping import input_lines
from advisor_power.inputs.matrices import Filling, Matrices, filling
from advisor_power.inputs.result import InputConditions, InputPower, OutputCheck
from advisor_profiling.testbed.answering import failed
from advisor_profiling.window.clock import Clock
from advisor_profiling.window.window import (
    WindowInputs,
    WindowRules,
    measure,
    measure_idle,
    rules_for,
)

WINDOW_S = 2.1
"""Some thirty readings, and twenty ticks of the counter."""

_LOAD_S = 300.0
"""Copying and checking the largest matrices."""

_STOP_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class InputReady:
    """What the workload says of itself before the first case."""

    units: int | None
    """SMs that it sees; None where it has no GPU."""
    libraries: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveInputBench:
    """One worker on one GPU."""

    worker: GpuWorker[InputReady]
    rules: WindowRules
    clock = Clock()

    @property
    def conditions(self) -> InputConditions:
        """Where it computes."""
        gpu, ready = self.worker.gpu, self.worker.ready
        return InputConditions(
            gpu_model=gpu.model,
            gpu_uuid=gpu.uuid,
            driver=gpu.driver or "",
            units=ready.units,
            torch=ready.libraries.get("torch", ""),
        )

    def idle_w(self) -> float | None:
        """Power while nothing is computed; ends what runs."""
        self.worker.job.ask({"stop": True})
        self.worker.job.answer(_STOP_S, "did not stop")
        return measure_idle(self.worker.source, self.clock, self.rules)

    def measure(self, case: InputCase, matrices: Matrices) -> MeasuredCase:
        """One case, which runs on afterwards."""
        outputs = self._load(case, matrices)
        watch = WindowInputs(
            counts=(self.worker.job.count,),
            source=self.worker.source,
            clock=self.clock,
            check=self._check,
        )
        return MeasuredCase(outputs, measure(watch, self.rules))

    def _load(self, case: InputCase, matrices: Matrices) -> OutputCheck:
        """Have a case computed from now on; what its outputs are."""
        job, b_path = self.worker.job, matrices.b_path
        asked = {
            "a": str(matrices.a_path),
            "b": None if b_path is None else str(b_path),
            "shape": case.shape,
            "dtype": case.dtype,
            "work": case.work,
        }
        job.ask({"load": asked})
        said = job.answer(_LOAD_S, "was not loaded")
        if refused := said.get("refused"):
            error = failed(refused, job.output)
            raise RefusedError(f"{case}: {error.what}", why=error.why, fix=error.fix)
        return read_tolerant(OutputCheck, write(said["loaded"]["outputs"]), name="the outputs")

    def _check(self) -> None:
        self.worker.job.check()
        if others := self.worker.later_strangers():
            raise BusyError(
                f"processes {sorted(others)} have come to the GPU",
                why="power would be of both",
                fix="end them, and run the same command again: it goes on from here",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRun:
    """What `measuring.measure_cases` takes."""

    name: str
    bench: InputBench
    filling: Filling
    keep: RecordLines[InputPower]
    knows_sensor: bool
    """Whether there is a record of the card's sensor; else waits are long ones."""


@contextmanager
def open_inputs(
    settings: Settings, place: WorkerPlace, window_s: float = WINDOW_S
) -> Generator[InputRun]:
    """A GPU with a worker; what was started for it ends at the end.

    Raises:
        InputError: as `open_worker`, or the card's sensor is too slow for the window.
    """
    with open_worker(settings, place, "power-input", "input_power.py", ready=InputReady) as worker:
        gpu = worker.gpu
        record = record_for(gpu.uuid, gpu.model, gpu.driver or "", known_sensors(settings.home))
        timing = record and power_timing(record)
        bench = LiveInputBench(worker=worker, rules=rules_for(window_s, timing))
        with (
            tempfile.TemporaryDirectory(prefix="advisor-inputs-") as folder,
            filling(Path(folder)) as fill,
        ):
            yield InputRun(
                name=worker.folder.name,
                bench=bench,
                filling=fill,
                keep=input_lines(settings.home, gpu.uuid),
                knows_sensor=timing is not None,
            )
