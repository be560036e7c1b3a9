"""Telemetry of AMD GPUs through AMD SMI (the optional amdsmi package), and the GPUs of this host.

Fields and units are those of AMD SMI's Python reference for ROCm 7. In a partition mode other than
SPX, power, energy and activity are those of partition 0 alone; the others say 0 or nothing, which
is given as None. AMD SMI has no counter with the meaning of NVIDIA's SM activity: `gfx_activity` is
the time in which the graphics engine did anything, so it is not given under that name.
"""

import contextlib
import importlib
import io
from collections.abc import Callable, Collection, Mapping
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
    ReadingGate,
    Readings,
    channels_of,
)
from advisor.errors import SourceError, install, undone_by

# Fields of amdsmi_get_violation_status (MI300 and newer) that make a window not comparable.
_THROTTLE_REASONS: dict[str, str] = {
    "active_ppt_pwr": "power-cap",
    "active_prochot_thrm": "processor-hot",
    "active_socket_thrm": "socket-thermal",
    "active_vr_thrm": "regulator-thermal",
    "active_hbm_thrm": "memory-thermal",
}

# As the memory controller says at the moment: no mean over a window.
_MEMORY_BUSY = "counter.memory_busy"


_ADVICE: dict[int, tuple[str, str]] = {
    10: ("this user may not read it", "add the user to the groups `render` and `video`"),
    34: ("the amdgpu driver is not loaded", "load it (`modprobe amdgpu`)"),
}


def list_gpus() -> list[Gpu]:
    """AMD GPUs of this host, in the order of AMD SMI; `units_total` is None.

    Raises:
        SourceError: no amdsmi, no library, no driver, or it does not answer.
    """
    with contextlib.closing(_Smi()) as smi:
        devices = smi.call("amdsmi_get_processor_handles")
        return [_describe(smi, device, index) for index, device in enumerate(devices)]


class AmdSource:
    """One AMD GPU.

    Raises:
        SourceError: no amdsmi, no library, no driver, or no such GPU.
    """

    name = "amd"
    interval_s = 0.02

    def __init__(self, uuid: str) -> None:
        self._smi = _Smi()
        with undone_by(self._smi.close):
            devices = self._smi.call("amdsmi_get_processor_handles")
            uuids = [self._smi.call("amdsmi_get_gpu_device_uuid", device) for device in devices]
            if uuid not in uuids:
                names = ", ".join(uuids) or "none"
                raise SourceError(f"no AMD GPU has the UUID {uuid}", why=f"AMD SMI names {names}")
            self._device = devices[uuids.index(uuid)]
            self.gpu = _describe(self._smi, self._device, uuids.index(uuid))
        (self._gate,) = self.gates = (ReadingGate(self.gpu, lambda: self._readers[POWER_LIMIT]()),)
        self._readers: dict[str, Callable[[], float | None]] = {
            POWER_GPU: self._power_w,
            ENERGY_GPU: self._energy_j,
            CLOCK_SM: lambda: self._clock_mhz(0),
            CLOCK_MEMORY: lambda: self._clock_mhz(1),
            TEMPERATURE_GPU: self._temperature_c,
            MEMORY_USED: lambda: _number(self._read("amdsmi_get_gpu_vram_usage"), "vram_used"),
            POWER_LIMIT: lambda: _power_limit_w(self._read("amdsmi_get_power_info")),
            _MEMORY_BUSY: lambda: _number(self._read("amdsmi_get_gpu_activity"), "umc_activity"),
        }
        with undone_by(self._smi.close):
            names = self._gate.offered({name: read() for name, read in self._readers.items()})
        # The activity of the memory controller is of the moment here.
        usual = channels_of(name for name in names if name != _MEMORY_BUSY)
        self.channels = (*usual, *(Channel(name) for name in names if name == _MEMORY_BUSY))

    def read(self, names: Collection[str]) -> Readings:
        """Memory activity is what the memory controller says at the time of this call."""
        readers = self._readers
        return self._gate.sift(
            {name: readers[name]() if name in readers else None for name in names}
        )

    def throttle_reasons(self) -> tuple[str, ...] | None:
        """Violations that are active; None where the GPU tells none of those that are known."""
        status: Mapping[str, Any] = self._read("amdsmi_get_violation_status") or {}
        keys = [key for key in _THROTTLE_REASONS if isinstance(status.get(key), bool)]
        return tuple(_THROTTLE_REASONS[key] for key in keys if status[key]) if keys else None

    def processes_memory_mib(self, pids: Collection[int]) -> float | None:
        """VRAM of these processes, MiB; None when AMD SMI names none of them."""
        running: list[Any] = self._read("amdsmi_get_gpu_process_list") or []
        used = [_number(p["memory_usage"], "vram_mem") for p in running if p["pid"] in pids]
        sizes = [held for held in used if held is not None]
        return sum(sizes) / 2**20 if sizes and len(sizes) == len(used) else None

    def start_window(self) -> None:
        """AMD SMI averages by itself."""

    def close(self) -> None:
        """Shut AMD SMI down."""
        self._smi.close()

    def _power_w(self) -> float | None:
        """Power of the socket; MI300 has the current one, MI200 only an average."""
        power = self._read("amdsmi_get_power_info")
        keys = ("current_socket_power", "average_socket_power", "socket_power")
        return next((w for w in (_positive(power, key) for key in keys) if w is not None), None)

    def _energy_j(self) -> float | None:
        """Accumulator times resolution, which is in microjoules."""
        energy = self._read("amdsmi_get_energy_count")
        ticks = _positive(energy, "energy_accumulator")
        resolution_uj = _positive(energy, "counter_resolution")
        return None if ticks is None or resolution_uj is None else ticks * resolution_uj / 1e6

    def _temperature_c(self) -> float | None:
        """MI300 has no edge sensor; where there are both, the hot spot is what throttles."""
        now, types = self._smi.current_temperature, self._smi.temperature_types
        heats = (self._read("amdsmi_get_temp_metric", kind, now) for kind in types)
        return next((float(heat_c) for heat_c in heats if heat_c is not None), None)

    def _clock_mhz(self, number: int) -> float | None:
        return _number(self._read("amdsmi_get_clock_info", self._smi.clock_types[number]), "clk")

    def _read(self, function: str, *arguments: Any) -> Any | None:
        return self._smi.reading(function, self._device, *arguments)


