"""`advisor.energy` over the fake driver, in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fake_nvml import FakeNvml, error

_PROLOGUE = """
import json, os, pathlib, time
import advisor
from advisor.errors import AdvisorError
def told(e):
    return {"text": str(e), "duration_s": e.duration_s, "gpus": e.to_frame().to_dict("records")}
def lose():
    folder = pathlib.Path(os.environ["FAKE_NVML_DIR"]) / "gpu0"
    (folder / "every").write_text("error 15")
"""


@pytest.fixture
def cards(nvml: FakeNvml) -> FakeNvml:
    """Two H200 with a driver whose sensors are known; the second one has no energy counter."""
    nvml.write(gpu_count=2, driver="580.159.04")
    nvml.write(gpu=0, name="NVIDIA H200", power_mw=300_000)
    nvml.write(gpu=1, name="NVIDIA H200", power_mw=100_000, energy_mj=error(3))
    return nvml


def run(cards: FakeNvml, folder: Path, lines: str, **environment: str) -> Any:
    """What the lines print as JSON."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA_", "ADVISOR_"))}
    done = subprocess.run(
        [sys.executable, "-c", _PROLOGUE + lines],
        env={**kept, **cards.environment, "ADVISOR_HOME": str(folder / "home"), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_block_has_the_energy_of_each_gpu(cards: FakeNvml, tmp_path: Path) -> None:
    """By its counter, and by its power where it has none; the bounds hold both."""
    lines = """
with advisor.energy() as e:
    time.sleep(1.5)
print(json.dumps([told(e.measured), e.energy_j.value, e.power_w.value]))
"""
    measured, energy_j, power_w = run(cards, tmp_path, lines)
    assert 1.5 <= measured["duration_s"] < 2.5
    assert power_w == pytest.approx(400, rel=0.08)
    assert energy_j == pytest.approx(power_w * measured["duration_s"])
    for gpu, watts, by in zip(measured["gpus"], (300, 100), ("counter", "power"), strict=True):
        assert gpu["by"] == by
        assert gpu["sensor_known"]
        assert gpu["power_low_w"] <= watts <= gpu["power_high_w"]
        assert gpu["power_high_w"] - gpu["power_low_w"] < watts


def test_each_call_of_a_function_is_told(cards: FakeNvml, tmp_path: Path) -> None:
    """Of the visible GPU alone; a call between two ticks may have taken nothing."""
    lines = """
calls = []
@advisor.energy(told=calls.append)
def work():
    time.sleep(0.02)
    return 7
answers = [work(), work()]
print(json.dumps([answers, [told(call) for call in calls]]))
"""
    answers, calls = run(cards, tmp_path, lines, CUDA_VISIBLE_DEVICES="0")
    assert answers == [7, 7]
    for call in calls:
        (gpu,) = call["gpus"]
        assert gpu["energy_low_j"] == 0
        assert gpu["energy_high_j"] > 300 * call["duration_s"]
        assert "J (0 to" in call["text"]


def test_what_cannot_be_measured_is_said(cards: FakeNvml, tmp_path: Path) -> None:
    """A GPU that is lost meanwhile, a meter that measures already, one that has not yet."""
    lines = """
said = []
meter = advisor.energy(0)
for step in ("early", "twice", "lost"):
    try:
        if step == "early":
            meter.energy_j
        with meter:
            if step == "twice":
                meter.__enter__()
            lose()
    except AdvisorError as error:
        said.append(str(error))
try:
    advisor.energy(7).__enter__()
except AdvisorError as error:
    said.append(str(error))
print(json.dumps(said))
"""
    said = " ".join(run(cards, tmp_path, lines))
    assert "has not ended" in said
    assert "measures already" in said
    assert "fallen off the bus" in said
