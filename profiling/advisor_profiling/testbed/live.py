"""Opens a live testbed: the GPU, its telemetry, its back-end, and the lock that makes it ours."""

import fcntl
import itertools
import logging
import os
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Literal

from advisor.core.gpu import Gpu, Share
from advisor.core.job import Job
from advisor.core.telemetry import TelemetrySource
from advisor.errors import BusyError, InputError, SourceError, undone_by
from advisor.files import holders, open_home, try_lock
from advisor.runtime.backend import (
    PIPE_DIRECTORY,
    Backend,
    CuMaskBackend,
    UncappedBackend,
    look,
    look_hip,
)
from advisor.runtime.lock import gpu_lock, open_lock
from advisor.runtime.mps import open_mps
from advisor.runtime.processes import (
    MPS_SERVER,
    name_of,
    physical_cores,
    pin,
    plan_cores,
    wait_until,
)
from advisor.runtime.running_job import RunningJob, check_limits, end_leftovers, prove
from advisor.settings import Settings
from advisor_profiling.telemetry import amd, nvml
from advisor_profiling.window import Clock, Target

_SILENT_S = 10.0
"""Windows end, and most jobs are ready, before this; a power run takes minutes."""


class PhaseLock:
    """Two lock files that all advisors of a host share; a killed one lets go by itself.

    Without a folder there is nothing to keep apart, as in a replay.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    @contextmanager
    def starting(self) -> Generator[None]:
        """While jobs start: open windows end first, and no new one opens."""
        with self._files() as files:
            if files:
                starts, windows = files
                fcntl.flock(starts, fcntl.LOCK_SH)
                _wait_until_free(windows, "measures")
            yield

    @contextmanager
    def measuring(self) -> Generator[None]:
        """While windows are measured: no job starts on the GPU; waits for those that do."""
        with self._files() as files:
            while files:
                starts, windows = files
                _wait_until_free(starts, "starts jobs or measures power")
                fcntl.flock(windows, fcntl.LOCK_SH)
                # A start may have come between the two: it waits for us, so we give way.
                if _free(starts):
                    break
                fcntl.flock(windows, fcntl.LOCK_UN)
            yield

    @contextmanager
    def _files(self) -> Generator[tuple[IO[str], IO[str]] | None]:
        if self._folder is None:
            yield None
            return
        with (
            open_lock(self._folder, "starting.lock") as starts,
            open_lock(self._folder, "measuring.lock") as windows,
        ):
            yield starts, windows


def _wait_until_free(file: IO[str], doing: str) -> None:
    tell_at_s = time.monotonic() + _SILENT_S
    while not _free(file):
        time.sleep(0.02)
        if time.monotonic() > tell_at_s:
            tell_at_s = float("inf")
            pids = ", ".join(map(str, holders(file)))
            logging.getLogger(__name__).warning(
                "waiting for %s, which %s on another GPU of this host: one disturbs the other",
                f"process {pids}" if pids else "a process",
                doing,
            )


def _free(file: IO[str]) -> bool:
    """Whether nobody else holds the file; asks without keeping it."""
    if free := try_lock(file):
        fcntl.flock(file, fcntl.LOCK_UN)
    return free


class LiveProcess:
    """A running job on a live GPU."""

    def __init__(self, job: RunningJob, testbed: "LiveTestbed") -> None:
        self._job, self._testbed = job, testbed
        self.share, self.granted = job.share, job.granted
        self.count, self.check, self.cpu_s = job.count, job.check, job.cpu_s
        self.reported, self.latencies = job.reported, job.latencies
        self.check_limit, self.leave, self.stop = job.check_limit, job.leave, job.stop

    def ready(self) -> bool:
        """Whether it waits at its gate; from then on it is pinned to where jobs wait."""
        if not self._job.ready():
            return False
        # It was free to use every core while it started; dozens look at their gates now.
        self._job.pin(self._testbed.cores.waiting)
        return True

    def memory_mib(self) -> float | None:
        """Of its living processes, MiB, as the GPU counts it."""
        return self._testbed.source.processes_memory_mib(self._job.pids())

    def go(self, slot: int = 0) -> None:
        """Pin it to the cores of the slot before its gate opens."""
        self._job.pin(self._testbed.cores.slots[slot])
        self._job.go()

    def hold(self) -> None:
        """Close its gate, and leave the cores of the slot to others."""
        self._job.hold()
        self._job.pin(self._testbed.cores.waiting)


class LiveTestbed:
    """A real GPU, its limits and its telemetry.

    A folder of the run has counters, gates and outputs of its jobs, of which a window has `jobs`.
    """

    def __init__(
        self,
        backend: Backend,
        source: TelemetrySource,
        base: Mapping[str, str],
        folder: Path,
        phase_lock: PhaseLock,
        jobs: int = 2,
    ) -> None:
        self.phase_lock = phase_lock
        self._backend, self.source, self._base, self._folder = backend, source, base, folder
        self.gpu, self.mode = backend.gpu, backend.mode
        # Where there is no place, the proof of the first job says so.
        self.max_clients = max(1, backend.max_clients)
        self.check_alive, self.spoiled = backend.check_alive, backend.spoiled
        self.clock = Clock()
        self.cores = plan_cores(physical_cores(), jobs)
        self._numbers = itertools.count()
        self._jobs: list[RunningJob] = []
        pin([os.getpid()], self.cores.own)

    def refuses(self, target: Target) -> str:
        """A live GPU can try everything."""
        return ""

    def prove(self, job: Job, share: Share) -> Callable[[], LiveProcess]:
        """Prove the share with the job's variables; the job is free to use every job's core."""
        folder = self._folder / f"{job.name}-{share}-{next(self._numbers)}"
        folder.mkdir(parents=True)
        proven = prove(job, share, self._backend, self._base, folder)

        def start() -> LiveProcess:
            running = proven.start()
            self._jobs.append(running)
            running.pin(self.cores.jobs)
            return LiveProcess(running, self)

        return start

    def check_limits(self) -> None:
        """Ask the driver about all jobs that were started, at their gates or not."""
        self._jobs = [job for job in self._jobs if not job.over]
        check_limits(self._jobs)


_ALONE_S = 5
_PASSING_S = 1

SourceName = Literal["nvml", "dcgm", "amd"]
Mode = Literal["mps", "cu_mask", "uncapped"]


@contextmanager
def live_testbed(
    settings: Settings,
    gpu_name: str,
    source_name: SourceName | None,
    mode: Mode | None,
    run: str,
    jobs: int = 2,
) -> Generator[LiveTestbed]:
    """A live GPU for one run; what was started for it is stopped at the end.

    Without a name of the source it is the vendor's own library; `jobs` are the most of a window,
    each of which gets the same number of cores, whoever is beside it.
    """
    with (
        live_backend(settings, gpu_name, mode) as backend,
        closing(open_source(backend.gpu, source_name, settings)) as source,
    ):
        folder = open_home(settings.home, "logs", run)
        phase_lock = PhaseLock(settings.lock_dir)
        base = settings.job_environment()
        yield LiveTestbed(backend, source, base, folder, phase_lock, jobs)


@contextmanager
def live_backend(settings: Settings, gpu_name: str, mode: Mode | None) -> Generator[Backend]:
    """What enforces shares, as `backend_alone` says, on a GPU that is ours until the end."""
    gpu = find_gpu(gpu_name)
    with (
        gpu_lock(settings.lock_dir, gpu.uuid),
        closing(backend_alone(with_units(gpu, settings), mode, settings)) as backend,
    ):
        yield backend


def backend_alone(gpu: Gpu, mode: Mode | None, settings: Settings) -> Backend:
    """What enforces shares, as `open_backend` says, on a GPU on which nobody computes."""
    backend = open_backend(gpu, mode, settings)
    with undone_by(backend.close):
        end_leftovers(backend, settings.runtime_dir)
        check_alone(gpu)
    return backend


@contextmanager
def worker_backend(settings: Settings, gpu_name: str, units: int | None) -> Generator[Backend]:
    """As `live_backend`, for a worker that is measured by itself, on `units` SMs or all of them.

    It counts as a start on this host until it is closed: what runs beside such a worker (a poller
    that never rests, processes that fill matrices) takes cores and the driver's locks as jobs that
    start do. So windows on other GPUs of the host wait for it, and other workers do not.
    """
    with (
        live_backend(settings, gpu_name, "mps" if units else "uncapped") as backend,
        PhaseLock(settings.lock_dir).starting(),
    ):
        yield backend


def later_strangers(gpu_uuid: str) -> Callable[[], frozenset[int]]:
    """Lists the processes that have come to a GPU since this was called."""
    there = frozenset(nvml.context_pids(gpu_uuid))
    return lambda: frozenset(nvml.context_pids(gpu_uuid)) - there


def computes(gpu: Gpu) -> bool:
    """Whether a kernel ran on the GPU within the last second; False where that is not read."""
    with suppress(SourceError):
        # A process that starts on one GPU shows on all GPUs of the host while its driver
        # initialises.
        return gpu.vendor == "nvidia" and (nvml.busy_percent(gpu.uuid) or 0) >= 5
    return False


def list_gpus() -> list[Gpu]:
    """Every GPU that a driver on this host names, NVIDIA first.

    Raises:
        SourceError: no driver answers; the message is that of NVIDIA's.
    """
    try:
        return nvml.list_gpus()
    except SourceError:
        with suppress(SourceError):
            return amd.list_gpus()
        raise


def find_gpu(name: str) -> Gpu:
    """The GPU with this index or UUID (or its beginning).

    Raises:
        InputError: there is none, or several begin so.
    """
    gpus = list_gpus()
    found = [gpu for gpu in gpus if name == str(gpu.index)]
    found = found or [gpu for gpu in gpus if gpu.uuid.startswith(name)]
    if len(found) != 1:
        known = ", ".join(f"{gpu.index} ({gpu.uuid})" for gpu in gpus)
        raise InputError(f"no single GPU is called {name}", fix=f"this host has: {known}")
    return found[0]


def with_units(gpu: Gpu, settings: Settings) -> Gpu:
    """Read the number of SMs or CUs where nothing lowers it: outside MPS, without a mask."""
    if gpu.units_total is not None:
        return gpu
    base = settings.job_environment()
    if gpu.vendor == "amd":
        return replace(gpu, units_total=look_hip(base | {"ROCR_VISIBLE_DEVICES": str(gpu.index)}))
    alone = base | {PIPE_DIRECTORY: "/nonexistent", "CUDA_VISIBLE_DEVICES": gpu.uuid}
    return replace(gpu, units_total=look(alone)[0].units)


def check_alone(gpu: Gpu) -> None:
    """Refuse a GPU on which somebody else computes: every reading would be of both.

    Raises:
        BusyError: somebody does.
    """
    if gpu.vendor != "nvidia":
        return
    if not wait_until(lambda: not _staying(gpu), _ALONE_S):
        raise BusyError(
            f"processes {strangers(gpu)} use GPU {gpu.uuid}",
            why="a job cannot be measured alone next to them",
            fix="end them or wait, or choose another GPU with --gpu",
        )


def _staying(gpu: Gpu) -> list[int]:
    """Strangers that are still there a moment later."""
    if not (first := strangers(gpu)):
        return []
    time.sleep(_PASSING_S)
    return [pid for pid in strangers(gpu) if pid in first]


def strangers(gpu: Gpu) -> list[int]:
    """Processes that compute on a GPU; MPS servers only serve others."""
    return [pid for pid in nvml.compute_pids(gpu.uuid) if not name_of(pid).startswith(MPS_SERVER)]


def open_source(gpu: Gpu, name: SourceName | None, settings: Settings) -> TelemetrySource:
    """Telemetry of a GPU; None: the vendor's own library."""
    match name or ("nvml" if gpu.vendor == "nvidia" else "amd"):
        case "nvml":
            return nvml.NvmlSource(gpu.uuid)
        case "dcgm":
            # Each launch imports this module, and the client of HTTP takes 0.15 s.
            from advisor_profiling.telemetry import dcgm

            return dcgm.DcgmSource(settings.dcgm_url, gpu)
        case "amd":
            return amd.AmdSource(gpu.uuid)


def open_backend(gpu: Gpu, mode: Mode | None, settings: Settings) -> Backend:
    """What enforces shares; None: MPS on NVIDIA, CU masks on AMD.

    Raises:
        PartitionError: it is not there, or cannot be used.
    """

    def computing() -> list[int]:
        return nvml.context_pids(gpu.uuid) if gpu.vendor == "nvidia" else []

    match mode or ("mps" if gpu.vendor == "nvidia" else "cu_mask"):
        case "mps":
            environment, pipe_dir = settings.job_environment(), settings.mps_pipe_dir
            return open_mps(gpu, settings.runtime_dir, environment, pipe_dir, computing)
        case "cu_mask":
            return CuMaskBackend(gpu)
        case "uncapped":
            return UncappedBackend(gpu, computing=computing)
