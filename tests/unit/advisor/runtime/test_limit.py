"""Proof of a limit: what a process under a share sees is what the share must give, or no proof."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, strategies as st
from other_user import MALLORY, shared_folder

from advisor.core.gpu import SM_FLOOR, Gpu, Share, units_for_percent
from advisor.core.job import Job, ProgressSettings
from advisor.errors import LimitBrokenError, LimitNotProvenError
from advisor.runtime import job_process, running_job
from advisor.runtime.backend import BINARY, Control, Granted, Sight, VisibleGpu, check_granted, run
from advisor.runtime.job_process import ResourceBounds, bounds_of, met_bound, set_bounds
from advisor.runtime.processes import heard_by
from advisor.runtime.running_job import RunningJob, check_limits, clients_of, is_listed

UUID = "GPU-1"


PIPES = Path("/run/advisor/mps")


def granted(percent: float, units: int, *, total: int = 132, mps: bool = True) -> Granted:
    gpu = Gpu(uuid=UUID, model="Card", units_total=total)
    return check_granted(gpu, Share(percent), VisibleGpu(UUID, units, mps), PIPES)


@given(st.integers(9, 100), st.integers(40, 200), st.integers(1, 200))
def test_only_the_count_of_the_share_is_a_proof(percent: int, total: int, units: int) -> None:
    expected = units_for_percent(percent, total)
    assert granted(percent, expected, total=total) == Granted(expected)
    if units != expected and expected > SM_FLOOR:
        with pytest.raises(LimitNotProvenError, match=f"is {expected}, but a process saw {units}"):
            granted(percent, units, total=total)


def test_below_the_floor_a_gpu_may_grant_what_was_asked() -> None:
    """4 % of 132 SMs are 4 where there is no floor of 8; more than 8 is no limit of 4 %."""
    assert granted(4, 4).units == 4
    with pytest.raises(LimitNotProvenError):
        granted(4, SM_FLOOR + 2)


@given(st.integers(100, 10_000), st.floats(0, 20_000))
def test_memory_is_bounded_where_no_more_is_free(most_mib: int, free_mib: float) -> None:
    gpu = Gpu(uuid=UUID, model="Card", units_total=132)
    share = Share(50, memory_mib=most_mib)
    if free_mib <= most_mib:
        seen = check_granted(gpu, share, VisibleGpu(UUID, 66, mps=True, free_mib=free_mib), PIPES)
        assert seen == Granted(66, memory_mib=most_mib)
    else:
        with pytest.raises(LimitNotProvenError, match=f"bounded at {most_mib} MiB"):
            check_granted(gpu, share, VisibleGpu(UUID, 66, mps=True, free_mib=free_mib), PIPES)
    with pytest.raises(LimitNotProvenError, match="nothing is known"):
        check_granted(gpu, share, VisibleGpu(UUID, 66, mps=True), PIPES)
    assert granted(50, 66).memory_mib is None


def test_without_a_server_or_the_gpu_there_is_no_proof() -> None:
    """The driver falls back to the whole GPU without a word, and a daemon may serve another one."""
    with pytest.raises(LimitNotProvenError, match="MPS is not in force"):
        granted(100, 132, mps=False)
    gpu = Gpu(uuid=UUID, model="Card", units_total=132)
    with pytest.raises(LimitNotProvenError, match="would not see GPU GPU-1"):
        check_granted(gpu, Share(50), None, PIPES)


@pytest.mark.parametrize(("user", "answer"), [(MALLORY, MALLORY), (0, 0), (None, 0)])
def test_the_program_runs_as_the_user_of_the_daemon(user: int | None, answer: int) -> None:
    with shared_folder() as folder:
        program = folder / BINARY
        program.write_text("#!/bin/sh\nid -u; id -g; id -G\n")
        program.chmod(0o755)
        control = Control(Path("/nonexistent"), {"PATH": f"{folder}:/usr/bin:/bin"}, user)
        said = control.ask("anything").split()
    assert set(said[:2] if answer == 0 else said) == {str(answer)}


def test_the_protocol_is_2_whatever_the_environment_says() -> None:
    control = Control(Path("/nonexistent"), {"CUDA_MPS_PROTOCOL_VERSION": "3"})
    assert control.variables()["CUDA_MPS_PROTOCOL_VERSION"] == "2"


def test_who_waits_for_the_daemon_is_heard_meanwhile() -> None:
    heard: list[None] = []
    with heard_by(lambda: heard.append(None)):
        run(["sleep", "1"], os.environ)
    assert len(heard) > 1


# Bounds of a job's control group, on folders that look like one.


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
    monkeypatch.setattr(job_process, "control_group", {"self": tmp_path / job_process.OURS}.get)
    # A plain folder gets no cgroup.kill, so none is kept.
    assert job_process.make_cgroup("advisor-x-", BOUNDS) is None
    assert (tmp_path / "cgroup.subtree_control").read_text() == asked
    assert list(tmp_path.glob("advisor-*")) == []


# Who may compute on a GPU: processes of its jobs, as clients of its server, and nobody else.


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
    monkeypatch.setattr(running_job, "_CONFIRM_S", 0)


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
    assert is_listed(jobs_at(Sight(frozenset({11}), frozenset({11}))))
    assert not is_listed(jobs_at(Sight(frozenset({4711}), frozenset({11}))))
    assert broken_by(Sight(frozenset({4711}), frozenset({11}))) is None
    assert is_listed(jobs_at(None))
    assert broken_by(None) is None


@given(PIDS)
def test_strangers_are_told_and_break_nothing_where_that_is_not_asked_for(
    on_gpu: frozenset[int],
) -> None:
    ours = frozenset(pid for pid in on_gpu if pid < 30)
    found = check_limits(jobs_at(Sight(on_gpu, ours)), strict=False)
    assert set(found) == (on_gpu - ours if ours else set())
    assert check_limits(jobs_at(Sight(on_gpu, ours)), strict=False, former=found) == found
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
