"""The NVML source on the real pynvml, over a fake libnvidia-ml.so.1 in a subprocess."""

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_nvml import FakeNvml, error

from advisor.core.gpu import Gpu
from advisor.errors import InputError
from advisor_profiling.telemetry.nvml import lowered

UUID = "GPU-00000000-0000-0000-0000-000000000000"

_PROLOGUE = """
import dataclasses, functools, json, os, pathlib, sys, time
from advisor.errors import AdvisorError
from advisor.core.telemetry import COUNTERS
from advisor_profiling.telemetry.nvml import NvmlSource, list_gpus
def one(source, name):
    return source.read([name])[name]
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


def test_gpus_are_described_and_found_as_the_driver_does(nvml: FakeNvml, ask: Ask) -> None:
    nvml.write(gpu_count=2, driver="580.1")
    nvml.write(gpu=1, name="Other", memory_total_mib=1000, power_limit_mw=300_000, mig=1)
    nvml.write(gpu=1, compute_mode=3, power_mw=123_000)
    named = f"[one(NvmlSource(name), 'power.gpu') for name in ('1', {UUID[:-1] + '1'!r})]"
    (first, second), powers = ask(f"show([list_gpus(), {named}])")
    assert powers == [123.0, 123.0]
    found = "from advisor_profiling.testbed import find_gpu; show(find_gpu('1').beside)"
    assert ask(found) == [UUID]
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
        "beside": [],
        "others": [],
        "mig": True,
    }


def test_readings_have_our_units(nvml: FakeNvml, ask: Ask) -> None:
    """A process counts once also where it is in both lists; without a figure the sum is unknown.

    A process that starts on another GPU passes through the list; a client may make no context.
    """
    nvml.write(gpu=0, power_mw=250_500, energy_mj=7500, sm_clock_mhz=1410, temperature_c=61)
    nvml.write(gpu=0, mem_clock_mhz=2619, memory_used_mib=2048)
    nvml.write(
        gpu=0, compute_processes="10 500\n11 300\n13 n/a\n15 0", mps_processes="11 300\n12 64\n14 0"
    )
    script = "s = NvmlSource(0); names = [c.name for c in s.channels if 'counter.' not in c.name]"
    memory = "[s.processes_memory_mib(p) for p in ([10, 11], [12], [99], [10, 13])]"
    shown = f"[s.read(names), s.throttle_reasons(), {memory}, nvml.context_pids(s.gpu.uuid)]"
    assert ask(f"from advisor_profiling.telemetry import nvml; {script}; show({shown})") == [
        {
            "power.gpu": 250.5,
            "energy.gpu": 7.5,
            "clock.sm": 1410.0,
            "clock.memory": 2619.0,
            "temperature.gpu": 61.0,
            "memory.used": 2048.0,
            "power.limit": 700.0,
        },
        [],
        [800.0, 64.0, None, None],
        [10, 11, 13],
    ]


def test_only_reasons_that_slow_the_gpu_are_named(nvml: FakeNvml, ask: Ask) -> None:
    """Idle (0x1) and a set clock (0x2) are not throttling; power caps and heat are."""
    nvml.write(gpu=0, throttle=0x1 | 0x2 | 0x4 | 0x40)
    reasons = "show(NvmlSource(0).throttle_reasons())"
    assert ask(reasons) == ["sw-power-cap", "hw-thermal"]
    # A driver before 535 answers only to the older call.
    nvml.write(gpu=0, throttle=error(13), throttle_old=0x8)
    assert ask(reasons) == ["hw-slowdown"]


def test_average_power_only_without_the_instant_field(nvml: FakeNvml, ask: Ask) -> None:
    """PowerUsage is read only where the instant field is not supported, and the name says so."""
    nvml.write(gpu=0, power_usage=error(4))
    assert ask("s = NvmlSource(0); show([s.name, one(s, 'power.gpu')])") == ["nvml", 80.0]
    nvml.write(gpu=0, power_usage=0, power_instant=error(3))
    assert ask("s = NvmlSource(0); show([s.name, one(s, 'power.gpu')])") == [
        "nvml-power-usage",
        80.0,
    ]
    # What is read is decided once: a field that vanishes is never silently the average.
    nvml.write(gpu=0, power_instant=90_000)
    gone = "s = NvmlSource(0); put('power_instant', 'error 3'); show([s.name, one(s, 'power.gpu')])"
    assert ask(gone) == ["nvml", None]


def test_impossible_readings_are_left_out_and_cost_no_other(nvml: FakeNvml, ask: Ask) -> None:
    """Of a card that is read again and again; its limit was raised meanwhile."""
    nvml.write(gpu=0, energy_mj=90_000, power_limit_mw=300_000)
    script = """
