"""What a telemetry source answers, live or replayed.

A source watches one GPU. Readings that the hardware or the exporter does not give are None.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from advisor.core.gpu import Gpu
from advisor.core.records import Counters


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuState:
    """State of a GPU at one moment.

    Attributes:
        throttle_reasons: Names of the active reasons that make a window not comparable
            (power cap, thermal, hardware slowdown); None when they cannot be read.
    """

    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    temperature_c: float | None = None
    memory_used_mib: float | None = None
    power_limit_w: float | None = None
    throttle_reasons: tuple[str, ...] | None = None


class Source(Protocol):
    """Power, energy, state and counters of one GPU."""

    @property
    def name(self) -> str:
        """Short name that points carry in `source`, such as "nvml"."""
        ...

    @property
    def interval_s(self) -> float:
        """How often a new power reading can appear; reading faster repeats values."""
        ...

    @property
    def gpu(self) -> Gpu:
        """The GPU that is watched."""
        ...

    def power_w(self) -> float | None:
        """Instant power of the GPU, W."""
        ...

    def energy_j(self) -> float | None:
        """Energy counter since the driver was loaded, J; it moves in ticks of about 0.1 s."""
        ...

    def state(self) -> GpuState:
        """Clocks, temperature, memory and throttle reasons now."""
        ...

    def processes_memory_mib(self, pids: Collection[int]) -> float | None:
        """GPU memory of the processes together, MiB; None where it is not known."""
        ...

    def start_counters(self) -> None:
        """Begin the window over which `read_counters` averages."""
        ...

    def read_counters(self) -> Counters:
        """Counters averaged since `start_counters`; it may be called more than once."""
        ...

    def close(self) -> None:
        """Free what the source holds; it answers nothing afterwards."""
        ...
