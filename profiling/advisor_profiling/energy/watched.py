"""A GPU whose counter is looked at while code runs, and the energy between two moments.

The counter moves in ticks and shows late. What is drawn at a time t stands in it from somewhere
between the least and the most that it is late, and in what is read after the next tick. So the
counter before and after bounds the energy, whatever the power did meanwhile; the value takes the
power between two ticks for even.
"""

import itertools
import math
import statistics
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from advisor.core.interval import Interval
from advisor.core.telemetry import ENERGY_GPU, POWER_GPU, TelemetrySource
from advisor.errors import SourceError
from advisor.validity.sensor_record import SensorRecord
from advisor.validity.sensor_timing import AVERAGE_SETTLE_S
from advisor_profiling.energy.answer import GpuEnergy
from advisor_profiling.window.clock import Clock

LOOK_S = 0.01
"""Ticks come ten times as rarely."""

_LONGER = 1.1
"""Some periods are longer than their median."""

_FIRST_TICKS, _LAST_TICKS = 256, 512
"""Of a block of hours only these are kept: those at its two ends tell its energy."""


@dataclass(frozen=True, slots=True)
class Lateness:
    """How long after a change of load a reading shows it, s: at least, in the mean, at most.

    Attributes:
        period_s: Between two readings at most.
    """

    least_s: float
    usual_s: float
    most_s: float
    period_s: float = 0.2

    @property
    def needed_s(self) -> float:
        """After this long what is read holds all that was drawn before."""
        return self.most_s + self.period_s


UNKNOWN = Lateness(0.0, 0.025, AVERAGE_SETTLE_S)
"""Of a sensor that nobody measured: usually as late as those of H100 and H200 (docs/power.md), and
at most as a mean over a second is."""


@dataclass(frozen=True, slots=True)
class Tick:
    """A change of the counter: not yet there at `after_s`, there at `at_s`."""

    after_s: float
    at_s: float
    energy_j: float

    @property
    def moment_s(self) -> float:
        """When it was, as near as it was looked."""
        return (self.after_s + self.at_s) / 2


def _lateness_of(record: SensorRecord | None) -> Lateness:
    """Of the readings that a record is of; None: nothing is known.

    Records say nothing of how late the counter is; it is taken to be so as the instant reading.
    """
    channel = record and record.channel("instant")
    if record is None or channel is None or not channel.accepted:
        return UNKNOWN
    period_ms = max(channel.period_ms, record.energy.period_ms if record.energy else 0.0)
    return Lateness(
        least_s=max(0.0, (channel.delay_ms - channel.delay_spread_ms / 2) / 1000),
        usual_s=(channel.delay_ms + channel.window_ms / 2) / 1000,
        most_s=channel.settle_s,
        period_s=_LONGER * period_ms / 1000,
    )


def energy_between(
    ticks: Sequence[Tick], begun_s: float, ended_s: float, late: Lateness
) -> Interval:
    """Energy of the time between, J, with what bounds it.

    The first tick is the counter when it was begun, and others follow until `needed_s` after the
    end.
    """
    least_s, needed_s = late.least_s, late.needed_s
    low = _at_least(ticks, ended_s + least_s) - _at_most(ticks, begun_s + needed_s)
    high = _at_most(ticks, ended_s + needed_s) - _at_least(ticks, begun_s + least_s)
    value = _even(ticks, ended_s + late.usual_s) - _even(ticks, begun_s + late.usual_s)
    low = max(0.0, low)
    return Interval(min(max(value, low), high), low, high)


def _at_least(ticks: Sequence[Tick], time_s: float) -> float:
    """What the counter showed then at least."""
    return max((t.energy_j for t in ticks if t.at_s <= time_s), default=ticks[0].energy_j)


def _at_most(ticks: Sequence[Tick], time_s: float) -> float:
    return max((t.energy_j for t in ticks if t.after_s <= time_s), default=ticks[0].energy_j)


def _even(ticks: Sequence[Tick], time_s: float) -> float:
    """The counter without ticks."""
    moments = [tick.moment_s for tick in ticks]
    if len(ticks) > 1:
        # Nobody saw the tick before the first look; it was a period before the next one.
        gaps = [b - a for a, b in itertools.pairwise(moments[1:])] or [moments[1] - moments[0]]
        moments[0] = min(moments[0], moments[1] - statistics.median(gaps))
    steps = zip(itertools.pairwise(moments), itertools.pairwise(ticks), strict=True)
    for (then_s, now_s), (before, after) in steps:
        if time_s <= now_s:
            part = max(0.0, time_s - then_s) / (now_s - then_s) if now_s > then_s else 1.0
            return before.energy_j + part * (after.energy_j - before.energy_j)
    return ticks[-1].energy_j


@dataclass(slots=True, eq=False)
class WatchedGpu:
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
        """How long after a change of load the counter shows it, by the record of its sensor."""
        return _lateness_of(self.record)

    @property
    def ticks(self) -> list[Tick]:
        """Those that are kept; between the first and the last ones some may be missing."""
        return [*self.first, *self.last]

    def look(self, now_s: Callable[[], float]) -> None:
        """Read the counter; without one its power is added up.

        The bounds hold however long a reading takes: it was after the clock showed one time, and
        before it shows another.
        """
        before_s = now_s()
        readings = self.source.read((ENERGY_GPU,) if self.by == "counter" else (POWER_GPU,))
        if (energy_j := readings.get(ENERGY_GPU)) is None:
            energy_j = self._added_up(before_s)
        seen = self.ticks[-1:] if not self.last else [self.last[-1]]
        if not seen or energy_j > seen[0].energy_j:
            tick = Tick(self.looked_s if seen else before_s, now_s(), energy_j)
            (self.first if len(self.first) < _FIRST_TICKS else self.last).append(tick)
        self.looked_s = before_s

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


def look_until(look: Callable[[], None], clock: Clock, until_s: Callable[[], float]) -> None:
    """Look again and again; the last look begins at that time or later, however long one takes."""
    looked_s = -math.inf
    while looked_s < until_s():
        clock.sleep(LOOK_S)
        looked_s = clock.now_s()
        look()


def _widened(found: Interval, record: SensorRecord | None) -> Interval:
    """With what a counter misses that does not look all the time, by square waves: two sigma."""
    counter = record and record.energy
    part = 2 * counter.coverage_spread if counter and not counter.covers_everything else 0.0
    return Interval(found.value, max(0.0, found.low * (1 - part)), found.high * (1 + part))
