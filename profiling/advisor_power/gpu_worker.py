"""A workload that answers commands on a GPU that is ours alone: what measures power asks one.

Commands and answers are a line of JSON each, over two named pipes.
"""

import json
import os
import select
import time
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from advisor.core.gpu import WHOLE, Gpu, Share, percent_for_units
from advisor.core.job import Job
from advisor.core.telemetry import TelemetrySource
from advisor.errors import JobError, LimitNotProvenError, undone_by
from advisor.files import open_home
from advisor.formats.wire import read, write
from advisor.runtime.backend import Backend
from advisor.runtime.running_job import check_program, prove
from advisor.settings import Settings, workload_path
from advisor_profiling.campaign.plan import check_safe_count
from advisor_profiling.telemetry.nvml import NvmlSource
from advisor_profiling.testbed import later_strangers, worker_backend
from advisor_profiling.window import Clock

# Importing PyTorch, making inputs and capturing graphs take tens of seconds at most.
START_S = 180.0

_POLL_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReady:
    """What any workload says of itself when it is ready.

    Attributes:
        units: SMs that it sees; None: none, no GPU.
        libraries: Versions by name, of what measures power.
    """

    units: int | None = None
    libraries: dict[str, str] = field(default_factory=dict[str, str])


ReadyT = TypeVar("ReadyT", bound=WorkerReady)


def started(
    job: Job,
    kind: type[ReadyT],
    backend: Backend,
    base: Mapping[str, str],
    folder: Path,
    units: int | None = None,
) -> "tuple[AnsweringJob, ReadyT]":
    """A workload process that is ready and under its limit, and what it says of itself.

    Args:
        job: Its command is without the names of the pipes.
        kind: Of what it says.
        backend: Of the GPU that is ours alone.
        base: Environment without limits.
        folder: An empty one, for its pipes and output.
        units: SMs under MPS; None: the whole GPU.

    Raises:
        JobError: it cannot be started, failed, or was not ready in time.
        LimitNotProvenError: the limit is not in force.
        WireError: it says something else than that it is ready.
    """
    answering = AnsweringJob(job, backend, base, folder, units)
    with undone_by(answering.close):
        said = write(answering.answer(START_S, "was not ready")["ready"])
        ready = read(kind, said, name="what the workload says", tolerant=True)
        if units is not None and ready.units != units:
            raise LimitNotProvenError(
                f"the operation sees {ready.units} SMs, and should have {units}",
                why="its process is not under the limit that was proven before",
                fix="see whether the interpreter changes CUDA_MPS_* variables",
            )
    return answering, ready


class AnsweringJob:
    """A workload process that is asked, and answers.

    Attributes:
        output: File with everything it wrote.
        count: Its progress so far.
        check: Raises JobError where it has ended.

    Raises:
        JobError: it cannot be started.
        LimitNotProvenError: the limit is not in force.
    """

    def __init__(
        self, job: Job, backend: Backend, base: Mapping[str, str], folder: Path, units: int | None
    ) -> None:
        pipes = folder / "commands", folder / "answers"
        for pipe in pipes:
            os.mkfifo(pipe, 0o600)
        commands, answers = map(str, pipes)
        job = replace(job, command=(*job.command, "--commands", commands, "--answers", answers))
        check_program(job, base)
        percent = percent_for_units(units, backend.gpu.units_total or 0) if units else WHOLE
        # Both ends are opened, so that neither waits for a worker that has not started.
        self._commands = os.open(pipes[0], os.O_RDWR)
        self._answers = os.open(pipes[1], os.O_RDWR)
        self._unread = b""
        self._job = prove(job, Share(percent), backend, base, folder).start()
        self.output, self.count, self.check = self._job.output, self._job.count, self._job.check

    def ask(self, command: Mapping[str, Any]) -> None:
        """Send a command; its answer is the next one."""
        os.write(self._commands, json.dumps(command).encode() + b"\n")

    def answer(self, within_s: float, late: str) -> dict[str, Any]:
        """The next answer.

        Args:
            within_s: How long that may take.
            late: What to say where it takes longer, such as "did not end".

        Raises:
            JobError: the process ended, answered with a fault, or not in time.
        """
        end_s = time.monotonic() + within_s
        while b"\n" not in self._unread:
            readable, _, _ = select.select([self._answers], [], [], _POLL_S)
            if readable:
                self._unread += os.read(self._answers, 65536)
            elif self._job.exit_code is not None:
                self.check()
            elif time.monotonic() > end_s:
                raise JobError(
                    f"the operation {late} within {within_s:.0f} s",
                    why="it hangs, or takes far longer than when it was timed",
                    fix=f"its output is in {self.output}; run it alone first",
                )
        line, _, self._unread = self._unread.partition(b"\n")
        answer = cast("dict[str, Any]", json.loads(line))
        if fault := answer.get("fault"):
            raise failed(fault, self.output)
        return answer

    def close(self) -> None:
        """End the process."""
        try:
            self._job.stop()
        finally:
            for pipe in (self._commands, self._answers):
                with suppress(OSError):
                    os.close(pipe)


