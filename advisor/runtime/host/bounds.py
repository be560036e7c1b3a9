"""What a job may take of its host: bounds on processes and memory, where it has a control group."""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from advisor.core.job import Job

CONTROLLERS = ("memory", "pids")
"""What the kernel must be asked for before a control group can be bounded."""

_MIB = 1024 * 1024

_HOST_PART = 0.95
"""Part of the host's memory that a job may have. A job that took more would take the host down; the
page cache counts too, but is given back before the bound is met."""

_LEAST_TASKS, _TASKS_PER_CORE = 4096, 64
"""Libraries start a thread for each core in each process: a loader of 32 processes on 128 cores has
4,096. A fork bomb makes more in a second."""

_PIDS_PART = 4
"""Two jobs leave half of the host's process numbers to everybody else."""


@dataclass(frozen=True, slots=True)
class ResourceBounds:
    """Bounds of one job.

    Attributes:
        tasks: Processes and threads, together.
        memory_mib: Memory of the host, MiB, with what the job keeps in /dev/shm.
    """

    tasks: int
    memory_mib: int


def bounds_of(job: Job) -> ResourceBounds:
    """What the job file says, else what no sound job of this host reaches."""
    return ResourceBounds(job.max_tasks or _most_tasks(), job.host_memory_mib or _most_memory_mib())


def set_bounds(group: Path, bounds: ResourceBounds) -> None:
    """Bound a control group, as far as it has the controllers."""
    _write(group / "pids.max", bounds.tasks)
    _write(group / "memory.max", bounds.memory_mib * _MIB)
    # A job that lost one of its workers may wait for it for ever.
    _write(group / "memory.oom.group", 1)


def met_bound(group: Path, bounds: ResourceBounds) -> str | None:
    """Which bound the processes of a control group met, and what to do; None: they met none."""
    events = _events(group / "memory.events")
    if events.get("oom_kill"):
        if events.get("oom"):
            return (
                f"it took more than its {bounds.memory_mib} MiB of the host's memory; "
                "a bound of its own is host_memory_mib in its job file"
            )
        return "the kernel ended it, as the host, or the control group above, ran out of memory"
    if _events(group / "pids.events").get("max"):
        return (
            f"it came to its bound of {bounds.tasks} processes and threads; "
            "a bound of its own is max_tasks in its job file"
        )
    return None


def _most_memory_mib() -> int:
    host_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(1, int(_HOST_PART * host_bytes) // _MIB)


def _most_tasks() -> int:
    wanted = max(_LEAST_TASKS, _TASKS_PER_CORE * (os.cpu_count() or 1))
    return min(wanted, int(Path("/proc/sys/kernel/pid_max").read_text()) // _PIDS_PART)


def _events(path: Path) -> dict[str, int]:
    """Counts of a control group by name; none where it has no such controller."""
    try:
        lines = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return {}
    return {name: int(count) for name, count in lines}


def _write(path: Path, value: int) -> None:
    # Nothing is made: in a control group without the controller there is no such file.
    with suppress(OSError), path.open("r+") as file:
        file.write(str(value))
