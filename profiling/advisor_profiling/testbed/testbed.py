"""Where jobs are measured: a live GPU or its replay, behind one interface."""

import fcntl
import itertools
import logging
import os
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import IO, Protocol

from advisor.core.gpu import Gpu, Share
from advisor.core.job import Job
from advisor.core.results import Reported
from advisor.core.telemetry import TelemetrySource
from advisor.files.locks import holders, try_lock
from advisor.runtime.backends.backend import Backend, Granted
from advisor.runtime.host.cores import physical_cores, plan_cores
from advisor.runtime.host.lock import open_lock
from advisor.runtime.host.processes import pin
from advisor.runtime.jobs.computing import check_limits
from advisor.runtime.jobs.launcher import prove
from advisor.runtime.jobs.running_job import RunningJob
from advisor_profiling.window.clock import Clock
from advisor_profiling.window.points import Target

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


class WarmProcess(Protocol):
    """One job, started at one share, standing at its gate or running."""

    @property
    def share(self) -> Share:
        """The share asked for."""
        ...

    @property
    def granted(self) -> Granted:
        """What was read back for it."""
        ...

    def count(self) -> float:
        """Progress so far, in the job's unit."""
        ...

    def reported(self) -> Reported:
        """What it says of its results so far."""
        ...

    def latencies(self) -> tuple[int, ...]:
        """Requests answered so far, by bucket of latency (advisor.progress); may be empty."""
        ...

    def cpu_s(self) -> float | None:
        """CPU time used so far, s; None where it is not known."""
        ...

    def memory_mib(self) -> float | None:
        """GPU memory in use, MiB; None where it is not known."""
        ...

    def ready(self) -> bool:
        """Whether its warm-up is over; raises JobError when it never will be."""
        ...

    def check(self) -> None:
        """Raise JobError when the job is gone."""
        ...

    def check_limit(self) -> None:
        """Raise LimitNotProvenError when the running job is not under its share."""
        ...

    def go(self, slot: int = 0) -> None:
        """Let it run, on the cores of the `slot`-th job of a window, counted from 0."""
        ...

    def hold(self) -> None:
        """Bring it to rest, if it has a gate."""
        ...

    def leave(self) -> None:
        """Ask it to end; returns at once."""
        ...

    def stop(self) -> None:
        """End it."""
        ...


class Testbed(Protocol):
    """A GPU on which jobs can be started at shares."""

    @property
    def mode(self) -> str:
        """How shares are enforced; points carry it."""
        ...

    @property
    def max_clients(self) -> int:
        """Most processes that may stand ready at the same time."""
        ...

    @property
    def source(self) -> TelemetrySource:
        """Telemetry of the GPU."""
        ...

    @property
    def clock(self) -> Clock:
        """Time, live or replayed."""
        ...

    @property
    def gpu(self) -> Gpu:
        """The GPU."""
        ...

    @property
    def phase_lock(self) -> PhaseLock:
        """Keeps starts and windows of all advisors on this host apart."""
        ...

    def refuses(self, target: Target) -> str:
        """Why a window cannot be measured here, whatever is tried; empty where it can."""
        ...

    def prove(self, job: Job, share: Share) -> Callable[[], WarmProcess]:
        """Prove the share; the answer starts the job under it, and returns before it is ready."""
        ...

    def check_limits(self) -> None:
        """Raise LimitBrokenError when something computes that is not under its limit."""
        ...

    def check_alive(self) -> None:
        """Raise PartitionError when what enforces the shares is gone."""
        ...

    def spoiled(self) -> bool:
        """Whether a fault of one process has taken all of them down."""
        ...


class LiveProcess:
    """A running job on a live GPU."""

    def __init__(self, job: RunningJob, testbed: "LiveTestbed") -> None:
        self._job, self._testbed = job, testbed
        self.share, self.granted = job.share, job.granted
        self.count, self.check = job.count, job.check
        self.reported, self.latencies = job.reported, job.latencies
        self.check_limit, self.leave, self.stop = job.check_limit, job.leave, job.stop

    def ready(self) -> bool:
        """Whether it waits at its gate; from then on it is pinned to where jobs wait."""
        if not self._job.ready():
            return False
        # It was free to use every core while it started; dozens look at their gates now.
        self._job.pin(self._testbed.cores.waiting)
        return True

    def cpu_s(self) -> float | None:
        """Of its living processes, s."""
        return self._job.cpu_s()

    def memory_mib(self) -> float | None:
        """Of its living processes, MiB, as the GPU counts it."""
        return self._testbed.source.processes_memory_mib(self._job.pids())

    def go(self, slot: int = 0) -> None:
        """Pin it to the cores of the slot before its gate opens."""
        self._job.pin(self._testbed.cores.slots[slot])
        self._job.go()

    def hold(self) -> None:
        """Close its gate, and leave the cores of the slot to others."""
        self._job.hold()
        self._job.pin(self._testbed.cores.waiting)


class LiveTestbed:
    """A real GPU, its limits and its telemetry.

    A folder of the run has counters, gates and outputs of its jobs, of which a window has `jobs`.
    """

    def __init__(
        self,
        backend: Backend,
        source: TelemetrySource,
        base: Mapping[str, str],
        folder: Path,
        phase_lock: PhaseLock,
        jobs: int = 2,
    ) -> None:
        self.phase_lock = phase_lock
        self._backend, self.source, self._base, self._folder = backend, source, base, folder
        self.gpu, self.mode = backend.gpu, backend.mode
        # Where there is no place, the proof of the first job says so.
        self.max_clients = max(1, backend.max_clients)
        self.check_alive, self.spoiled = backend.check_alive, backend.spoiled
        self.clock: Clock = Clock()
        self.cores = plan_cores(physical_cores(), jobs)
        self._numbers = itertools.count()
        self._jobs: list[RunningJob] = []
        pin([os.getpid()], self.cores.own)

    def refuses(self, target: Target) -> str:
        """A live GPU can try everything."""
        return ""

    def prove(self, job: Job, share: Share) -> Callable[[], WarmProcess]:
        """Prove the share with the job's variables; the job is free to use every job's core."""
        folder = self._folder / f"{job.name}-{share}-{next(self._numbers)}"
        folder.mkdir(parents=True)
        proven = prove(job, share, self._backend, self._base, folder)

        def start() -> WarmProcess:
            running = proven.start()
            self._jobs.append(running)
            running.pin(self.cores.jobs)
            return LiveProcess(running, self)

        return start

    def check_limits(self) -> None:
        """Ask the driver about all jobs that were started, at their gates or not."""
        self._jobs = [job for job in self._jobs if not job.over]
        check_limits(self._jobs)
