"""The guard of a launch: it ends the jobs when their supervisor hangs, and only then."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from advisor.launch import guard
from advisor.launch.status import LaunchStatus, State
from advisor.runtime.processes import marked_pids, wait_until
from advisor_cli.launch_text import exit_code

SUPERVISOR = """
import sys, time
from pathlib import Path
from advisor.core.gpu import Gpu
from advisor.launch.guard import ProcessGuard
from advisor.runtime.backend import UncappedBackend
import os
backend = UncappedBackend(Gpu(uuid="GPU-guard-test", model="None"))
guard = ProcessGuard(
    Path(sys.argv[1]), backend, os.environ, silence_s=float(sys.argv[2]), answer_s=2
)
guard.beat()
print("ready", flush=True)
while sys.stdin.readline() == "beat\\n":
    print("replaced" if guard.beat() else "answers", flush=True)
guard.close()
"""


ADOPTS = """
import ctypes, os, subprocess, sys
ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER
subprocess.run([sys.executable, "-c", sys.argv[1], sys.argv[2]])
os.wait()
print("lives")
"""

KILLED = """
import os, signal, sys
from pathlib import Path
from advisor.core.gpu import Gpu
from advisor.launch.guard import ProcessGuard
from advisor.runtime.backend import UncappedBackend
backend = UncappedBackend(Gpu(uuid="GPU-guard-test", model="None"))
ProcessGuard(Path(sys.argv[1]), backend, os.environ)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def worker(tmp_path: Path) -> Generator[subprocess.Popen[bytes]]:
    script = "trap '' TERM; while :; do sleep 0.1; done"
    env = {**os.environ, "ADVISOR_LAUNCH": str(tmp_path)}
    with subprocess.Popen(["sh", "-c", script], env=env) as process:
        yield process
        process.kill()


def supervisor(folder: Path, silence_s: float) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, str(folder), str(silence_s)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.slow
def test_supervisor_that_hangs_is_ended_with_its_jobs(
    tmp_path: Path, worker: subprocess.Popen[bytes]
) -> None:
    with supervisor(tmp_path, silence_s=1) as process:
        assert process.wait(20) == -signal.SIGKILL
    assert worker.wait(20) == -signal.SIGKILL
    assert wait_until(lambda: not marked_pids({"ADVISOR_LAUNCH": str(tmp_path)}), 10)


@pytest.mark.slow
def test_supervisor_that_was_stopped_is_continued(
    tmp_path: Path, worker: subprocess.Popen[bytes]
) -> None:
    with supervisor(tmp_path, silence_s=1) as process:
        process.send_signal(signal.SIGSTOP)
        assert wait_until(lambda: stopped(process.pid), 5)
        assert wait_until(lambda: not stopped(process.pid), 20)
        assert beat(process) == "answers"
        process.communicate("\n", timeout=20)
    assert (process.returncode, worker.poll()) == (0, None)


def stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_guard_looks_for_half_a_minute_at_most() -> None:
    assert guard.SILENCE_S + guard.CONTINUE_S <= 30


def test_supervisor_that_ends_well_leaves_nothing_to_do(
    tmp_path: Path, worker: subprocess.Popen[bytes]
) -> None:
    with supervisor(tmp_path, silence_s=60) as process:
        process.communicate("\n", timeout=20)
    assert (process.returncode, worker.poll()) == (0, None)


def guard_of(process: subprocess.Popen[str]) -> int:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    (found,) = map(int, children)
    return found


def beat(process: subprocess.Popen[str]) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("beat\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


@pytest.mark.slow
def test_guard_that_hangs_is_replaced(tmp_path: Path) -> None:
    with supervisor(tmp_path, silence_s=60) as process:
        first = guard_of(process)
        # Nothing is asked for longer than an answer may take: that is no guard that hangs.
        time.sleep(2.5)
        assert beat(process) == "answers"
        os.kill(first, signal.SIGSTOP)
        assert wait_until(lambda: beat(process) == "replaced", 20, poll_s=0.2)
        assert guard_of(process) != first
        assert wait_until(lambda: beat(process) == "answers", 5)
        process.communicate("\n", timeout=20)
    assert process.returncode == 0


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


@pytest.mark.slow
def test_guard_whose_supervisor_was_killed_before_it_began_ends_the_jobs_alone(
    tmp_path: Path, worker: subprocess.Popen[bytes]
) -> None:
    """Who adopts it, such as a user's systemd, lives on."""
    command = [sys.executable, "-c", ADOPTS, KILLED, str(tmp_path)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (found.returncode, found.stdout) == (0, "lives\n"), found.stderr
    assert worker.wait(timeout=10) == -signal.SIGKILL
