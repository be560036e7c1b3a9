"""A GPU whose counter is looked at while code runs."""

from collections import deque
from dataclasses import dataclass, field

from advisor.core.interval import Interval
from advisor.core.telemetry import ENERGY_GPU, POWER_GPU, TelemetrySource
from advisor.errors import SourceError
from advisor.validity.sensor_record import SensorRecord
from advisor_profiling.energy.answer import GpuEnergy
from advisor_profiling.energy.counted import Lateness, Tick, energy_between, lateness_of

_FIRST_TICKS, _LAST_TICKS = 256, 512
"""Of a block of hours only these are kept: those at its two ends tell its energy."""


@dataclass(slots=True, eq=False)
class Watched:
    """A GPU and what was seen of its counter: the first ticks, and the last ones."""

    source: TelemetrySource
    record: SensorRecord | None
    by: str = "counter"
    first: list[Tick] = field(default_factory=list[Tick])
    last: deque[Tick] = field(default_factory=lambda: deque(maxlen=_LAST_TICKS))
    looked_s: float = 0.0
    power_w: float | None = None

    @property
    def late(self) -> Lateness:
        return lateness_of(self.record)

    @property
    def ticks(self) -> list[Tick]:
        return [*self.first, *self.last]

    def look(self, now_s: float) -> None:
        """Read the counter; without one its power is added up."""
        readings = self.source.read((ENERGY_GPU,) if self.by == "counter" else (POWER_GPU,))
        if (energy_j := readings.get(ENERGY_GPU)) is None:
            energy_j = self._added_up(now_s)
        seen = self.ticks[-1:] if not self.last else [self.last[-1]]
        if not seen or energy_j > seen[0].energy_j:
            tick = Tick(self.looked_s if seen else now_s, now_s, energy_j)
            (self.first if len(self.first) < _FIRST_TICKS else self.last).append(tick)
        self.looked_s = now_s

    def _added_up(self, now_s: float) -> float:
        self.by = "power"
        power_w = self.source.read((POWER_GPU,))[POWER_GPU]
        if power_w is None:
            raise SourceError(
                f"GPU {self.source.gpu.uuid} tells neither energy nor power",
                fix="advisor doctor says what it lacks",
            )
        mean_w = power_w if self.power_w is None else (power_w + self.power_w) / 2
        since_s = now_s - self.looked_s if self.power_w is not None else 0.0
        so_far = self.ticks[-1].energy_j if self.first else 0.0
        self.power_w = power_w
        return so_far + mean_w * since_s

    def told(self, begun_s: float, ended_s: float) -> GpuEnergy:
        """Joules and watts of a stretch of the clock, as far as the readings know them."""
        found = _widened(energy_between(self.ticks, begun_s, ended_s, self.late), self.record)
        return GpuEnergy(
            gpu_model=self.source.gpu.model,
            gpu_uuid=self.source.gpu.uuid,
            energy_j=found,
            power_w=found.times(1 / (ended_s - begun_s)),
            by=self.by,
            sensor_known=self.record is not None,
        )


def _widened(found: Interval, record: SensorRecord | None) -> Interval:
    """With what a counter misses that does not look all the time, by square waves: two sigma."""
    counter = record and record.energy
    part = 2 * counter.coverage_spread if counter and not counter.covers_everything else 0.0
    return Interval(found.value, max(0.0, found.low * (1 - part)), found.high * (1 + part))
