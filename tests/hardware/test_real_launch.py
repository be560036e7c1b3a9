"""Launches on a real NVIDIA GPU: run with `make gpu`. No setting of the GPU is changed.

The jobs need PyTorch, the faulty one CuPy, in the Python that `python3` starts.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from advisor.gpu import units_for_percent
from advisor_data import open_store
from advisor_profiling.nvml import compute_pids, list_gpus

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(400)]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def advisor(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "advisor.cli", *arguments]


def run(*arguments: str, code: int = 0) -> dict[str, Any]:
    done = subprocess.run(
        [*advisor(*arguments), "--json"], capture_output=True, text=True, check=False
    )
    print(done.stderr)
    last: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(json.dumps({k: v for k, v in last.items() if k != "forecast"}, indent=1))
    assert done.returncode == code, (last["code"], last["cause"])
    return last


def computing() -> list[int]:
    return compute_pids(list_gpus()[0].uuid)


def test_recommended_split_is_proven_and_observed(home: Path) -> None:
    """Granted SMs are the share's, and what was observed stands beside what was predicted."""
    last = run("launch", "triad", "gemm", "--duration", "15")
    (seen,) = last["observations"]
    for side in ("a", "b"):
        assert seen[f"units_{side}"] == units_for_percent(seen[f"share_{side}_percent"], 132)
        ratio = seen[f"rate_{side}"] / seen[f"predicted_rate_{side}"]
        print(f"rate of {seen[f'job_{side}']}: {ratio:.3f} of the prediction")
    print(f"power: {seen['power_w'] / seen['predicted_power_w']:.3f} of the prediction")
    assert seen["energy_j"] == pytest.approx(seen["power_w"] * seen["overlap_s"], rel=0.1)
    with open_store(None, home) as store:
        assert len(store.observations(pair=("gemm", "triad"))) == 1


@pytest.mark.parametrize("split", ["50/50", "uncapped", "time-sliced"])
def test_baselines_run(home: Path, split: str) -> None:
    """The same pair by each simpler way."""
    (seen,) = run("launch", "triad", "gemm", "--split", split, "--duration", "12")["observations"]
    assert seen["rate_a"] > 0
    assert seen["rate_b"] > 0
    assert home.exists()


def test_fault_takes_both_down_and_blames_nobody(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A memory fault on the server that both share ends both, and the GPU is free again."""
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    command = ["python3", str(Path(__file__).with_name("faulty_job.py"))]
    progress = {"kind": "counter", "gate": True}
    text = json.dumps({"command": command, "progress": progress, "memory_mib": 1000})
    (jobs / "faulty.yaml").write_text(text)
    monkeypatch.setenv("ADVISOR_JOBS", str(jobs))
    last = run("launch", "faulty", "faulty", "--split", "50/30", code=5)
    assert last["code"] == "mps-fault"
    assert [job["outcome"] for job in last["jobs"]] == ["taken-down"] * 2
    again = run("launch", "faulty", "faulty", "--split", "40/30", "--duration", "3")
    assert again["state"] == "stopped"
    assert home.exists()


def test_killed_supervisor_leaves_nothing_on_the_gpu(home: Path) -> None:
    """Kill -9 in the middle: the jobs end, and the next launch starts as if nothing had been."""
    started = run("launch", "triad", "gemm", "--split", "30/70", "--detach")
    os.kill(started["supervisor_pid"], signal.SIGKILL)
    deadline = time.monotonic() + 60
    time.sleep(1)
    assert run("launches", "show", started["launch_id"])["code"] == "supervisor-gone"
    again = run("launch", "triad", "gemm", "--split", "30/70", "--duration", "3")
    assert again["state"] == "stopped", (again["code"], again["cause"])
    while (left := computing()) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert left == []
    assert home.exists()


def test_launch_goes_on_without_its_command(home: Path) -> None:
    """Kill -9 of the command line: the launch runs, and another command stops it."""
    with subprocess.Popen(
        [*advisor("launch", "triad", "gemm", "--split", "30/70"), "--json"],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        status = next(s for s in map(json.loads, process.stdout) if s["state"] == "running")
        process.kill()
    time.sleep(3)
    last = run("launches", "stop", status["launch_id"])
    assert last["state"] == "stopped"
    assert last["observations"][0]["overlap_s"] > 2
    assert home.exists()
