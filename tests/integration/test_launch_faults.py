"""A launch when things go wrong: real processes, a fake driver, faults of every kind."""

import json
import os
import re
import signal
import struct
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from host import FAKES, FakeHost
from launched import (
    await_end,
    await_nobody,
    daemon_pid,
    detached,
    folder,
    launch,
    show,
    stop,
)

from advisor.runtime.processes import owner_of, wait_until

RUNS = ("--split", "30/70")


def counts(host: FakeHost, launch_id: str) -> list[int]:
    files = sorted(folder(host, launch_id).glob("*/progress"))
    return [struct.unpack_from("<q", file.read_bytes())[0] for file in files]


# limits


@pytest.mark.slow
def test_daemon_that_dies_stops_both(jobs: FakeHost) -> None:
    name = detached(jobs, "one", "two", *RUNS)
    os.kill(daemon_pid(jobs), signal.SIGKILL)
    status = await_end(jobs, name)
    assert (status["state"], status["code"]) == ("failed", "partition")
    assert [job["proven"] for job in status["jobs"]] == [False, False]
    assert all("was proven until 20" in job["error"] for job in status["jobs"])


def test_limit_that_is_not_proven_starts_nothing(jobs: FakeHost) -> None:
    """Nor the job whose limit was proven; and no module that the other brings forges a proof."""
    (jobs.folder / "json.py").write_text("import os; os._exit(9)")
    jobs.write_job("loose", env={"PYTHONPATH": str(jobs.folder), "FAKE_CUDA_UNITS": "90"})
    last = launch(jobs, "one", "loose", *RUNS, code=3)
    assert (last["state"], last["code"]) == ("failed", "limit-not-proven")
    assert "70 % of 132 SMs is 92, but a process saw 62" in last["cause"]
    assert counts(jobs, last["launch_id"]) == []
    await_nobody(jobs)


@pytest.mark.slow
def test_job_that_lifts_its_limit_never_runs_beside_another(jobs: FakeHost) -> None:
    script = f"env -u CUDA_MPS_ACTIVE_THREAD_PERCENTAGE {sys.executable} {FAKES}/fake_job.py; :"
    jobs.write_job("escape", command=["sh", "-c", script])
    last = launch(jobs, "escape", "one", *RUNS, code=3)
    assert "do not carry the variables of its share of 30 %" in last["cause"]
    assert counts(jobs, last["launch_id"]) == [0, 0]
    await_nobody(jobs)


# supervisors


@pytest.mark.slow
def test_two_launches_race_for_one_gpu(jobs: FakeHost) -> None:
    racers = [jobs.start_advisor("launch", "one", "two", *RUNS, "--detach") for _ in range(2)]
    ends = [(process.communicate(timeout=60), process.returncode) for process in racers]
    assert sorted(code for _, code in ends if code is not None) == [0, 8], ends
    states = json.loads(jobs.advisor("launches", "--json").stdout)["launches"]
    assert sorted((s["state"], s["code"]) for s in states) == [
        ("failed", "busy"), ("running", None)
    ]  # fmt: skip
    (running,) = (s["launch_id"] for s in states if s["state"] == "running")
    assert stop(jobs, running)["state"] == "stopped"


@pytest.mark.parametrize(
    ("number", "end"),
    [
        (signal.SIGKILL, ("failed", "supervisor-gone")),
        pytest.param(signal.SIGTERM, ("stopped", None), marks=pytest.mark.slow),
    ],
)
def test_a_supervisor_that_is_ended_takes_its_jobs_along(
    jobs: FakeHost, number: int, end: tuple[str, str | None]
) -> None:
    """A batch system ends it by SIGTERM: that is the safe order, too.

    The power limit that it lowered is put back, by its guard where it was killed.
    """
    jobs.write_job("script", command=["sh", "-c", f"{sys.executable} {FAKES}/fake_job.py & wait"])
    name = detached(jobs, "script", "one", *RUNS, "--power-limit", "500")
    daemon, limit_mw = daemon_pid(jobs), jobs.folder / "nvml" / "gpu0" / "power_limit_mw"
    assert (limit_mw.read_text(), show(jobs, name)["power_limit_w"]) == ("500000", 500)
    os.kill(show(jobs, name)["supervisor_pid"], number)
    status = await_end(jobs, name)
    assert (status["state"], status["code"]) == end
    await_nobody(jobs)
    assert wait_until(lambda: owner_of(daemon) is None, 10)
    assert wait_until(lambda: limit_mw.read_text() == "700000", 10)


def test_disk_that_is_full_at_the_start_says_what_to_do(jobs: FakeHost) -> None:
    """What only reads goes on, though SQLite has no room for what its readers share."""
    home = jobs.folder / "home"
    with small_disk(home):
        assert jobs.advisor("jobs").returncode == 0
        fill(home)
        for words in (("jobs",), ("drift",), ("recommend", "triad", "gemm"), ("launches",)):
            assert jobs.advisor(*words).returncode == 0, words
        done = jobs.advisor("launch", "one", "two", *RUNS, "--json")
    said = json.loads(done.stdout)["error"]["message"]
    assert f"advisor: {said}\n" == done.stderr
    assert re.search(r"No space left.* free (space|it)", said)


def test_home_that_is_read_only_says_what_to_do(jobs: FakeHost) -> None:
    home = jobs.folder / "home"
    file = home / "advisor.db"
    with small_disk(home):
        assert jobs.advisor("jobs").returncode == 0
        subprocess.run(["mount", "-o", "remount,ro", str(home)], check=True)
        for words, code in (("jobs",), 7), (("launch", "one", "two", *RUNS), 1):
            done = jobs.advisor(*words)
            assert (done.returncode, len(done.stderr.splitlines())) == (code, 1), done.stderr
            assert "may be written" in done.stderr
        url = f"sqlite:///file:{file}?immutable=1&uri=true"
        assert jobs.advisor("jobs", ADVISOR_DATABASE_URL=url).returncode == 0


@contextmanager
def small_disk(place: Path) -> Generator[None]:
    place.mkdir(exist_ok=True)
    options = ["-t", "tmpfs", "-o", "size=4m,mode=0700", "advisor-test", str(place)]
    if subprocess.run(["mount", *options], check=False, capture_output=True).returncode:
        pytest.skip("needs the right to mount a small disk")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(place: Path) -> None:
    with (place / "filler").open("wb", buffering=0) as file:
        for size in (1 << 16, 1):
            with suppress(OSError):
                while file.write(bytes(size)):
                    pass
