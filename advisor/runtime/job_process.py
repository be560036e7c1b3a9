"""The processes of one job, held by a shim that outlives neither them nor its supervisor.

A process number can be given away as soon as its process has ended. So a process is pinned first
(pidfd), then looked at again, and signalled through what pins it.

Where a job has a control group of its own, its processes and memory are bounded. A supervisor may
do so in a container, as root, or in a systemd unit with `Delegate=yes`. There `cgroup.kill` ends
all members at once. The kernel bounds processes and memory only of groups next to which no process
is. No process is moved for that: a delegated group starts us in a group `advisor-supervisors` in it
(deploy/advisor.service), and jobs get theirs next to that.
"""

import ctypes
import json
import os
import secrets
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from advisor.core.job import Job
from advisor.errors import AdvisorError, SurvivorsError
from advisor.files import open_plain
from advisor.runtime.backend import Backend
from advisor.runtime.processes import (
    beat,
    carries,
    children_of,
    control_group,
    descendants,
    foreign_text,
    is_stopped,
    marked_pids,
    owner_of,
    session_of,
    wait_until,
)
from advisor.settings import RUNTIME_DIR, output_bytes, python

# What the kernel must be asked for before a control group can be bounded.
CONTROLLERS = ("memory", "pids")

_MIB = 1024 * 1024


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
    # A job that took more of the host's memory would take the host down; the page cache counts too,
    # but is given back before the bound is met.
    host_mib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / _MIB
    # Libraries start a thread for each core in each process: a loader of 32 processes on 128 cores
    # has 4,096. A fork bomb makes more in a second.
    wanted = max(4096, 64 * (os.cpu_count() or 1))
    # Two jobs leave half of the host's process numbers to others.
    return ResourceBounds(
        job.max_tasks or min(wanted, int(foreign_text("/proc/sys/kernel/pid_max")) // 4),
        job.host_memory_mib or max(1, int(0.95 * host_mib)),
    )


def set_bounds(group: Path, bounds: ResourceBounds) -> None:
    """Bound a control group, as far as it has the controllers."""
    _write(group / "pids.max", bounds.tasks)
    _write(group / "memory.max", bounds.memory_mib * _MIB)
    # A job that lost one of its workers may wait for it forever.
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
    if not ((place / "cgroup.type").exists() and _members(place)):
        there = foreign_text(place / "cgroup.controllers").split()
        _write(
            place / "cgroup.subtree_control",
            " ".join(f"+{name}" for name in CONTROLLERS if name in there),
        )
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


def _members(path: Path) -> list[int]:
    """Processes in a control group, without those in groups below it; none where it is gone."""
    return [int(line) for line in foreign_text(path / "cgroup.procs").split()]


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
        self._met_bound = self._status = None
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
        # Every wait for a job calls this: a shim that the job has stopped would never tell.
        self.rouse()
        self._listen()
        if self._is_lost and self._status is None:
            # The kernel ends it with its shim.
            self._status = -signal.SIGKILL
        return self._status

    @property
    def over(self) -> bool:
        """Whether no process is left; it stays so from then on."""
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
        return sorted(
            {
                *(_members(self._cgroup) if self._cgroup else ()),
                *marked_pids(self._mark),
                *_orphans(),
            }
        )

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
                _write(self._cgroup / "cgroup.kill", 1)
            _end_until_none(signal.SIGKILL, self.pids, self._has)

    def rouse(self) -> None:
        """Continue a shim that was stopped."""
        if not (self._is_over or self._is_lost):
            self._shim.send_signal(signal.SIGCONT)

    def kill_stopped(self) -> None:
        """End a shim that is stopped again and again, and then its remaining processes."""
        if is_stopped(self._shim.pid):
            self._shim.kill()
            self._shim.wait()
            self.kill()

    def close(self) -> None:
        """Release the shim, which ends after the last process."""
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
        SurvivorsError: a process does not end.
    """
    for path in left_cgroups(prefix):
        _write(path / "cgroup.kill", 1)
        # Of the group and those below it.
        if not wait_until(
            lambda path=path: "populated 1" not in foreign_text(path / "cgroup.events"), LEAVE_S
        ):
            raise SurvivorsError(f"processes of an earlier job in {path} do not end")
        remove_cgroup(path)


def check_none(pids: Collection[int]) -> None:
    """Check that no process of a job is left.

    Raises:
        SurvivorsError: one is.
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
    """Signal all that are left, again and again, until none is or `LEAVE_S` are over."""
    deadline_s, signalled = time.monotonic() + LEAVE_S, set[int]()
    while (pids := left()) and time.monotonic() < deadline_s:
        # A polite signal is sent once to each; the next round finds new children.
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
