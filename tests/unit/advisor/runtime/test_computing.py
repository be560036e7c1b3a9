"""Who may compute on a GPU: processes of its jobs, as clients of its server, and nobody else."""

from dataclasses import dataclass
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.core.job import Job, ProgressSettings
from advisor.errors import LimitBrokenError
from advisor.runtime import running_job
from advisor.runtime.backend import Sight
from advisor.runtime.running_job import RunningJob, check_limits, clients_of, is_seen


@dataclass(frozen=True, slots=True)
class FakeJob:
    """A job whose processes are those with numbers from 10 (or 20) to 19 (or 29)."""

    job: Job
    root: int
    seen: Sight | None

    def sight(self) -> Sight | None:
        return self.seen

    def roots(self) -> list[int]:
        return [self.root]

    def has_marked(self, pid: int) -> bool:
        return pid == 40 + self.root


def jobs_at(seen: Sight | None) -> list[RunningJob]:
    jobs = [FakeJob(Job(name=name, command=("x",), progress=ProgressSettings()), root, seen)
            for name, root in (("a", 1), ("b", 2))]  # fmt: skip
    return cast("list[RunningJob]", jobs)


@pytest.fixture(autouse=True)
def processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Process 10 to 19 are below 1, 20 to 29 below 2; the others are below nobody we know."""

    def above(pid: int) -> list[int]:
        return [pid // 10]

    def lives(_pid: int) -> bool:
        return True

    monkeypatch.setattr(running_job, "ancestors_of", above)
    monkeypatch.setattr(running_job, "has_memory", lives)
    monkeypatch.setattr(running_job, "CONFIRM_S", 0)


def broken_by(seen: Sight | None) -> tuple[frozenset[str], str] | None:
    try:
        check_limits(jobs_at(seen))
    except LimitBrokenError as error:
        return error.jobs, error.what
    return None


PIDS = st.frozensets(st.integers(10, 39))


@given(PIDS, PIDS)
def test_all_that_compute_are_clients_of_jobs(
    on_gpu: frozenset[int], clients: frozenset[int]
) -> None:
    found = broken_by(Sight(on_gpu, clients))
    ours = {pid for pid in on_gpu if pid < 30}
    outside = {pid for pid in ours if pid not in clients}
    strangers = {pid for pid in on_gpu if pid >= 30 and ours} | {
        pid for pid in clients if pid >= 30
    }
    assert (found is not None) == bool(outside or strangers)
    if found:
        jobs, what = found
        assert jobs == {"ab"[pid // 10 - 1] for pid in outside}
        assert all(f"process {pid} " in what for pid in outside | strangers)


@given(PIDS)
def test_without_mps_only_strangers_are_out_of_place(on_gpu: frozenset[int]) -> None:
    expected = any(pid < 30 for pid in on_gpu) and any(pid >= 30 for pid in on_gpu)
    assert (broken_by(Sight(on_gpu, None)) is not None) == expected


def test_what_cannot_be_seen_is_told() -> None:
    assert is_seen(jobs_at(Sight(frozenset({11}), frozenset({11}))))
    assert not is_seen(jobs_at(Sight(frozenset({4711}), frozenset({11}))))
    assert broken_by(Sight(frozenset({4711}), frozenset({11}))) is None
    assert is_seen(jobs_at(None))
    assert broken_by(None) is None


@given(PIDS)
def test_strangers_are_told_and_break_nothing_where_that_is_not_asked_for(
    on_gpu: frozenset[int],
) -> None:
    ours = frozenset(pid for pid in on_gpu if pid < 30)
    found = check_limits(jobs_at(Sight(on_gpu, ours)), strict=False)
    assert set(found) == (on_gpu - ours if ours else set())
    assert check_limits(jobs_at(Sight(on_gpu, ours)), strict=False, known=found) == found
    for seen in (Sight(on_gpu | {11, 39}, ours | {11, 39}), Sight(on_gpu | {11, 42}, ours | {11})):
        with pytest.raises(LimitBrokenError):
            check_limits(jobs_at(seen), strict=False)


def test_process_that_ends_is_no_breach(monkeypatch: pytest.MonkeyPatch) -> None:
    """One list may still have it when the other has not."""

    def ends(_pid: int) -> bool:
        return False

    monkeypatch.setattr(running_job, "has_memory", ends)
    assert broken_by(Sight(frozenset({11, 12}), frozenset({11}))) is None


def test_clients_are_counted_by_job() -> None:
    """Those below it, and those that it had somebody else start; not those of nobody."""
    seen = Sight(frozenset({11, 12, 21}), frozenset({11, 12, 41, 21, 4711}))
    assert clients_of(jobs_at(seen)) == [3, 1]
    assert clients_of(jobs_at(Sight(frozenset({11}), None))) == [0, 0]
    assert clients_of(jobs_at(None)) == [0, 0]
