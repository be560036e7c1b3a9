"""A GPU that runs one operation in a time of its own, with a power that is known exactly.

Its instant channel is the mean over a window that ended a delay ago, with noise; its energy counter
ticks ten times a second. What it says is what `LiveKernelBench` says of a real one.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from advisor.core.records import Counters
from advisor.validity.sensor_record import EnergyCounter, PowerChannel, SensorRecord
from advisor.wire.power import StretchPower
from advisor_power.kernels import STRETCH_S, KernelReady, PowerReading, Run, stretch_power
from advisor_profiling.window import CounterTick

INSTANT = PowerChannel(
    name="instant",
    period_ms=66.0,
    window_ms=25.0,
    delay_ms=12.0,
    noise_w=2.0,
    window_spread_ms=0.5,
    prediction_error=0.01,
    accepted=True,
)
FAST = replace(INSTANT, period_ms=10.0, window_ms=10.0, delay_ms=1.0)
"""Of a card that lets a campaign hurry."""

COUNTER = EnergyCounter(period_ms=100.0, coverage_spread=0.004, covers_everything=True)
TICK_S = 0.1
IDLE_W, MEMORY_W = 120.0, 50.0
SLOW_BY = 1.2
_STEP_S = 0.001
_KEPT_S = 4.0


def record(
    channel: PowerChannel | None = INSTANT, energy: EnergyCounter | None = COUNTER, **more: str
) -> SensorRecord:
    """A record of the card that is made up."""
    return SensorRecord(
        gpu_model=more.get("gpu_model", "Fake H200"),
        gpu_uuid=more.get("gpu_uuid", "GPU-1"),
        driver=more.get("driver", "580.00.00"),
        channels=(channel,) if channel else (),
        absent=() if channel else ("instant",),
        energy=energy,
        measured_at="2026-11-23T00:00:00Z",
        seconds=200.0,
        source="live",
    )


@dataclass
class MadeUpKernel:
    """A bench without a GPU.

    Attributes:
        power_w: Of the time since the start of a run, s.
        execution_s: Each takes this long; `slow` names runs that take `SLOW_BY` as long.
        dropped: Why a run cannot be used, by its number.
    """

    power_w: Callable[[float], float]
    execution_s: float = 0.0015
    lead_w: float = 500.0
    channel: PowerChannel = INSTANT
    slow: frozenset[int] = frozenset()
    first_slower: tuple[float, ...] = ()
    dropped: dict[int, str] = field(default_factory=dict)
    stuck_counter: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)
        self._times = np.array([0.0, 1.0])
        self._energies = np.array([0.0, IDLE_W])
        self._next_reading = float(self._random.uniform(0, self.channel.period_ms / 1000))
        self.runs = 0
        self.ready = KernelReady(
            operation="made up",
            execution_s=self.execution_s,
            launches=1,
            captured=True,
            units=132,
            libraries={"torch": "2.0.0"},
        )

    def run(self, executions: int, gap_s: float, lead_s: float = 0.0) -> Run:
        """Idle, what is before, then the executions; readings as they would have been seen."""
        number, self.runs = self.runs, self.runs + 1
        began = self._now if not lead_s else self._now + gap_s
        self._draw(gap_s, IDLE_W)
        self._draw(lead_s, self.lead_w)
        start, factor = self._now, SLOW_BY if number in self.slow else 1.0
        lengths = [self.execution_s * factor] * executions
        for place, slower in enumerate(self.first_slower[:executions]):
            lengths[place] *= slower
        self._draw(sum(lengths), self.power_w)
        ends = start + np.cumsum(lengths)
        self._draw(self.channel.settle_s, IDLE_W)
        return Run(
            starts_s=(start, *map(float, ends[:-1])),
            ends_s=tuple(map(float, ends)),
            lead_s=start - began,
            readings=tuple(r for r in self._readings() if r.at_s >= began),
            dropped=self.dropped.get(number, ""),
        )

    def stretch(
        self, settle_s: float, memory: tuple[PowerReading, ...] | None = None, dropped: str = ""
    ) -> StretchPower:
        """In steady power, with a mean over a second of the memory's four times a second."""
        begin = self._now
        self._draw(settle_s + STRETCH_S, self.power_w)
        executions = round((self._now - begin) / self.execution_s)
        edges = tuple(np.linspace(begin, self._now, executions + 1).tolist())
        rising = tuple(
            PowerReading(float(at), MEMORY_W * min(1.0, float(at - begin)) + 0.01 * place)
            for place, at in enumerate(np.arange(begin + 0.1, self._now, 0.25))
        )
        run = Run(
            starts_s=edges[:-1],
            ends_s=edges[1:],
            lead_s=0.0,
            readings=tuple(r for r in self._readings() if r.at_s >= begin),
            dropped=dropped,
        )
        memory = rising if memory is None else memory
        return stretch_power(run, memory, settle_s, Counters(), power_capped=False)

    def tick(self) -> CounterTick | None:
        if self.stuck_counter:
            return CounterTick(self._now, 1000.0)
        self._draw(TICK_S - self._now % TICK_S, IDLE_W)
        return CounterTick(self._now, round(float(self._energies[-1]), 3))

    @property
    def _now(self) -> float:
        return float(self._times[-1])

    def _draw(self, seconds: float, power_w: Callable[[float], float] | float) -> None:
        if seconds <= 0:
            return
        steps = max(1, round(seconds / _STEP_S)) if callable(power_w) else 1
        width = seconds / steps
        watts = (
            [power_w((step + 0.5) * width) for step in range(steps)]
            if callable(power_w)
            else [power_w]
        )
        # What is long ago no reading reaches.
        kept = slice(int(np.searchsorted(self._times, self._now - _KEPT_S)), None)
        times = self._now + width * np.arange(1, steps + 1)
        energies = self._energies[-1] + np.cumsum(np.array(watts) * width)
        self._times = np.concatenate([self._times[kept], times])
        self._energies = np.concatenate([self._energies[kept], energies])

    def _readings(self) -> list[PowerReading]:
        found: list[PowerReading] = []
        window, delay = self.channel.window_ms / 1000, self.channel.delay_ms / 1000
        while self._next_reading <= self._now:
            end = self._next_reading - delay
            first, last = np.interp([end - window, end], self._times, self._energies)
            noise = self._random.normal() * self.channel.noise_w
            found.append(PowerReading(self._next_reading, float((last - first) / window + noise)))
            self._next_reading += self.channel.period_ms / 1000
        return found
