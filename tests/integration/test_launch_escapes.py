"""Jobs that escape or break a limit, watchers that stop, the guard: nobody is left behind."""

import json
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from host import FAKES, FakeHost
from launched import (
    await_end,
    await_nobody,
    detached,
    folder,
    launch,
    processes_of,
    show,
    stop,
)

from advisor.core.gpu import MEMORY_LIMIT, PERCENTAGE
from advisor.formats.moments import to_text
from advisor.launch import guard
from advisor.launch.folder import LaunchFolder
from advisor.launch.spec import LaunchStatus, State
from advisor.runtime.processes import marked_pids, wait_until
from advisor_cli import launches
from advisor_cli.launches import exit_code
from advisor_profiling import SUPERVISOR

pytestmark = pytest.mark.slow

RUNS = ("--split", "30/70")
LIMITS = ("CUDA_MPS_PIPE_DIRECTORY", PERCENTAGE, MEMORY_LIMIT, "CUDA_VISIBLE_DEVICES")
KEPT = " ".join(f'{name}="${name}"' for name in ("PATH", *LIMITS))
"""What the process keeps that escapes: it is in a session of its own, and carries no mark."""
STUBBORN = "trap '' TERM INT HUP; while :; do sleep 0.05; done"


@pytest.fixture
def jobs(jobs: FakeHost) -> Iterator[FakeHost]:
    inner = f'setsid env -i TOKEN={jobs.folder} {KEPT} sh -c "{STUBBORN}" &'
    script = f"{inner} exec {sys.executable} {FAKES}/fake_job.py"
    jobs.write_job("escape", command=["sh", "-c", script])
    yield jobs
    for pid in alive(jobs):
        os.kill(pid, signal.SIGKILL)


def alive(host: FakeHost) -> list[int]:
    return marked_pids({"TOKEN": str(host.folder)})


def test_nobody_outlives_a_launch_that_says_stopped(jobs: FakeHost) -> None:
    name = detached(jobs, "escape", "two", *RUNS)
    assert wait_until(lambda: bool(alive(jobs)), 10)
    status = stop(jobs, name)
    assert alive(jobs) == []
    assert (status["state"], status["code"]) == ("stopped", None)


def test_kill_of_supervisor_and_guard_leaves_nobody(jobs: FakeHost) -> None:
    launches = jobs.folder / "home" / "launches"
    with jobs.start_advisor("launch", "escape", "two", *RUNS, "--detach") as command:
        # Before that nothing was started.
        assert wait_until(lambda: bool(list(launches.glob("*/claim"))), 20)
        time.sleep(1)
        for pid, words in processes_of(jobs).items():
            if SUPERVISOR in words or guard.__name__ in words:
                os.kill(pid, signal.SIGKILL)
        (launch_id,) = (file.parent.name for file in launches.glob("*/claim"))
        status = stop(jobs, launch_id)
        assert (status["code"], status["state"]) == ("supervisor-gone", "failed")
        command.communicate(timeout=60)
    await_nobody(jobs)
    assert wait_until(lambda: alive(jobs) == [], 10)


@pytest.fixture
def silent(jobs: FakeHost) -> Iterator[LaunchFolder]:
    found = LaunchFolder(folder(jobs, detached(jobs, "one", "two", "--split", "30/70")))
    watchers = [pid for pid, words in processes_of(jobs).items() if is_watcher(words)]
    assert len(watchers) == 4  # a shim for each job, too
    for pid in watchers:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(0.3)
    path = found.path / "status.json"
    old = to_text(datetime.now(UTC) - timedelta(seconds=34))
    path.write_text(re.sub(r'"updated_at": ?"[^"]*"', f'"updated_at":"{old}"', path.read_text()))
    yield found
    for pid in processes_of(jobs):
        with suppress(ProcessLookupError):  # ended with one that was killed before it
            os.kill(pid, signal.SIGKILL)


def is_watcher(words: str) -> bool:
    return any(word in words for word in (SUPERVISOR, guard.__name__, "shim.py"))


def test_launch_that_nobody_watches_is_shown_so(jobs: FakeHost, silent: LaunchFolder) -> None:
    assert "running, not heard of for 3" in jobs.advisor("launches").stdout
    assert "no limit is proven" in jobs.advisor("launches", "show", silent.launch_id).stdout
    (status,) = json.loads(jobs.advisor("launches", "--json").stdout)["launches"]
    assert status["silent_s"] >= 34
    assert [job["proven"] for job in status["jobs"]] == [False, False]


def test_nobody_joins_a_launch_that_nobody_watches(jobs: FakeHost, silent: LaunchFolder) -> None:
    done = jobs.advisor("launch", "--join", silent.launch_id, "one", "--share", "10")
    assert (done.returncode, "cannot be joined: it is running, not heard" in done.stderr) == (
        2,
        True,
    )


def test_stop_ends_a_supervisor_that_does_not_heed_it(
    jobs: FakeHost,
    silent: LaunchFolder,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(guard, "_STOP_S", 2.0)
    monkeypatch.setattr(guard, "SILENT_S", 1.0)
    silent.ask_stop()
    status = launches.await_end(silent)
    assert (status.state, status.code) == ("failed", "supervisor-gone")
    assert "did not heed the stop" in capsys.readouterr().err
    await_nobody(jobs)


def test_a_supervisor_that_is_killed_while_all_stand_still_leaves_nobody(
    jobs: FakeHost, silent: LaunchFolder
) -> None:
    os.kill(silent.read_status().supervisor_pid or 0, signal.SIGKILL)
    await_nobody(jobs)
    assert silent.read_status().code == "supervisor-gone"


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
    assert [job["proof"] for job in show(jobs, name)["jobs"]] == ["set", "server"]
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


def test_memory_is_bounded_and_read_back(jobs: FakeHost) -> None:
    jobs.write_job("small", memory_mib=2000)
    jobs.write_job("unknown", memory_mib=None)
    last = launch(jobs, "one", "small", "unknown", "--split", "100/50/50", "--duration", "2")
    assert [job["memory_limit_mib"] for job in last["jobs"]] == [134_070, 135_970, None]
    shown = jobs.advisor("launches", "show", last["launch_id"]).stdout
    assert all(part in shown for part in ("135,970 MiB", "no limit"))
    await_nobody(jobs)


def test_memory_that_is_not_bounded_starts_nobody(jobs: FakeHost) -> None:
    """An old driver takes no limit."""
    jobs.write_job("old", env={"FAKE_CUDA_NO_MEMORY_LIMIT": "1"})
    jobs.write_job("large", memory_mib=80_000)
    last = launch(jobs, "large", "old", "--split", "50/50", code=3)
    assert (last["state"], last["code"]) == ("failed", "limit-not-proven")
    assert "should be bounded at 48582 MiB, and 80000 MiB are free" in last["cause"]
    assert [*folder(jobs, last["launch_id"]).glob("*/progress")] == []
    await_nobody(jobs)


@pytest.mark.parametrize(
    ("state", "code", "expected"),
    [
        ("finished", None, 0),
        ("stopped", None, 0),
        ("failed", "busy", 8),
        ("failed", "job-hung", 5),
        ("failed", "mps-fault", 5),
        ("failed", "supervisor-gone", 1),
    ],
)
def test_exit_code_is_that_of_the_error(state: State, code: str | None, expected: int) -> None:
    assert exit_code(LaunchStatus(launch_id="x", state=state, updated_at="", code=code)) == expected
