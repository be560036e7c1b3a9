"""The AMD source on the real amdsmi package, over a fake libamd_smi.so in a subprocess."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

_PROLOGUE = """
import dataclasses, json
from advisor.errors import AdvisorError
from advisor_profiling.telemetry.amd import AmdSource, list_gpus
def show(value):
    print(json.dumps(value, default=dataclasses.asdict))
try:
"""

_EPILOGUE = """
except AdvisorError as error:
    show({"error": error.code, "text": str(error)})
"""

MI300, MI200, OTHER_PARTITION = "0 420 65535", "0 65535 310", "0 0 0"

Ask = Callable[..., Any]


def run(lines: str, environment: dict[str, str]) -> Any:
    body = "".join(f"    {line}\n" for line in lines.strip().splitlines())
    command = [sys.executable, "-c", _PROLOGUE + body + _EPILOGUE]
    environment = {k: v for k, v in os.environ.items() if k != "ROCM_HOME"} | environment
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def ask(rocm: Path) -> Ask:
    """Runs lines of Python over the fake library as a given kind of GPU."""

    def over(lines: str, kind: str = MI300) -> Any:
        return run(lines, {"ROCM_PATH": str(rocm), "FAKE_AMDSMI": kind})

    return over


def test_readings_have_our_units(ask: Ask) -> None:
    """Energy is ticks times microjoules. Graphics activity is not passed off as SM activity."""
    script = "from advisor.core.telemetry import COUNTERS; s = AmdSource('uuid-1')"
    shown = "[s.read([c.name for c in s.channels]), s.throttle_reasons(), s.read(COUNTERS)]"
    found, reasons, counters = ask(f"{script}; s.start_window(); show({shown})")
    assert found == {
        "power.gpu": 420,
        "energy.gpu": pytest.approx(15.3),
        "clock.sm": 2100,
        "clock.memory": 1300,
        "temperature.gpu": 58,
        "memory.used": 283,
        "power.limit": 750,
        "counter.memory_busy": 37,
    }
    assert reasons is None
    assert {k: v for k, v in counters.items() if v is not None} == {"counter.memory_busy": 37}


def test_power_is_the_field_that_the_generation_has(ask: Ask) -> None:
    """MI200 has only the average; 0 of a partition without sensors, and "N/A", are no reading."""
    script = "s = AmdSource('uuid-1'); show(s.read(['power.gpu', 'energy.gpu']))"
    assert ask(script, MI200)["power.gpu"] == 310
    assert ask(script, OTHER_PARTITION) == {"power.gpu": None, "energy.gpu": None}


def test_a_channel_is_offered_after_it_was_read(ask: Ask) -> None:
    """Of two dies with one sensor the first shows the watts of both, so neither has any."""
    script = """
import amdsmi
def offered():
    return {c.name for c in AmdSource("uuid-1").channels} & {"power.gpu", "energy.gpu", "clock.sm"}
found = [sorted(offered())]
amdsmi.amdsmi_get_gpu_asic_info = lambda device: {"market_name": "AMD Instinct MI250X"}
found.append(sorted(offered()))
show(found)
"""
    assert ask(script) == [["clock.sm", "energy.gpu", "power.gpu"], ["clock.sm"]]
    assert ask(script, OTHER_PARTITION) == [["clock.sm"], ["clock.sm"]]


def test_violations_become_throttle_reasons(ask: Ask) -> None:
    script = """
import amdsmi
s, answers = AmdSource("uuid-1"), []
for power, heat in [(True, False), (False, "N/A"), ("N/A", "N/A")]:
    status = {"active_ppt_pwr": power, "active_hbm_thrm": heat}
    amdsmi.amdsmi_get_violation_status = lambda device, status=status: status
    answers.append(s.throttle_reasons())
show(answers)
"""
    assert ask(script) == [["power-cap"], [], None]


def test_memory_of_processes_is_their_vram(ask: Ask) -> None:
    script = """
import amdsmi
def process(pid, mib):
    return {"pid": pid, "memory_usage": {"vram_mem": mib * 2**20, "gtt_mem": 1, "cpu_mem": 1}}
s = AmdSource("uuid-1")
before = s.processes_memory_mib([1])
amdsmi.amdsmi_get_gpu_process_list = lambda d: [process(1, 10), process(2, 5), process(3, 1)]
process_4 = {"pid": 4, "memory_usage": {"vram_mem": "N/A"}}
known = amdsmi.amdsmi_get_gpu_process_list("d")
amdsmi.amdsmi_get_gpu_process_list = lambda d: [*known, process_4]
show([before, *(s.processes_memory_mib(pids) for pids in ([1, 2], [9], [1, 4]))])
"""
    assert ask(script) == [None, 15, None, None]


def test_gpus_are_described(ask: Ask) -> None:
    """ROCm 7.13 gives the power limit in microwatts, others in watts."""
    script = """
import amdsmi
watts = iter([750, 750_000_000])
amdsmi.amdsmi_get_power_info = lambda device: {"power_limit": next(watts)}
amdsmi.amdsmi_get_gpu_asic_info = lambda device: {"market_name": "MI300X"}
amdsmi.amdsmi_get_gpu_driver_info = lambda device: {"driver_version": "N/A"}
show(list_gpus())
"""
    known = {"vendor": "amd", "model": "MI300X", "memory_mib": 196592, "power_limit_w": 750}
    first, second = ({k: v for k, v in gpu.items() if v not in (None, [])} for gpu in ask(script))
    assert (first["uuid"], second) == ("uuid-1", {**known, "uuid": "uuid-2", "index": 1})


@pytest.mark.parametrize(
    ("lines", "kind", "says"),
    [
        ("show(list_gpus())", MI300, "render"),
        ("show(AmdSource('uuid-7').gpu)", MI300, "uuid-1, uuid-2"),
        ("show(list_gpus())", "34 0 0", "modprobe amdgpu"),
    ],
)
def test_what_cannot_be_read_says_what_to_do(ask: Ask, lines: str, kind: str, says: str) -> None:
    answer = ask(lines, kind)
    assert (answer["error"], says in answer["text"]) == ("source", True)


def test_missing_library_is_our_error_and_prints_nothing() -> None:
    """Without the library, or the package, standard output stays clean for JSON."""
    answer = run("show(list_gpus())", {"ROCM_PATH": "/nonexistent"})
    assert (answer["error"], "amd-smi-lib" in answer["text"]) == ("source", True)
