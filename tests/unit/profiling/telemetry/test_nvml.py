"""The NVML source on the real pynvml, over a fake libnvidia-ml.so.1 in a subprocess."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from fake_nvml import FakeNvml, error

UUID = "GPU-00000000-0000-0000-0000-000000000000"

_PROLOGUE = """
import dataclasses, json, os, pathlib, sys, time
from advisor.errors import AdvisorError
from advisor_profiling.telemetry.nvml import NvmlSource, list_gpus
state = pathlib.Path(os.environ["FAKE_NVML_DIR"]) / "gpu0"
def put(key, value):
    state.mkdir(parents=True, exist_ok=True)
    (state / key).write_text(str(value))
def show(value):
    print(json.dumps(value, default=dataclasses.asdict))
try:
"""

_EPILOGUE = """
except AdvisorError as error:
    show({"error": error.code, "text": str(error)})
"""

Ask = Callable[[str], Any]


@pytest.fixture
def ask(nvml: FakeNvml) -> Ask:
    """Runs lines of Python over the fake library; the value that they show."""

    def run(lines: str) -> Any:
        body = "".join(f"    {line}\n" for line in lines.strip().splitlines())
        script = _PROLOGUE + body + _EPILOGUE
        environment = os.environ | nvml.environment
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_gpus_are_described_as_the_driver_does(nvml: FakeNvml, ask: Ask) -> None:
    """Every GPU is listed with its own UUID, memory, limit, mode and driver."""
    nvml.write(gpu_count=2, driver="580.1")
    nvml.write(gpu=1, name="Other", memory_total_mib=1000, power_limit_mw=300_000, mig=1)
    nvml.write(gpu=1, compute_mode=3)
    first, second = ask("show(list_gpus())")
    assert (first["uuid"], first["index"], first["compute_mode"]) == (UUID, 0, "default")
    assert second == {
        "uuid": UUID[:-1] + "1",
        "model": "Other",
        "vendor": "nvidia",
        "index": 1,
        "units_total": None,
        "memory_mib": 1000,
        "power_limit_w": 300.0,
        "driver": "580.1",
        "compute_mode": "exclusive-process",
        "mig": True,
    }


@pytest.mark.parametrize("name", ["1", f"{UUID[:-1]}1"])
def test_source_is_found_by_index_and_uuid(nvml: FakeNvml, ask: Ask, name: str) -> None:
    """A source watches the GPU that was named, not the first one."""
    nvml.write(gpu_count=2)
    nvml.write(gpu=1, power_mw=123_000)
    assert ask(f"s = NvmlSource({name!r}); show([s.gpu.index, s.power_w()])") == [1, 123.0]


def test_readings_have_our_units(nvml: FakeNvml, ask: Ask) -> None:
    """Milliwatts, millijoules and bytes become W, J and MiB."""
    nvml.write(gpu=0, power_mw=250_500, energy_mj=7500, sm_clock_mhz=1410, temperature_c=61)
    nvml.write(gpu=0, mem_clock_mhz=2619, memory_used_mib=2048)
    power_w, energy_j, state = ask(
        "s = NvmlSource(0); show([s.power_w(), s.energy_j(), s.state()])"
    )
    assert (power_w, energy_j) == (250.5, 7.5)
    assert state == {
        "sm_clock_mhz": 1410.0,
        "memory_clock_mhz": 2619.0,
        "temperature_c": 61.0,
        "memory_used_mib": 2048.0,
        "power_limit_w": 700.0,
        "throttle_reasons": [],
    }


def test_only_reasons_that_slow_the_gpu_are_named(nvml: FakeNvml, ask: Ask) -> None:
    """Idle (0x1) and a set clock (0x2) are not throttling; power caps and heat are."""
    nvml.write(gpu=0, throttle=0x1 | 0x2 | 0x4 | 0x40)
    assert ask("show(NvmlSource(0).state().throttle_reasons)") == ["sw-power-cap", "hw-thermal"]


def test_throttling_is_read_under_its_older_name(nvml: FakeNvml, ask: Ask) -> None:
    """A driver before 535 answers only to the older call."""
    nvml.write(gpu=0, throttle=error(13), throttle_old=0x8)
    assert ask("show(NvmlSource(0).state().throttle_reasons)") == ["hw-slowdown"]


def test_average_power_only_without_the_instant_field(nvml: FakeNvml, ask: Ask) -> None:
    """PowerUsage is read only where the instant field is not supported, and the name says so."""
    nvml.write(gpu=0, power_usage=error(4))
    assert ask("s = NvmlSource(0); show([s.name, s.power_w()])") == ["nvml", 80.0]
    nvml.write(gpu=0, power_usage=0, power_instant=error(3))
    assert ask("s = NvmlSource(0); show([s.name, s.power_w()])") == ["nvml-power-usage", 80.0]


def test_kind_of_power_is_decided_once(ask: Ask) -> None:
    """An instant field that vanishes gives None, never silently the average."""
    script = "s = NvmlSource(0); put('power_instant', 'error 3'); show([s.name, s.power_w()])"
    assert ask(script) == ["nvml", None]


def test_unsupported_readings_are_none(nvml: FakeNvml, ask: Ask) -> None:
    """What the GPU does not have is None and stops nothing."""
    missing = ("sm_clock_mhz", "mem_clock_mhz", "temperature_c", "memory_used_mib")
    nvml.write(gpu=0, **dict.fromkeys([*missing, "power_limit_mw", "throttle"], error(3)))
    nvml.write(gpu=0, energy_mj=error(3), memory_busy=error(21), mig=error(3))
    script = "s = NvmlSource(0); show([s.energy_j(), s.gpu.mig, s.state(), s.read_counters()])"
    energy_j, mig, state, counters = ask(script)
    assert energy_j is None
    assert mig is None
    assert set(state.values()) == {None}
    assert counters["memory_busy_percent"] is None


def test_every_counter_is_its_own_metric(ask: Ask) -> None:
    """Each column has the metric of its number; NVLink's receive is 60, its send 61."""
    assert ask("show(NvmlSource(0).read_counters())") == {
        "sm_active_percent": 12,
        "sm_occupancy_percent": 13,
        "integer_active_percent": 14,
        "tensor_active_percent": 15,
        "dram_active_percent": 20,
        "fp64_active_percent": 21,
        "fp32_active_percent": 22,
        "fp16_active_percent": 23,
        "memory_busy_percent": 30,
        "pcie_tx_mib_per_s": 1020,
        "pcie_rx_mib_per_s": 1021,
        "nvlink_rx_mib_per_s": 1060,
        "nvlink_tx_mib_per_s": 1061,
    }


