"""The processes of one job, held by a shim that outlives neither them nor its supervisor.

A process number can be given away as soon as its process has ended. So a process is pinned first
(pidfd), then looked at again, and signalled through what pins it.
"""

import ctypes
import json
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from advisor.errors import AdvisorError, SurvivorsError
from advisor.runtime.backend import Backend
from advisor.runtime.cgroup import (
    ResourceBounds,
    kill_cgroup,
    left_cgroups,
    make_cgroup,
    members,
    met_bound,
    populated,
    remove_cgroup,
)
from advisor.runtime.processes import (
    beat,
    carries,
    children_of,
    descendants,
    is_stopped,
    marked_pids,
    owner_of,
    session_of,
    wait_until,
)
from advisor.settings import RUNTIME_DIR, output_bytes, python

_SHIM = Path(__file__).with_name("shim.py")
_START_S = 60
# Variables of the shim, which carries no mark: it ends last, and by itself.
_KEPT = ("LD_LIBRARY_PATH", RUNTIME_DIR)


class JobProcess:
    """All processes that came of one command.

    Args:
        command: What to run, found by the `PATH` of its own environment.
        folder: Where it runs; None: here.
        environment: All of its variables; `ADVISOR_OUTPUT_MIB` bounds what is kept of its output.
        output: File of what it writes.
        mark: Variables that no other job has; its processes are found by them where its shim was
            killed.
        group: How the name of its control group begins.
        bounds: What it may take of the host, where it has a control group.

    Raises:
        OSError: the command cannot be started.
    """

    def __init__(
        self,
        command: tuple[str, ...],
        folder: Path | None,
        environment: Mapping[str, str],
        output: Path,
        mark: Mapping[str, str],
        group: str,
        bounds: ResourceBounds,
    ) -> None:
        self._mark, self._cgroup, self._bounds = mark, make_cgroup(group, bounds), bounds
        self._met_bound: str | None = None
        self._status: int | None = None
        self._said: dict[str, str] = {}
        self._line = b""
        # The main thread looks at a job while another thread ends it.
        self._lock = threading.RLock()
        self._is_over = self._is_lost = False
        self._shim = subprocess.Popen(
            [python(), "-I", "-S", str(_SHIM)],
            env={key: environment[key] for key in _KEPT if key in environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        helper_children.add(self._shim.pid)
        assert self._shim.stdin is not None
        assert self._shim.stdout is not None
        self._orders, self._replies = self._shim.stdin.fileno(), self._shim.stdout.fileno()
        os.set_blocking(self._replies, False)
        self._start(
            {
                "command": list(command),
                "folder": folder and str(folder),
                "environment": dict(environment),
                "output": str(output),
                "output_bytes": output_bytes(environment),
                "cgroup": self._cgroup and str(self._cgroup),
            }
        )

    @property
    def status(self) -> int | None:
        """Exit code of the first process, negative for a signal; None while it runs."""
        # Whoever waits for a job asks this: a shim that the job has stopped would never tell.
        self.rouse()
        self._listen()
        if self._is_lost and self._status is None:
            # The kernel ends it with its shim.
            self._status = -signal.SIGKILL
        return self._status

    @property
    def over(self) -> bool:
        """Whether nobody is left; from then on nobody is looked for."""
        self._listen()
        if self._is_lost and not self.pids():
            self._status, self._is_over, self._is_lost = self.status, True, False
        return self._is_over

    @property
    def met_bound(self) -> str | None:
        """Which bound of its control group it met, and what to do; None: none, or it has none."""
        if self._cgroup and self._met_bound is None:
            self._met_bound = met_bound(self._cgroup, self._bounds)
        return self._met_bound

    def pids(self) -> list[int]:
        """Living processes of the job."""
        self._listen()
        if self._is_over:
            return []
        if not self._is_lost:
            return descendants(self._shim.pid)
        inside = members(self._cgroup) if self._cgroup else []
        return sorted({*inside, *marked_pids(self._mark), *_orphans()})

    def roots(self) -> list[int]:
        """Roots: every process of the job is one of these or a descendant."""
        self._listen()
        return self.pids() if self._is_over or self._is_lost else [self._shim.pid]

    def terminate(self) -> None:
        """Ask every process to end."""
        self._order(b"t")
        if self._is_lost:
            self.terminate_some(self.pids())

    def terminate_some(self, pids: Iterable[int]) -> None:
        """Ask these of its processes to end."""
        for pid in pids:
            _signal_if(pid, signal.SIGTERM, self._has)

    def kill(self) -> None:
        """End every process, and those that are forked meanwhile."""
        self._order(b"k")
        if self._is_lost:
            if self._cgroup:
                kill_cgroup(self._cgroup)
            _end_until_none(signal.SIGKILL, self.pids, self._has)

    def rouse(self) -> None:
        """Let a shim that somebody has stopped go on."""
        if not (self._is_over or self._is_lost):
            self._shim.send_signal(signal.SIGCONT)

    def kill_stopped(self) -> None:
        """End a shim that is stopped again and again, and then who is left without it."""
        if is_stopped(self._shim.pid):
            self._shim.kill()
            self._shim.wait()
            self.kill()

    def close(self) -> None:
        """Let go of the shim, which ends when nobody is left."""
        with self._lock:
            for file in (self._shim.stdin, self._shim.stdout):
                if file:
                    file.close()
        if self._is_over:
            self._shim.wait()
            helper_children.discard(self._shim.pid)
        if self._cgroup:
            # Its counts go with it.
            self._met_bound = self.met_bound
            remove_cgroup(self._cgroup)

    def _start(self, order: dict[str, object]) -> None:
        with suppress(BrokenPipeError):
            os.write(self._orders, json.dumps(order).encode() + b"\n")
        deadline_s = time.monotonic() + _START_S
        while not (self._said or self._is_lost) and time.monotonic() < deadline_s:
            select.select([self._replies], [], [], 1)
            beat()
            self.rouse()
            self._listen()
        if "started" not in self._said:
            self._is_over = True
            self._shim.kill()
            self.close()
            raise OSError(self._said.get("failed", "its shim did not start"))

    def _listen(self) -> None:
        with self._lock:
            while not (self._is_over or self._is_lost):
                try:
                    data = os.read(self._replies, 4096)
                except BlockingIOError:
                    return
                self._take(data)

    def _take(self, data: bytes) -> None:
        if not data:
            self._is_over, self._is_lost = "empty" in self._said, "empty" not in self._said
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            key, _, value = line.decode(errors="replace").partition(" ")
            self._said[key] = value
        if "ended" in self._said:
            self._status = int(self._said["ended"])

    def _order(self, letter: bytes) -> None:
        self._listen()
        self.rouse()
        if not (self._is_over or self._is_lost):
            with suppress(BrokenPipeError):
                os.write(self._orders, letter)

    def _has(self, pid: int) -> bool:
        return pid in self.pids()


LEAVE_S = 5
"""How long a process may take to end when it is asked, or signalled."""

_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37

helper_children = set[int]()
"""Children of this process that have sessions of their own: shims and guards."""


def _signal_if(pid: int, number: int, ours: Callable[[int], bool]) -> None:
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
            _end_until_none(number, lambda: marked_pids(mark), lambda pid: carries(pid, mark))
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


def _orphans() -> list[int]:
    """Living processes that were handed to this one; its own helpers are of its session."""
    adopts = ctypes.c_int()
    ctypes.CDLL(None).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(adopts))
    if not adopts.value:
        return []
    session = os.getsid(0)
    orphans = [
        pid
        for pid in children_of(os.getpid())
        if pid not in helper_children and session_of(pid) not in (None, session)
    ]
    for pid in orphans:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    return [pid for pid in orphans if owner_of(pid) is not None]


def _end_until_none(
    number: int, left: Callable[[], list[int]], ours: Callable[[int], bool]
) -> None:
    """Signal all that are left, again and again, until nobody is or `LEAVE_S` are over."""
    deadline_s, signalled = time.monotonic() + LEAVE_S, set[int]()
    while (pids := left()) and time.monotonic() < deadline_s:
        # A polite signal is sent once to each; who forks meanwhile is found in the next round.
        for pid in pids:
            if number == signal.SIGKILL or pid not in signalled:
                _signal_if(pid, number, ours)
        signalled.update(pids)
        beat()
        time.sleep(0.01)


class _Stoppable(Protocol):
    """Something that runs on a GPU next to others."""

    def leave(self) -> None:
        """Ask it to leave; returns at once."""

    def stop(self) -> None:
        """End it and wait until it has ended."""


def stop_all(jobs: Iterable[_Stoppable]) -> list[AdvisorError]:
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
