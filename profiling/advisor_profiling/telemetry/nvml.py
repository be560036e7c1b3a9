"""Telemetry of NVIDIA GPUs through NVML (pynvml), the GPUs of this host, and their power limit.

What each call means is in NVIDIA's NVML API reference; sensor behaviour is from Yang, Adamek,
Armour, "Part-time Power Measurements" (SC24, arXiv 2312.02741).

The old power limit of a GPU is written to a file before a launch lowers it. The launch puts it back
at its end. If the launch is killed, its guard does so
(`python -P -m advisor_profiling.telemetry.nvml GPU_UUID`), or the next command of advisor that
holds the GPU. A limit that another tool has set meanwhile stays.
"""

import importlib
import json
import math
import sys
import time
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from advisor.core.gpu import LIMIT_COMMANDS, Gpu
from advisor.core.telemetry import (
    CLOCK_MEMORY,
    CLOCK_SM,
    ENERGY_GPU,
    MEMORY_USED,
    POWER_GPU,
    POWER_LIMIT,
    POWER_MEMORY,
    TEMPERATURE_GPU,
    Channel,
    ReadingGate,
    Readings,
    channels_of,
)
from advisor.errors import BusyError, InputError, SourceError, undone_by
from advisor.files import gpu_lock, private_folder, read_plain, replace_file
from advisor.settings import read_settings

# pynvml carries no types.
_pynvml: Any = importlib.import_module("pynvml")

# Not supported by the GPU, not in this driver's library, no data: a reading that is None.
_NOT_AVAILABLE = frozenset({3, 13, 21})

_ADVICE: dict[int, tuple[str, str]] = {
    1: ("NVML is not initialised", "do not use a source after it was closed"),
    4: (
        "this user may not read it",
        "run as root, or load the driver with NVreg_RestrictProfilingToAdminUsers=0",
    ),
    6: ("no GPU has this UUID or index", "list the GPUs with `nvidia-smi -L`"),
    2: ("NVML does not know this GPU or reading", "list the GPUs with `nvidia-smi -L`"),
    9: (
        "the NVIDIA driver is not loaded",
        "load it (`modprobe nvidia`); in a container, ask for the GPU (`--gpus all`)",
    ),
    12: (
        "libnvidia-ml.so.1, which comes with the NVIDIA driver, is not on this host",
        "install the driver, or in a container ask for the GPU (`--gpus all`)",
    ),
    15: (
        "the GPU has fallen off the bus or is not reachable",
        "look for Xid lines in `dmesg`, then reset the GPU or reboot the host",
    ),
    16: ("the GPU needs a reset", "reset it with `nvidia-smi --gpu-reset` when it is idle"),
    18: (
        "the driver in the kernel and its libraries have different versions",
        "reboot, or load the new driver; it was updated while in use",
    ),
}


@contextmanager
def nvml_session() -> Generator[None]:
    """NVML initialised for the length of the block.

    Raises:
        SourceError: no library, no driver, or no permission.
    """
    call("nvmlInit")
    try:
        yield
    finally:
        call("nvmlShutdown")


def call(function: str, *arguments: Any, missing: frozenset[int] = frozenset()) -> Any:
    """The answer of `pynvml.<function>`, or None for the errors of `missing`.

    Raises:
        SourceError: NVML returned any other error.
    """
    try:
        return getattr(_pynvml, function)(*arguments)
    except _pynvml.NVMLError as error:
        if error.value in missing:
            return None
        raise _nvml_error(function, error.value) from error


def reading(function: str, *arguments: Any) -> Any | None:
    """The answer of `pynvml.<function>`, or None where the GPU or driver does not give it.

    Raises:
        SourceError: NVML returned an error that is about more than this reading.
    """
    return call(function, *arguments, missing=_NOT_AVAILABLE)


def _nvml_error(function: str, code: int) -> SourceError:
    """Our error for the code that an NVML function returned."""
    names = (n for n in dir(_pynvml) if n.startswith("NVML_ERROR_"))
    nvml_name = next((n for n in names if getattr(_pynvml, n) == code), "NVML_ERROR_UNKNOWN")
    name = nvml_name.removeprefix("NVML_ERROR_").lower().replace("_", " ")
    why, fix = _ADVICE.get(code, ("", "run `nvidia-smi` and `dmesg` to see the state of the GPU"))
    return SourceError(f"{function} failed: {name} (NVML error {code})", why=why, fix=fix)


