"""A control group for each job, where this process may make them (cgroup v2, Linux 5.14 or newer).

A supervisor may do so in a container, as root, or in a systemd unit with `Delegate=yes`. There
`cgroup.kill` ends all members at once. The kernel bounds processes and memory only of groups next
to which no process is. Nobody is moved for that: the one who delegates a group to us starts us in a
group `advisor-supervisors` in it (deploy/advisor.service), and jobs get theirs next to that.
"""

import os
import secrets
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from advisor.runtime.host.bounds import CONTROLLERS, ResourceBounds, set_bounds

OURS = "advisor-supervisors"
"""Name of the group of our own processes, in one that was delegated to us."""

_PREFIX = "advisor-"


def cgroup_prefix(gpu_uuid: str, runtime_dir: str) -> str:
    """How the names of the groups of jobs begin that are on this GPU and of this advisor."""
    return f"{_PREFIX}{sha256(f'{gpu_uuid} {runtime_dir}'.encode()).hexdigest()[:16]}-"


def make_cgroup(prefix: str, bounds: ResourceBounds) -> Path | None:
    """A new control group, bounded where the kernel lets us; None where none may be made."""
    if (place := _place()) is None:
        return None
    _ask_for_controllers(place)
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
    try:
        return [int(line) for line in (path / "cgroup.procs").read_text().split()]
    except OSError:
        return []


def populated(path: Path) -> bool:
    """Whether a process lives in a control group or below it."""
    try:
        return "populated 1" in (path / "cgroup.events").read_text()
    except OSError:
        return False


def kill_cgroup(path: Path) -> None:
    """End every process in a control group and below it."""
    with suppress(OSError):
        (path / "cgroup.kill").write_text("1")


def remove_cgroup(path: Path) -> None:
    """Remove a control group; one that still has members stays."""
    # A job may have made groups in its own.
    for folder in sorted(path.rglob("*/"), reverse=True):
        with suppress(OSError):
            folder.rmdir()
    with suppress(OSError):
        path.rmdir()


def _place() -> Path | None:
    """Where the control groups of jobs are made."""
    own = _own()
    return own.parent if own and own.name == OURS else own


def _ask_for_controllers(place: Path) -> None:
    """Let groups in this one be bounded, where the kernel allows it."""
    # A group with processes in it that asks for `pids` alone would take no process below it any
    # more. Only the root of all groups, which has no type, may have both.
    if (place / "cgroup.type").exists() and members(place):
        return
    with suppress(OSError):
        there = (place / "cgroup.controllers").read_text().split()
        wanted = " ".join(f"+{name}" for name in CONTROLLERS if name in there)
        (place / "cgroup.subtree_control").write_text(wanted)


def _own() -> Path | None:
    """The folder of our own control group."""
    try:
        mounts = Path("/proc/self/mounts").read_text().splitlines()
        groups = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    roots = [fields[1] for line in mounts if (fields := line.split())[2] == "cgroup2"]
    names = [line.removeprefix("0::") for line in groups if line.startswith("0::")]
    return Path(roots[0] + names[0]) if roots and names else None
