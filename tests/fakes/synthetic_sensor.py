"""Recordings of made-up sensors, in the format of real ones: power is summed on a fine grid.

Nothing here is shared with the analysis but the stimulus and the format of the file.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from advisor_power.sensor import LoadStage, TraceHeader, steps_and_bursts, waves

Floats = npt.NDArray[np.float64]

HEADER = TraceHeader("NVIDIA H100 80GB HBM3", "GPU-1", "580.1", "2026-11-23T00:00:00Z", 1.7e9)
GRID_S = 0.0002
BEGUN_S = 100.0
LEAD_S = 3.0
"""Idle time before the first stage, so that every window has something to look back at."""


@dataclass(frozen=True, slots=True)
class MadeUpSensor:
    """A channel with known properties; `levels_w` are idle, between bursts, burst and long load.

    With a clock windows end a delay before its last tick. Each delay is another one, by half of
    `spread_s` up or down. An exponential one has a time constant of half of `window_s`.
    """

    period_s: float
    window_s: float
    delay_s: float
    noise_w: float
    levels_w: tuple[float, float, float, float] = (80.0, 120.0, 480.0, 520.0)
    spread_s: float = 0.0
    exponential: bool = False
    clock_s: float = 0.0


INSTANT = MadeUpSensor(0.066, 0.025, 0.012, 2.0)
AVERAGE = MadeUpSensor(0.1, 1.0, 0.02, 0.3)
FADING = MadeUpSensor(0.1004, 0.026, 0.003, 3.0, exponential=True, clock_s=0.02)
MEMORY = MadeUpSensor(0.1, 1.0, 0.02, 0.1, (40.0, 50.0, 90.0, 95.0))


@dataclass(slots=True)
class MadeUpCard:
    """A card and what is wrong with it.

    Attributes:
        sensors: By name of the channel.
        counter: integrates, samples (adds up what the instant sensor looks at) or none.
        stages: The stimulus; None: a quarter of it, at the period of the instant sensor.
        later_period_s: Of the instant channel, once the waves have begun.
        looks: Throttle reasons and processes at each second since the beginning.
        ends_at_s: The recording is cut off then, s since the beginning.
    """

    sensors: dict[str, MadeUpSensor] = field(
        default_factory=lambda: {"instant": INSTANT, "average": AVERAGE, "memory": MEMORY}
    )
    counter: str = "integrates"
    stages: Sequence[LoadStage] | None = None
    later_period_s: float | None = None
    looks: Callable[[int], tuple[list[str], list[int]]] = lambda _: ([], [1])
    ends_at_s: float = float("inf")
    seed: int = 1

    def lines(self) -> list[list[Any]]:
        draw = np.random.default_rng(self.seed)
        if (stages := self.stages) is None:
            every = *steps_and_bursts(self.seed), *waves(self._wave_period_s(), self.seed)
            stages = shorter(every)
        events, length_s, waves_at_s = _events(stages)
        lines: list[list[Any]] = list(events)
        for name, sensor in self.sensors.items():
            power_w = _power(sensor, stages, length_s)
            periods = (sensor.period_s, self._later(name, sensor))
            times_s = _updates(periods, waves_at_s, length_s, draw)
            values = _read(sensor, power_w, times_s, draw)
            lines += _changes(name, times_s, values)
            if name == "instant":
                lines += self._energy(power_w, times_s, values, length_s, draw)
        for second in range(int(length_s) + 1):
            reasons, processes = self.looks(second)
            lines.append(["look", BEGUN_S + second, reasons, processes])
        whole = [line for line in lines if _time_of(line) < BEGUN_S + self.ends_at_s]
        if length_s < self.ends_at_s:
            whole.append(["end", BEGUN_S + length_s])
        return whole

    def write(self, path: Path) -> Path:
        lines = [asdict(HEADER), *self.lines()]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path

    def _wave_period_s(self) -> float:
        return (self.sensors.get("instant") or next(iter(self.sensors.values()))).period_s

    def _later(self, name: str, sensor: MadeUpSensor) -> float:
        return (name == "instant" and self.later_period_s) or sensor.period_s

    def _energy(
        self,
        power_w: Floats,
        times_s: Floats,
        values: Floats,
        length_s: float,
        draw: np.random.Generator,
    ) -> list[list[Any]]:
        ticks_s = np.arange(draw.uniform(0, 0.1), length_s, 0.1)
        if self.counter == "integrates":
            joules = np.interp(ticks_s, _grid(length_s), np.cumsum(power_w) * GRID_S)
        elif self.counter == "samples":
            total = np.concatenate(([0.0], np.cumsum(values[:-1] * np.diff(times_s))))
            joules = total[np.searchsorted(times_s, ticks_s, side="right") - 1]
        else:
            return []
        return _changes("energy", ticks_s, 1000.0 + joules)


def shorter(stages: Sequence[LoadStage]) -> tuple[LoadStage, ...]:
    """A quarter of the time: fewer bursts, and fewer and shorter waves."""
    found: list[LoadStage] = []
    for stage in stages:
        wave, bursts = "wave" in stage.name, stage.name == "bursts"
        length_s = 2.5 if wave else 16.0 if bursts else stage.length_s
        on = tuple(span for span in stage.on if span[1] < length_s) if wave or bursts else stage.on
        found.append(LoadStage(stage.name, length_s, on))
    return tuple(found[:18])


def _grid(length_s: float) -> Floats:
    return np.arange(-LEAD_S, length_s, GRID_S)


def _events(stages: Sequence[LoadStage]) -> tuple[list[list[Any]], float, float]:
    lines, begun_s, waves_at_s = list[list[Any]](), 0.0, float("inf")
    for stage in stages:
        if "wave" in stage.name:
            waves_at_s = min(waves_at_s, begun_s)
        lines.append(["stage", stage.name, BEGUN_S + begun_s])
        lines += [["on", BEGUN_S + begun_s + a, BEGUN_S + begun_s + b] for a, b in stage.on]
        begun_s += stage.length_s
    return lines, begun_s, waves_at_s


def _power(sensor: MadeUpSensor, stages: Sequence[LoadStage], length_s: float) -> Floats:
    idle_w, between_w, burst_w, long_w = sensor.levels_w
    grid_s = _grid(length_s)
    power_w = np.full(len(grid_s), idle_w)
    begun_s, flat_over = 0.0, False
    for stage in stages:
        ended_s = begun_s + stage.length_s
        if flat_over:
            power_w[(grid_s >= begun_s) & (grid_s < ended_s)] = between_w
        for a, b in stage.on:
            first, last = np.searchsorted(grid_s, [begun_s + a, begun_s + b])
            power_w[first:last] = long_w if stage.name == "flat" else burst_w
        flat_over = flat_over or stage.name == "flat"
        begun_s = ended_s
    return power_w


def _updates(
    periods_s: tuple[float, float], change_s: float, length_s: float, draw: np.random.Generator
) -> Floats:
    early_s = np.arange(draw.uniform(-periods_s[0], 0), min(change_s, length_s), periods_s[0])
    if change_s >= length_s:
        return early_s
    return np.concatenate((early_s, np.arange(early_s[-1] + periods_s[1], length_s, periods_s[1])))


def _read(
    sensor: MadeUpSensor, power_w: Floats, times_s: Floats, draw: np.random.Generator
) -> Floats:
    total = np.concatenate(([0.0], np.cumsum(power_w))) * GRID_S
    edges_s = -LEAD_S + GRID_S * np.arange(len(total))
    late_s = sensor.spread_s * draw.uniform(-0.5, 0.5, len(times_s)) if sensor.spread_s else 0.0
    seen_s = times_s
    if sensor.clock_s:
        seen_s = 0.004 + sensor.clock_s * np.floor((times_s - 0.004) / sensor.clock_s)
    ends_s = seen_s - sensor.delay_s - late_s
    windows = np.interp(ends_s, edges_s, total) - np.interp(
        ends_s - sensor.window_s, edges_s, total
    )
    read_w = windows / sensor.window_s
    if sensor.exponential:
        kernel = np.exp(-np.arange(0, 5 * sensor.window_s, GRID_S) / (sensor.window_s / 2))
        filtered: Floats = np.convolve(power_w, kernel / kernel.sum())[: len(power_w)].real
        read_w = np.interp(ends_s, edges_s[1:], filtered)
    noise = draw.normal(0, sensor.noise_w, len(times_s)) if sensor.noise_w else 0.0
    return np.round(read_w + noise, 3)


def _changes(name: str, times_s: Floats, values: Floats) -> list[list[Any]]:
    new = np.concatenate(([True], np.diff(values) != 0))
    return [
        ["reading", name, round(BEGUN_S + float(t), 6), float(v), None]
        for t, v in zip(times_s[new], values[new], strict=True)
    ]


def _time_of(line: list[Any]) -> float:
    return float(line[2] if line[0] in {"reading", "stage"} else line[1])
