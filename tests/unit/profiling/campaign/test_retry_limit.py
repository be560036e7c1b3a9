"""When a campaign stops spending windows on what fails again and again."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pair_points import pair_point
from store_points import point
from watching import Watching

from advisor.core.gpu import Share
from advisor.core.job import Job
from advisor.errors import JobError
from advisor_data.store.file_store import FileStore
from advisor_profiling.campaign.blocks import Block
from advisor_profiling.campaign.campaign import conditions_on, measure_blocks
from advisor_profiling.campaign.retry_limit import MAX_FAILURES, RetryLimit
from advisor_profiling.testbed.replay import ReplayProcess, ReplayTestbed
from advisor_profiling.testbed.testbed import WarmProcess
from advisor_profiling.window.rules import rules_for
from advisor_profiling.window.targets import Target, pair

jobs = st.sampled_from([("a",), ("b",), ("a", "a"), ("a", "b"), ("a", "c"), ("b", "c")])


def after(*failed: tuple[str, ...]) -> RetryLimit:
    """The patience left after windows of these jobs failed one after the other."""
    retry_limit = RetryLimit()
    for names in failed:
        retry_limit.failed(names)
    return retry_limit


def test_at_first_everything_is_tried() -> None:
    """Nobody is judged before a window."""
    assert RetryLimit().verdict(("a", "b")) is None
    assert RetryLimit().verdict(("a",)) is None


def test_job_that_fails_alone_is_given_up() -> None:
    """Nobody else can have been at fault; its pairs are not tried either."""
    retry_limit = after(("a",), ("a",), ("a",))
    assert retry_limit.verdict(("a",)) == "a failed 3 times in a row before"
    assert retry_limit.verdict(("a", "b")) == "a failed 3 times in a row before"
    assert retry_limit.verdict(("b", "c")) is None


def test_two_failures_are_not_enough() -> None:
    """A bad moment, and a second one, are outlived."""
    for names in (("a",), ("a", "b"), ("a", "a")):
        assert after(*[names] * (MAX_FAILURES - 1)).verdict(names) is None


def test_job_that_fails_beside_several_is_given_up() -> None:
    """It is what their windows have in common."""
    retry_limit = after(("a", "b"), ("a", "c"), ("a", "d"))
    assert retry_limit.verdict(("a", "e")) == "a failed 3 times in a row before"
    assert retry_limit.verdict(("b", "c")) is None


def test_pair_that_fails_is_given_up_without_a_verdict_on_its_jobs() -> None:
    """Which of the two is at fault is not known, so each goes on next to others."""
    retry_limit = after(("a", "b"), ("a", "b"), ("a", "b"))
    assert retry_limit.verdict(("a", "b")) == "a with b failed 3 times in a row before"
    for names in (("a",), ("b",), ("a", "c"), ("b", "c"), ("a", "a")):
        assert retry_limit.verdict(names) is None


def test_faulty_job_does_not_condemn_its_neighbours() -> None:
    """They failed next to it and nobody else."""
    retry_limit = after(*[("bad", name) for name in "abc" for _ in range(MAX_FAILURES)])
    assert retry_limit.verdict(("bad", "d")) is not None
    for names in (("a", "b"), ("a", "c"), ("b", "c"), ("a",)):
        assert retry_limit.verdict(names) is None


def test_job_beside_itself_fails_once_for_each_window() -> None:
    """A pair of twins is one job, and its failure is one failure."""
    assert after(("a", "a"), ("a", "b")).verdict(("a", "c")) is None
    assert after(("a", "a"), ("a",)).verdict(("a",)) is None
    retry_limit = after(("a", "a"), ("a", "b"), ("a", "c"))
    assert retry_limit.verdict(("a", "d")) == "a failed 3 times in a row before"


def test_twins_that_fail_are_given_up_as_a_pair() -> None:
    """Beside itself a job may lack memory that it has next to others."""
    retry_limit = after(*[("a", "a")] * 3)
    assert retry_limit.verdict(("a", "a")) == "a with a failed 3 times in a row before"
    assert retry_limit.verdict(("a", "b")) is None


@pytest.mark.parametrize("worked", [("a",), ("a", "b")])
def test_window_that_worked_clears_its_jobs(worked: tuple[str, ...]) -> None:
    """Failures count in a row only."""
    retry_limit = after(("a", "b"), ("a", "c"))
    retry_limit.worked(worked)
    retry_limit.failed(("a", "d"))
    assert retry_limit.verdict(("a", "e")) is None


def test_job_that_works_elsewhere_does_not_clear_its_pair() -> None:
    """That the two fail together is no contradiction to each working with others."""
    retry_limit = after(*[("a", "b")] * 3)
    retry_limit.worked(("a", "c"))
    retry_limit.worked(("b", "c"))
    assert retry_limit.verdict(("a", "b")) is not None
    assert retry_limit.verdict(("a", "d")) is None


def test_pair_that_worked_is_cleared() -> None:
    """Three failures over a whole night are not three in a row."""
    retry_limit = after(("a", "b"), ("a", "b"))
    retry_limit.worked(("a", "b"))
    retry_limit.failed(("a", "b"))
    assert retry_limit.verdict(("a", "b")) is None


@given(st.lists(jobs), jobs)
def test_nothing_is_given_up_before_it_failed_often_enough(
    failed: list[tuple[str, ...]], asked: tuple[str, ...]
) -> None:
    """A verdict needs three failed windows of one of its jobs, and tells their number."""
    verdict = after(*failed).verdict(asked)
    most = max(sum(job in names for names in failed) for job in asked)
    if verdict is not None:
        assert most >= MAX_FAILURES
        assert int(verdict.split(" failed ")[1].split()[0]) <= most
    assert (verdict is not None) or failed.count(asked) < MAX_FAILURES


# in a campaign

SHARES = (30.0, 50.0, 70.0, 90.0)


class FaultyTestbed(ReplayTestbed):
    """Gemm breaks in its windows, or cannot be started, at every share but 100 %.

    Attributes:
        tries: How often each split was tried, by gemm's share.
    """

    def __init__(self, *, starts: bool) -> None:
        splits = [(share, 100 - share) for share in SHARES] + [(100.0, 100.0)]
        shares = {share for split in splits for share in split}
        super().__init__(
            [point(job=j, share_percent=s) for j in ("gemm", "triad") for s in shares],
            [pair_point(*split) for split in splits],
        )
        self.tries: Counter[float] = Counter()
        self._starts = starts

    def start(self, job: Job, share: Share) -> WarmProcess:
        if not self._starts:
            self._refuse(job, share)
        return super().start(job, share)

    def enter(self, process: ReplayProcess, slot: int) -> None:
        super().enter(process, slot)
        self._refuse(process.job, process.share)

    def _refuse(self, job: Job, share: Share) -> None:
        if job.name == "gemm" and share.percent < 100:
            self.tries[share.percent] += 1
            raise JobError("it broke")


def carry_out(testbed: FaultyTestbed, folder: Path, shares: tuple[float, ...]) -> None:
    """Measure splits in one block, after each a window that works."""
    jobs = testbed.jobs()
    targets: list[Target] = []
    for number, share in enumerate(shares):
        split, full = (Share(share), Share(100 - share)), (Share(100), Share(100))
        targets.append(pair(jobs["gemm"], split[0], jobs["triad"], split[1]))
        targets.append(pair(jobs["gemm"], full[0], jobs["triad"], full[1], number))
    block = Block(tuple(dict.fromkeys(r for t in targets for r in t.specs)), tuple(targets))
    with FileStore(folder) as store:
        conditions = conditions_on(testbed, "r9", rules_for(0.5))
        outcome = measure_blocks([block], conditions, testbed, store, Watching())
    assert len(outcome.failures) == len(outcome.points) == len(shares)


@pytest.mark.parametrize("starts", [True, False])
def test_window_is_tried_again_until_three_failed_in_a_row(starts: bool, tmp_path: Path) -> None:
    """A retry that fails is one failure, whether its jobs started or not."""
    testbed = FaultyTestbed(starts=starts)
    carry_out(testbed, tmp_path, SHARES)
    tries = sorted(testbed.tries.values())
    assert tries == [1, 2, 2, 2]
