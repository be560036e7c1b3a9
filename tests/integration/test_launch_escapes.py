"""Jobs that try to outlive their launch, and watchers that are killed: nobody is left behind."""

import os
import random
import signal
import sys
import time
from collections.abc import Iterator

import pytest
from host import FAKES, FakeHost
from launched import (
    await_nobody,
    detached,
    processes_of,
    stop,
)

from advisor.core.gpu import MEMORY_LIMIT, PERCENTAGE
from advisor.launch import guard
from advisor.runtime.processes import marked_pids, wait_until
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


def watchers(host: FakeHost) -> dict[str, list[int]]:
    words = {"supervisor": SUPERVISOR, "guard": guard.__name__, "shim": "shim.py"}
    commands = processes_of(host)
    return {
        kind: [pid for pid, command in commands.items() if word in command]
        for kind, word in words.items()
    }


@pytest.mark.parametrize(
    ("victims", "seed"),
    [
        ("guard+supervisor", 0),
        *(
            pytest.param(victims, seed, marks=pytest.mark.nightly)
            for victims in ("supervisor", "guard", "guard+supervisor")
            for seed in range(1, 50)
        ),
    ],
)
def test_kill_at_a_random_moment_leaves_nobody(jobs: FakeHost, victims: str, seed: int) -> None:
    chance, launches = random.Random(f"{victims} {seed}"), jobs.folder / "home" / "launches"
    with jobs.start_advisor("launch", "escape", "two", *RUNS, "--detach") as command:
        # Before that nothing was started.
        assert wait_until(lambda: bool(list(launches.glob("*/claim"))), 20)
        time.sleep(chance.uniform(0, 2.5))
        found = watchers(jobs)
        for pid in (pid for kind in victims.split("+") for pid in found[kind]):
            os.kill(pid, signal.SIGKILL)
        time.sleep(chance.uniform(0, 1))
        (launch_id,) = (file.parent.name for file in launches.glob("*/claim"))
        status = stop(jobs, launch_id)
        expected = "supervisor-gone" if "supervisor" in victims else None
        assert (status["code"], status["state"] == "failed") == (expected, expected is not None)
        command.communicate(timeout=60)
    await_nobody(jobs)
    assert wait_until(lambda: alive(jobs) == [], 10)