class _Smi:
    """The edge to amdsmi: initialised for as long as it is not closed; errors become ours."""

    def __init__(self) -> None:
        printed = io.StringIO()
        try:
            # Without its library amdsmi prints to standard output, which may be a table or JSON.
            with contextlib.redirect_stdout(printed):
                self._module: Any = importlib.import_module("amdsmi")
        # And it raises KeyError then, not ImportError; other releases AttributeError or OSError.
        except Exception as error:  # whatever its next release raises: there is no telemetry
            raise SourceError(
                "AMD SMI cannot be loaded",
                why=" ".join(printed.getvalue().split()) or str(error),
                fix=f"install ROCm's amd-smi-lib and {install('amd')}",
            ) from error
        self.call("amdsmi_init")
        clocks, heat = self._module.AmdSmiClkType, self._module.AmdSmiTemperatureType
        self.clock_types = (clocks.GFX, clocks.MEM)
        self.temperature_types = (heat.HOTSPOT, heat.EDGE)
        self.current_temperature = self._module.AmdSmiTemperatureMetric.CURRENT

    def call(self, function: str, *arguments: Any, missing: frozenset[int] = frozenset()) -> Any:
        """The answer; None for errors that say there is none."""
        try:
            return getattr(self._module, function)(*arguments)
        except self._module.AmdSmiLibraryException as error:
            if (code := error.get_error_code()) in missing:
                return None
            why, fix = _ADVICE.get(
                code, ("", "run `amd-smi list` and `dmesg` to see the GPU's state")
            )
            raise SourceError(
                f"{function} failed: {error.err_info} (AMD SMI error {code})", why=why, fix=fix
            ) from error

    def reading(self, function: str, *arguments: Any) -> Any | None:
        # Not supported, not yet implemented, no data, unexpected data, no such file.
        return self.call(function, *arguments, missing=frozenset({2, 3, 40, 43, 52}))

    def close(self) -> None:
        self.call("amdsmi_shut_down")


def _describe(smi: _Smi, device: Any, index: int) -> Gpu:
    asic = smi.reading("amdsmi_get_gpu_asic_info", device)
    driver = smi.reading("amdsmi_get_gpu_driver_info", device)
    memory_mib = _positive(smi.reading("amdsmi_get_gpu_vram_usage", device), "vram_total")
    return Gpu(
        uuid=smi.call("amdsmi_get_gpu_device_uuid", device),
        model=_text(asic, "market_name") or "AMD GPU",
        vendor="amd",
        index=index,
        memory_mib=None if memory_mib is None else int(memory_mib),
        power_limit_w=_power_limit_w(smi.reading("amdsmi_get_power_info", device)),
        driver=_text(driver, "driver_version"),
    )


def _number(values: Mapping[str, Any] | None, key: str) -> float | None:
    """The value as a number; AMD SMI writes "N/A" where it has none."""
    value = None if values is None else values.get(key)
    return float(value) if isinstance(value, int | float) else None


def _power_limit_w(power: Mapping[str, Any] | None) -> float | None:
    """In watts: ROCm 6.4 and 7.1 say watts, 7.13 microwatts, and no card has 10 kW."""
    limit = _positive(power, "power_limit")
    return limit / 1e6 if limit and limit > 10_000 else limit


def _positive(values: Mapping[str, Any] | None, key: str) -> float | None:
    """As `_number`, for readings that cannot be 0 on a GPU that runs."""
    return _number(values, key) or None


def _text(values: Mapping[str, Any] | None, key: str) -> str | None:
    value = None if values is None else values.get(key)
    return None if value in (None, "", "N/A") else str(value)
