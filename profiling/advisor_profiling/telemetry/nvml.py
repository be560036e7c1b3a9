"""Telemetry of NVIDIA GPUs through NVML (pynvml), and the GPUs of this host.

What each call means is in NVIDIA's NVML API reference; sensor behaviour is from Yang, Adamek,
Armour, "Part-time Power Measurements" (SC24, arXiv 2312.02741).
"""

from collections.abc import Callable, Collection, Iterator
from typing import Any

from advisor.core.gpu import Gpu
from advisor.core.telemetry import (
    CLOCK_MEMORY,
    CLOCK_SM,
    ENERGY_GPU,
    MEMORY_USED,
    POWER_GPU,
    POWER_LIMIT,
    TEMPERATURE_GPU,
    Channel,
    Readings,
    channels_of,
)
from advisor.errors import SourceError
from advisor_profiling.telemetry.gpm import Gpm
from advisor_profiling.telemetry.nvml_errors import MEMORY_V2, call, nvml_session, reading
from advisor_profiling.telemetry.nvml_fields import AVERAGED_S, PowerFields

THROTTLE_REASONS: dict[int, str] = {
    0x04: "sw-power-cap",
    0x08: "hw-slowdown",
    0x20: "sw-thermal",
    0x40: "hw-thermal",
    0x80: "hw-power-brake",
}
"""Clocks event reasons (nvml.h, nvmlClocksEventReason*) that make a window not comparable."""

_MEMORY_BUSY = Channel("counter.memory_busy", "mean", 1.0)
"""NVML samples memory activity by itself over 1/6 s to 1 s, by product (`nvmlUtilization_t`)."""

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
        device = call("nvmlDeviceGetHandleByUUID", uuid)
        return sorted({process.pid for process in _running(device)})


def context_pids(uuid: str) -> list[int]:
    """Processes with a context on a GPU, MPS clients and servers included, outside of containers.

    A process that initialises CUDA is in the list of every GPU of its host for some tenths of a
    second, without memory. The list of MPS clients has those, too, that never make a context.
    """
    with nvml_session():
        device = call("nvmlDeviceGetHandleByUUID", uuid)
        found = reading("nvmlDeviceGetComputeRunningProcesses", device) or ()
        return sorted(process.pid for process in found if process.usedGpuMemory != 0)


def held_mib(uuid: str) -> float | None:
    """GPU memory that processes hold; None: the driver is too old to tell it.

    `MEMORY_USED` has what the driver keeps for itself in it, too (`nvmlMemory_v2_t`).
    """
    with nvml_session():
        device = call("nvmlDeviceGetHandleByUUID", uuid)
        memory = reading("nvmlDeviceGetMemoryInfo", device, MEMORY_V2)
        return None if memory is None else memory.used / _MIB


def busy_percent(uuid: str) -> float | None:
    """Time in which a kernel ran, over the last second or less (`nvmlUtilization_t`)."""
    with nvml_session():
        busy = reading("nvmlDeviceGetUtilizationRates", call("nvmlDeviceGetHandleByUUID", uuid))
        return None if busy is None else float(busy.gpu)


def throttle_names(mask: int) -> tuple[str, ...]:
    """Names of the throttle reasons in a clocks event mask; the harmless ones are left out."""
    return tuple(name for bit, name in THROTTLE_REASONS.items() if mask & bit)


class NvmlSource:
    """One NVIDIA GPU, by its UUID or its index in the order of `nvidia-smi`.

    Power is the instant field. Where a GPU does not have it, `nvmlDeviceGetPowerUsage` is read,
    which is an average over 1 s on Ampere and newer except GA100; `name` then says so.

    Raises:
        SourceError: no driver, no such GPU, or no permission.
    """

    interval_s = 0.02

    def __init__(self, uuid_or_index: str | int) -> None:
        call("nvmlInit")
        try:
            self._device = _find(str(uuid_or_index))
            self.gpu = _describe(self._device)
            self._power = PowerFields(self._device)
            self._gpm = Gpm(self._device)
        except SourceError:
            call("nvmlShutdown")
            raise
        has_instant = any(channel.name == POWER_GPU for channel in self._power.channels)
        self.name = "nvml" if has_instant else "nvml-power-usage"
        self._readers = _READERS | {_MEMORY_BUSY.name: _memory_busy_percent}
        if not has_instant:
            self._readers[POWER_GPU] = _power_usage_w
        self.channels = (
            *self._power.channels,
            *(() if has_instant else (Channel(POWER_GPU, "mean", AVERAGED_S),)),
            *channels_of(_READERS),
            _MEMORY_BUSY,
            *channels_of(self._gpm.channels),
        )

    def read(self, names: Collection[str]) -> Readings:
        """Means since `start_window` are GPM's, which are read last: it may have to wait."""
        alone = {name: self._readers[name](self._device) for name in names if name in self._readers}
        power = self._power.read(names)
        return dict.fromkeys(names) | alone | power | self._gpm.read(names)

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
        if not used or None in used.values():
            return None
        return sum(used.values()) / _MIB

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


def _power_usage_w(device: Any) -> float | None:
    return _scaled(reading("nvmlDeviceGetPowerUsage", device), 1000)


def _energy_j(device: Any) -> float | None:
    return _scaled(reading("nvmlDeviceGetTotalEnergyConsumption", device), 1000)


def _memory_used_mib(device: Any) -> float | None:
    memory = reading("nvmlDeviceGetMemoryInfo", device)
    return None if memory is None else memory.used / _MIB


def _memory_busy_percent(device: Any) -> float | None:
    busy = reading("nvmlDeviceGetUtilizationRates", device)
    return None if busy is None else float(busy.memory)


_READERS: dict[str, Callable[[Any], float | None]] = {
    ENERGY_GPU: _energy_j,
    CLOCK_SM: lambda device: _scaled(reading("nvmlDeviceGetClockInfo", device, 1)),
    CLOCK_MEMORY: lambda device: _scaled(reading("nvmlDeviceGetClockInfo", device, 2)),
    TEMPERATURE_GPU: lambda device: _scaled(reading("nvmlDeviceGetTemperature", device, 0)),
    MEMORY_USED: _memory_used_mib,
    POWER_LIMIT: _power_limit_w,
}
"""Channels that are a call each."""
