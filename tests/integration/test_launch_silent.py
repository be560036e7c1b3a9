"""Supervisor and guard are stopped at once: nothing old passes for true, and a stop ends all."""

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from host import FakeHost
from launched import (
    await_nobody,
    detached,
    folder,
    processes_of,
)

from advisor.formats.moments import to_text
from advisor.launch import guard
from advisor.launch.folder import LaunchFolder
from advisor_cli.launches import await_end
from advisor_profiling import SUPERVISOR

pytestmark = pytest.mark.slow


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
    screen = jobs.advisor("launches", "show", silent.launch_id).stdout
    assert "no limit is proven" in screen
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
    monkeypatch.setattr(guard, "STOP_S", 2.0)
    monkeypatch.setattr(guard, "SILENT_S", 1.0)
    silent.ask_stop()
    status = await_end(silent)
    assert (status.state, status.code) == ("failed", "supervisor-gone")
    assert "did not heed the stop" in capsys.readouterr().err
    await_nobody(jobs)


def test_a_supervisor_that_is_killed_while_all_stand_still_leaves_nobody(
    jobs: FakeHost, silent: LaunchFolder
) -> None:
    os.kill(silent.read_status().supervisor_pid or 0, signal.SIGKILL)
    await_nobody(jobs)
    assert silent.read_status().code == "supervisor-gone"