s, found = NvmlSource(0), []
s.read(["energy.gpu"])
for power_mw, energy_mj in ((3_700_000_000, 9_000_000_000_000_000), (640_000, 91_000)):
    put("power_mw", power_mw), put("energy_mj", energy_mj), put("memory_used_mib", 2**32 - 1)
    found.append(s.read(["power.gpu", "energy.gpu", "memory.used", "clock.sm"]))
    put("power_limit_mw", 700_000)
show([found, s.gates[0].left_out[:22]])
"""
    (first, second), said = ask(script)
    none = {"power.gpu": None, "energy.gpu": None, "memory.used": None, "clock.sm": 1980.0}
    assert (first, second) == (none, none | {"power.gpu": 640.0, "energy.gpu": 91.0})
    assert said == "4 impossible readings "


def test_unsupported_readings_are_none(nvml: FakeNvml, ask: Ask) -> None:
    keys = ("sm_clock_mhz", "mem_clock_mhz", "temperature_c", "memory_used_mib", "power_limit_mw",
            "throttle", "energy_mj", "mig")  # fmt: skip
    nvml.write(gpu=0, memory_busy=error(21), **dict.fromkeys(keys, error(3)))
    names = ["energy.gpu", "clock.sm", "clock.memory", "temperature.gpu", "memory.used",
             "power.limit", "counter.memory_busy", "nothing"]  # fmt: skip
    shown = f"[s.gpu.mig, s.throttle_reasons(), s.read({['power.gpu', *names]})]"
    assert ask(f"s = NvmlSource(0); show({shown})") == [
        None, None, {"power.gpu": 80, **dict.fromkeys(names)}
    ]  # fmt: skip


def test_every_counter_is_its_own_metric(nvml: FakeNvml, ask: Ask) -> None:
    """NVLink's receive is 60, its send 61; a refused or undefined one takes no other with it."""
    assert ask("show(NvmlSource(0).read(COUNTERS))") == {
        "counter.gpu_busy": 11,
        "counter.sm_active": 12,
        "counter.sm_occupancy": 13,
        "counter.integer_active": 14,
        "counter.tensor_active": 15,
        "counter.dram_active": 20,
        "counter.fp64_active": 21,
        "counter.fp32_active": 22,
        "counter.fp16_active": 23,
        "counter.memory_busy": 30,
        "counter.pcie_tx": 1020,
        "counter.pcie_rx": 1021,
        "counter.nvlink_rx": 1060,
        "counter.nvlink_tx": 1061,
    }
    nvml.write(gpu=0, gpm_2=error(3), gpm_60=error(2), gpm_10="nan")
    counters = ask("show(NvmlSource(0).read(COUNTERS))")
    missing = {name for name, value in counters.items() if value is None}
    assert missing == {"counter.sm_active", "counter.nvlink_rx", "counter.dram_active"}


MEMORY_POWER = """
s = NvmlSource(0)
found = [[c.kind, c.window_s, c.unit] for c in s.channels if c.name == "power.memory"]
now = s.read(["power.memory", "power.gpu"])
put("power_memory_average_mw", "error 3")
put("power_memory_instant_mw", "error 3")
show([found, now, list(s.read(["power.memory", "power.gpu"]).values())])
"""


AVERAGE, INSTANT = ["mean", 1.0, "W"], ["instant", None, "W"]


