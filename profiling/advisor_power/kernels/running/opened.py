"""Opens a bench: the GPU, its lock and limit, and the process that runs the operation."""

from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from advisor.core.gpu import Gpu
from advisor.errors import InputError
from advisor.files.home import open_home
from advisor.runtime.host.lock import gpu_lock
from advisor.settings import Settings
from advisor.validity.sensor_record import PowerChannel
from advisor_power.kernels.running.live import KernelBench, kernel_bench
from advisor_profiling.campaign.safe_plan import check_safe_count
from advisor_profiling.testbed.live import check_alone, find_gpu, list_gpus, worker_backend
from advisor_profiling.window.clock import LiveClock


@dataclass(frozen=True, slots=True)
class OpenBench:
    """A bench, and the GPU that it is on, with its number of SMs."""

    bench: KernelBench
    gpu: Gpu


@contextmanager
def open_bench(
    settings: Settings,
    channel: PowerChannel,
    *,
    gpu: str,
    units: int | None,
    python: str,
    operation: tuple[str, ...],
    second_gpu: bool = False,
) -> Generator[OpenBench]:
    """An operation on a GPU that is ours alone; all that was started ends at the end.

    Args:
        settings: Of the user.
        channel: The instant one.
        gpu: Index or UUID.
        units: SMs under MPS, at a safe count; None: the whole GPU.
        python: Interpreter that has PyTorch.
        operation: Options of the workload.
        second_gpu: Have another GPU of the host for it, as collectives need.

    Raises:
        JobError: the operation failed, was not ready in time, or needs more memory than there is.
        SourceError: the card has no instant power reading.
        InputError: the number of SMs is not safe, or there is no second GPU.
        BusyError: somebody else computes on one of the GPUs.
    """
    name = f"power-kernel-{LiveClock().utc().replace(':', '')}"
    folder = open_home(settings.home, "logs", name)
    if second_gpu and units:
        raise InputError(
            f"a collective at {units} SMs cannot be measured",
            why="NCCL needs all of its blocks to run at once, on both GPUs",
            fix="leave out --units",
        )
    with (
        _second_gpu(settings, gpu) if second_gpu else nullcontext() as peer_gpu,
        worker_backend(settings, gpu, units) as backend,
    ):
        check_safe_count(units, backend.gpu, settings.home)
        with kernel_bench(
            backend,
            settings,
            channel,
            python=python,
            operation=operation,
            units=units,
            folder=folder,
            peer_gpu=peer_gpu,
        ) as bench:
            yield OpenBench(bench, backend.gpu)


@contextmanager
def _second_gpu(settings: Settings, measured: str) -> Generator[str]:
    """UUID of the first other GPU of the host, ours alone for as long."""
    first, gpus = find_gpu(measured), list_gpus()
    others = [gpu for gpu in gpus if gpu.uuid != first.uuid and gpu.vendor == "nvidia"]
    if not others:
        raise InputError(
            f"a collective needs two GPUs, and this host has {len(gpus)}",
            why="it moves data from one to the other",
            fix="run it on a host with two",
        )
    with gpu_lock(settings.lock_dir, others[0].uuid):
        check_alone(others[0])
        yield others[0].uuid