# Channel to GPM metric number.
METRICS: dict[str, int] = {
    "counter.gpu_busy": 1,
    "counter.sm_active": 2,
    "counter.sm_occupancy": 3,
    "counter.integer_active": 4,
    "counter.tensor_active": 5,
    "counter.dram_active": 10,
    "counter.fp64_active": 11,
    "counter.fp32_active": 12,
    "counter.fp16_active": 13,
    "counter.pcie_tx": 20,
    "counter.pcie_rx": 21,
    # Received comes first here, unlike everywhere else.
    "counter.nvlink_rx": 60,
    "counter.nvlink_tx": 61,
}


class _Gpm:
    """Counters of one GPU since `start`, or since it was made."""

    def __init__(self, device: Any) -> None:
        self._device = device
        support = reading("nvmlGpmQueryDeviceSupport", device)
        supported = support is not None and bool(support.isSupportedDevice)
        self._samples = [call("nvmlGpmSampleAlloc") for _ in range(2 if supported else 0)]
        self._started_s = 0.0
        self.start()
        # Nothing on GPUs without GPM.
        self.channels = tuple(METRICS) if supported else ()

    def start(self) -> None:
        if self._samples:
            call("nvmlGpmSampleGet", self._device, self._samples[0])
            self._started_s = time.monotonic()

    def read(self, names: Collection[str]) -> dict[str, float | None]:
        """Averages since the first sample; waits until that is more than 100 ms ago."""
        wanted = [name for name in names if name in self.channels]
        if not wanted:
            return {}
        # Two samples must be more than 100 ms apart.
        time.sleep(max(0.0, self._started_s + 0.11 - time.monotonic()))
        call("nvmlGpmSampleGet", self._device, self._samples[1])
        request = _pynvml.c_nvmlGpmMetricsGet_t()
        request.version = _pynvml.NVML_GPM_METRICS_GET_VERSION
        request.sample1, request.sample2 = self._samples
        request.numMetrics = len(wanted)
        for position, name in enumerate(wanted):
            request.metrics[position].metricId = METRICS[name]
        call("nvmlGpmMetricsGet", request)
        answers = {name: request.metrics[place] for place, name in enumerate(wanted)}
        # Any code but success is about this metric alone: what breaks the GPU fails the call.
        return {
            name: float(of.value) if of.nvmlReturn == 0 and math.isfinite(of.value) else None
            for name, of in answers.items()
        }

    def close(self) -> None:
        for sample in self._samples:
            call("nvmlGpmSampleFree", sample)
        self._samples = []


AVERAGE, INSTANT = 185, 186
GPU, MEMORY = 0, 2

# What NVML's power averages over, on Ampere and newer except GA100.
_AVERAGED_S = 1.0


# Number and scope of what is read where the card has it; of a channel the first that answers.
_FIELDS = {
    (INSTANT, GPU): Channel(POWER_GPU),
    (INSTANT, MEMORY): Channel(POWER_MEMORY),
    (AVERAGE, MEMORY): Channel(POWER_MEMORY, "mean", _AVERAGED_S),
}


