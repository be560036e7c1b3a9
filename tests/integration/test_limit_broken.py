"""A limit that is broken while a launch runs, or a window is open, is found and ends it."""

import json
import sys
from pathlib import Path

import pytest
from host import FAKES, FakeHost
from launched import await_end, await_nobody, detached, show, stop

from advisor.core.gpu import PERCENTAGE
from advisor.runtime.processes import marked_pids

pytestmark = pytest.mark.slow

RUNS = ("--split", "30/70")


def write_breaking(host: FakeHost, way: str) -> Path:
    file = host.folder / "go"
    command = [sys.executable, str(FAKES / "breaking_job.py"), way, str(file)]
    host.write_job("breaking", command=command, env={"TOKEN": str(host.folder)})
    return file


@pytest.mark.parametrize("way", ["escape", "hidden"])
def test_job_that_leaves_its_limit_ends_the_launch(jobs: FakeHost, way: str) -> None:
    file = write_breaking(jobs, way)
    name = detached(jobs, "breaking", "two", *RUNS)
    file.touch()
    status = await_end(jobs, name)
    assert (status["state"], status["code"]) == ("failed", "limit-broken")
    assert [job["outcome"] for job in status["jobs"]] == ["failed", "stopped"]
    shown = json.loads(jobs.advisor("launches", "show", name, "--json").stdout)
    assert "limit-broken" in shown["observations"][0]["flags"]
    assert marked_pids({"TOKEN": str(jobs.folder)}) == []
    await_nobody(jobs)


def test_limit_that_a_job_may_have_changed_is_called_set(jobs: FakeHost) -> None:
    """Before its first context it may, and no list of the driver tells; the larger one is held."""
    found = f"import os, runpy, sys; sys.path.insert(0, {str(FAKES)!r})"
    changed = f"{found}; del os.environ[{PERCENTAGE!r}]"
    run = f"runpy.run_path({str(FAKES / 'fake_job.py')!r}, run_name='__main__')"
    jobs.write_job("lifts", command=[sys.executable, "-c", f"{changed}; {run}"])
    name = detached(jobs, "lifts", "two", *RUNS)
    status = show(jobs, name)
    assert [job["proof"] for job in status["jobs"]] == ["set", "server"]
    shown = jobs.advisor("launches", "show", name).stdout
    assert "limit of lifts: set, not read back from the job" in shown
    assert stop(jobs, name)["state"] == "stopped"


def test_point_is_not_kept_where_the_limit_was_broken(jobs: FakeHost) -> None:
    write_breaking(jobs, "hidden").touch()
    done = jobs.advisor("profile", "breaking", "--shares", "30", "--window", "0.5")
    assert done.returncode == 15, (done.stdout, done.stderr)
    assert "computes without MPS" in done.stderr
    exported = jobs.folder / "all.jsonl"
    assert jobs.advisor("data", "export", str(exported)).returncode == 0
    assert exported.read_text() == ""
    await_nobody(jobs)
