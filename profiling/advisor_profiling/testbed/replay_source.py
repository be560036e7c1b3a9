"""Telemetry made of recorded points: power, counters and clocks of the window that plays."""

from collections.abc import Collection, Mapping

from advisor.core.gpu import Gpu
from advisor.core.records import HEAT, REPLAY_SOURCE, PairPoint, SoloPoint
from advisor.core.telemetry import (
    CLOCK_MEMORY,
    CLOCK_SM,
    COUNTERS,
    ENERGY_GPU,
    POWER_GPU,
    POWER_LIMIT,
    TEMPERATURE_GPU,
    Channel,
    Readings,
    channels_of,
)
from advisor_profiling.window.clock import Clock

_TICK_S = 0.1

_COLUMNS: Mapping[str, str] = {
    CLOCK_SM: "sm_clock_mhz",
    CLOCK_MEMORY: "memory_clock_mhz",
    TEMPERATURE_GPU: "temperature_c",
    POWER_LIMIT: "power_limit_w",
    **COUNTERS,
}
"""Channels that are a column of a point."""


class ReplaySource:
    """Telemetry of the window that is replayed at the moment.

    Attributes:
        playing: The recorded point; None while no job runs.
        waiting: Whether jobs are open on the GPU, at work or not.
        power_factor: What its power is multiplied by, for a replay with noise.
    """

    name = REPLAY_SOURCE
    interval_s = 0.02

    def __init__(
        self, gpu: Gpu, clock: Clock, idle_power_w: float | None, active_idle_power_w: float | None
    ) -> None:
        self.gpu = gpu
        self.playing: SoloPoint | PairPoint | None = None
        self.power_factor = 1.0
        self.waiting = False
        self._clock = clock
        self._idle_power_w, self._active_idle_power_w = idle_power_w, active_idle_power_w
        self._energy_j, self._metered_s = 0.0, 0.0

    @property
    def channels(self) -> tuple[Channel, ...]:
        """What points have columns for."""
        return channels_of((POWER_GPU, ENERGY_GPU, *_COLUMNS))

    def read(self, names: Collection[str]) -> Readings:
        """From the point that plays; between points only power and energy have values."""
        return {name: self._reading(name) for name in names}

    def throttle_reasons(self) -> tuple[str, ...] | None:
        """One for a point that was throttled: heat where its flags say so, else the power cap."""
        if self.playing is None or self.playing.throttled is None:
            return None
        heat = HEAT in self.playing.flags
        return (("hw-slowdown",) if heat else ("sw-power-cap",)) * self.playing.throttled

    def _reading(self, name: str) -> float | None:
        if name == POWER_GPU:
            return self._power_w()
        if name == ENERGY_GPU:
            return self._counted_j()
        column = _COLUMNS.get(name)
        return getattr(self.playing, column) if self.playing and column else None

    def _power_w(self) -> float | None:
        if self.playing is None:
            return self._active_idle_power_w if self.waiting else self._idle_power_w
        return self._played(self.playing.power_w)

    def _counted_j(self) -> float | None:
        """The counter's recorded power in ticks of a tenth of a second, as on the card.

        What was recorded without it has the power of the other reading.
        """
        counter_w = self.playing and self._played(self.playing.counter_power_w)
        power_w = self._power_w() if counter_w is None else counter_w
        ticks = (self._clock.now_s() - self._metered_s) // _TICK_S
        if power_w is None:
            return None
        self._energy_j += ticks * _TICK_S * power_w
        self._metered_s += ticks * _TICK_S
        return self._energy_j

    def _played(self, recorded_w: float | None) -> float | None:
        return None if recorded_w is None else recorded_w * self.power_factor

    def processes_memory_mib(self, pids: Collection[int]) -> float | None:
        """None: a record has no processes, and `ReplayProcess` has what was recorded."""
        return None

    def start_window(self) -> None:
        """Recorded counters have no window of their own."""

    def close(self) -> None:
        """Nothing is held."""
