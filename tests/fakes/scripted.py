"""A telemetry source that follows a script on a virtual clock."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from advisor.core.gpu import Gpu
from advisor.core.records import Counters
from advisor.core.telemetry import (
    COUNTERS,
    ENERGY_GPU,
    POWER_GPU,
    Channel,
    ReadingGate,
    Readings,
    channels_of,
)
from advisor_profiling.window import VirtualClock

GPU = Gpu(uuid="GPU-1", model="Test GPU", units_total=132, memory_mib=1000)


@dataclass
class ScriptedSource:
    """`power` gives W at a time; the energy counter integrates `counter_power` in ticks."""

    clock: VirtualClock
    power: Callable[[float], float | None]
    counter_power: Callable[[float], float | None] | None = None
    counters: Counters = Counters()  # noqa: RUF009 - frozen
    throttle: Callable[[float], tuple[str, ...] | None] = lambda _: ()
    name: str = "scripted"
    interval_s: float = 0.02
    gates: Sequence[ReadingGate] = ()
    gpu: Gpu = GPU

    def __post_init__(self) -> None:
        self._ticks, self._energy_j = 0, 0.0

    @property
    def channels(self) -> tuple[Channel, ...]:
        return channels_of((POWER_GPU, ENERGY_GPU, *COUNTERS))

    def read(self, names: Collection[str]) -> Readings:
        return {name: self._reading(name) for name in names}

    def _reading(self, name: str) -> float | None:
        if name == POWER_GPU:
            return self.power(self.clock.now_s())
        if name == ENERGY_GPU:
            return self._counted_j()
        return getattr(self.counters, COUNTERS[name]) if name in COUNTERS else None

    def _counted_j(self) -> float | None:
        while (self._ticks + 1) * 0.1 <= self.clock.now_s():
            if (power_w := (self.counter_power or self.power)(self._ticks * 0.1)) is None:
                return None
            self._energy_j += 0.1 * power_w
            self._ticks += 1
        return self._energy_j

    def throttle_reasons(self) -> tuple[str, ...] | None:
        return self.throttle(self.clock.now_s())

    def processes_memory_mib(self, pids: Collection[int]) -> float | None:
        return None

    def start_window(self) -> None:
        pass

    def close(self) -> None:
        pass
