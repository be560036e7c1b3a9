"""Processes that stand ready: who is started, who is kept, and how they end."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from breakable_replay import BreakableProcess, BreakableTestbed, Fault
from store_points import point

from advisor.core.gpu import Share
from advisor.core.job import Job, ProgressSettings
from advisor.errors import AdvisorError, JobError, LimitNotProvenError, PartitionError, StoreError
from advisor_profiling.campaign.campaign import ProcessPool
from advisor_profiling.testbed import PhaseLock, ReplayTestbed, WarmProcess
from advisor_profiling.window import ProcessSpec

SHARES = (30.0, 50.0, 70.0, 100.0)
SOLO = [point(job=job, share_percent=share) for job in ("gemm", "sort") for share in SHARES]
GEMM, SORT = (ReplayTestbed(SOLO).jobs[name] for name in ("gemm", "sort"))
FREE = replace(GEMM, progress=ProgressSettings(gate=False))
A, B, C, D = (ProcessSpec(GEMM, Share(share)) for share in SHARES)


def no_fault(_process: BreakableProcess, _where: str) -> None:
    """Everything works."""


class LoggingTestbed(BreakableTestbed):
    """Logs begin and end of the phase in which starts are allowed, after `others` has run."""

    def __init__(self, fault: Fault = no_fault) -> None:
        super().__init__(SOLO, fault=fault)
        self.phase_lock = LoggingQuiet(self)
        self.others: Callable[[], object] = lambda: None

    def did(self, act: str) -> list[str]:
        """Processes of an act, in order."""
        return [who for found, _, who in (line.partition(" ") for line in self.log) if found == act]


def pool_of(*specs: ProcessSpec, fault: Fault = no_fault) -> tuple[ProcessPool, LoggingTestbed]:
    """A pool with these processes, and its testbed with an empty log."""
    testbed = LoggingTestbed(fault)
    pool = ProcessPool(testbed)
    pool.change(specs)
    testbed.log.clear()
    return pool, testbed


class LoggingQuiet(PhaseLock):
    """Notes when starts are allowed."""

    def __init__(self, testbed: LoggingTestbed) -> None:
        super().__init__()
        self._testbed = testbed

    @contextmanager
    def starting(self) -> Generator[None]:
        self._testbed.others()
        self._testbed.log.append("begin")
        yield
        self._testbed.log.append("end")

    @contextmanager
    def measuring(self) -> Generator[None]:
        raise AssertionError("a pool opens no window")
        yield


def fail(act: str, *whose: ProcessSpec, error: BaseException) -> Fault:
    """Faults of some processes at one act."""
    shares = [spec.share for spec in whose]
    return lambda process, done: error if done == act and process.share in shares else None


def names(*specs: ProcessSpec) -> list[str]:
    return [str(spec) for spec in specs]


def test_change_ends_the_unwanted_and_starts_the_missing_only() -> None:
    """A process that both blocks want stands at its gate all the while.

    Without a gate it has run since its start; wanted again it is a new process.
    """
    free = ProcessSpec(FREE, Share(100.0))
    pool, testbed = pool_of(A, B, free)
    kept, ran = pool.processes[B], pool.processes[free]
    pool.change([B, C, free])
    assert (testbed.did("stop"), testbed.did("start")) == (names(A, free), names(C, free))
    assert pool.processes.keys() == {B, C, free}
    assert (pool.processes[B] is kept, pool.processes[free] is ran, pool.starts) == (True, False, 5)


def test_all_starts_and_ends_are_kept_out_of_windows() -> None:
    """Room is made first; all limits are proven, all start, and only then is one waited for."""
    pool, testbed = pool_of(A)
    pool.change([B, C])
    pool.change([C, B])
    assert testbed.log == ["begin", *(f"{act} {who}" for act, who in (
        ("leave", A), ("stop", A), ("prove", B), ("prove", C), ("start", B), ("start", C),
        ("ready", B), ("check_limit", B), ("ready", C), ("check_limit", C),
    )), "end", "begin", "end"]  # fmt: skip


@pytest.mark.parametrize(
    ("act", "error", "starts"),
    [
        ("start", JobError("it broke"), 2),
        ("ready", JobError("it broke"), 3),
        ("check_limit", JobError("it broke"), 3),
        ("check_limit", LimitNotProvenError("no limit"), 3),
    ],
)
def test_error_is_kept_and_its_client_not_started_again(
    act: str, error: AdvisorError, starts: int
) -> None:
    """Until errors are cleared. The others stay; it is stopped, since it may still be starting."""
    testbed = LoggingTestbed(fail(act, B, error=error))
    pool = ProcessPool(testbed)
    pool.change([A, B, C])
    assert (pool.processes.keys(), pool.errors, pool.starts) == ({A, C}, {B: error}, starts)
    assert (testbed.did("stop"), testbed.log[-1]) == (names(*[B] * (starts - 2)), "end")
    pool.change([A, B, C])
    assert testbed.did("start").count(str(B)) == 1
    testbed.fault = no_fault
    pool.errors.clear()
    pool.change([A, B, C])
    assert pool.processes.keys() == {A, B, C}


def test_nothing_starts_where_one_limit_is_not_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last of three is not under its share: no job runs half-limited, none at all."""
    testbed, prove = LoggingTestbed(), BreakableTestbed.prove

    def proven(job: Job, share: Share) -> Callable[[], WarmProcess]:
        if share == C.share:
            raise LimitNotProvenError("all SMs were seen")
        return prove(testbed, job, share)

    monkeypatch.setattr(testbed, "prove", proven)
    pool = ProcessPool(testbed)
    with pytest.raises(LimitNotProvenError):
        pool.change([A, B, C])
    assert testbed.did("start") == []


def test_time_of_starts_and_of_waiting_is_told() -> None:
    """Three seconds for other GPUs, then five until the processes are ready."""
    testbed = LoggingTestbed()
    testbed.others = lambda: testbed.clock.sleep(3.0)
    testbed.ready_after_s = 8.0
    pool = ProcessPool(testbed)
    pool.change([A, B])
    assert (pool.waiting_s, pool.starting_s) == pytest.approx((3.0, 5.0), abs=0.1)


def test_all_are_asked_to_leave_before_the_first_is_waited_for() -> None:
    """Forty processes end in the time of one, also where the campaign between blocks fails."""
    pool, testbed = pool_of(A, B, C)
    with pytest.raises(StoreError), pool:
        raise StoreError("the disk is full")
    assert [line.split()[0] for line in testbed.log] == ["leave"] * 3 + ["stop"] * 3
    assert sorted(testbed.did("leave")) == sorted(testbed.did("stop")) == names(A, B, C)


@pytest.mark.parametrize("broken", [(A,), (C,), (A, B, C)])
@pytest.mark.parametrize("error", [PartitionError("the daemon is gone"), KeyboardInterrupt()])
def test_all_are_stopped_when_the_stop_of_some_fails(
    broken: tuple[ProcessSpec, ...], error: BaseException
) -> None:
    """The error is told, and no job stays on the GPU because of another."""
    pool, testbed = pool_of(A, B, C, fault=fail("stop", *broken, error=error))
    with pytest.raises(type(error)):
        pool.end([A, B, C, D])
    assert (sorted(testbed.did("stop")), pool.processes) == (names(A, B, C), {})
