"""Opens a live testbed: the GPU, its telemetry, its back-end, and the lock that makes it ours."""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Literal

from advisor.core.gpu import Gpu
from advisor.core.telemetry import TelemetrySource
from advisor.errors import BusyError, InputError, SourceError
from advisor.files.home import open_home
from advisor.runtime.backends.backend import Backend
from advisor.runtime.backends.cu_mask_backend import CuMaskBackend
from advisor.runtime.backends.limit import look, look_hip
from advisor.runtime.backends.mps import PIPE_DIRECTORY, open_mps
from advisor.runtime.backends.uncapped import UncappedBackend
from advisor.runtime.host.lock import gpu_lock
from advisor.runtime.host.processes import MPS_SERVER, name_of, wait_until
from advisor.runtime.jobs.launcher import end_leftovers
from advisor.settings import Settings
from advisor_profiling.telemetry import amd, nvml
from advisor_profiling.testbed.testbed import HostPhaseLock, LiveTestbed

_ALONE_S = 5
_PASSING_S = 1
_BUSY_PERCENT = 5
"""A process that starts on one GPU shows on all GPUs of the host while its driver initialises."""

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
    with live_backend(settings, gpu_name, mode) as backend:
        source = open_source(backend.gpu, source_name, settings)
        try:
            folder = open_home(settings.home, "logs", run)
            phase_lock = HostPhaseLock(settings.lock_dir)
            base = settings.job_environment()
            yield LiveTestbed(backend, source, base, folder, phase_lock, jobs)
        finally:
            source.close()


@contextmanager
def live_backend(settings: Settings, gpu_name: str, mode: Mode | None) -> Generator[Backend]:
    """What enforces shares, as `open_backend` says, on a GPU that is ours alone until the end."""
    gpu = find_gpu(gpu_name)
    with gpu_lock(settings.lock_dir, gpu.uuid):
        backend = open_backend(with_units(gpu, settings), mode, settings)
        try:
            end_leftovers(backend, settings.runtime_dir)
            check_alone(backend.gpu)
            yield backend
        finally:
            backend.close()


@contextmanager
def worker_backend(settings: Settings, gpu_name: str, units: int | None) -> Generator[Backend]:
    """As `live_backend`, for a worker that is measured by itself, on `units` SMs or all of them.

    It counts as a start on this host until it is closed: what runs beside such a worker (a poller
    that never rests, processes that fill matrices) takes cores and the driver's locks as jobs that
    start do. So windows on other GPUs of the host wait for it, and other workers do not.
    """
    with (
        live_backend(settings, gpu_name, "mps" if units else "uncapped") as backend,
        HostPhaseLock(settings.lock_dir).starting(),
    ):
        yield backend


def later_strangers(gpu_uuid: str) -> Callable[[], frozenset[int]]:
    """Lists the processes that have come to a GPU since this was called."""
    there = frozenset(nvml.context_pids(gpu_uuid))
    return lambda: frozenset(nvml.context_pids(gpu_uuid)) - there


def computes(gpu: Gpu) -> bool:
    """Whether a kernel ran on the GPU within the last second; False where that is not read."""
    with suppress(SourceError):
        return gpu.vendor == "nvidia" and (nvml.busy_percent(gpu.uuid) or 0) >= _BUSY_PERCENT
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
