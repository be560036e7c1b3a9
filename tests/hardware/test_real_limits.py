"""Jobs that leave their limit, or their launch, on a real NVIDIA GPU: run with `make gpu`.

Prints the time from the breach to the last word of the launch.
"""

import json
import sys
import time
from pathlib import Path

import pytest
from host import FAKES
from real_gpu import nobody_computes, run_json

from advisor.core.gpu import MEMORY_LIMIT, PERCENTAGE
from advisor.runtime.host.processes import marked_pids, wait_until

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(400)]

STUBBORN = "trap '' TERM INT HUP; while :; do sleep 0.05; done"
LIMITS = ("CUDA_MPS_PIPE_DIRECTORY", PERCENTAGE, MEMORY_LIMIT, "CUDA_VISIBLE_DEVICES")


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of jobs with a good one."""
    (tmp_path / "jobs").mkdir()
    for name in ("ADVISOR_HOME", "ADVISOR_JOBS"):
        monkeypatch.setenv(name, str(tmp_path / name.removeprefix("ADVISOR_").lower()))
    write_job(tmp_path, "good", breaking("never"))
    return tmp_path


def breaking(way: str, file: str = "/nonexistent/go") -> list[str]:
    return [sys.executable, str(FAKES / "breaking_job.py"), way, file]


def write_job(folder: Path, name: str, command: list[str]) -> None:
    job = {
        "command": command,
        "progress": {"kind": "counter", "gate": True},
        "memory_mib": 1000,
        "env": {"TOKEN": str(folder)},
    }
    (folder / "jobs" / f"{name}.yaml").write_text(json.dumps(job))


@pytest.mark.parametrize("way", ["children", "escape", "hidden", "per-context"])
def test_limit_that_is_broken_ends_the_launch(jobs: Path, way: str) -> None:
    """The driver lists the process, and nobody is left."""
    write_job(jobs, "breaking", breaking(way, str(jobs / "go")))
    started = run_json("launch", "breaking", "good", "--split", "50/26", "--detach")
    (jobs / "go").touch()
    begun = time.monotonic()
    file = jobs / "home" / "launches" / started["launch_id"] / "status.json"
    assert wait_until(lambda: json.loads(file.read_text())["state"] == "failed", 60)
    print(f"{way}: {time.monotonic() - begun:.1f} s from the breach to the end of the launch")
    status = json.loads(file.read_text())
    assert status["code"] == "limit-broken", status["cause"]
    assert marked_pids({"TOKEN": str(jobs)}) == []
    assert nobody_computes()


def test_nobody_outlives_a_launch(jobs: Path) -> None:
    """A process that keeps no mark and takes no signal ends with its job."""
    kept = " ".join(f'{name}="${name}"' for name in ("PATH", "TOKEN", *LIMITS))
    inner = f'setsid env -i {kept} sh -c "{STUBBORN}" & exec {" ".join(breaking("never"))}'
    write_job(jobs, "hiding", ["sh", "-c", inner])
    last = run_json("launch", "hiding", "good", "--split", "50/26", "--duration", "3")
    assert last["state"] == "stopped"
    assert marked_pids({"TOKEN": str(jobs)}) == []


def test_good_pair_runs_undisturbed(jobs: Path) -> None:
    """Lists of one instant differ while processes start and end; nothing is made of that."""
    last = run_json("launch", "good", "good", "--split", "50/26", "--duration", "20")
    assert (last["state"], last["code"]) == ("stopped", None)
    assert not any("cannot be seen" in text for text in last["warnings"]), last["warnings"]
    assert jobs.exists()
