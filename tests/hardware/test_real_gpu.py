"""On a real NVIDIA GPU, with MPS: run with `make gpu`. No setting of the GPU is changed.

The jobs need PyTorch or CuPy in the Python that `python3` starts.
"""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_gpu import advisor, run_json, the_gpu

from advisor.core.gpu import Share, units_for_percent
from advisor.errors import LimitNotProvenError, PartitionError
from advisor.formats.rows import flat
from advisor.runtime.backend import MpsBackend, open_mps
from advisor.settings import read_settings
from advisor_profiling.testbed import with_units

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[MpsBackend]:
    settings = read_settings()
    gpu = with_units(the_gpu(), settings)
    backend = open_mps(gpu, Path(f"/tmp/adv-{os.getpid()}"), settings.job_environment())
    yield backend
    with contextlib.suppress(PartitionError):  # a test may have ended the daemon
        backend.close()


def environment(backend: MpsBackend, percent: float, **more: str) -> dict[str, str]:
    return read_settings().job_environment() | backend.environment(Share(percent)) | more


def kill_after_the_first_point(*arguments: str) -> None:
    with subprocess.Popen(
        advisor(*arguments), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.strip().startswith("1/3"):
                break
        process.kill()


def test_all_ten_shares_are_read_back(backend: MpsBackend) -> None:
    total = backend.gpu.units_total
    assert total is not None
    shares = [Share(percent) for percent in range(10, 101, 10)]
    seen = [backend.prove(s, environment(backend, s.percent)).units for s in shares]
    print("granted:", *seen)
    assert seen == [units_for_percent(share.percent, total) for share in shares]
    if total == 132:
        assert seen == [12, 26, 38, 52, 66, 78, 92, 104, 118, 132]


def test_a_process_that_runs_already_is_watched(home: Path, tmp_path: Path) -> None:
    """Its own rate, memory and SM activity, of a job of PyTorch that only prints."""
    code = (
        "import time, torch\na = torch.randn(4096, 4096, device='cuda'); n = 0\n"
        "while True:\n"
        "    for _ in range(20): a @ a\n"
        "    torch.cuda.synchronize(); n += 20\n"
        "    print('step', n, time.monotonic(), flush=True)"
    )
    log, python = tmp_path / "log", read_settings().job_environment()
    python |= {"CUDA_VISIBLE_DEVICES": the_gpu().uuid}
    with log.open("wb") as output:
        job = subprocess.Popen(["python3", "-c", code], stdout=output, env=python)
    try:
        while b"step 200 " not in log.read_bytes():
            assert job.poll() is None, log.read_text()
            time.sleep(0.1)
        seen = run_json("watch", str(job.pid), "--once", "--every", "10")
    finally:
        job.kill()
        job.wait()
    moments = [(int(s), float(t)) for _, s, t in map(str.split, log.read_text().splitlines()[1:-1])]
    (first, first_s), (last, last_s) = moments[0], moments[-1]
    assert seen["rate"] == pytest.approx((last - first) / (last_s - first_s), rel=0.03)
    (gpu,) = seen["gpus"]
    print(gpu)
    assert gpu["memory_mib"] > 100
    assert gpu["power_w"] > 100
    assert gpu["sm_active_percent"] is None or gpu["sm_active_percent"] > 50


def test_memory_is_bounded_for_one_client(backend: MpsBackend) -> None:
    bounded = Share(50, memory_mib=4000)
    variables = read_settings().job_environment() | backend.environment(bounded)
    assert backend.prove(bounded, variables).memory_mib == 4000
    with pytest.raises(LimitNotProvenError, match="bounded at 4000 MiB") as refusal:
        backend.prove(bounded, environment(backend, 50, CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="0=8000M"))
    print(refusal.value)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        # The driver falls back to the whole GPU, or takes 0 as no limit; the read-back shows it.
        ({"CUDA_MPS_PIPE_DIRECTORY": "/tmp/nowhere"}, "MPS is not in force"),
        ({"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "0"}, "but a process saw"),
    ],
)
def test_lifted_limit_is_refused(backend: MpsBackend, changed: dict[str, str], said: str) -> None:
    with pytest.raises(LimitNotProvenError, match=said):
        backend.prove(Share(30), environment(backend, 30, **changed))


def test_dead_daemon_is_refused(backend: MpsBackend) -> None:
    pid = int((backend.control.pipe_dir / "nvidia-cuda-mps-control.pid").read_text())
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(PartitionError, match="no MPS daemon answers") as refusal:
        backend.prove(Share(30), environment(backend, 30))
    print(refusal.value)


def test_killed_profiler_goes_on(home: Path) -> None:
    command = ("profile", "triad", "--shares", "10,50,90", "--window", "2")
    kill_after_the_first_point(*command)
    answer = run_json(*command)
    assert [p["share_percent"] for p in answer["points"]] == [10, 50, 90]
    assert len({p["run"] for p in answer["points"]}) == 1


def test_job_that_faults_costs_only_its_own_share(home: Path) -> None:
    """A memory fault takes the neighbours at the gate down; they are measured again, alone."""
    job = home / "faulty.yaml"
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
    answer = run_json("profile", str(job), "--shares", "10,50,90", "--window", "2", code=5)
    assert [p["share_percent"] for p in answer["points"]] == [10, 90]
    assert [f["share_percent"] for f in answer["failures"]] == [50]


def test_pairs_share_the_gpu_at_their_splits(home: Path) -> None:
    splits = "10/90,90/10,66+66 units,uncapped,time-sliced"
    answer = run_json("colocate", "--pairs", "gemm+triad", "--splits", splits)
    rows = {(r["mode"], r["share_1_percent"]): r for r in map(flat, answer["points"])}
    for key, r in rows.items():
        print(key, f"{r['rate_1']:.4g} {r['rate_2']:.4g} {r['power_w']:.0f} W")
    assert answer["failures"] == []
    total = next(iter(rows.values()))["units_total"]
    for (mode, share), row in rows.items():
        assert row["units_1"] == (units_for_percent(share, total) if mode == "mps" else total)
    assert rows["mps", 90]["rate_1"] > 1.5 * rows["mps", 10]["rate_1"]
    assert rows["mps", 10]["rate_2"] > rows["mps", 90]["rate_2"]
    assert len(rows) == 5


def test_job_that_is_wrong_at_one_share(home: Path) -> None:
    """Its point at 92 SMs is flagged, the others are right, and advice keeps away from 92 SMs."""
    answer = run_json("profile", "dit-step", "--units", "66,92,132")
    points = {p["units_granted"]: p for p in answer["points"]}
    wrong = points.pop(92)
    print({units: (p["results"], p["reported"]) for units, p in points.items()}, wrong)
    assert wrong["results"] in ("wrong", "differ")
    assert {"wrong-results", "results-differ"} & set(wrong["flags"])
    assert {units: p["results"] for units, p in points.items()} == {66: "right", 132: "right"}
    advice = run_json(
        "recommend", "dit-step", "dit-step", "--all", "--gpu-model", answer["gpu_model"]
    )
    shares = [job["share_percent"] for c in advice["candidates"] for job in c["jobs"]]
    assert 92 not in {units_for_percent(share, 132) for share in shares if share}
    assert any("92" in text and "its own results were wrong" in text for text in advice["reasons"])
    assert home.exists()
