"""A campaign of pairs: what runs next to what, what is kept, what happens when a job breaks."""

import itertools
import re
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from breakable_replay import BreakableProcess, BreakableTestbed
from hypothesis import example, given, strategies as st
from pair_points import pair_point
from planned import H200, jobs, kept, solo_point, windows
from store_points import point
from watching import Watching

from advisor.core.gpu import UNCAPPED, Share, Split
from advisor.core.job import Job, ProgressSettings
from advisor.core.records import Point, SoloPoint
from advisor.errors import AdvisorError, JobError, PartitionError
from advisor_data import open_store
from advisor_profiling.campaign.campaign import (
    MAX_FAILURES,
    Block,
    CampaignOutcome,
    RetryLimit,
    conditions_on,
    cut,
    measure_blocks,
)
from advisor_profiling.campaign.plan import left_to_measure
from advisor_profiling.testbed import ReplayProcess, ReplayTestbed
from advisor_profiling.window import Target, pair, rules_for, solo

SHARES = (10, 30, 50, 70, 90, 100)
SOLO = [
    point(job=job, share_percent=float(s), rate=s, power_w=200 + s, idle_power_w=75,
          active_idle_power_w=125, memory_used_mib=10)
    for job in ("gemm", "triad", "fft")
    for s in SHARES
]  # fmt: skip
SPLITS = ((30, 70), (50, 50), (70, 30), (100, 100))
PAIRS = [
    pair_point(float(a), float(b), job_1=first, job_2=second)
    for first, second in (("gemm", "triad"), ("fft", "gemm"), ("fft", "triad"), ("gemm", "gemm"))
    for a, b in (*SPLITS, (90, 10))
]


class SharedFaultTestbed(BreakableTestbed):
    """A replay whose server is in a fault from when a test says so until all processes ended."""

    in_fault = False

    def start(self, job: Job, share: Share) -> ReplayProcess:
        assert not self.spoiled()
        return super().start(job, share)

    def spoiled(self) -> bool:
        self.in_fault = self.in_fault and not all(process.ended for process in self.processes)
        return self.in_fault


JOBS = ReplayTestbed(SOLO).jobs


def targets_of(first: str, second: str) -> list[Target]:
    return [pair(JOBS[first], Share(a), JOBS[second], Share(b)) for a, b in SPLITS]


def block(*targets: Target) -> Block:
    return Block(tuple(dict.fromkeys(r for t in targets for r in t.specs)), targets)


def run(testbed: ReplayTestbed, folder: Path, *blocks: Block) -> tuple[CampaignOutcome, Watching]:
    """Measure blocks. Every process has ended then."""
    told = Watching()
    with open_store(None, folder) as store:
        conditions = conditions_on(testbed, "r9", rules_for(0.5))
        outcome = measure_blocks(blocks, conditions, testbed, store, told)
    assert all(process.ended for process in getattr(testbed, "processes", ()))
    return outcome, told


def good(folder: Path) -> set[tuple[str | float, ...]]:
    return {(*p.jobs, *p.shares_percent) for p in kept(folder) if not p.error}


def test_recorded_pairs_come_back(tmp_path: Path) -> None:
    outcome, _ = run(ReplayTestbed(SOLO, PAIRS), tmp_path, block(*targets_of("gemm", "triad")))
    found = {p.shares_percent: p for p in kept(tmp_path)}
    assert set(found) == set(SPLITS)
    cost = outcome.cost
    assert 0 < cost.window_s < cost.measuring_s <= cost.duration_s
    assert cost.window_s == pytest.approx(sum(p.window_s for p in found.values()))
    for (a, b), now in found.items():
        measured = (*(part.rate for part in now.parts), now.power_w)
        assert measured == pytest.approx((a, 10 * b, 500), rel=0.01)
        assert (now.mode, now.source, now.run, now.idle_power_w, now.active_idle_power_w) == (
            "uncapped" if a == 100 else "mps", "replay", "r9",
            pytest.approx(75), pytest.approx(125),
        )  # fmt: skip