class _PowerFields:
    """The power fields of one GPU; which ones it has is asked once."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._fields: dict[str, tuple[int, int]] = {}
        for field, milliwatts in zip(_FIELDS, self._ask(_FIELDS), strict=True):
            # A scope without a sensor may also answer 0, which no power of a running GPU is.
            if milliwatts:
                self._fields.setdefault(_FIELDS[field].name, field)
        self.channels = tuple(_FIELDS[field] for field in self._fields.values())

    def read(self, names: Collection[str]) -> dict[str, float | None]:
        """Watts of those that it has, in one call; none of them, no call."""
        wanted = {name: field for name, field in self._fields.items() if name in names}
        answers = self._ask(wanted.values()) if wanted else []
        return {
            name: None if milliwatts is None else milliwatts / 1000
            for name, milliwatts in zip(wanted, answers, strict=True)
        }

    def _ask(self, fields: Collection[tuple[int, int]]) -> list[int | None]:
        values = reading("nvmlDeviceGetFieldValues", self._device, [*fields])
        if values is None:
            return [None] * len(fields)
        return [milliwatts(*field, value) for field, value in zip(fields, values, strict=True)]


def milliwatts(number: int, scope: int, answer: Any) -> int | None:
    """The answer to a power field; None where the card does not have it.

    Raises:
        SourceError: NVML returned an error that is about more than this reading.
    """
    code = answer.nvmlReturn
    # NVML_ERROR_INVALID_ARGUMENT, too, may answer to a scope that a driver does not know.
    if code and not (scope != GPU and code == 2) and code not in _NOT_AVAILABLE:
        raise _nvml_error(f"field {number}", code)
    return None if code else int(answer.value.uiVal)


# Clocks event reasons (nvml.h, nvmlClocksEventReason*) that make a window not comparable.
_THROTTLE_REASONS: dict[int, str] = {
    0x04: "sw-power-cap",
    0x08: "hw-slowdown",
    0x20: "sw-thermal",
    0x40: "hw-thermal",
    0x80: "hw-power-brake",
}

# NVML samples memory activity by itself over 1/6 s to 1 s, by product (`nvmlUtilization_t`).
_MEMORY_BUSY = Channel("counter.memory_busy", "mean", 1.0)

_COMPUTE_MODES = ("default", "exclusive-thread", "prohibited", "exclusive-process")
_MIB = 2**20


def list_gpus() -> list[Gpu]:
    """NVIDIA GPUs of this host, by index; `units_total` is None.

    Raises:
        SourceError: no driver, or it does not answer.
    """
    with nvml_session():
        count = call("nvmlDeviceGetCount")
        return [_describe(call("nvmlDeviceGetHandleByIndex", index)) for index in range(count)]


def compute_pids(uuid: str) -> list[int]:
    """Processes that compute on a GPU, MPS clients and servers included, outside of containers."""
    with nvml_session():
        return sorted({process.pid for process in _running(_find(uuid))})


def context_pids(uuid: str) -> list[int]:
    """Processes with a context on a GPU, MPS clients and servers included, outside of containers.

    A process that initialises CUDA is in the list of every GPU of its host for some tenths of a
    second, without memory. The list of MPS clients has those, too, that never make a context.
    """
    with nvml_session():
        processes = reading("nvmlDeviceGetComputeRunningProcesses", _find(uuid)) or ()
        return sorted(process.pid for process in processes if process.usedGpuMemory != 0)


def held_mib(uuid: str) -> float | None:
    """GPU memory that processes hold; None: the driver is too old to tell it.

    `MEMORY_USED` has what the driver keeps for itself in it, too (`nvmlMemory_v2_t`).
    """
    with nvml_session():
        # This version of the answer tells used memory from the driver's own.
        return _memory_used_mib(_find(uuid), _pynvml.nvmlMemory_v2)


def busy_percent(uuid: str) -> float | None:
    """Time in which a kernel ran, over the last second or less (`nvmlUtilization_t`)."""
    with nvml_session():
        busy = reading("nvmlDeviceGetUtilizationRates", _find(uuid))
        return None if busy is None else float(busy.gpu)


def throttle_names(mask: int) -> tuple[str, ...]:
    """Names of the throttle reasons in a clocks event mask; the harmless ones are left out."""
    return tuple(name for bit, name in _THROTTLE_REASONS.items() if mask & bit)


class NvmlSource:
    """One NVIDIA GPU, by its UUID or its index in the order of `nvidia-smi`.

    Power is the instant field. Where a GPU does not have it, `nvmlDeviceGetPowerUsage` is read,
    which is an average over 1 s on Ampere and newer except GA100; `name` then has a mark for it.

    Raises:
        SourceError: no driver, no such GPU, or no permission.
    """

    interval_s = 0.02

    def __init__(self, uuid_or_index: str | int) -> None:
        call("nvmlInit")
        with undone_by(lambda: call("nvmlShutdown")):
            self._device = _find(str(uuid_or_index))
            self.gpu = _describe(self._device)
            self._power = _PowerFields(self._device)
            self._gpm = _Gpm(self._device)
        has_instant = any(channel.name == POWER_GPU for channel in self._power.channels)
        self.name = "nvml" if has_instant else "nvml-power-usage"
        (self._gate,) = self.gates = (ReadingGate(self.gpu, lambda: _power_limit_w(self._device)),)
        self._readers = _READERS | {_MEMORY_BUSY.name: _memory_busy_percent}
        if not has_instant:
            self._readers[POWER_GPU] = lambda device: _scaled(
                reading("nvmlDeviceGetPowerUsage", device), 1000
            )
        alone = (
            *(() if has_instant else (Channel(POWER_GPU, "mean", _AVERAGED_S),)),
            *channels_of(_READERS),
            _MEMORY_BUSY,
        )
        # A card may have no sensor for what its driver has a function.
        with undone_by(self.close):
            names = self._gate.offered(self._read([channel.name for channel in alone]))
        self.channels = (
            *self._power.channels,
            *(channel for channel in alone if channel.name in names),
            *channels_of(self._gpm.channels),
        )

    def read(self, names: Collection[str]) -> Readings:
        """Means since `start_window` are GPM's, which are read last: it may have to wait."""
        return self._gate.sift(self._read(names))

    def _read(self, names: Collection[str]) -> Readings:
        alone = {name: self._readers[name](self._device) for name in names if name in self._readers}
        return dict.fromkeys(names) | alone | self._power.read(names) | self._gpm.read(names)

    def throttle_reasons(self) -> tuple[str, ...] | None:
        """From NVML's mask of clock event reasons; None where the GPU has none."""
        mask = reading("nvmlDeviceGetCurrentClocksEventReasons", self._device)
        if mask is None:  # the name before driver 535
            mask = reading("nvmlDeviceGetCurrentClocksThrottleReasons", self._device)
        return None if mask is None else throttle_names(mask)

    def processes_memory_mib(self, pids: Collection[int]) -> float | None:
        """GPU memory of these processes, MPS clients or not; None when NVML names none of them.

        NVML knows processes by their number outside of containers.
        """
        used = {p.pid: p.usedGpuMemory for p in _running(self._device) if p.pid in pids}
        return None if not used or None in used.values() else sum(used.values()) / _MIB

    def start_window(self) -> None:
        """Take the sample of GPM from which its means are."""
        self._gpm.start()

    def close(self) -> None:
        """Free the samples of GPM, and shut NVML down also where that fails."""
        try:
            self._gpm.close()
        finally:
            call("nvmlShutdown")