@pytest.mark.parametrize(
    ("average", "instant", "channels", "power_w"),
    [
        (49_992, error(3), [AVERAGE], 49.992),
        (49_992, 51_000, [INSTANT], 51.0),
        # Refused, and a scope without a sensor: never 0.
        (error(3), error(3), [], None),
        (0, 0, [], None),
    ],
)
def test_power_of_the_memory_is_a_channel_where_the_card_has_it(
    nvml: FakeNvml,
    ask: Ask,
    average: int | str,
    instant: int | str,
    channels: list[object],
    power_w: float | None,
) -> None:
    """The average of a second on H100; the instant one is preferred."""
    nvml.write(gpu=0, power_memory_average_mw=average, power_memory_instant_mw=instant)
    assert ask(MEMORY_POWER) == [channels, {"power.memory": power_w, "power.gpu": 80.0}, [None, 80]]


COUNTING = """
import pynvml
called, pointer = [], pynvml._nvmlGetFunctionPointer
def counted(name):
    called.append(name)
    return pointer(name)
s = NvmlSource(0)
pynvml._nvmlGetFunctionPointer = counted
def calls(look):
    called.clear()
    look()
    return list(called)
"""


def test_a_look_costs_no_more_calls_than_there_are_sensors(nvml: FakeNvml, ask: Ask) -> None:
    """One for the power and the memory's; a sample and a question for any number of counters."""
    nvml.write(gpu=0, power_memory_average_mw=49_992)
    state = "['clock.sm', 'clock.memory', 'temperature.gpu', 'power.limit']"
    looks = ["s.read(['power.gpu'])", "s.read(['power.gpu', 'power.memory'])",
             "s.read(['energy.gpu'])", f"s.read({state})", "s.throttle_reasons()",
             "s.read(['counter.sm_active'])", "s.read(COUNTERS)"]  # fmt: skip
    shown = ", ".join(f"sorted(calls(lambda: {look}))" for look in looks)
    counters = ["nvmlGpmMetricsGet", "nvmlGpmSampleGet"]
    assert ask(f"{COUNTING}\nshow([{shown}])") == [
        ["nvmlDeviceGetFieldValues"],
        ["nvmlDeviceGetFieldValues"],
        ["nvmlDeviceGetTotalEnergyConsumption"],
        [
            *["nvmlDeviceGetClockInfo"] * 2,
            "nvmlDeviceGetEnforcedPowerLimit",
            "nvmlDeviceGetTemperature",
        ],
        ["nvmlDeviceGetCurrentClocksEventReasons"],
        counters,
        ["nvmlDeviceGetUtilizationRates", *counters],
    ]


@pytest.mark.parametrize("support", [0, error(3)])
def test_gpu_without_gpm_has_no_counters(nvml: FakeNvml, ask: Ask, support: int | str) -> None:
    """Before Hopper, or with an old driver, only the busy time of memory is there."""
    nvml.write(gpu=0, gpm_support=support)
    channels = "[c.name for c in s.channels if c.name in COUNTERS]"
    script = f"s = NvmlSource(0); s.start_window(); show([s.read(COUNTERS), {channels}])"
    counters, channels = ask(script)
    known = [name for name, value in counters.items() if value is not None]
    assert known == channels == ["counter.memory_busy"]


def test_counters_can_be_read_again(ask: Ask) -> None:
    """Reading twice, at once after the start, keeps the samples more than 100 ms apart."""
    script = """
s = NvmlSource(0)
s.start_window()
first = one(s, "counter.sm_active")
put("gpm_2", 77)
again = one(s, "counter.sm_active")
s.close()
show([first, again])
"""
    assert ask(script) == [12.0, 77.0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("host", "gpu", "script", "says"),
    [
        ({"init": error(9)}, {}, "list_gpus()", "modprobe nvidia"),
        ({"init": error(4)}, {}, "list_gpus()", "run as root"),
        ({"init": error(18)}, {}, "list_gpus()", "reboot"),
        ({"init": error(12)}, {}, "list_gpus()", "--gpus all"),
        ({}, {}, "NvmlSource('7').gpu", "nvidia-smi -L"),
        ({}, {}, "NvmlSource('GPU-nobody').gpu", "nvidia-smi -L"),
        # When the source is opened, not in mid-sweep.
        ({}, {"gpm_sample": error(4)}, "NvmlSource(0)", "NVreg_RestrictProfilingToAdminUsers"),
        ({}, {}, "[s := NvmlSource(0), s.close(), one(s, 'power.gpu')]", "closed"),
    ],
)
def test_what_cannot_be_read_says_what_to_do(
    nvml: FakeNvml,
    ask: Ask,
    host: dict[str, Any],
    gpu: dict[str, Any],
    script: str,
    says: str,
) -> None:
    nvml.write(**host)
    nvml.write(gpu=0, **gpu)
    answer = ask(f"show({script})")
    assert (answer["error"], says in answer["text"]) == ("source", True)


