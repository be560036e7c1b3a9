"""On a real NVIDIA GPU, with MPS: run with `make gpu`. No setting of the GPU is changed.

The jobs need PyTorch or CuPy in the Python that `python3` starts.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from advisor.errors import LimitNotProvenError, PartitionError
from advisor.gpu import Share, units_for_percent
from advisor.runtime.mps import MpsBackend, open_mps
from advisor.settings import read_settings
from advisor_profiling.live import find_gpu, with_units

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

H200_SMS = [12, 26, 38, 52, 66, 78, 92, 104, 118, 132]


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[MpsBackend]:
    settings = read_settings()
    gpu = with_units(find_gpu("0"), settings)
    backend = open_mps(gpu, Path(f"/tmp/adv-{os.getpid()}"), settings.job_environment())
    yield backend
    with contextlib.suppress(PartitionError):  # a test may have ended the daemon
        backend.close()


def environment(backend: MpsBackend, percent: float, **more: str) -> dict[str, str]:
    return read_settings().job_environment() | backend.environment(Share(percent)) | more


def advisor(home: Path, *arguments: str) -> list[str]:
    os.environ["ADVISOR_HOME"] = str(home)
    return [sys.executable, "-m", "advisor.cli", *arguments]


def run_json(home: Path, *arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [*advisor(home, *arguments), "--json"], capture_output=True, text=True, check=False
    )
    print(done.stderr)
    return json.loads(done.stdout)


def kill_after_the_first_point(home: Path, *arguments: str) -> None:
    with subprocess.Popen(
        advisor(home, *arguments), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.strip().startswith("1/3"):
                break
        process.kill()


def test_all_ten_shares_are_read_back(backend: MpsBackend) -> None:
    """The arithmetic agrees with the driver for every share of a sweep."""
    total = backend.gpu.units_total
    assert total is not None
    shares = [Share(percent) for percent in range(10, 101, 10)]
    seen = [backend.prove(s, environment(backend, s.percent)).units for s in shares]
    print("granted:", *seen)
    assert seen == [units_for_percent(share.percent, total) for share in shares]
    if total == 132:
        assert seen == H200_SMS


def test_wrong_pipe_directory_is_refused(backend: MpsBackend) -> None:
    """The driver falls back to the whole GPU; the read-back shows it."""
    lost = environment(backend, 30, CUDA_MPS_PIPE_DIRECTORY="/tmp/nowhere")
    with pytest.raises(LimitNotProvenError, match="MPS is not in force") as refusal:
        backend.prove(Share(30), lost)
    print(refusal.value)


def test_percentage_zero_is_refused(backend: MpsBackend) -> None:
    """The driver takes 0 as no limit; the read-back shows it."""
    lifted = environment(backend, 30, CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="0")
    with pytest.raises(LimitNotProvenError, match="but a process saw") as refusal:
        backend.prove(Share(30), lifted)
    print(refusal.value)


def test_dead_daemon_is_refused(backend: MpsBackend) -> None:
    """A killed daemon limits nobody."""
    pid = int((backend.control.pipe_dir / "nvidia-cuda-mps-control.pid").read_text())
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(PartitionError, match="no MPS daemon answers") as refusal:
        backend.prove(Share(30), environment(backend, 30))
    print(refusal.value)


def test_killed_profiler_goes_on(tmp_path: Path) -> None:
    """Kill -9 in mid-sweep on a real GPU: nothing is lost, nothing measured twice."""
    command = ("profile", "triad", "--shares", "20,50,80", "--window", "2")
    kill_after_the_first_point(tmp_path, *command)
    answer = run_json(tmp_path, *command)
    assert [p["share_percent"] for p in answer["points"]] == [20, 50, 80]
    assert len({p["run"] for p in answer["points"]}) == 1


def test_job_that_faults_costs_only_its_own_share(tmp_path: Path) -> None:
    """A memory fault takes the neighbours at the gate down; they are measured again, alone."""
    job = tmp_path / "faulty.yaml"
    job.write_text(
        json.dumps(
            {
                "name": "faulty",
                "command": ["python3", str(Path(__file__).with_name("faulty_job.py"))],
                "progress": {"kind": "counter", "gate": True},
                "memory_mib": 1000,
            }
        )
    )
    answer = run_json(tmp_path, "profile", str(job), "--shares", "20,50,80", "--window", "2")
    assert [p["share_percent"] for p in answer["points"]] == [20, 80]
    assert [f["share_percent"] for f in answer["failures"]] == [50]


def test_pairs_share_the_gpu_at_their_splits(tmp_path: Path) -> None:
    """Both limits are read back, and what one job gains with its share the other loses."""
    splits = "20/80,80/20,66+66 units,uncapped,time-sliced"
    answer = run_json(tmp_path, "colocate", "--pairs", "gemm+triad", "--splits", splits)
    rows = {(r["mode"], r["share_a_percent"]): r for r in answer["points"]}
    for key, r in rows.items():
        print(key, f"{r['rate_a']:.4g} {r['rate_b']:.4g} {r['power_w']:.0f} W")
    assert answer["failures"] == []
    total = next(iter(rows.values()))["units_total"]
    for (mode, share), row in rows.items():
        limited = mode == "mps"
        assert row["units_a"] == (units_for_percent(share, total) if limited else total)
    assert rows["mps", 80]["rate_a"] > 1.5 * rows["mps", 20]["rate_a"]
    assert rows["mps", 20]["rate_b"] > rows["mps", 80]["rate_b"]
    assert len(rows) == 5


def test_killed_campaign_goes_on(tmp_path: Path) -> None:
    """Kill -9 in mid-campaign on a real GPU: nothing is lost, nothing measured twice."""
    command = (
        "colocate",
        "--pairs",
        "gemm+triad",
        "--splits",
        "30/70,50/50,70/30",
        "--window",
        "2",
    )
    kill_after_the_first_point(tmp_path, *command)
    answer = run_json(tmp_path, *command)
    assert 1 <= answer["measured"] <= 2
    assert sorted(r["share_a_percent"] for r in answer["points"]) == [30, 50, 70]
