"""Launches on a real NVIDIA GPU: run with `make gpu`. No setting of the GPU is changed.

The jobs need PyTorch, the faulty one CuPy, in the Python that `python3` starts.
"""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from real_gpu import SAFE_SPLIT, nobody_computes, run_json

from advisor.core.gpu import units_for_percent
from advisor_data import open_store

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(400)]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def run(*arguments: str, code: int = 0) -> dict[str, Any]:
    last = run_json(*arguments, code=code)
    print(json.dumps({k: v for k, v in last.items() if k != "forecast"}, indent=1))
    return last


def test_recommended_split_is_proven_and_observed(home: Path) -> None:
    (seen,) = run("launch", "triad", "gemm", "--min-speed", "0", "--duration", "15")["observations"]
    for job in seen["jobs"]:
        assert job["units"] == units_for_percent(job["share_percent"], 132)
        ratio = job["rate"] / job["predicted_rate"]
        print(f"rate of {job['job']}: {ratio:.3f} of the prediction")
    print(f"power: {seen['power_w'] / seen['predicted_power_w']:.3f} of the prediction")
    assert seen["energy_j"] == pytest.approx(seen["power_w"] * seen["overlap_s"], rel=0.1)
    with open_store(None, home) as store:
        assert len(store.observations(jobs=("gemm", "triad"))) == 1


@pytest.mark.parametrize("split", ["50/50", "uncapped", "time-sliced"])
def test_baselines_run(home: Path, split: str) -> None:
    (seen,) = run("launch", "triad", "gemm", "--split", split, "--duration", "12")["observations"]
    assert all(job["rate"] > 0 for job in seen["jobs"])
    assert home.exists()


@pytest.mark.parametrize("split", ["100/100/50", "uncapped", "time-sliced"])
def test_sets_run(home: Path, split: str) -> None:
    last = run("launch", "triad*2", "gemm", "--split", split, "--duration", "12")
    granted = [job["units_granted"] for job in last["jobs"]]
    assert granted == [132, 132, 66 if split == "100/100/50" else 132]
    assert all(job["proven"] and job["steps"] > 0 for job in last["jobs"])
    (seen,) = last["observations"]
    assert all(job["rate"] > 0 for job in seen["jobs"])
    assert home.exists()


def test_fault_takes_both_down_and_blames_one_at_most(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    command = ["python3", str(Path(__file__).with_name("faulty_job.py"))]
    progress = {"kind": "counter", "gate": True}
    text = json.dumps({"command": command, "progress": progress, "memory_mib": 1000})
    (jobs / "faulty.yaml").write_text(text)
    monkeypatch.setenv("ADVISOR_JOBS", str(jobs))
    last = run("launch", "faulty", "faulty", "--split", "50/26", code=5)
    assert last["code"] == "mps-fault"
    outcomes = sorted(job["outcome"] for job in last["jobs"])
    print(last["cause"])
    # The log of the server names a process, or it does not.
    assert outcomes in (["taken-down"] * 2, ["failed", "taken-down"])
    again = run("launch", "faulty", "faulty", "--split", "26/26", "--duration", "3")
    assert again["state"] == "stopped"
    assert home.exists()


def test_killed_supervisor_leaves_nothing_on_the_gpu(home: Path) -> None:
    started = run("launch", "triad", "gemm", "--split", SAFE_SPLIT, "--detach")
    os.kill(started["supervisor_pid"], signal.SIGKILL)
    time.sleep(1)
    assert run("launches", "show", started["launch_id"])["code"] == "supervisor-gone"
    again = run("launch", "triad", "gemm", "--split", SAFE_SPLIT, "--duration", "3")
    assert again["state"] == "stopped", (again["code"], again["cause"])
    assert nobody_computes()
    assert home.exists()


def test_unsafe_split_is_refused_and_watched_where_it_is_allowed(home: Path) -> None:
    pair = ("launch", "dit-step", "triad", "--split", "70/30")
    error = run(*pair, code=12)["error"]
    assert error["code"] == "unsafe-count"
    assert "70 % is 92" in error["message"]
    assert not list((home / "launches").glob("*"))
    # What the results must be like.
    run("profile", "dit-step", "--shares", "50,100", "--window", "2")
    allowed = ("--allow-unsafe", "--stop-on-wrong-results", "--duration", "30")
    last = run(*pair, *allowed, code=1)
    assert (last["state"], last["code"]) == ("failed", "wrong-results")
    assert last["jobs"][0]["results"] in ("wrong", "differ")
    assert last["jobs"][1]["results"] in ("right", None)
    assert any(text.endswith("launched as asked, and watched") for text in last["warnings"])
    (seen,) = last["observations"]
    assert {"wrong-results", "results-differ"} & set(seen["flags"])
    assert nobody_computes()
