"""`advisor doctor` on hosts that lack one thing or another."""

import json
import os
import re
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from exporter import CLASSIC, exporter, text
from fake_nvml import FakeNvml, error
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


@pytest.mark.slow
def test_host_with_everything(host: FakeHost) -> None:
    done = host.advisor("doctor", "--json", ADVISOR_DCGM_URL=NOWHERE)
    assert done.returncode == 0, done.stdout
    rows = json.loads(done.stdout)["findings"]
    assert {tuple(row) for row in rows} == {("check", "verdict", "found", "fix")}
    found = {row["check"]: row for row in rows if row["check"] not in HOST_CHECKS}
    # That is not missing: it was never asked for on this host.
    assert found.pop("gpu 0 results")["fix"] == "advisor check"
    assert {row["verdict"] for row in found.values()} == {"ok"}
    words = {
        "gpu 0": f"Fake H200, {UUID}, driver 580.00.00",
        "gpu 0 SMs": "132 SMs",
        "gpu 0 energy": "counter .*",
        "gpu 0 telemetry": r"power.gpu \(instant, W\), energy.gpu \(total((?!power.memory).)*",
        "mps": ".*version 13000",
    }
    assert [
        check for check, text in words.items() if not re.fullmatch(text, found[check]["found"])
    ] == []


@pytest.mark.slow
def test_broken_host(host: FakeHost) -> None:
    """Everything is listed at once, each with its fix, and the exit code is 1."""
    FakeNvml(host.libraries, host.folder / "nvml").write(
        gpu=0, mig=1, gpm_support=0, energy_mj=error(3), power_memory_average_mw=49992
    )
    gone = str(host.folder / "gone")
    done = host.advisor("doctor", CUDA_MPS_PIPE_DIRECTORY=gone, ADVISOR_DCGM_URL=NOWHERE)
    assert done.returncode == 1
    shown = " ".join(done.stdout.split())
    for words in (
        r"power.memory \(mean, W\)",
        f"mps daemon missing no MPS daemon answers in {gone}",
        "gpu 0 mode warning .*turn MIG off",
        "gpu 0 counters warning .*--source dcgm",
        "gpu 0 energy warning no energy counter",
        "environment warning CUDA_MPS_PIPE_DIRECTORY set",
    ):
        assert re.search(words, shown), words


@pytest.mark.slow
def test_sensors_that_are_of_something_else_are_named(host: FakeHost) -> None:
    """A vGPU has no power, a GH200's counter is of its module: neither is called right."""
    card = FakeNvml(host.libraries, host.folder / "nvml")
    card.write(gpu=0, name="NVIDIA GH200 480GB", sm_clock_mhz=2**31)
    done = host.advisor("doctor", "--json", ADVISOR_DCGM_URL=NOWHERE)
    found = {row["check"]: row["found"] for row in json.loads(done.stdout)["findings"]}
    assert "of the module" in found["gpu 0 power"]
    assert "gpu 0 energy" not in found
    assert "energy.gpu" not in found["gpu 0 telemetry"]
    assert "clock.sm of 2,147,483,648 MHz (at most 20,000)" in found["gpu 0 readings"]
    no = dict.fromkeys(("power_instant", "power_usage", "energy_mj"), error(3))
    card.write(gpu=0, name="GRID A100", **no)
    shown = " ".join(host.advisor("doctor", ADVISOR_DCGM_URL=NOWHERE).stdout.split())
    assert "gpu 0 power warning no power here: rates only" in shown
    assert "power.gpu" not in shown


def test_host_without_a_driver(host: FakeHost) -> None:
    """The first line names what is missing, and what to do in a container."""
    (host.folder / "nvml" / "init").write_text(error(9))
    done = host.advisor("doctor", "--json")
    first, *rest = json.loads(done.stdout)["findings"]
    assert (done.returncode, first["check"], first["verdict"]) == (1, "gpu", "missing")
    assert "the NVIDIA driver is not loaded" in first["found"]
    assert "--gpus all" in first["fix"]
    assert {"cores", "store", "mps"} <= {row["check"] for row in rest}


@pytest.mark.slow
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
    finding = look({"PATH": str(tmp_path), "ADVISOR_HOME": str(tmp_path)})["store"]
    assert finding.verdict == "missing"
    assert re.search(
        "advisor.db is damaged.*advisor data restore", f"{finding.found} {finding.fix}"
    )


def test_exporter_that_lacks_counters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a folder that cannot be written: told before hours of measuring, without making it."""
    short = {k: v for k, v in CLASSIC.items() if "SM_ACTIVE" not in k}
    monkeypatch.setattr(os, "access", lambda *_: False)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType] - root may write everywhere
    home = {"PATH": str(tmp_path), "ADVISOR_HOME": str(tmp_path / "new/home")}
    with exporter(text(short)) as running:
        findings = look({**home, "ADVISOR_DCGM_URL": running.url})
        running.text = text(CLASSIC)
        assert look({**home, "ADVISOR_DCGM_URL": running.url})["dcgm-exporter"].verdict == "ok"
    lacking = findings["dcgm-exporter"]
    assert (lacking.verdict, lacking.found) == ("warning", "gives no DCGM_FI_PROF_SM_ACTIVE")
    assert "store" in missing(findings)
    assert (findings["store"].fix, [*tmp_path.iterdir()]) == ("set ADVISOR_HOME", [])


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