def _running(device: Any) -> Iterator[Any]:
    """MPS clients or not; a process can be in both lists, with the same memory."""
    for name in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetMPSComputeRunningProcesses"):
        yield from reading(name, device) or ()


def _find(name: str) -> Any:
    if name.isdecimal():
        return call("nvmlDeviceGetHandleByIndex", int(name))
    return call("nvmlDeviceGetHandleByUUID", name)


def _describe(device: Any) -> Gpu:
    memory = reading("nvmlDeviceGetMemoryInfo", device)
    mode = reading("nvmlDeviceGetComputeMode", device)
    mig = reading("nvmlDeviceGetMigMode", device)
    return Gpu(
        uuid=call("nvmlDeviceGetUUID", device),
        model=call("nvmlDeviceGetName", device),
        index=call("nvmlDeviceGetIndex", device),
        memory_mib=None if memory is None else memory.total // _MIB,
        power_limit_w=_power_limit_w(device),
        driver=reading("nvmlSystemGetDriverVersion"),
        compute_mode=None if mode is None else _COMPUTE_MODES[int(mode)],
        mig=None if mig is None else bool(mig[0]),
    )


def _power_limit_w(device: Any) -> float | None:
    return _scaled(reading("nvmlDeviceGetEnforcedPowerLimit", device), 1000)


def _scaled(value: int | None, per_unit: int = 1) -> float | None:
    return None if value is None else value / per_unit


def _memory_used_mib(device: Any, *version: int) -> float | None:
    memory = reading("nvmlDeviceGetMemoryInfo", device, *version)
    return None if memory is None else memory.used / _MIB


