"""Folders of launches that have ended: which are beyond the bounds, and their removal.

A folder is renamed first: it is no launch any more at that instant, and one whose removal was
killed half way is known by its name and removed at the next time.
"""

import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Literal

from advisor.launch.records.folder import LaunchFolder
from advisor.launch.records.status import LaunchStatus
from advisor.retention import Retention

DAY_S = 86_400.0

_Reason = Literal["age", "size"]

_HALF = ".removed"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedLaunch:
    """A launch that has ended, and the room that its folder takes.

    Attributes:
        ended_at: ISO 8601, with its time zone.
        reason: The bound that it is beyond; None: none.
    """

    launch_id: str
    ended_at: str
    size_bytes: int
    reason: _Reason | None = None

    @property
    def ended_s(self) -> float:
        """When it ended, s since 1970."""
        return datetime.fromisoformat(self.ended_at).timestamp()


def ended_launch(folder: LaunchFolder) -> EndedLaunch | None:
    """A launch that has ended; None where it has not, nobody can tell when, or it is a link.

    Raises:
        OSError: its folder cannot be read.
    """
    status = folder.read_status()
    # A supervisor writes its last word, and then lets go.
    if folder.path.is_symlink() or not status.over or folder.supervised():
        return None
    if (at := _ended_at(status)) is None:
        return None
    size = size_bytes(folder.path)
    return EndedLaunch(launch_id=folder.launch_id, ended_at=at, size_bytes=size)


def beyond(ended: Iterable[EndedLaunch], bounds: Retention, now_s: float) -> list[EndedLaunch]:
    """Which launches are beyond the bounds `now_s` (since 1970), with the reason, oldest first.

    Bounded are their age, and the room that they take together.
    """
    found: list[EndedLaunch] = []
    taken_bytes = 0
    for launch in sorted(ended, key=lambda launch: (launch.ended_s, launch.launch_id))[::-1]:
        if now_s - launch.ended_s > bounds.launch_days * DAY_S:
            found.append(replace(launch, reason="age"))
            continue
        taken_bytes += launch.size_bytes
        if taken_bytes > bounds.launch_gib * 2**30:
            found.append(replace(launch, reason="size"))
    return found[::-1]


def remove(folder: Path) -> None:
    """Remove the folder of a launch that has ended; links in it go, what they point to stays.

    Raises:
        OSError: something in it cannot be removed; what is left goes at the next time.
    """
    shutil.rmtree(folder.rename(folder.with_name(f".{folder.name}{_HALF}")))


def half_removed(root: Path) -> list[Path]:
    """What removals that were killed have left."""
    return sorted(root.glob(f".*{_HALF}"))


def size_bytes(folder: Path) -> int:
    """Room that a folder takes on the disk; what links point to does not count."""
    total = 0
    for path, _, files in os.walk(folder):
        for name in (".", *files):
            with suppress(FileNotFoundError):
                total += os.lstat(os.path.join(path, name)).st_blocks * 512  # noqa: PTH118
    return total


def _ended_at(status: LaunchStatus) -> str | None:
    at = status.ended_at or status.updated_at
    with suppress(ValueError):
        if datetime.fromisoformat(at).tzinfo:
            return at
    return None
