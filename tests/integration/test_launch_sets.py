"""Launches of more than two jobs: real processes and a fake driver."""

import sys

import pytest
from host import FAKES, FakeHost
from launched import await_nobody, folder, launch

from advisor_data import open_store

pytestmark = pytest.mark.slow


@pytest.fixture
def jobs(jobs: FakeHost) -> FakeHost:
    jobs.write_job("short", "--steps", "150")
    for behave in ("die", "fault"):
        jobs.write_job(behave, "--behave", behave)
    return jobs


def test_three_run_on_after_one_has_ended(jobs: FakeHost) -> None:
    last = launch(jobs, "two", "short", "one", "--split", "100/30/50", "--duration", "6")
    assert (last["state"], last["sharing"]) == ("stopped", "limited")
    told = [(j["job"], j["units_granted"], j["outcome"], j["proven"]) for j in last["jobs"]]
    assert told == [
        ("two", 132, "stopped", True),
        ("short", 38, "finished", True),
        ("one", 66, "stopped", True),
    ]
    seen = last["observations"][0]
    assert [job["job"] for job in seen["jobs"]] == ["one", "short", "two"]
    assert [job["ended_first"] for job in seen["jobs"]] == [False, True, False]
    assert [job["rest_rate"] is not None for job in seen["jobs"]] == [True, False, True]
    assert seen["rest_s"] > 1
    assert seen["stranded_unit_s"] == pytest.approx(38 * seen["rest_s"], rel=0.15)
    with open_store(None, jobs.folder / "home") as store:
        stored = store.observations(jobs=("one", "short", "two"))
        left = store.observations(jobs=("one", "two"))
    assert [len(one.parts) for one in stored] == [3]
    (two,) = left
    assert (two.launch_id, two.stretch, two.overlap_s > 1) == (last["launch_id"], 1, True)
    assert [part.share_percent for part in two.parts] == [50, 100]
    await_nobody(jobs)


def test_who_faulted_is_told_where_the_server_names_it(jobs: FakeHost) -> None:
    jobs.write_job("named", "--behave", "named-fault")
    last = launch(jobs, "one", "named", "two", "--split", "50/50/50", code=5)
    assert [job["outcome"] for job in last["jobs"]] == ["taken-down", "failed", "taken-down"]
    assert "a fault of named took one and two down with it" in last["cause"]
    (jobs.pipe_dir / "status").unlink(missing_ok=True)
    await_nobody(jobs)


def test_memory_is_bounded_and_read_back(jobs: FakeHost) -> None:
    jobs.write_job("small", memory_mib=2000)
    jobs.write_job("unknown", memory_mib=None)
    last = launch(jobs, "one", "small", "unknown", "--split", "100/50/50", "--duration", "2")
    assert [job["memory_limit_mib"] for job in last["jobs"]] == [134_070, 135_970, None]
    shown = jobs.advisor("launches", "show", last["launch_id"]).stdout
    assert "135,970 MiB" in shown
    assert "no limit" in shown
    free = launch(jobs, "one", "small", "--split", "50/50", "--duration", "1", "--no-memory-limit")
    assert [job["memory_limit_mib"] for job in free["jobs"]] == [None, None]
    turns = launch(jobs, "one", "small", "--split", "time-sliced", "--duration", "1")
    assert [job["memory_limit_mib"] for job in turns["jobs"]] == [None, None]
    await_nobody(jobs)


def test_memory_that_is_not_bounded_starts_nobody(jobs: FakeHost) -> None:
    """An old driver takes no limit; a job whose process loses it never runs beside another."""
    jobs.write_job("old", env={"FAKE_CUDA_NO_MEMORY_LIMIT": "1"})
    jobs.write_job("large", memory_mib=80_000)
    last = launch(jobs, "large", "old", "--split", "50/50", code=3)
    assert (last["state"], last["code"]) == ("failed", "limit-not-proven")
    assert "should be bounded at 48582 MiB, and 80000 MiB are free" in last["cause"]
    assert [*folder(jobs, last["launch_id"]).glob("*/progress")] == []
    script = f"env -u CUDA_MPS_PINNED_DEVICE_MEM_LIMIT {sys.executable} {FAKES}/fake_job.py; :"
    jobs.write_job("loses", command=["sh", "-c", script])
    last = launch(jobs, "loses", "one", "--split", "50/50", code=3)
    assert "do not carry the variables" in last["cause"]
    await_nobody(jobs)
