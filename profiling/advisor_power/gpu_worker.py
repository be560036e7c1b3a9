"""A workload that answers commands on a GPU that is ours alone: what measures power asks one."""

from collections.abc import Callable, Collection, Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic

from advisor.core.gpu import Gpu
from advisor.core.telemetry import TelemetrySource
from advisor.files import open_home
from advisor.settings import Settings
from advisor_profiling.campaign.plan import check_safe_count
from advisor_profiling.telemetry.nvml import NvmlSource
from advisor_profiling.testbed.answering import (
    AnsweringJob,
    ReadyT,
    SaidReady,
    script_workload,
    started,
)
from advisor_profiling.testbed.live import later_strangers, worker_backend
from advisor_profiling.window import Clock


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


@dataclass(frozen=True, slots=True)
class Step:
    """Progress of a measurement, and the line that says it.

    Attributes:
        done: Runs, or cases and their references.
        total: None while it is not known, as of runs whose length is searched; so is the time.
    """

    what: str
    done: int
    total: int | None = None
    eta_s: float | None = None

    def __str__(self) -> str:
        if self.total is None or self.eta_s is None:
            return f"{self.what}: run {self.done}"
        minutes, seconds = divmod(int(self.eta_s), 60)
        return f"{self.done}/{self.total}  {self.what}  eta {minutes}:{seconds:02}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReady(SaidReady):
    """What a workload that measures says of itself first: its libraries, too."""

    libraries: dict[str, str]


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
        workload = script_workload(
            backend,
            settings,
            script,
            *options,
            python=place.python,
            units=place.units,
            folder=folder,
        )
        with closing(NvmlSource(gpu.uuid)) as source:
            job, said = started(name, workload, ready)
            with closing(job):
                yield GpuWorker(
                    job=job,
                    ready=said,
                    gpu=gpu,
                    source=source,
                    later_strangers=later_strangers(gpu.uuid),
                    folder=folder,
                )
