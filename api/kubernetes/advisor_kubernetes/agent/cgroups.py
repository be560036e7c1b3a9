"""Which pod a process of the node belongs to, as the kernel says it."""

import re
from pathlib import Path

_POD = re.compile(
    r"pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})"
)
"""A pod's control group: `pod<uid>` by cgroupfs, `...-pod<uid with _>.slice` by systemd; pods of a
file on the node have a hash without dashes."""


def pod_of(pid: int) -> str | None:
    """The uid of the pod that a process runs in; None: in no pod, or there is no such process.

    Unlike a variable of its environment, a process cannot change it.
    """
    try:
        return pod_in(Path(f"/proc/{pid}/cgroup").read_text(errors="replace"))
    except OSError:
        return None


def pod_in(text: str) -> str | None:
    """The uid in the lines of a `/proc/PID/cgroup` (man 7 cgroups), version 1 or 2."""
    found = _POD.search(text)
    return found[1].replace("_", "-") if found else None