def test_clients_of_a_block_are_started_once(tmp_path: Path) -> None:
    """Four splits of three pairs and three jobs alone need twelve processes, not thirty."""
    targets = [t for a, b in (("gemm", "triad"), ("fft", "gemm"), ("fft", "triad"))
               for t in targets_of(a, b)]  # fmt: skip
    alone = [solo(JOBS[job], Share(100)) for job in ("fft", "gemm", "triad")]
    testbed = BreakableTestbed(SOLO, PAIRS)
    outcome, told = run(testbed, tmp_path, block(*targets, *alone))
    assert (outcome.cost.starts, len(testbed.processes)) == (12, 12)
    assert sum(isinstance(p, SoloPoint) for p in outcome.points) == 3
    assert [done for _, done, _, _ in told.points] == list(range(1, 16))
    # Jobs of a window have cores of their own.
    slots = {name: {s for c in testbed.processes if c.job.name == name for s in c.slots}
             for name in JOBS}  # fmt: skip
    assert slots == {"gemm": {0, 1}, "fft": {0}, "triad": {0, 1}}


@pytest.mark.parametrize("at", ["ready", "check"])
def test_job_that_breaks_once_is_measured_again_alone(tmp_path: Path, at: str) -> None:
    """One bad moment costs no point: the window is taken again at the end."""

    def once(process: BreakableProcess, where: str) -> AdvisorError | None:
        if where != at or (at == "check" and not testbed.playing()):
            return None
        first = next(c for c in testbed.processes if c.share.percent == 30)
        return JobError("ended") if process is first else None

    testbed = BreakableTestbed(SOLO, PAIRS, once)
    outcome, told = run(testbed, tmp_path, block(*targets_of("gemm", "triad")))
    assert (len(good(tmp_path)), outcome.failures, told.failures) == (4, (), [])


def test_failed_window_marks_its_point_and_costs_no_other(tmp_path: Path) -> None:
    """The reason and the last line of the job's output are published, without paths."""

    def bad(process: BreakableProcess, where: str) -> AdvisorError | None:
        fix = "its output is in /home/me/output.log; the end of it:\nTraceback\nKeyError: 'x'"
        wrong = process.job_at_share == ("gemm", 30) and where == "ready"
        return JobError("gemm ended with exit code 1", fix=fix) if wrong else None

    testbed = BreakableTestbed(SOLO, PAIRS, bad)
    outcome, told = run(testbed, tmp_path, block(*targets_of("gemm", "triad")))
    assert told.failures == list(outcome.failures)
    found = {p.shares_percent[0]: (p.error, p.flags) for p in kept(tmp_path)}
    assert found.pop(30) == ("gemm ended with exit code 1; KeyError: 'x'", ("failed",))
    assert found == dict.fromkeys((50, 70, 100), (None, ("counters-missing",)))


def test_shared_fault_is_outlived(tmp_path: Path) -> None:
    """A process that takes all its neighbours down costs the windows of its job alone."""

    def faulty(process: BreakableProcess, where: str) -> AdvisorError | None:
        running = testbed.playing()
        # A process at its gate learns of it at its next call to the driver, when it runs.
        looks = where == "check" and process in running
        testbed.in_fault |= looks and "fft" in [c.job_at_share[0] for c in running]
        return JobError("a process faulted") if testbed.in_fault and looks else None

    testbed = SharedFaultTestbed(SOLO, PAIRS, faulty)
    targets = [
        *targets_of("fft", "gemm"),
        *targets_of("gemm", "triad"),
        *targets_of("fft", "triad"),
    ]
    outcome, _ = run(testbed, tmp_path, block(*targets))
    assert [key[:2] for key in good(tmp_path)] == [("gemm", "triad")] * 4
    assert len(outcome.failures) == 8
    assert outcome.cost.starts <= 5 * 12