def _memory_busy_percent(device: Any) -> float | None:
    busy = reading("nvmlDeviceGetUtilizationRates", device)
    return None if busy is None else float(busy.memory)


# Channels that are a call each.
_READERS: dict[str, Callable[[Any], float | None]] = {
    ENERGY_GPU: lambda device: _scaled(
        reading("nvmlDeviceGetTotalEnergyConsumption", device), 1000
    ),
    CLOCK_SM: lambda device: _scaled(reading("nvmlDeviceGetClockInfo", device, 1)),
    CLOCK_MEMORY: lambda device: _scaled(reading("nvmlDeviceGetClockInfo", device, 2)),
    TEMPERATURE_GPU: lambda device: _scaled(reading("nvmlDeviceGetTemperature", device, 0)),
    MEMORY_USED: _memory_used_mib,
    POWER_LIMIT: _power_limit_w,
}


@contextmanager
def lowered(gpu: Gpu, limit_w: float, runtime_dir: Path) -> Generator[None]:
    """A GPU that we hold at a lower power limit; as it was at the end.

    Raises:
        InputError: the card has no such limit, or it is not an NVIDIA one, or not one alone.
        SourceError: the driver does not let this user set it; nothing has changed then.
    """
    if gpu.vendor != "nvidia" or len(gpu.each) > 1:
        raise InputError(
            f"the power limit of {gpu.model} is not set here",
            why="advisor sets that of one NVIDIA GPU",
            fix=f"set it as administrator, {LIMIT_COMMANDS[gpu.vendor]} {limit_w:g}, and leave out "
            "--power-limit: the limit of each card is read",
        )
    with nvml_session():
        device = _find(gpu.uuid)
        before_w = call("nvmlDeviceGetPowerManagementLimit", device) / 1000
        least_mw, most_mw = call("nvmlDeviceGetPowerManagementLimitConstraints", device)
    if not least_mw <= 1000 * limit_w <= most_mw:
        raise InputError(
            f"the power limit of {gpu.model} cannot be {limit_w:g} W",
            fix=f"choose {least_mw / 1000:g} to {most_mw / 1000:g} W",
        )
    limits = json.dumps({"before_w": before_w, "ours_w": limit_w})
    replace_file(_limit_file(gpu.uuid, runtime_dir), limits.encode())
    try:
        _set_power_limit(gpu.uuid, limit_w)
        yield
    finally:
        put_back(gpu.uuid, runtime_dir)


def put_back(gpu_uuid: str, runtime_dir: Path) -> bool:
    """Set the limit that a GPU had before one of ours was; the caller holds the GPU.

    Returns:
        Whether one of ours was still set.

    Raises:
        SourceError: the driver does not let this user set it; it is tried again the next time.
    """
    file = _limit_file(gpu_uuid, runtime_dir)
    if (kept := read_plain(file, 4096)) is None:
        return False
    limits = json.loads(kept)
    with nvml_session():
        limit_w: float = call("nvmlDeviceGetPowerManagementLimit", _find(gpu_uuid)) / 1000
    if is_ours := limit_w == limits["ours_w"]:
        _set_power_limit(gpu_uuid, limits["before_w"])
    file.unlink()
    return is_ours


def _limit_file(gpu_uuid: str, runtime_dir: Path) -> Path:
    return private_folder(runtime_dir) / f"power-limit-{gpu_uuid}"


def _set_power_limit(gpu_uuid: str, limit_w: float) -> None:
    with nvml_session():
        try:
            _pynvml.nvmlDeviceSetPowerManagementLimit(_find(gpu_uuid), round(1000 * limit_w))
        except _pynvml.NVMLError as error:
            raise SourceError(
                f"the power limit of {gpu_uuid} cannot be set to {limit_w:g} W",
                why=f"NVML error {error.value}; it takes the rights of an administrator",
                fix=f"sudo nvidia-smi -i {gpu_uuid} -pl {limit_w:g}; then leave out --power-limit",
            ) from error


if __name__ == "__main__":
    # A process of advisor that holds the GPU has put the limit back.
    with suppress(BusyError), gpu_lock((settings := read_settings()).lock_dir, sys.argv[1]):
        put_back(sys.argv[1], settings.runtime_dir)
