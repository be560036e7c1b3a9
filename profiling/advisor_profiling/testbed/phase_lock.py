"""Keeps start-ups out of open windows, over all GPUs and all advisors of a host.

A process that starts takes cores, memory bandwidth and the driver's locks: launch-bound jobs lost
up to half their rate next to it. So either jobs start, or windows are open; any number of either.
A start that waits lets the open windows end and keeps new ones out. Who measures a block of windows
holds the phase for all of it, so that the GPUs of a host start their blocks together.
"""

import fcntl
import logging
import time
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import IO, Protocol

from advisor.files import holders, try_lock
from advisor.runtime.lock import open_lock

_POLL_S = 0.02
_SILENT_S = 10.0
"""Windows end, and most jobs are ready, before this; a power run takes minutes."""

_logger = logging.getLogger(__name__)


class PhaseLock(Protocol):
    """Two phases that exclude each other."""

    def starting(self) -> AbstractContextManager[None]:
        """While jobs start; waits until no window is open."""
        ...

    def measuring(self) -> AbstractContextManager[None]:
        """While a window is open; waits until no job starts."""
        ...


class NoPhaseLock:
    """Nothing to keep apart, as in a replay."""

    def starting(self) -> AbstractContextManager[None]:
        """At once: nothing is disturbed."""
        return nullcontext()

    def measuring(self) -> AbstractContextManager[None]:
        """At once: nothing disturbs it."""
        return nullcontext()


class HostPhaseLock:
    """Two lock files that all advisors of a host share; a killed one lets go by itself."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def starting(self) -> Generator[None]:
        """While jobs start: open windows end first, and no new one opens."""
        with self._open("starting") as starts, self._open("measuring") as windows:
            fcntl.flock(starts, fcntl.LOCK_SH)
            _wait_until_free(windows, "measures")
            yield

    @contextmanager
    def measuring(self) -> Generator[None]:
        """While windows are measured: no job starts on the GPU; waits for those that do."""
        with self._open("starting") as starts, self._open("measuring") as windows:
            while True:
                _wait_until_free(starts, "starts jobs or measures power")
                fcntl.flock(windows, fcntl.LOCK_SH)
                # A start may have come between the two: it waits for us, so we give way.
                if _free(starts):
                    break
                fcntl.flock(windows, fcntl.LOCK_UN)
            yield

    def _open(self, phase: str) -> AbstractContextManager[IO[str]]:
        return open_lock(self._folder, f"{phase}.lock")


def _wait_until_free(file: IO[str], doing: str) -> None:
    tell_at_s = time.monotonic() + _SILENT_S
    while not _free(file):
        time.sleep(_POLL_S)
        if time.monotonic() > tell_at_s:
            tell_at_s = float("inf")
            _tell(holders(file), doing)


def _tell(pids: list[int], doing: str) -> None:
    who = f"process {', '.join(map(str, pids))}" if pids else "a process"
    _logger.warning(
        "waiting for %s, which %s on another GPU of this host: one disturbs the other", who, doing
    )


def _free(file: IO[str]) -> bool:
    """Whether nobody else holds the file; asks without keeping it."""
    if free := try_lock(file):
        fcntl.flock(file, fcntl.LOCK_UN)
    return free