def test_dead_daemon_ends_the_campaign_and_keeps_what_was_good(tmp_path: Path) -> None:
    """The window that may have run without its limits is not kept."""
    testbed, lives = BreakableTestbed(SOLO, PAIRS), iter((True, True, False))

    def dies_later() -> None:
        if not next(lives):
            raise PartitionError("no MPS daemon answers")

    testbed.alive = dies_later
    with pytest.raises(PartitionError):
        run(testbed, tmp_path, block(*targets_of("gemm", "triad")))
    assert len(good(tmp_path)) == 2
    assert all(process.ended for process in testbed.processes)


def test_starved_job_marks_the_point(tmp_path: Path) -> None:
    """A partner that makes no step within the longest window has no rate."""
    starved = [pair_point(30, 70, rate_2=0.0), *PAIRS[1:]]
    outcome, _ = run(ReplayTestbed(SOLO, starved), tmp_path, block(*targets_of("gemm", "triad")))
    (failure,) = outcome.failures
    assert re.search(
        "triad at 70 % made fewer than two steps.*starved by the job", str(failure.cause)
    )
    assert len(good(tmp_path)) == 3


def test_clients_start_and_windows_open_in_phases_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over all GPUs of a host: no start in an open window, no window while something starts.

    Processes that two blocks share stay: a start costs more than a wait at the gate.
    """
    log: list[str] = []

    def write(process: BreakableProcess, where: str) -> None:
        if where == "ready" or (where == "check" and testbed.playing()):
            log.append(where)

    @contextmanager
    def phase(begins: str, ended: str) -> Generator[None]:
        log.append(begins)
        yield
        log.append(ended)

    testbed = BreakableTestbed(SOLO, PAIRS, write)
    starting, measuring = (partial(phase, f"{a}ing", f"{a}ed") for a in ("start", "measur"))
    quiet = SimpleNamespace(starting=starting, measuring=measuring)
    monkeypatch.setattr(testbed, "phase_lock", quiet)
    blocks = block(*targets_of("gemm", "triad")), block(*targets_of("fft", "gemm"))
    outcome, _ = run(testbed, tmp_path, *blocks)
    assert outcome.cost.starts == 12
    phases = [key for key, _ in itertools.groupby(log)]
    assert phases == 2 * ["starting", "ready", "started", "measuring", "check", "measured"]


def test_window_in_whose_last_moment_a_job_ends_is_not_kept(tmp_path: Path) -> None:
    """The rate of its partner would hold time alone."""
    target = targets_of("gemm", "triad")[0]

    def ends_late(process: BreakableProcess, where: str) -> AdvisorError | None:
        late = where == "check" and process.share.percent == 30 and testbed.clock.now_s() > ends_s
        return JobError("ended") if late and testbed.playing() else None

    ends_s = float("inf")
    testbed = BreakableTestbed(SOLO, PAIRS, ends_late)
    run(testbed, tmp_path / "whole", block(target))
    ends_s = 2 * testbed.clock.now_s() - 0.01  # the same again, less its last moment
    again, _ = run(testbed, tmp_path, block(target))
    assert (len(good(tmp_path)), len(again.failures)) == (0, 1)


@pytest.mark.parametrize("where", ["ready", "check"])
def test_window_is_tried_again_until_three_failed_in_a_row(tmp_path: Path, where: str) -> None:
    """A retry that fails is one failure, whether its jobs started or not."""

    def breaks(process: BreakableProcess, asked: str) -> AdvisorError | None:
        limited = process.job_at_share[0] == "gemm" and process.share.percent < 100
        now = asked == where and (where == "ready" or process in testbed.playing())
        return JobError("it broke") if limited and now else None

    testbed = BreakableTestbed(SOLO, PAIRS, breaks)
    gemm, triad = JOBS["gemm"], JOBS["triad"]
    targets = [
        target
        for number, share in enumerate((30, 50, 70, 90))
        for target in (
            pair(gemm, Share(share), triad, Share(100 - share)),
            pair(gemm, Share(100), triad, Share(100), number),
        )
    ]
    outcome, _ = run(testbed, tmp_path, block(*targets))
    assert len(outcome.failures) == len(outcome.points) == 4
    limited = [p for p in testbed.processes if p.job.name == "gemm" and p.share.percent < 100]
    tries = Counter(p.share.percent for p in limited if where == "ready" or p.slots)
    assert sorted(tries.values()) == [1, 2, 2, 2]


some_jobs = st.sampled_from([("a",), ("b",), ("a", "a"), ("a", "b"), ("a", "c"), ("b", "c")])

A_FAILED = "a failed 3 times in a row before"


def after(*failed: tuple[str, ...]) -> RetryLimit:
    retry_limit = RetryLimit()
    for names in failed:
        retry_limit.failed(names)
    return retry_limit


@pytest.mark.parametrize(
    ("failed", "verdict", "given_up", "goes_on"),
    [
        # Nobody else can have been at fault; its pairs are not tried either.
        (["a", "a", "a"], A_FAILED, ["a", "ab"], ["bc"]),
        # It is what their windows have in common.
        (["ab", "ac", "ad"], A_FAILED, ["ae"], ["bc"]),
        # Beside itself it is one job, whose failure is one failure.
        (["aa", "ab", "ac"], A_FAILED, ["ad"], []),
        (["aa", "ab"], "", [], ["ac"]),
        (["aa", "a"], "", [], ["a"]),
        # Which of two is at fault is not known, so each goes on next to others.
        (
            ["ab", "ab", "ab"],
            "a with b failed 3 times in a row before",
            ["ab"],
            ["a", "b", "ac", "bc", "aa"],
        ),
        # Beside itself a job may lack memory that it has next to others.
        (["aa", "aa", "aa"], "a with a failed 3 times in a row before", ["aa"], ["ab"]),
        # Its neighbours failed next to it and nobody else.
        (
            [f"x{other}" for other in "abc" for _ in range(MAX_FAILURES)],
            "x failed 9 times in a row before",
            ["xd"],
            ["ab", "ac", "bc", "a"],
        ),
        # Of three or more it is the one that all failed sets have in common.
        (["abc", "ade", "afg"], A_FAILED, ["a", "ax"], ["bde", "cfg"]),
        # As far as anybody knows either of two.
        (["abc", "abd", "abe"], "", [], ["abf", "acd", "bcd"]),
        (["abc", "abc", "abc"], "a with b with c failed 3 times in a row before", ["abc"], ["ab"]),
        # Beside itself and a third one, it is the one that fails with others, too.
        (["aab", "aac", "aad"], "", [], ["aae", "ab"]),
        (["aab", "aac", "ad"], A_FAILED, ["ae"], ["bcd"]),
    ],
)
def test_those_that_failed_alone_or_beside_several_are_given_up(
    failed: list[str], verdict: str, given_up: list[str], goes_on: list[str]
) -> None:
    """And pairs that failed; a letter is a job."""
    retry_limit = after(*map(tuple, failed))
    assert all(retry_limit.verdict(tuple(names)) == verdict for names in given_up)
    assert all(retry_limit.verdict(tuple(names)) is None for names in goes_on)


@pytest.mark.parametrize(
    ("acts", "of", "verdict"),
    [
        ("-ab -ac +a -ad", "ae", False),
        ("-ab -ac +ab -ad", "ae", False),
        ("-ab -ab -ab +ac +bc", "ab", True),
        ("-ab -ab -ab +ac +bc", "ad", False),
        ("-ab -ab -ab +ac +bc +ab -ab", "ab", False),
    ],
)
def test_window_that_worked_clears_its_jobs(acts: str, of: str, verdict: bool) -> None:
    """Failures count in a row only; a pair is cleared by itself alone."""
    retry_limit = RetryLimit()
    for act in acts.split():
        (retry_limit.worked if act[0] == "+" else retry_limit.failed)(tuple(act[1:]))
    assert (retry_limit.verdict(tuple(of)) is not None) is verdict


@given(st.lists(some_jobs), some_jobs)
def test_nothing_is_given_up_before_it_failed_often_enough(
    failed: list[tuple[str, ...]], asked: tuple[str, ...]
) -> None:
    verdict = after(*failed).verdict(asked)
    most = max(sum(job in names for names in failed) for job in asked)
    if verdict is not None:
        assert most >= MAX_FAILURES
        assert int(verdict.split(" failed ")[1].split()[0]) <= most
    assert (verdict is not None) or failed.count(asked) < MAX_FAILURES


HERE, THERE = "GPU-1", "GPU-2"
FULL = Share(100.0)
CAPPED = (Split((30.0, 70.0)), Split((50.0, 50.0)), UNCAPPED)
GEMM, SORT, SPMV = jobs(("gemm", "sort", "spmv")).values()
BLOCKS = cut(windows((GEMM, SORT, SPMV), CAPPED), 8, None, "night")
PLAN = [target for block in BLOCKS for target in block.targets]


def answer(target: Target, card: str = HERE, mode: str = "", **fields: Any) -> Point:
    """The point that measuring a target under MPS gives."""
    first, *others = target.specs
    full = all(spec.share == FULL for spec in target.specs)
    values: dict[str, Any] = {
        "gpu_uuid": card,
        "mode": mode or ("uncapped" if full and others else "mps"),
        "repeat": target.repeat,
        "run": "night",
    }
    if not others:
        values |= {"job_hash": first.job.job_hash, "share_percent": first.share.percent}
        return solo_point(first.job.name, **{**values, **fields})
    for side, spec in zip("12", target.specs, strict=True):
        values |= {f"job_{side}": spec.job.name, f"job_{side}_hash": spec.job.job_hash}
    return pair_point(*(spec.share.percent for spec in target.specs), **{**values, **fields})


def left(blocks: Sequence[Block], points: Sequence[Point], mode: str = "mps") -> list[Block]:
    return left_to_measure(blocks, points, H200, mode)


def targets(blocks: Sequence[Block]) -> list[Target]:
    return [target for block in blocks for target in block.targets]


def of_pair(*names: str) -> list[Target]:
    return [target for target in PLAN if target.jobs == names]


LIMITED = pair(GEMM, Share(30.0), SORT, Share(70.0))
UNLIMITED = pair(GEMM, FULL, SORT, FULL)
OTHER_UNIT = ProgressSettings(gate=True, unit="tiles")


@pytest.mark.parametrize(
    ("target", "fields"),
    [
        (LIMITED, {"job_1_hash": "0" * 16}),
        (LIMITED, {"job_2_hash": None}),
        (LIMITED, {"mode": "cu_mask"}),
        (LIMITED, {"repeat": 1}),
        (LIMITED, {"gpu_model": "NVIDIA H100"}),
        (LIMITED, {"share_1_percent": 70.0, "share_2_percent": 30.0}),
        (LIMITED, {"flags": ("failed",), "rate_1": None, "rate_2": None}),
        (pair(GEMM, Share(50.0), GEMM, Share(50.0)), {"repeat": 1}),
        (UNLIMITED, {"mode": "mps"}),
        (UNLIMITED, {"mode": "time-sliced"}),
        (solo(GEMM, FULL), {"job_hash": replace(GEMM, command=("gemm", "--large")).job_hash}),
        (solo(GEMM, FULL), {"job_hash": replace(GEMM, progress=OTHER_UNIT).job_hash}),
        (solo(GEMM, FULL), {"mode": "uncapped"}),
        (solo(GEMM, FULL), {"repeat": 1}),
        (solo(GEMM, FULL), {"share_percent": 90.0}),
    ],
)
def test_point_of_something_else_is_no_answer(target: Target, fields: dict[str, Any]) -> None:
    """Another job behind the name, another way of sharing, another repeat, or a failure."""
    blocks = [Block(target.specs, (target,))]
    assert left(blocks, [answer(target, **fields)]) == blocks
    assert left(blocks, [answer(target, **fields), answer(target)]) == []


@pytest.mark.parametrize(
    ("target", "mode", "fields"),
    [
        (LIMITED, "mps", {"flags": ("not-settled",)}),
        (UNLIMITED, "uncapped", {"mode": "time-sliced"}),
        (solo(GEMM, FULL), "mps", {"job_hash": replace(GEMM, start_timeout_s=600.0).job_hash}),
    ],
)
def test_doubtful_point_is_an_answer(target: Target, mode: str, fields: dict[str, Any]) -> None:
    """It stays in the data with its flag; measuring it again and again would not end."""
    assert left([Block(target.specs, (target,))], [answer(target, **fields)], mode) == []
    assert mode == "mps" or left([Block(target.specs, (target,))], [answer(target)], mode)


@pytest.mark.parametrize(
    ("here", "there", "rest"),
    [
        ((), (), (0, 1, 2, 3)),
        ((2,), (), (0, 1, 3)),
        # Speeds are relative to the rate alone on the card that the pair is measured on.
        ((), (2,), (0, 1, 2, 3)),
        ((1,), (2,), (0, 2, 3)),
        # A block that another card finished is not opened here for the windows alone.
        ((), (0, 1, 2, 3), ()),
        # The pairs are done, and their speeds still lack what they are relative to.
        ((), (0, 1), (2, 3)),
    ],
)
def test_references_are_measured_where_their_pairs_are(
    here: tuple[int, ...], there: tuple[int, ...], rest: tuple[int, ...]
) -> None:
    """Two pairs and the two jobs alone, by their number in the block."""
    windows = (UNLIMITED, LIMITED, solo(GEMM, FULL, repeat=3), solo(SORT, FULL, repeat=3))
    known = [*(answer(windows[n]) for n in here), *(answer(windows[n], THERE) for n in there)]
    assert targets(left([Block(UNLIMITED.specs, windows)], known)) == [windows[n] for n in rest]


@given(done=st.sets(st.sampled_from(PLAN)))
@example(done=set())
@example(done=set(PLAN))
def test_measured_and_left_are_the_plan(done: set[Target]) -> None:
    """Wherever a campaign was killed, nothing is lost and nothing is measured twice."""
    assert len(BLOCKS) > 1
    rest = left(BLOCKS, [answer(target) for target in done])
    assert targets(rest) == [target for target in PLAN if target not in done]
    assert all(set(b.specs) == {r for target in b.targets for r in target.specs} for b in rest)


@given(here=st.sets(st.sampled_from(PLAN)), there=st.sets(st.sampled_from(PLAN)))
def test_all_splits_of_a_pair_come_to_be_on_one_card(here: set[Target], there: set[Target]) -> None:
    """A pair that the other card has whole is done; of others what this one has counts alone."""
    points = [*(answer(t) for t in here), *(answer(t, THERE) for t in there)]
    rest = set(targets(left(BLOCKS, points)))
    assert not rest & here
    for names in {target.jobs for target in PLAN if len(target.specs) == 2}:
        wanted = set(of_pair(*names))
        assert wanted & rest == (set() if wanted <= there else wanted - here)
    assert set(PLAN) <= here | there | rest


def test_pair_is_whole_on_another_card_only_with_its_time_sliced_window() -> None:
    """With and without limits a pair is compared as well, so both come from one card."""
    blocks = cut(of_pair("gemm", "sort"), 8, None, "night", alone=False)
    limited = [answer(target, THERE) for target in of_pair("gemm", "sort")]
    beside = [("uncapped", UNLIMITED)]
    assert left_to_measure(blocks, limited, H200, "mps", beside) == blocks
    whole = [*limited, answer(UNLIMITED, THERE, "time-sliced")]
    assert left_to_measure(blocks, whole, H200, "mps", beside) == []