def test_counters_that_the_driver_refuses_are_none(nvml: FakeNvml, ask: Ask) -> None:
    """One refused or undefined metric is None and the others stay."""
    nvml.write(gpu=0, gpm_2=error(3), gpm_60=error(2), gpm_10="nan")
    counters = ask("show(NvmlSource(0).read_counters())")
    missing = {name for name, value in counters.items() if value is None}
    assert missing == {"sm_active_percent", "nvlink_rx_mib_per_s", "dram_active_percent"}


@pytest.mark.parametrize("support", [0, error(3), error(13)])
def test_gpu_without_gpm_has_no_counters(nvml: FakeNvml, ask: Ask, support: int | str) -> None:
    """Before Hopper, or with an old driver, only the busy time of memory is there."""
    nvml.write(gpu=0, gpm_support=support)
    counters = ask("s = NvmlSource(0); s.start_counters(); show(s.read_counters())")
    assert {name for name, value in counters.items() if value is not None} == {
        "memory_busy_percent"
    }


def test_counters_can_be_read_again(ask: Ask) -> None:
    """Reading twice, at once after the start, keeps the samples more than 100 ms apart."""
    script = """
s = NvmlSource(0)
s.start_counters()
first = s.read_counters()
put("gpm_2", 77)
again = s.read_counters()
s.close()
show([first.sm_active_percent, again.sm_active_percent])
"""
    assert ask(script) == [12.0, 77.0]


