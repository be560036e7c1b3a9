"""Ends a supervisor that does not heed a stop, since it hangs or was stopped itself."""

import os
import signal
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from advisor.errors import SurvivorsError
from advisor.launch.records.folder import LaunchFolder
from advisor.launch.records.status import SILENT_S, LaunchStatus

STOP_S = 30.0
"""How long a supervisor may take from the request to the end, where it is not heard of."""


class Stopping:
    """A launch that was asked to stop, from now on."""

    def __init__(self, folder: LaunchFolder) -> None:
        self._folder, self._since_s = folder, time.monotonic()
        self._written_at, self._written_s = "", self._since_s

    def look(self, status: LaunchStatus) -> str | None:
        """End the supervisor where its time is up and nobody hears of it; what is to be told then.

        By a clock that nobody can set, so one that jumps ends nobody.

        Raises:
            SurvivorsError: it cannot be reached from here.
        """
        now_s = time.monotonic()
        if status.updated_at != self._written_at:
            self._written_at, self._written_s = status.updated_at, now_s
        if status.over or now_s - self._since_s < STOP_S or now_s - self._written_s < SILENT_S:
            return None
        pid = end_supervisor(self._folder, status.supervisor_pid)
        return (
            f"the supervisor of {self._folder.launch_id}, process {pid}, did not heed the stop and "
            f"has not been heard of since {self._written_at}: it was killed, and its jobs with it"
        )


def end_supervisor(folder: LaunchFolder, pid: int | None) -> int:
    """Kill the supervisor; the kernel lets its guard and the shims of its jobs go on.

    Raises:
        SurvivorsError: it cannot be reached from here.
    """
    with suppress(OSError), _pinned(pid or 0) as supervisor:
        # Looked at when it is pinned: the number may be of somebody else by now.
        if _holds(pid or 0, folder.path / "alive"):
            signal.pidfd_send_signal(supervisor, signal.SIGKILL)
            return pid or 0
    raise SurvivorsError(
        f"the supervisor of {folder.launch_id} ({pid}) does not answer and cannot be ended from "
        "here",
        why="it is of another user, or of a container with process numbers of its own",
        fix="end it there with kill -9",
    )


def _holds(pid: int, path: Path) -> bool:
    """Whether a process has this file open."""
    files = Path(f"/proc/{pid}/fd")
    return any(file.exists() and file.samefile(path) for file in files.iterdir())


@contextmanager
def _pinned(pid: int) -> Generator[int]:
    with os.fdopen(os.pidfd_open(pid), "rb", buffering=0) as file:
        yield file.fileno()
