"""A campaign of pairs: what runs beside what, what is kept, what happens when a job breaks."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pair_points import pair_point
from store_points import point
from watching import Watching

from advisor.errors import AdvisorError, JobError, PartitionError
from advisor.gpu import Share
from advisor.job import Job
from advisor.records import PairPoint, SoloPoint
from advisor_data.file_store import FileStore
from advisor_profiling.bench import Client
from advisor_profiling.blocks import Block
from advisor_profiling.campaign import Outcome, conditions_on, measure_blocks
from advisor_profiling.replay import ReplayBench, ReplayClient
from advisor_profiling.targets import Runner, Target, pair, solo
from advisor_profiling.window import rules_for

SHARES = (30, 50, 70, 100)
SOLO = [
    point(job=job, share_percent=float(s), rate=s, power_w=200 + s, idle_power_w=75,
          memory_used_mib=10)
    for job in ("gemm", "triad", "fft")
    for s in SHARES
]  # fmt: skip
SPLITS = ((30, 70), (50, 50), (70, 30), (100, 100))
PAIRS = [
    pair_point(float(a), float(b), job_a=first, job_b=second)
    for first, second in (("gemm", "triad"), ("fft", "gemm"), ("fft", "triad"), ("gemm", "gemm"))
    for a, b in SPLITS
]

Fault = Callable[["BreakableClient", str], AdvisorError | None]


class BreakableClient(ReplayClient):
    """A client that asks the test at each step whether it breaks; a broken one stays so."""

    ended = False
    broken: AdvisorError | None = None

    def check(self) -> None:
        self._ask("check")

    def ready(self) -> bool:
        self._ask("ready")
        return True

    def go(self, seat: int = 0) -> None:
        assert not self.ended
        super().go(seat)

    def stop(self) -> None:
        self.ended = True
        super().stop()

    def _ask(self, where: str) -> None:
        bench = self._bench
        assert isinstance(bench, BreakableBench)
        self.broken = self.broken or bench.fault(self, where)
        if self.broken:
            raise self.broken


class BreakableBench(ReplayBench):
    """A replay whose clients break as a test says."""

    def __init__(self, fault: Fault = lambda _client, _where: None) -> None:
        super().__init__(SOLO, PAIRS)
        self.fault = fault
        self.clients: list[BreakableClient] = []
        self.alive: Callable[[], None] = lambda: None

    def start(self, job: Job, share: Share) -> Client:
        client = super().start(job, share)
        self.clients.append(BreakableClient(job, share, self, client.granted))
        return self.clients[-1]

    def check_alive(self) -> None:
        self.alive()

    def playing(self) -> list[BreakableClient]:
        """Clients that run now."""
        return [c for c in self.clients if c in self._playing]


JOBS = ReplayBench(SOLO).jobs()


def targets_of(first: str, second: str) -> list[Target]:
    return [pair(JOBS[first], Share(a), JOBS[second], Share(b)) for a, b in SPLITS]


def block(*targets: Target) -> Block:
    return Block(tuple(dict.fromkeys(r for t in targets for r in t.runners)), targets)


def run(bench: ReplayBench, folder: Path, *blocks: Block) -> tuple[Outcome, Watching]:
    told = Watching()
    with FileStore(folder) as store:
        conditions = conditions_on(bench, "r9", rules_for(0.5))
        return measure_blocks(blocks, conditions, bench, store, told), told


def kept(folder: Path) -> list[PairPoint]:
    with FileStore(folder) as store:
        return store.pair_points()


def good(folder: Path) -> set[tuple[str, str, float, float]]:
    return {(*p.pair, p.share_a_percent, p.share_b_percent) for p in kept(folder) if not p.error}


def test_recorded_pairs_come_back(tmp_path: Path) -> None:
    """Both rates, the power of both and the way of sharing are those of the recorded split."""
    run(ReplayBench(SOLO, PAIRS), tmp_path, block(*targets_of("gemm", "triad")))
    found = {(p.share_a_percent, p.share_b_percent): p for p in kept(tmp_path)}
    assert set(found) == set(SPLITS)
    for (a, b), now in found.items():
        assert (now.rate_a, now.rate_b) == (pytest.approx(a, 0.01), pytest.approx(10 * b, 0.01))
        assert now.power_w == pytest.approx(500, rel=0.01)
        assert now.mode == ("uncapped" if a == 100 else "mps")
        assert (now.source, now.run, now.idle_power_w) == ("replay", "r9", pytest.approx(75))


def test_clients_of_a_block_are_started_once(tmp_path: Path) -> None:
    """Four splits of three pairs and three jobs alone need twelve clients, not thirty."""
    targets = [t for a, b in (("gemm", "triad"), ("fft", "gemm"), ("fft", "triad"))
               for t in targets_of(a, b)]  # fmt: skip
    alone = [solo(JOBS[job], Share(100)) for job in ("fft", "gemm", "triad")]
    bench = BreakableBench()
    outcome, told = run(bench, tmp_path, block(*targets, *alone))
    assert (outcome.cost.starts, len(bench.clients)) == (12, 12)
    assert len(outcome.points) == 15
    assert sum(isinstance(p, SoloPoint) for p in outcome.points) == 3
    assert all(client.ended for client in bench.clients)
    assert [done for _, done, _, _ in told.points] == list(range(1, 16))


def test_clients_that_two_blocks_share_stay(tmp_path: Path) -> None:
    """A start costs more than a wait at the gate."""
    bench = BreakableBench()
    outcome, _ = run(
        bench, tmp_path, block(*targets_of("gemm", "triad")), block(*targets_of("fft", "gemm"))
    )
    assert outcome.cost.starts == 12
    assert len(outcome.points) == 8


def test_job_beside_itself_is_two_clients(tmp_path: Path) -> None:
    """At 50/50 the twins are two processes with the same share."""
    bench = BreakableBench()
    targets = [pair(JOBS["gemm"], Share(a), JOBS["gemm"], Share(b)) for a, b in SPLITS]
    run(bench, tmp_path, block(*dict.fromkeys(targets)))
    assert good(tmp_path) == {
        ("gemm", "gemm", 30, 70), ("gemm", "gemm", 50, 50), ("gemm", "gemm", 100, 100)
    }  # fmt: skip
    assert sorted(c.share.percent for c in bench.clients) == [30, 50, 50, 70, 100, 100]


def test_time_in_windows_is_told(tmp_path: Path) -> None:
    """What a campaign cost is measured, not assumed."""
    outcome, _ = run(ReplayBench(SOLO, PAIRS), tmp_path, block(*targets_of("gemm", "triad")))
    cost = outcome.cost
    assert 0 < cost.window_s < cost.measuring_s <= cost.duration_s
    assert cost.window_s == pytest.approx(sum(p.window_s for p in kept(tmp_path)))


def test_job_that_breaks_in_a_window_is_measured_again_alone(tmp_path: Path) -> None:
    """One bad moment costs no point: the window is taken again at the end."""

    def once(client: BreakableClient, where: str) -> AdvisorError | None:
        first = client is next(c for c in bench.clients if c.share.percent == 30)
        return JobError("ended") if first and where == "check" and bench.playing() else None

    bench = BreakableBench(once)
    outcome, told = run(bench, tmp_path, block(*targets_of("gemm", "triad")))
    assert (len(good(tmp_path)), outcome.failures, told.failures) == (4, (), [])
    assert all(client.ended for client in bench.clients)


def test_failed_window_marks_its_point_and_costs_no_other(tmp_path: Path) -> None:
    """Gemm at 30 % never works: its split has a marked point, the others are measured."""

    def bad(client: BreakableClient, where: str) -> AdvisorError | None:
        wrong = client.seat == ("gemm", 30) and where == "ready"
        return JobError("out of memory") if wrong else None

    bench = BreakableBench(bad)
    outcome, told = run(bench, tmp_path, block(*targets_of("gemm", "triad")))
    assert {key[2:] for key in good(tmp_path)} == {(50, 50), (70, 30), (100, 100)}
    (marked,) = (p for p in kept(tmp_path) if p.error)
    assert (marked.share_a_percent, marked.flags, marked.rate_a) == (30, ("failed",), None)
    assert marked.error == "out of memory."
    assert told.failures == list(outcome.failures)


def test_shared_fault_is_outlived(tmp_path: Path) -> None:
    """A client that takes all its neighbours down costs the windows of its job alone."""

    def faulty(client: BreakableClient, where: str) -> AdvisorError | None:
        running = [c.seat[0] for c in bench.playing()]
        if where == "check" and "fft" in running:
            for other in bench.clients:
                other.broken = JobError("a client faulted")
            return JobError("a client faulted")
        return None

    bench = BreakableBench(faulty)
    targets = [
        *targets_of("fft", "gemm"),
        *targets_of("gemm", "triad"),
        *targets_of("fft", "triad"),
    ]
    outcome, _ = run(bench, tmp_path, block(*targets))
    assert {key[:2] for key in good(tmp_path)} == {("gemm", "triad")}
    assert len(good(tmp_path)) == 4
    assert len(outcome.failures) == 8
    assert outcome.cost.starts < 60


def test_dead_daemon_ends_the_campaign_and_keeps_what_was_good(tmp_path: Path) -> None:
    """The window that may have run without its limits is not kept."""
    bench, looks = BreakableBench(), list[int]()

    def dies_later() -> None:
        looks.append(1)
        if len(looks) == 3:
            raise PartitionError("no MPS daemon answers")

    bench.alive = dies_later
    with pytest.raises(PartitionError):
        run(bench, tmp_path, block(*targets_of("gemm", "triad")))
    assert len(good(tmp_path)) == 2
    assert all(client.ended for client in bench.clients)


def test_starved_job_marks_the_point(tmp_path: Path) -> None:
    """A partner that makes no step within the longest window has no rate."""
    starved = [pair_point(30, 70, rate_b=0.0), *PAIRS[1:]]
    outcome, _ = run(ReplayBench(SOLO, starved), tmp_path, block(*targets_of("gemm", "triad")))
    (failure,) = outcome.failures
    assert "triad at 70 % made fewer than two steps" in failure.error
    assert "starved by the job beside it" in failure.error
    assert len(good(tmp_path)) == 3


def test_runner_without_gate_is_not_kept_between_blocks(tmp_path: Path) -> None:
    """It has run since its start, so it must not stand beside the next window."""
    free = Job(name="gemm", command=("x",))
    first = Block((Runner(free, Share(50)),), (solo(free, Share(50)),))
    second = Block((Runner(free, Share(50)),), (solo(free, Share(50), repeat=1),))
    bench = BreakableBench()
    outcome, _ = run(bench, tmp_path, first, second)
    assert (outcome.cost.starts, len(outcome.points)) == (2, 2)