def test_energy_ticks_and_follows_power(ask: Ask) -> None:
    """The fake counter moves in ticks of 0.1 s by the power of the moment, as the card's does."""
    script = """
put("power_mw", 200_000)
s = NvmlSource(0)
seen, end = [s.energy_j()], time.monotonic() + 0.55
while time.monotonic() < end:
    seen.append(s.energy_j())
show([round(b - a, 3) for a, b in zip(seen, seen[1:]) if b != a])
"""
    steps = ask(script)
    assert 2 <= len(steps) <= 5
    assert all(step % 20 == 0 for step in steps)


def test_memory_of_processes_counts_each_once(nvml: FakeNvml, ask: Ask) -> None:
    """A process in both lists counts once and others do not count."""
    nvml.write(gpu=0, compute_processes="10 500\n11 300", mps_processes="11 300\n12 64")
    script = "s = NvmlSource(0); show([s.processes_memory_mib(p) for p in ([10, 11], [12], [99])])"
    assert ask(script) == [800.0, 64.0, None]


def test_process_without_memory_has_no_context(nvml: FakeNvml, ask: Ask) -> None:
    """One that starts on another GPU passes through the list; a client may make no context."""
    nvml.write(gpu=0, compute_processes="10 500\n11 n/a\n12 0", mps_processes="10 500\n13 0")
    read = "nvml.context_pids(NvmlSource(0).gpu.uuid)"
    script = f"from advisor_profiling.telemetry import nvml; show({read})"
    assert ask(script) == [10, 11]


def test_memory_that_the_driver_hides_is_none(nvml: FakeNvml, ask: Ask) -> None:
    """One process without a figure makes the sum unknown, not smaller."""
    nvml.write(gpu=0, compute_processes="10 500\n11 n/a")
    assert ask("show(NvmlSource(0).processes_memory_mib([10, 11]))") is None


@pytest.mark.parametrize(
    ("code", "says"),
    [(9, "modprobe nvidia"), (4, "run as root"), (18, "reboot"), (12, "--gpus all")],
)
def test_driver_that_does_not_start_says_what_to_do(
    nvml: FakeNvml, ask: Ask, code: int, says: str
) -> None:
    """Each way in which NVML fails to start has its own advice."""
    nvml.write(init=error(code))
    answer = ask("show(list_gpus())")
    assert answer["error"] == "source"
    assert says in answer["text"]


@pytest.mark.parametrize("reading", ["power_w", "energy_j", "state", "read_counters"])
def test_lost_gpu_is_an_error_in_every_reading(ask: Ask, reading: str) -> None:
    """A GPU that falls off the bus is an error with advice, never a missing value."""
    answer = ask(f"s = NvmlSource(0); put('every', 'error 15'); show(s.{reading}())")
    assert answer["error"] == "source"
    assert "dmesg" in answer["text"]


@pytest.mark.parametrize("name", ["7", "GPU-nobody"])
def test_unknown_gpu_is_refused(ask: Ask, name: str) -> None:
    """An index or UUID that is not there is refused with the command that lists GPUs."""
    assert "nvidia-smi -L" in ask(f"show(NvmlSource({name!r}).gpu)")["text"]


def test_counters_without_permission_are_refused_at_once(nvml: FakeNvml, ask: Ask) -> None:
    """A driver that keeps counters to root is told when the source is opened, not mid-sweep."""
    nvml.write(gpu=0, gpm_sample=error(4))
    assert "NVreg_RestrictProfilingToAdminUsers" in ask("show(NvmlSource(0).gpu)")["text"]


def test_closed_source_answers_nothing(ask: Ask) -> None:
    """A reading after close is an error."""
    assert "closed" in ask("s = NvmlSource(0); s.close(); show(s.power_w())")["text"]


def test_no_library_says_that_the_driver_is_missing() -> None:
    """Without libnvidia-ml.so.1 the message names it."""
    script = _PROLOGUE.replace("FAKE_NVML_DIR", "HOME") + "    show(list_gpus())" + _EPILOGUE
    script = "import ctypes; ctypes.CDLL = lambda *_: (_ for _ in ()).throw(OSError())\n" + script
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "libnvidia-ml.so.1" in json.loads(done.stdout)["text"], done.stderr