def test_lost_gpu_is_an_error_in_every_reading(ask: Ask) -> None:
    script = """
s, looks = NvmlSource(0), []
put("every", "error 15")
names = ["power.gpu"], ["energy.gpu"], ["clock.sm"], COUNTERS
for look in (*(functools.partial(s.read, some) for some in names), s.throttle_reasons):
    try:
        looks.append(look())
    except AdvisorError as error:
        looks.append([error.code, "dmesg" in str(error)])
show(looks)
"""
    assert ask(script) == [["source", True]] * 5


def test_no_library_says_that_the_driver_is_missing() -> None:
    script = _PROLOGUE.replace("FAKE_NVML_DIR", "HOME") + "    show(list_gpus())" + _EPILOGUE
    script = "import ctypes; ctypes.CDLL = lambda *_: (_ for _ in ()).throw(OSError())\n" + script
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "libnvidia-ml.so.1" in json.loads(done.stdout)["text"], done.stderr


_LOWERED = """
import signal
from advisor_profiling.telemetry.nvml import lowered, put_back
from advisor_profiling.testbed import find_gpu
home = state.parent.parent / "runtime"
now = lambda: int((state / "power_limit_mw").read_text())
"""


def test_a_lowered_power_limit_is_put_back(nvml: FakeNvml, ask: Ask) -> None:
    """At the end, after a crash by the next that holds the GPU, and not where others set it."""
    nvml.write(gpu=0, power_limit_mw=650_000)
    once = "with lowered(find_gpu('0'), 500, home): during = now()"
    assert ask(f"{_LOWERED}\n{once}\nshow([during, now()])") == [500_000, 650_000]
    killed = "with lowered(find_gpu('0'), 500, home): show(now()); sys.stdout.flush(); os._exit(0)"
    assert ask(f"{_LOWERED}\n{killed}") == 500_000
    again = (
        f"put_back({UUID!r}, home); first = now(); put_back({UUID!r}, home); show([first, now()])"
    )
    assert ask(f"{_LOWERED}\n{again}") == [650_000, 650_000]
    assert ask(f"{_LOWERED}\n{killed}") == 500_000
    nvml.write(gpu=0, power_limit_mw=600_000)
    assert ask(f"{_LOWERED}\n{again}") == [600_000, 600_000]


@pytest.mark.parametrize(
    ("limit_w", "code", "told"),
    [
        (500, "source", f"sudo nvidia-smi -i {UUID} -pl 500"),
        (100, "bad-input", "choose 200 to 700 W"),
    ],
)
def test_a_power_limit_that_cannot_be_set(
    nvml: FakeNvml, ask: Ask, limit_w: int, code: str, told: str
) -> None:
    nvml.write(gpu=0, power_limit_set=error(4))
    said = ask(f"{_LOWERED}\nwith lowered(find_gpu('0'), {limit_w}, home): show('set')")
    assert said["error"] == code
    assert told in said["text"]


_ONE = Gpu(uuid="GPU-1", model="NVIDIA H200")


@pytest.mark.parametrize(
    ("gpu", "told"),
    [
        (dataclasses.replace(_ONE, vendor="amd"), "rocm-smi --setpoweroverdrive 500"),
        (dataclasses.replace(_ONE, others=(_ONE,)), "nvidia-smi -pl 500"),
    ],
)
def test_limits_of_amd_and_of_several_gpus_are_set_by_hand(
    gpu: Gpu, told: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as refused, lowered(gpu, 500, tmp_path):
        pass
    assert told in str(refused.value.fix)
