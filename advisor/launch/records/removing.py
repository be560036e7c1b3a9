"""Removes folders of launches that have ended, and nothing else, whatever lies in them or beside.

A folder is renamed first: it is no launch any more at that instant, and one whose removal was
killed half way is known by its name and removed at the next time. Links are never followed: what
is opened are the folders themselves, and what they hold is removed by descriptors of these.
"""

import os
import shutil
import stat
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from advisor.errors import UnsafeFileError
from advisor.launch.records.folder import LaunchFolder
from advisor.launch.records.status import LaunchStatus
from advisor.retention import Retention

DAY_S = 86_400.0

Reason = Literal["age", "size"]

_HALF = ".removed"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITE_FOR_OTHERS = 0o022


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedLaunch:
    """A launch that has ended, and the room that its folder takes."""

    folder: LaunchFolder
    ended_at: str
    size_bytes: int

    @property
    def ended_s(self) -> float:
        """When it ended, s since 1970."""
        return datetime.fromisoformat(self.ended_at).timestamp()


def ended_launch(folder: LaunchFolder) -> EndedLaunch | None:
    """A launch that has ended; None where it has not, or nobody can tell when.

    Raises:
        OSError: its folder cannot be read.
    """
    status = folder.read_status()
    # A supervisor writes its last word, and then lets go.
    if not status.over or folder.supervised():
        return None
    if (at := _ended_at(status)) is None:
        return None
    return EndedLaunch(folder=folder, ended_at=at, size_bytes=size_bytes(folder.path))


def beyond(
    ended: Iterable[EndedLaunch], bounds: Retention, now_s: float
) -> list[tuple[EndedLaunch, Reason]]:
    """Which launches are beyond the bounds, the oldest first.

    Args:
        ended: All that have ended.
        bounds: Of their age, and of the room that they take together.
        now_s: Now, s since 1970.
    """
    found: list[tuple[EndedLaunch, Reason]] = []
    taken_bytes = 0
    for launch in sorted(ended, key=lambda launch: (launch.ended_s, launch.folder.launch_id))[::-1]:
        if now_s - launch.ended_s > bounds.launch_days * DAY_S:
            found.append((launch, "age"))
            continue
        taken_bytes += launch.size_bytes
        if taken_bytes > bounds.launch_gib * 2**30:
            found.append((launch, "size"))
    return found[::-1]


def remove(folder: LaunchFolder, *, dry_run: bool = False) -> None:
    """Remove the folder of a launch that has ended.

    Args:
        folder: Its own; that it has ended is known.
        dry_run: Only look whether it may be removed.

    Raises:
        UnsafeFileError: it, or the folder that it is in, is a link or may be written by others.
        OSError: it, or something in it, cannot be removed; what is left goes at the next time.
    """
    with _opened(folder.path.parent) as root:
        with _opened(folder.path, folder.launch_id, root):
            if dry_run:
                return
            half = f".{folder.launch_id}{_HALF}"
            os.rename(folder.launch_id, half, src_dir_fd=root, dst_dir_fd=root)
        shutil.rmtree(half, dir_fd=root)


def finish_removals(root: Path) -> list[str]:
    """Remove what removals that were killed have left; what cannot be, in words.

    Raises:
        UnsafeFileError: the folder of launches is a link, or others may write to it.
    """
    left: list[str] = []
    with suppress(FileNotFoundError), _opened(root) as opened:
        for name in _halves(os.listdir(opened)):  # noqa: PTH208 - by what was opened
            try:
                shutil.rmtree(name, dir_fd=opened)
            except OSError as error:
                left.append(f"{root / name} cannot be removed: {error.strerror}")
    return left


def size_bytes(folder: Path) -> int:
    """Room that a folder takes on the disk; what links point to does not count."""
    total = 0
    for path, _, files in os.walk(folder):
        for name in (".", *files):
            with suppress(FileNotFoundError):
                total += os.lstat(os.path.join(path, name)).st_blocks * 512  # noqa: PTH118
    return total


def _halves(names: Sequence[str]) -> list[str]:
    return sorted(name for name in names if name.startswith(".") and name.endswith(_HALF))


def _ended_at(status: LaunchStatus) -> str | None:
    at = status.ended_at or status.updated_at
    with suppress(ValueError):
        if datetime.fromisoformat(at).tzinfo:
            return at
    return None


@contextmanager
def _opened(path: Path, name: str | None = None, within: int | None = None) -> Generator[int]:
    """A folder that is ours alone to write to, by its name in an open one.

    Raises:
        UnsafeFileError: it is not.
        FileNotFoundError: it is not there.
    """
    try:
        descriptor = os.open(name or path, _FOLDER, dir_fd=within)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UnsafeFileError(
            f"{path} is not removed: it is no folder of its own ({error.strerror})",
            fix="look at it, and remove it by hand",
        ) from error
    try:
        found = os.fstat(descriptor)
        if found.st_uid != os.geteuid() or found.st_mode & _WRITE_FOR_OTHERS:
            raise UnsafeFileError(
                f"{path} is not removed: other users may write to it",
                why=f"it belongs to user {found.st_uid} and has mode "
                f"{stat.S_IMODE(found.st_mode):04o}",
                fix=f"look at it, then close it (chmod 0700 {path}) or remove it by hand",
            )
        yield descriptor
    finally:
        os.close(descriptor)
