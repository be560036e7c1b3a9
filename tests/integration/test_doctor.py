"""`advisor doctor` on hosts that lack one thing or another."""

import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from exporter import CLASSIC, exporter, text
from fake_nvml import error
from host import UUID, FakeHost
from store_points import point

from advisor.core.gpu import Gpu
from advisor.settings import read_settings
from advisor_data import open_store
from advisor_profiling import doctor as checks
from advisor_profiling.doctor import Finding, examine

GPU = Gpu(uuid=UUID, model="Fake H200", driver="580", compute_mode="default", mig=False)
NOWHERE = "http://127.0.0.1:9/metrics"
HOST_CHECKS = {"cores", "core-speed", "cpu-steal"}
"""They tell of the machine that runs the tests."""


def look(environment: dict[str, str], *gpus: Gpu) -> dict[str, Finding]:
    """Findings by check, for a host with these GPUs."""
    defaults = {"ADVISOR_DCGM_URL": NOWHERE, "ADVISOR_HOME": tempfile.gettempdir()}
    settings = read_settings({**defaults, **environment})
    return {finding.check: finding for finding in examine(settings, lambda: list(gpus))}


def missing(findings: dict[str, Finding]) -> set[str]:
    assert all(finding.fix for finding in findings.values() if finding.verdict != "ok")
    return {finding.check for finding in findings.values() if finding.verdict == "missing"}


def test_host_with_everything(host: FakeHost) -> None:
    done = host.advisor("doctor", "--json", ADVISOR_DCGM_URL=NOWHERE)
    assert done.returncode == 0, done.stdout
    rows = json.loads(done.stdout)["findings"]
    assert [set(row) for row in rows] == [{"check", "verdict", "found", "fix"}] * len(rows)
    found = {row["check"]: row for row in rows if row["check"] not in HOST_CHECKS}
    # That is not missing: it was never asked for on this host.
    assert found.pop("gpu 0 results")["fix"] == "advisor check"
    assert {row["verdict"] for row in found.values()} == {"ok"}
    assert found["gpu 0"]["found"] == f"Fake H200, {UUID}, driver 580.00.00"
    assert found["gpu 0 SMs"]["found"] == "132 SMs"
    assert found["gpu 0 energy"]["found"].startswith("counter ")
    assert found["gpu 0 telemetry"]["found"].startswith("power.gpu (instant, W), energy.gpu (total")
    assert "power.memory" not in found["gpu 0 telemetry"]["found"]
    assert found["mps"]["found"].endswith("version 13000")


def test_broken_host(host: FakeHost) -> None:
    """Everything is listed at once, each with its fix, and the exit code is 1."""
    state = host.folder / "nvml" / "gpu0"
    (state / "mig").write_text("1")
    (state / "gpm_support").write_text("0")
    (state / "energy_mj").write_text(error(3))
    (state / "power_memory_average_mw").write_text("49992")  # as on H100
    gone = str(host.folder / "gone")
    done = host.advisor("doctor", CUDA_MPS_PIPE_DIRECTORY=gone, ADVISOR_DCGM_URL=NOWHERE)
    assert done.returncode == 1
    lines = {" ".join(line.split()[:4]): line for line in done.stdout.splitlines()}
    assert "power.memory (mean, W)" in done.stdout
    assert f"no MPS daemon answers in {gone}" in lines["mps daemon missing no"]
    assert "turn MIG off" in lines["gpu 0 mode warning"]
    assert "--source dcgm" in lines["gpu 0 counters warning"]
    assert "no energy counter" in lines["gpu 0 energy warning"]
    assert "CUDA_MPS_PIPE_DIRECTORY set" in lines["environment warning CUDA_MPS_PIPE_DIRECTORY set"]


