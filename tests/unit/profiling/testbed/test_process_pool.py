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
from advisor_profiling.testbed.live import PhaseLock
from advisor_profiling.testbed.replay import ReplayTestbed, WarmProcess
from advisor_profiling.window.points import ProcessSpec

SHARES = (30.0, 50.0, 70.0, 100.0)
SOLO = [point(job=job, share_percent=share) for job in ("gemm", "sort") for share in SHARES]
GEMM, SORT = (ReplayTestbed(SOLO).jobs()[name] for name in ("gemm", "sort"))
FREE = replace(GEMM, progress=ProgressSettings(gate=False))
A, B, C, D = (ProcessSpec(GEMM, Share(share)) for share in SHARES)


def no_fault(_process: BreakableProcess, _where: str) -> None:
    """Everything works."""


class LoggingTestbed(BreakableTestbed):
    """Notes begin and end of the phase in which starts are allowed.

    Attributes:
        others: Done while windows of others are open.
    """

    def __init__(self, fault: Fault = no_fault) -> None:
        super().__init__(SOLO, fault=fault)
        self.phase_lock = LoggingQuiet(self)
        self.others: Callable[[], object] = lambda: None

    def did(self, act: str) -> list[str]:
        """Who did it, in order."""
        return [who for found, _, who in (line.partition(" ") for line in self.log) if found == act]


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
    """A process that both blocks want stands at its gate all the while."""
    testbed = LoggingTestbed()
    pool = ProcessPool(testbed)
    pool.change([A, B])
    kept = pool.processes[B]
    testbed.log.clear()
    pool.change([B, C])
    assert (testbed.did("stop"), testbed.did("start")) == (names(A), names(C))
    assert pool.processes.keys() == {B, C}
    assert pool.processes[B] is kept
    assert pool.starts == 3


def test_all_starts_and_ends_are_kept_out_of_windows() -> None:
    """Room is made first; all limits are proven, all start, and only then is one waited for."""
    testbed = LoggingTestbed()
    pool = ProcessPool(testbed)
    pool.change([A])
    testbed.log.clear()
    pool.change([B, C])
    assert testbed.log == ["begin", *(f"{act} {who}" for act, who in (
        ("leave", A), ("stop", A), ("prove", B), ("prove", C), ("start", B), ("start", C),
        ("ready", B), ("check_limit", B), ("ready", C), ("check_limit", C),
    )), "end"]  # fmt: skip
    testbed.log.clear()
    pool.change([C, B])
    assert testbed.log == ["begin", "end"]


def test_change_waits_until_all_are_ready() -> None:
    testbed = LoggingTestbed()
    testbed.ready_after_s = 3.0
    ProcessPool(testbed).change([A, B])
    assert testbed.clock.now_s() == pytest.approx(3.0, abs=0.1)
    assert testbed.did("check_limit") == names(A, B)


def test_client_without_a_gate_is_never_kept() -> None:
    """It has run since its start; wanted again it is a new process."""
    testbed, free = LoggingTestbed(), ProcessSpec(FREE, Share(30.0))
    pool = ProcessPool(testbed)
    pool.change([free, B])
    first = pool.processes[free]
    pool.change([free, B])
    assert pool.processes[free] is not first
    assert testbed.did("stop") == names(free)
    assert pool.starts == 3


def test_same_job_and_share_of_twins_are_two_clients() -> None:
    testbed, copy = LoggingTestbed(), ProcessSpec(GEMM, Share(30.0), copy=1)
    pool = ProcessPool(testbed)
    pool.change([A, copy])
    assert pool.processes[A] is not pool.processes[copy]
    pool.change([A])
    assert pool.processes.keys() == {A}


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
    assert pool.processes.keys() == {A, C}
    assert pool.errors == {B: error}
    assert pool.starts == starts
    assert testbed.did("stop") == names(*[B] * (starts - 2))
    assert testbed.log[-1] == "end"
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
    assert pool.waiting_s == pytest.approx(3.0)
    assert pool.starting_s == pytest.approx(5.0, abs=0.1)


def test_all_are_asked_to_leave_before_the_first_is_waited_for() -> None:
    """Forty processes end in the time of one, also where the campaign between blocks fails."""
    testbed = LoggingTestbed()

    def campaign() -> None:
        with ProcessPool(testbed) as pool:
            pool.change([A, B, C])
            testbed.log.clear()
            raise StoreError("the disk is full")

    with pytest.raises(StoreError):
        campaign()
    assert [line.split()[0] for line in testbed.log] == ["leave"] * 3 + ["stop"] * 3
    assert sorted(testbed.did("leave")) == sorted(testbed.did("stop")) == names(A, B, C)


@pytest.mark.parametrize("broken", [(A,), (C,), (A, B, C)])
@pytest.mark.parametrize("error", [PartitionError("the daemon is gone"), KeyboardInterrupt()])
def test_all_are_stopped_when_the_stop_of_some_fails(
    broken: tuple[ProcessSpec, ...], error: BaseException
) -> None:
    """The error is told, and no job stays on the GPU because of another."""
    testbed = LoggingTestbed(fail("stop", *broken, error=error))
    pool = ProcessPool(testbed)
    pool.change([A, B, C])
    with pytest.raises(type(error)):
        pool.end([A, B, C])
    assert sorted(testbed.did("stop")) == names(A, B, C)
    assert pool.processes == {}


def test_end_stops_those_that_are_there() -> None:
    """A process that was lost before is no longer here to be ended."""
    testbed = LoggingTestbed()
    pool = ProcessPool(testbed)
    pool.change([A, B])
    pool.end([A, D])
    assert testbed.did("stop") == names(A)
    pool.end([A])
    assert testbed.did("stop") == names(A)
    assert pool.processes.keys() == {B}


def test_lost_client_is_stopped_and_its_reason_kept() -> None:
    """The windows that need it tell why they were not measured."""
    testbed = LoggingTestbed()
    pool = ProcessPool(testbed)
    pool.change([A, B])
    pool.lose(A, JobError("made no step"))
    assert {r: str(e) for r, e in pool.errors.items()} == {A: "made no step."}
    assert (testbed.did("stop"), list(pool.processes)) == (names(A), [B])


def test_dead_are_those_that_ended_without_being_asked() -> None:
    """A fault in a shared context takes neighbours down."""
    testbed = LoggingTestbed()
    pool = ProcessPool(testbed)
    pool.change([A, B, C])
    assert pool.dead() == []
    testbed.fault = fail("check", A, C, error=JobError("gone"))
    assert pool.dead() == [A, C]
    assert testbed.did("stop") == []
