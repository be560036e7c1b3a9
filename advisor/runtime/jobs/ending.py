"""Ends processes: jobs in the safe order, and others that carry a mark, our children or not.

A process number can be given away as soon as its process has ended. So a process is pinned first
(pidfd), then looked at again, and signalled through what pins it.
"""

import ctypes
import os
import signal
import time
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from typing import Protocol

from advisor.errors import AdvisorError, SurvivorsError
from advisor.runtime.backends.backend import Backend
from advisor.runtime.host.beats import beat
from advisor.runtime.host.cgroup import kill_cgroup, left_cgroups, populated, remove_cgroup
from advisor.runtime.host.processes import (
    carries,
    children_of,
    marked_pids,
    owner_of,
    session_of,
    wait_until,
)

LEAVE_S = 5
"""How long a process may take to end when it is asked, or signalled."""

_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37

known_children = set[int]()
"""Children of this process that have sessions of their own: shims and guards."""


def signal_if(pid: int, number: int, ours: Callable[[int], bool]) -> None:
    """Send a signal to a process that is still the one that is meant, as `ours` says."""
    with suppress(OSError), os.fdopen(os.pidfd_open(pid), "rb", buffering=0) as pinned:
        if ours(pid):
            signal.pidfd_send_signal(pinned.fileno(), number)


def end_marked(backend: Backend, mark: Mapping[str, str]) -> None:
    """End all processes that were started with these variables, in the safe order.

    Raises:
        SurvivorsError: one of them does not end.
    """
    try:
        if pids := marked_pids(mark):
            backend.release(pids)
    finally:
        # Also when the daemon is gone: no job may outlive its limit.
        for number in (signal.SIGTERM, signal.SIGKILL):
            end_until_none(number, lambda: marked_pids(mark), lambda pid: carries(pid, mark))
    check_none(marked_pids(mark))


def end_cgroups(prefix: str) -> None:
    """End what is left in control groups of earlier jobs; the caller holds the lock of their GPU.

    Raises:
        SurvivorsError: somebody does not end.
    """
    for path in left_cgroups(prefix):
        kill_cgroup(path)
        if not wait_until(lambda path=path: not populated(path), LEAVE_S):
            raise SurvivorsError(f"processes of an earlier job in {path} do not end")
        remove_cgroup(path)


def check_none(pids: Collection[int]) -> None:
    """Check that nobody of a job is left.

    Raises:
        SurvivorsError: somebody is.
    """
    # Those that wait for nothing but their parent do nothing any more.
    if left := sorted(pid for pid in pids if owner_of(pid) is not None):
        raise SurvivorsError(
            f"processes {left} of a job do not end",
            why="a process that waits for a device or a network disk cannot be ended",
            fix="free what it waits for (`cat /proc/PID/stack` as root says what), or restart the "
            "host",
        )


@contextmanager
def adopting_orphans() -> Generator[None]:
    """Let the kernel hand this process the orphans below it, for jobs whose shim is killed.

    A daemon that is started in the block would be taken for such an orphan.
    """
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 0)


def orphans() -> list[int]:
    """Living processes that were handed to this one; its own helpers are of its session."""
    if not _adopts_orphans():
        return []
    own = os.getsid(0)
    found = [
        pid
        for pid in children_of(os.getpid())
        if pid not in known_children and session_of(pid) not in (None, own)
    ]
    for pid in found:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    return [pid for pid in found if owner_of(pid) is not None]


def _adopts_orphans() -> bool:
    answer = ctypes.c_int()
    ctypes.CDLL(None).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(answer))
    return bool(answer.value)


def end_until_none(number: int, left: Callable[[], list[int]], ours: Callable[[int], bool]) -> None:
    """Signal all that are left, again and again, until nobody is or `LEAVE_S` are over."""
    deadline_s, signalled = time.monotonic() + LEAVE_S, set[int]()
    while (pids := left()) and time.monotonic() < deadline_s:
        # A polite signal is sent once to each; who forks meanwhile is found in the next round.
        for pid in pids:
            if number == signal.SIGKILL or pid not in signalled:
                signal_if(pid, number, ours)
        signalled.update(pids)
        beat()
        time.sleep(0.01)


class Stoppable(Protocol):
    """Something that runs on a GPU next to others."""

    def leave(self) -> None:
        """Ask it to leave; returns at once."""
        ...

    def stop(self) -> None:
        """End it and wait until it has ended."""
        ...


def stop_all(jobs: Iterable[Stoppable]) -> list[AdvisorError]:
    """Stop jobs in the safe order: all are asked to leave before the first is waited for.

    Returns:
        What went wrong on the way; the jobs have ended nevertheless, but for a SurvivorsError.
    """
    waiting, errors = list(jobs), list[AdvisorError]()
    for job in waiting:
        job.leave()
    try:
        while waiting:
            try:
                waiting.pop(0).stop()
            except AdvisorError as error:
                errors.append(error)
    finally:
        # Interrupted: the others are stopped all the same.
        if waiting:
            stop_all(waiting)
    return errors
