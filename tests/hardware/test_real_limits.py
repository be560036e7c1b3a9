"""Jobs that leave their limit, or their launch, on a real NVIDIA GPU: run with `make gpu`.

Prints the time from the breach to the last word of the launch.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from breaking_job import OUTSIDE
from host import FAKES
from real_gpu import nobody_computes, run_json, the_gpu

from advisor.core.gpu import MEMORY_LIMIT, PERCENTAGE
from advisor.launch.folder import LaunchFolder
from advisor.runtime.processes import marked_pids, wait_until

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(400)]

STUBBORN = "trap '' TERM INT HUP; while :; do sleep 0.05; done"
LIMITS = ("CUDA_MPS_PIPE_DIRECTORY", PERCENTAGE, MEMORY_LIMIT, "CUDA_VISIBLE_DEVICES")


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
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


def running(folder: Path, *options: str) -> LaunchFolder:
    started = run_json("launch", "good", "good", "--split", "50/26", "--detach", *options)
    return LaunchFolder(folder / "home" / "launches" / started["launch_id"])


@pytest.mark.parametrize("strict", [False, True])
def test_stranger_is_told_and_ends_a_strict_launch(jobs: Path, strict: bool) -> None:
    """As a colleague's `torch.cuda.init()`, outside of MPS."""
    launch = running(jobs, *(("--strict",) if strict else ()))
    outside = {k: v for k, v in os.environ.items() if not k.startswith("CUDA_")}
    outside["CUDA_VISIBLE_DEVICES"] = the_gpu().uuid
    with subprocess.Popen([sys.executable, "-c", OUTSIDE, "8"], env=outside) as stranger:
        words = f"process {stranger.pid} "
        assert wait_until(lambda: words in launch.path.joinpath("status.json").read_text(), 8)
    status = launch.read_status()
    assert (status.code, status.over) == (("limit-broken", True) if strict else (None, False))
    if not strict:
        last = run_json("launches", "stop", launch.launch_id)
        assert "stranger" in last["observations"][0]["flags"]
        assert all(job["outcome"] == "stopped" for job in last["jobs"])
    assert nobody_computes()


def test_limit_of_the_smaller_share_is_called_set(jobs: Path) -> None:
    """The larger one is held by the server, as the real control program reports it."""
    last = run_json("launch", "good", "good", "--split", "50/26", "--duration", "3")
    assert [job["proof"] for job in last["jobs"]] == ["server", "set"]
    assert jobs.exists()
