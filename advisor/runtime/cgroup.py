"""What a job may take of its host: bounds on processes and memory, where it has a control group.

A supervisor may do so in a container, as root, or in a systemd unit with `Delegate=yes`. There
`cgroup.kill` ends all members at once. The kernel bounds processes and memory only of groups next
to which no process is. Nobody is moved for that: the one who delegates a group to us starts us in a
group `advisor-supervisors` in it (deploy/advisor.service), and jobs get theirs next to that.
"""

import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from advisor.core.job import Job
from advisor.files import open_plain
from advisor.runtime.processes import control_group, foreign_text

CONTROLLERS = ("memory", "pids")
"""What the kernel must be asked for before a control group can be bounded."""

_MIB = 1024 * 1024

# Libraries start a thread for each core in each process: a loader of 32 processes on 128 cores
# has 4,096. A fork bomb makes more in a second.
_LEAST_TASKS, _TASKS_PER_CORE = 4096, 64


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
    host_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    # A job that took more of the host's memory would take the host down; the page cache counts too,
    # but is given back before the bound is met.
    most_mib = max(1, int(0.95 * host_bytes) // _MIB)
    wanted = max(_LEAST_TASKS, _TASKS_PER_CORE * (os.cpu_count() or 1))
    # Two jobs leave half of the host's process numbers to everybody else.
    most_tasks = min(wanted, int(foreign_text("/proc/sys/kernel/pid_max")) // 4)
    return ResourceBounds(job.max_tasks or most_tasks, job.host_memory_mib or most_mib)


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


def _events(path: Path) -> dict[str, int]:
    """Counts of a control group by name; none where it has no such controller."""
    return {name: int(count) for name, count in map(str.split, foreign_text(path).splitlines())}


def _write(path: Path, value: int | str) -> None:
    # Nothing is made: in a control group without the controller there is no such file.
    with suppress(OSError), open_plain(path, "wb") as file:
        file.write(str(value).encode())


OURS = "advisor-supervisors"
"""Name of the group of our own processes, in one that was delegated to us."""


def cgroup_prefix(gpu_uuid: str, runtime_dir: str) -> str:
    """How the names of the groups of jobs begin that are on this GPU and of this advisor."""
    return f"advisor-{sha256(f'{gpu_uuid} {runtime_dir}'.encode()).hexdigest()[:16]}-"


def make_cgroup(prefix: str, bounds: ResourceBounds) -> Path | None:
    """A new control group, bounded where the kernel lets us; None where none may be made."""
    if (place := _place()) is None:
        return None
    # Groups in this one can be bounded only if it passes the controllers on. A group with processes
    # in it that asks for `pids` alone would take no process below it any more; only the root of all
    # groups, which has no type, may have both.
    if not ((place / "cgroup.type").exists() and members(place)):
        there = foreign_text(place / "cgroup.controllers").split()
        wanted = " ".join(f"+{name}" for name in CONTROLLERS if name in there)
        _write(place / "cgroup.subtree_control", wanted)
    path = place / f"{prefix}{secrets.token_hex(4)}"
    try:
        path.mkdir()
    except OSError:
        return None
    if (path / "cgroup.kill").exists() and os.access(path / "cgroup.procs", os.W_OK):
        set_bounds(path, bounds)
        return path
    remove_cgroup(path)
    return None


def left_cgroups(prefix: str) -> list[Path]:
    """Control groups of jobs with such names; the caller holds the lock of the GPU."""
    place = _place()
    return [] if place is None else sorted(place.glob(f"{prefix}*"))


def members(path: Path) -> list[int]:
    """Processes in a control group, without those in groups below it; none where it is gone."""
    return [int(line) for line in foreign_text(path / "cgroup.procs").split()]


def populated(path: Path) -> bool:
    """Whether a process lives in a control group or below it."""
    return "populated 1" in foreign_text(path / "cgroup.events")


def kill_cgroup(path: Path) -> None:
    """End every process in a control group and below it."""
    _write(path / "cgroup.kill", 1)


def remove_cgroup(path: Path) -> None:
    """Remove a control group; one that still has members stays."""
    # A job may have made groups in its own.
    for folder in sorted(path.rglob("*/"), reverse=True):
        with suppress(OSError):
            folder.rmdir()
    with suppress(OSError):
        path.rmdir()


def _place() -> Path | None:
    group = control_group("self")
    return group.parent if group and group.name == OURS else group
