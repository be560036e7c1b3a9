"""What a process that runs already does now: its rate, and what NVML says of its GPUs."""

import os
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from advisor.core.gpu import Gpu
from advisor.core.telemetry import POWER_GPU, TelemetrySource
from advisor.errors import AdvisorError, InputError, SourceError
from advisor.formats.moments import now
from advisor.launch.meter import Moment, RateMeter
from advisor.runtime.processes import MPS_SERVER, descendants, name_of, owner_of
from advisor_profiling.attached.told import ToldProgress
from advisor_profiling.telemetry.nvml import NvmlSource, compute_pids, list_gpus

_SM_ACTIVE = "counter.sm_active"

_LOOK_S = 0.1
"""Between two looks at the count: a rate over ten seconds is right to a percent."""

_RATE_S = 30.0
"""A rate is over the last so many seconds, or over what there was of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSeen:
    """A GPU on which the process computes.

    Attributes:
        power_w: Of the whole card.
        sm_active_percent: Of the whole card since the last look; None: it has no such counter.
        memory_mib: Of the process and those that it started.
        others: Processes of other jobs that compute there, too.
    """

    index: int | None
    model: str
    power_w: float | None
    power_limit_w: float | None
    sm_active_percent: float | None
    memory_mib: float | None
    others: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedNow:
    """What a look showed; `advisor watch --json` writes it.

    Attributes:
        count: Progress so far, in `unit`; None where it was not read in this look.
        rate: Per second; None while it is not known.
        fault: Why the count cannot be read now; None where it can, or where there is none.
    """

    pid: int
    at: str
    watched_s: float
    count: float | None
    unit: str | None
    rate: float | None
    fault: str | None
    gpus: tuple[GpuSeen, ...]


def command_of(pid: int) -> tuple[str, ...]:
    """What a process was started as.

    Raises:
        InputError: there is no such process, or it is another user's.
    """
    if owner_of(pid) is None:
        raise InputError(f"there is no process {pid}", fix="its number is in nvidia-smi, or ps -ef")
    if not os.access(f"/proc/{pid}/fd", os.R_OK) or not workdir_of(pid):
        raise InputError(
            f"process {pid} is another user's, or keeps to itself",
            why="the kernel does not show you what it was started with and where it writes",
            fix="watch it as its user, or as root",
        )
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return tuple(word.decode(errors="replace") for word in words if word)


def workdir_of(pid: int) -> Path | None:
    """The folder in which a process runs; None where it is not shown."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cwd").readlink()
    return None


def family(pid: int) -> list[int]:
    """The process and all below it."""
    return [pid, *descendants(pid)]


def watch(
    pid: int, told: ToldProgress | None, every_s: float, lasts_s: float
) -> Iterator[WatchedNow]:
    """A look each so many seconds, until the process has ended or the time is over.

    Raises:
        SourceError: a GPU does not answer any more.
    """
    meter = RateMeter(_RATE_S)
    with _gpus_of(pid) as look_at_gpus, closing(told) if told else nullcontext():
        begun_s = time.monotonic()  # to open the GPUs may take longer than all looks
        next_s = begun_s + every_s
        while next_s <= begun_s + lasts_s + _LOOK_S:
            count, fault = None, None
            while time.monotonic() < next_s:
                if told is not None:
                    count, fault = _read(told)
                if count is not None:
                    meter.add(Moment(time.monotonic()), count)
                time.sleep(_LOOK_S)
            if owner_of(pid) is None:
                return
            yield WatchedNow(
                pid=pid,
                at=now(),
                watched_s=round(time.monotonic() - begun_s, 3),
                count=count,
                unit=told and told.progress.unit,
                rate=meter.rate() if fault is None else None,
                fault=fault,
                gpus=look_at_gpus(),
            )
            next_s = time.monotonic() + every_s


def _read(told: ToldProgress) -> tuple[float | None, str | None]:
    """The count now, or why it cannot be read."""
    try:
        return told.read(), None
    except AdvisorError as error:
        return None, str(error)


@contextmanager
def _gpus_of(pid: int) -> Generator[Callable[[], tuple[GpuSeen, ...]]]:
    """Opens the GPUs on which a process computes, for a look at all of them."""
    with ExitStack() as opened:
        sources = [opened.enter_context(closing(NvmlSource(gpu.uuid))) for gpu in _gpus(pid)]
        for source in sources:
            source.start_window()
        yield lambda: tuple(_look(source, pid) for source in sources)


def _gpus(pid: int) -> list[Gpu]:
    """A host without a driver has none, and what the process counts is seen all the same."""
    own = {*family(pid)}
    with suppress(SourceError):
        return [gpu for gpu in list_gpus() if own.intersection(compute_pids(gpu.uuid))]
    return []


def _look(source: TelemetrySource, pid: int) -> GpuSeen:
    own, read = family(pid), source.read((POWER_GPU, _SM_ACTIVE))
    source.start_window()
    return GpuSeen(
        index=source.gpu.index,
        model=source.gpu.model,
        power_w=read[POWER_GPU],
        power_limit_w=source.gpu.power_limit_w,
        sm_active_percent=read[_SM_ACTIVE],
        memory_mib=source.processes_memory_mib(own),
        others=tuple(p for p in compute_pids(source.gpu.uuid) if p not in own and _works(p)),
    )


def _works(pid: int) -> bool:
    """An MPS server computes nothing itself."""
    return not name_of(pid).startswith(MPS_SERVER)