def test_host_without_a_driver(host: FakeHost) -> None:
    """The first line names what is missing, and what to do in a container."""
    (host.folder / "nvml" / "init").write_text(error(9))
    done = host.advisor("doctor", "--json")
    first, *rest = json.loads(done.stdout)["findings"]
    assert done.returncode == 1
    assert (first["check"], first["verdict"]) == ("gpu", "missing")
    assert "the NVIDIA driver is not loaded" in first["found"]
    assert "--gpus all" in first["fix"]
    assert {"cores", "store", "mps"} <= {row["check"] for row in rest}


@pytest.mark.parametrize(
    ("gpu", "more", "check", "words"),
    [
        (GPU, {"PATH": "/none"}, "mps", "nvidia-cuda-mps"),
        # NVML may list a GPU that no job could open.
        (GPU, {"FAKE_CUDA_ERROR": "100"}, "gpu 0 SMs", "error 100"),
        (
            replace(GPU, compute_mode="prohibited"),
            {},
            "gpu 0 mode",
            "nvidia-smi -c DEFAULT",
        ),
    ],
)
def test_what_a_gpu_lacks_is_missing(
    host: FakeHost, gpu: Gpu, more: dict[str, str], check: str, words: str
) -> None:
    """With the package or the command that mends it."""
    findings = look(host.environment(**more), gpu)
    assert check in missing(findings)
    assert words in findings[check].found + findings[check].fix


def test_amd_host_needs_no_mps(tmp_path: Path) -> None:
    """It is not called broken for lack of what only NVIDIA's need; a driver is not yet a GPU."""
    findings = look({"PATH": str(tmp_path)}, Gpu(uuid="x", model="MI300X", vendor="amd"))
    assert missing(findings) == set()
    assert "mps" not in findings
    assert "gpu" in missing(look({"PATH": str(tmp_path)}))


def test_a_damaged_page_of_the_database_is_found(tmp_path: Path) -> None:
    """Every command that reads other pages goes on as if nothing were."""
    with open_store(None, tmp_path) as store:
        store.add([point(number) for number in range(500)])
    file = tmp_path / "advisor.db"
    with file.open("r+b") as database:
        database.seek(file.stat().st_size // 2 // 4096 * 4096)
        database.write(bytes(4096))
    findings = look({"PATH": str(tmp_path), "ADVISOR_HOME": str(tmp_path)})
    assert findings["store"].verdict == "missing"
    assert "advisor.db is damaged" in findings["store"].found
    assert "advisor data restore" in findings["store"].fix


def test_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Points could not be kept: told before hours of measuring, without making the folder."""

    def refuse(*_: object) -> bool:
        return False  # root may write everywhere

    monkeypatch.setattr(os, "access", refuse)
    findings = look({"PATH": str(tmp_path), "ADVISOR_HOME": str(tmp_path / "new/home")})
    assert "store" in missing(findings)
    assert findings["store"].fix == "set ADVISOR_HOME"
    assert list(tmp_path.iterdir()) == []


def test_exporter_that_lacks_counters(tmp_path: Path) -> None:
    short = {k: v for k, v in CLASSIC.items() if "SM_ACTIVE" not in k}
    with exporter(text(short)) as running:
        environment = {"PATH": str(tmp_path), "ADVISOR_DCGM_URL": running.url}
        finding = look(environment)["dcgm-exporter"]
        assert finding.verdict == "warning"
        assert finding.found == "gives no DCGM_FI_PROF_SM_ACTIVE"
        running.text = text(CLASSIC)
        assert look(environment)["dcgm-exporter"].verdict == "ok"


@pytest.mark.parametrize(("slow", "verdict"), [(0.9, "ok"), (0.5, "warning")])
def test_a_disturbed_core_is_told(
    slow: float, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Launch-bound jobs follow the speed of their core, and CPU steal does not show it."""
    speeds = {0: 100.0, 7: 100.0 * slow}
    monkeypatch.setattr(checks, "core_speeds", lambda cores: speeds)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    found = look({}, GPU)["core-speed"]
    assert (found.verdict, found.found) == (
        verdict,
        f"the slowest core (7) does {100 * slow:.0f} % of the fastest",
    )