def failed(fault: Mapping[str, Any], output: Path) -> JobError:
    """What to say of a fault that a workload names."""
    if fault["memory"]:
        return JobError(
            "the operation needs more memory than the GPU has free",
            why=str(fault["message"]),
            fix="take smaller sizes, or end what else holds memory on it (`nvidia-smi`)",
        )
    if "No module named 'torch'" in fault["message"]:
        return JobError(
            "this interpreter has no PyTorch",
            why=str(fault["message"]),
            fix="name one that has it with --python /path/to/python",
        )
    return JobError(
        f"the operation failed: {fault['message']}", fix=f"its whole output is in {output}"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPlace:
    """Where a worker runs.

    Attributes:
        gpu: Index or UUID.
        units: SMs under MPS; None: the whole GPU.
        python: Interpreter that has PyTorch.
        allow_unsafe: Also at counts of SMs at which results are wrong.
    """

    gpu: str = "0"
    units: int | None = None
    python: str = "python3"
    allow_unsafe: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """Where something was measured: results under other conditions are not put together."""

    gpu_model: str
    gpu_uuid: str
    driver: str
    units: int | None
    torch: str

    @classmethod
    def of(cls, gpu: Gpu, ready: WorkerReady) -> "Conditions":
        """Conditions of a worker on a GPU."""
        return cls(
            gpu_model=gpu.model,
            gpu_uuid=gpu.uuid,
            driver=gpu.driver or "",
            units=ready.units,
            torch=ready.libraries.get("torch", ""),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuWorker(Generic[ReadyT]):
    """A worker that is ready.

    Attributes:
        gpu: Where it runs, with its number of SMs.
        later_strangers: Lists processes that have come to the GPU since the worker was ready.
    """

    job: AnsweringJob
    ready: ReadyT
    gpu: Gpu
    source: TelemetrySource
    later_strangers: Callable[[], Collection[int]]
    folder: Path


@contextmanager
def open_worker(
    settings: Settings,
    place: WorkerPlace,
    name: str,
    script: str,
    *options: str,
    ready: type[ReadyT],
) -> Generator[GpuWorker[ReadyT]]:
    """A worker on a GPU; all that was started for it ends at the end.

    The name is that of the measurement, for its folder of logs; the script is a workload.
    """
    with worker_backend(settings, place.gpu, place.units) as backend:
        gpu = backend.gpu
        check_safe_count(place.units, gpu, settings.home, allow_unsafe=place.allow_unsafe)
        folder = open_home(settings.home, "logs", f"{name}-{Clock().utc().replace(':', '')}")
        with closing(NvmlSource(gpu.uuid)) as source:
            job, said = started(
                Job(name=name, command=(place.python, str(workload_path(script)), *options)),
                ready,
                backend,
                settings.job_environment(),
                folder,
                place.units,
            )
            with closing(job):
                yield GpuWorker(
                    job=job,
                    ready=said,
                    gpu=gpu,
                    source=source,
                    later_strangers=later_strangers(gpu.uuid),
                    folder=folder,
                )
