"""The guard of a launch: it ends the jobs when their supervisor hangs, and only then."""

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from advisor.launch.status import LaunchStatus, State
from advisor.runtime.processes import marked_pids, wait_until
from advisor_cli.launch_text import exit_code

SUPERVISOR = """
import os, sys
from pathlib import Path
from advisor.core.gpu import Gpu
from advisor.launch.guard import ProcessGuard
from advisor.runtime.backend import UncappedBackend
backend = UncappedBackend(Gpu(uuid="GPU-guard-test", model="None"))
guard = ProcessGuard(Path(sys.argv[1]), backend, os.environ, silence_s=1)
guard.beat()
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def worker(tmp_path: Path) -> Generator[subprocess.Popen[bytes]]:
    script = "trap '' TERM; while :; do sleep 0.1; done"
    env = {**os.environ, "ADVISOR_LAUNCH": str(tmp_path)}
    with subprocess.Popen(["sh", "-c", script], env=env) as process:
        yield process
        process.kill()


@pytest.mark.slow
def test_supervisor_that_hangs_is_ended_with_its_jobs(
    tmp_path: Path, worker: subprocess.Popen[bytes]
) -> None:
    command, pipe = [sys.executable, "-c", SUPERVISOR, str(tmp_path)], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as supervisor:
        assert supervisor.wait(20) == -signal.SIGKILL
        assert supervisor.communicate()[0] == "ready\n"
    assert worker.wait(20) == -signal.SIGKILL
    assert wait_until(lambda: not marked_pids({"ADVISOR_LAUNCH": str(tmp_path)}), 10)


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
    status = LaunchStatus(launch_id="x", state=state, updated_at="", code=code)
    assert exit_code(status) == expected
