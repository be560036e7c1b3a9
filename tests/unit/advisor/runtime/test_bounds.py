"""Bounds of a job's control group, on folders that look like one."""

from pathlib import Path

import pytest

from advisor.core.job import Job
from advisor.runtime import cgroup
from advisor.runtime.cgroup import ResourceBounds, bounds_of, met_bound, set_bounds

BOUNDS = ResourceBounds(tasks=100, memory_mib=200)


JOB = Job(name="a", command=("a",))


def group(folder: Path, **files: str) -> Path:
    """A folder with files of a control group, named with _ for the dot."""
    for name, text in files.items():
        (folder / name.replace("_", ".", 1)).write_text(text)
    return folder


def test_a_job_file_may_set_its_own_bounds() -> None:
    own = Job(name="a", command=("a",), max_tasks=7, host_memory_mib=9)
    assert (bounds_of(own), own.job_hash) == (ResourceBounds(tasks=7, memory_mib=9), JOB.job_hash)


def test_what_no_file_says_leaves_room_for_the_host() -> None:
    host = Path("/proc/meminfo").read_text().split()
    total_mib = int(host[host.index("MemTotal:") + 1]) / 1024
    found = bounds_of(JOB)
    assert 0.9 * total_mib < found.memory_mib < total_mib
    assert 1000 <= found.tasks <= int(Path("/proc/sys/kernel/pid_max").read_text()) // 4


def test_bounds_are_set_where_there_are_controllers(tmp_path: Path) -> None:
    group(tmp_path, pids_max="max\n", memory_max="max\n", memory_oom="", cgroup_procs="")
    (tmp_path / "memory.oom.group").write_text("0\n")
    set_bounds(tmp_path, BOUNDS)
    assert (tmp_path / "pids.max").read_text().strip() == "100"
    assert (tmp_path / "memory.max").read_text().startswith(str(200 * 1024 * 1024))
    assert (tmp_path / "memory.oom.group").read_text().startswith("1")


def test_nothing_is_made_where_there_are_none(tmp_path: Path) -> None:
    set_bounds(tmp_path, BOUNDS)
    assert (list(tmp_path.iterdir()), met_bound(tmp_path, BOUNDS)) == ([], None)


@pytest.mark.parametrize(
    ("memory", "pids", "words"),
    [
        ("max 3\noom 1\noom_kill 4\n", "max 9\n", "more than its 200 MiB"),
        ("max 0\noom 0\noom_kill 1\n", "max 0\n", "the host, or the control group above"),
        ("oom 0\noom_kill 0\n", "max 2\n", "its bound of 100 processes and threads"),
        ("max 5\noom 0\noom_kill 0\n", "max 0\n", None),
    ],
)
def test_the_kernel_says_which_bound_was_met(
    tmp_path: Path, memory: str, pids: str, words: str | None
) -> None:
    """Page cache that was given back (`max` of memory) is no bound that was met."""
    group(tmp_path, memory_events=memory, pids_events=pids)
    met = met_bound(tmp_path, BOUNDS)
    assert met is None if words is None else words in str(met)


@pytest.mark.parametrize(
    ("files", "asked"),
    [
        ({"cgroup_procs": "", "cgroup_type": "domain\n"}, "+memory +pids"),
        ({"cgroup_procs": "1\n"}, "+memory +pids"),
        ({"cgroup_procs": "17\n", "cgroup_type": "domain\n"}, ""),
    ],
    ids=["nobody in it", "root of all", "somebody in it"],
)
def test_controllers_are_asked_for_where_nobody_is_beside_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], asked: str
) -> None:
    group(tmp_path, cgroup_controllers="cpu memory pids\n", cgroup_subtree_control="", **files)
    monkeypatch.setattr(cgroup, "_own", lambda: tmp_path / cgroup.OURS)
    # A plain folder gets no cgroup.kill, so none is kept.
    assert cgroup.make_cgroup("advisor-x-", BOUNDS) is None
    assert (tmp_path / "cgroup.subtree_control").read_text() == asked
    assert list(tmp_path.glob("advisor-*")) == []
