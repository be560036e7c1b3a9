from pathlib import Path

import pytest

from advisor.runtime import processes
from advisor.runtime.processes import physical_cores, plan_cores


def single(count: int) -> list[frozenset[int]]:
    return [frozenset([core]) for core in range(count)]


@pytest.mark.parametrize(("jobs", "each"), [(2, 7), (3, 4), (7, 2)])
def test_job_alone_has_as_many_cores_as_beside_others(jobs: int, each: int) -> None:
    """Rates alone and in sets are compared, so both come from the same number of cores."""
    plan = plan_cores(single(16), jobs)
    assert plan.own == {0}
    assert [len(slot) for slot in plan.slots] == [each] * jobs
    owners = (plan.own, *plan.slots, plan.waiting)
    assert len(frozenset[int]().union(*owners)) == sum(map(len, owners))


def test_two_jobs_take_cores_in_turns() -> None:
    """On a host with two sockets neither of them has the one that is farther from the GPU."""
    plan = plan_cores(single(8))
    assert plan.slots == ({1, 3, 5}, {2, 4, 6})


@pytest.mark.parametrize("jobs", [2, 7])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_small_hosts_share_what_they_have(count: int, jobs: int) -> None:
    """Nobody is left without a core, however few there are."""
    plan = plan_cores(single(count), jobs)
    assert plan.own
    assert len(plan.slots) == jobs
    assert all(plan.slots)
    assert plan.jobs <= set(range(count))


def test_hyperthreads_of_one_core_have_one_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The profiler's core is nobody else's, its second hyperthread included."""
    monkeypatch.setattr(processes, "available_cores", lambda: list(range(8)))
    for core in range(8):
        folder = tmp_path / f"cpu{core}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{core % 4},{core % 4 + 4}\n")
    plan = plan_cores(physical_cores(tmp_path))
    assert (plan.own, *plan.slots) == ({0, 4}, {1, 5}, {2, 6})


def test_without_topology_each_core_stands_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel that tells nothing is taken to have no hyperthreads."""
    monkeypatch.setattr(processes, "available_cores", lambda: [2, 3])
    assert physical_cores(tmp_path) == [{2}, {3}]
