"""Clients that stand ready: who is started, who is kept, and how they end."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from store_points import point

from advisor.core.gpu import Share
from advisor.core.job import Job, Progress
from advisor.errors import JobError, LimitNotProvenError, PartitionError, StoreError
from advisor_profiling.testbed.bench import Client
from advisor_profiling.testbed.crew import Crew
from advisor_profiling.testbed.replay import ReplayBench, ReplayClient
from advisor_profiling.window.targets import Runner

SHARES = (30.0, 50.0, 70.0, 100.0)
SOLO = [point(job=job, share_percent=share) for job in ("gemm", "sort") for share in SHARES]
GEMM, SORT = (ReplayBench(SOLO).jobs()[name] for name in ("gemm", "sort"))
FREE = replace(GEMM, progress=Progress(gate=False))
A, B, C, D = (Runner(GEMM, Share(share)) for share in SHARES)

Fault = Callable[[str, str], BaseException | None]


def no_fault(_act: str, _who: str) -> None:
    """Everything works."""


class LoggingBench(ReplayBench):
    """A replay that notes what its clients are told, and breaks them as a test says.

    Attributes:
        log: Such as "start gemm at 30 %"; begin and end of the quiet phase among them.
        fault: What is raised when a client does something; None: nothing.
        others: Done while windows of others are open.
    """

    def __init__(self, fault: Fault = no_fault) -> None:
        super().__init__(SOLO)
        self.log: list[str] = []
        self.fault = fault
        self.others: Callable[[], object] = lambda: None
        self.quiet = LoggingQuiet(self)
        self.ready_after_s = 0.0

    def prove(self, job: Job, share: Share) -> Callable[[], Client]:
        self.log.append(f"prove {job.name} at {share} %")
        if error := self.fault("prove", f"{job.name} at {share} %"):
            raise error
        return super().prove(job, share)

    def start(self, job: Job, share: Share) -> Client:
        client = LoggingClient(job, share, self, super().start(job, share).granted)
        client.note("start")
        return client

    def did(self, act: str) -> list[str]:
        """Who did it, in order."""
        return [who for found, _, who in (line.partition(" ") for line in self.log) if found == act]


class LoggingClient(ReplayClient):
    """Notes each step, and raises what the test wants."""

    def note(self, act: str) -> None:
        bench = self._bench
        assert isinstance(bench, LoggingBench)
        who = f"{self.job.name} at {self.share} %"
        bench.log.append(f"{act} {who}")
        if error := bench.fault(act, who):
            raise error

    def ready(self) -> bool:
        self.note("ready")
        bench = self._bench
        assert isinstance(bench, LoggingBench)
        return bench.clock.now_s() >= bench.ready_after_s

    def check(self) -> None:
        self.note("check")

    def check_limit(self) -> None:
        self.note("check_limit")

    def leave(self) -> None:
        self.note("leave")

    def stop(self) -> None:
        self.note("stop")
        super().stop()


class LoggingQuiet:
    """Notes when starts are allowed."""

    def __init__(self, bench: LoggingBench) -> None:
        self._bench = bench

    @contextmanager
    def starting(self) -> Generator[None]:
        self._bench.others()
        self._bench.log.append("begin")
        yield
        self._bench.log.append("end")

    @contextmanager
    def measuring(self) -> Generator[None]:
        raise AssertionError("a crew opens no window")
        yield


def fail(act: str, *whose: Runner, error: BaseException | None = None) -> Fault:
    """Faults of some clients at one act."""

    def fault(done: str, who: str) -> BaseException | None:
        if done != act or who not in names(*whose):
            return None
        return error or JobError(f"{who} broke")

    return fault


def names(*runners: Runner) -> list[str]:
    return [str(runner) for runner in runners]


def test_change_ends_the_unwanted_and_starts_the_missing_only() -> None:
    """A client that both blocks want stands at its gate all the while."""
    bench = LoggingBench()
    crew = Crew(bench)
    crew.change([A, B])
    kept = crew.clients[B]
    bench.log.clear()
    crew.change([B, C])
    assert (bench.did("stop"), bench.did("start")) == (names(A), names(C))
    assert crew.clients.keys() == {B, C}
    assert crew.clients[B] is kept
    assert crew.starts == 3


def test_all_starts_and_ends_are_kept_out_of_windows() -> None:
    """Room is made first; all limits are proven, all start, and only then is one waited for."""
    bench = LoggingBench()
    crew = Crew(bench)
    crew.change([A])
    bench.log.clear()
    crew.change([B, C])
    assert bench.log == ["begin", *(f"{act} {who}" for act, who in (
        ("leave", A), ("stop", A), ("prove", B), ("prove", C), ("start", B), ("start", C),
        ("ready", B), ("check_limit", B), ("ready", C), ("check_limit", C),
    )), "end"]  # fmt: skip


def test_nothing_changes_where_all_are_there() -> None:
    """The same clients are neither stopped nor started nor asked again."""
    bench = LoggingBench()
    crew = Crew(bench)
    crew.change([A, B])
    bench.log.clear()
    crew.change([B, A])
    assert bench.log == ["begin", "end"]


def test_change_waits_until_all_are_ready() -> None:
    """A client whose warm-up goes on is not let into a window."""
    bench = LoggingBench()
    bench.ready_after_s = 3.0
    Crew(bench).change([A, B])
    assert bench.clock.now_s() == pytest.approx(3.0, abs=0.1)
    assert bench.did("check_limit") == names(A, B)


def test_client_without_a_gate_is_never_kept() -> None:
    """It has run since its start; wanted again it is a new process."""
    bench, free = LoggingBench(), Runner(FREE, Share(30.0))
    crew = Crew(bench)
    crew.change([free, B])
    first = crew.clients[free]
    crew.change([free, B])
    assert crew.clients[free] is not first
    assert bench.did("stop") == names(free)
    assert crew.starts == 3


def test_same_job_and_share_of_twins_are_two_clients() -> None:
    """A job beside itself."""
    bench, twin = LoggingBench(), Runner(GEMM, Share(30.0), twin=1)
    crew = Crew(bench)
    crew.change([A, twin])
    assert crew.clients[A] is not crew.clients[twin]
    crew.change([A])
    assert crew.clients.keys() == {A}


@pytest.mark.parametrize("act", ["start", "ready", "check_limit"])
def test_error_is_kept_and_its_client_not_started_again(act: str) -> None:
    """Until the errors are cleared; the others are ready all the same."""
    bench = LoggingBench(fail(act, B))
    crew = Crew(bench)
    crew.change([A, B, C])
    assert crew.clients.keys() == {A, C}
    assert {r: str(e) for r, e in crew.errors.items()} == {B: f"{B} broke."}
    tried = bench.did("start").count(str(B))
    crew.change([A, B, C])
    assert bench.did("start").count(str(B)) == tried == 1
    bench.fault = no_fault
    crew.errors.clear()
    crew.change([A, B, C])
    assert crew.clients.keys() == {A, B, C}


def test_nothing_starts_where_one_limit_is_not_in_force() -> None:
    """The last of three is not under its share: no job runs half-limited, none at all."""
    bench = LoggingBench(fail("prove", C, error=LimitNotProvenError("all SMs were seen")))
    crew = Crew(bench)
    with pytest.raises(LimitNotProvenError):
        crew.change([A, B, C])
    assert bench.did("start") == []


def test_time_of_starts_and_of_waiting_is_told() -> None:
    """Three seconds for other GPUs, then five until the clients are ready."""
    bench = LoggingBench()
    bench.others = lambda: bench.clock.sleep(3.0)
    bench.ready_after_s = 8.0
    crew = Crew(bench)
    crew.change([A, B])
    assert crew.waiting_s == pytest.approx(3.0)
    assert crew.starting_s == pytest.approx(5.0, abs=0.1)


def test_client_that_could_not_start_counts_as_no_start() -> None:
    """The cost of a campaign counts processes."""
    crew = Crew(LoggingBench(fail("start", B)))
    crew.change([A, B])
    assert crew.starts == 1


@pytest.mark.parametrize("act", ["ready", "check_limit"])
def test_client_that_fails_while_it_starts_is_stopped(act: str) -> None:
    """It may still be starting, beside windows of others."""
    bench = LoggingBench(fail(act, B))
    Crew(bench).change([A, B])
    assert bench.did("stop") == names(B)
    assert bench.log.index(f"stop {B}") < bench.log.index("end")


def test_job_that_lifts_its_limit_is_ended_and_the_others_stay() -> None:
    """It never runs in a window; its reason is kept."""
    bench = LoggingBench(fail("check_limit", B, error=LimitNotProvenError("no limit")))
    with Crew(bench) as crew:
        crew.change([A, B, C])
        assert crew.clients.keys() == {A, C}
        assert isinstance(crew.errors[B], LimitNotProvenError)
        assert bench.did("stop") == names(B)


def test_all_are_asked_to_leave_before_the_first_is_waited_for() -> None:
    """Forty clients end in the time of one."""
    bench = LoggingBench()
    with Crew(bench) as crew:
        crew.change([A, B, C])
        bench.log.clear()
    assert [line.split()[0] for line in bench.log] == ["leave"] * 3 + ["stop"] * 3
    assert sorted(bench.did("leave")) == sorted(bench.did("stop")) == names(A, B, C)


@pytest.mark.parametrize("broken", [(A,), (B,), (C,), (A, B), (B, C), (A, B, C)])
@pytest.mark.parametrize("error", [PartitionError("the daemon is gone"), KeyboardInterrupt()])
def test_all_are_stopped_when_the_stop_of_some_fails(
    broken: tuple[Runner, ...], error: BaseException
) -> None:
    """The error is told, and no job stays on the GPU because of another."""
    bench = LoggingBench(fail("stop", *broken, error=error))
    crew = Crew(bench)
    crew.change([A, B, C])
    with pytest.raises(type(error)):
        crew.end([A, B, C])
    assert sorted(bench.did("stop")) == names(A, B, C)
    assert crew.clients == {}


def test_end_stops_those_that_are_there() -> None:
    """A client that was lost before is no longer here to be ended."""
    bench = LoggingBench()
    crew = Crew(bench)
    crew.change([A, B])
    crew.end([A, D])
    assert bench.did("stop") == names(A)
    crew.end([A])
    assert bench.did("stop") == names(A)
    assert crew.clients.keys() == {B}


def test_lost_client_is_stopped_and_its_reason_kept() -> None:
    """The windows that need it tell why they were not measured."""
    bench = LoggingBench()
    crew = Crew(bench)
    crew.change([A, B])
    crew.lose(A, JobError("made no step"))
    assert {r: str(e) for r, e in crew.errors.items()} == {A: "made no step."}
    assert (bench.did("stop"), list(crew.clients)) == (names(A), [B])


def test_dead_are_those_that_ended_without_being_asked() -> None:
    """A fault in a shared context takes neighbours down."""
    bench = LoggingBench()
    crew = Crew(bench)
    crew.change([A, B, C])
    assert crew.dead() == []
    bench.fault = fail("check", A, C)
    assert crew.dead() == [A, C]
    assert bench.did("stop") == []


def test_error_of_the_campaign_still_ends_the_clients() -> None:
    """Whatever happens between two blocks, no client is left."""
    bench = LoggingBench()

    def campaign() -> None:
        with Crew(bench) as crew:
            crew.change([A, B])
            raise StoreError("the disk is full")

    with pytest.raises(StoreError):
        campaign()
    assert sorted(bench.did("stop")) == names(A, B)
