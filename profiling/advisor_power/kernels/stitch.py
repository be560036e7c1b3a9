"""Readings of many runs on one time axis that begins with the run: FinGraV's logs of interest."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from advisor.predict.profiles import Floats
from advisor.validity.sensor_record import PowerChannel, Response, memory_s
from advisor_power.kernels.trace import PowerReading, Run


@dataclass(frozen=True, slots=True)
class Sensor:
    """What a reading is of: `window_s` that ended `delay_s` before it (`PowerChannel.response`).

    Delays differ from reading to reading, by half of `spread_s` up or down.
    """

    window_s: float
    delay_s: float
    noise_w: float
    spread_s: float = 0.0
    response: Response = "mean"

    @property
    def memory_s(self) -> float:
        """What was longer before the end of a window counts for less than 1 %."""
        return memory_s(self.response, self.window_s)

    @property
    def smear_s(self) -> float:
        """What a reading may be of is so long."""
        return self.memory_s + self.spread_s

    @property
    def late_s(self) -> float:
        """A window may have ended so much before or after it is taken to have."""
        return self.spread_s / 2


def sensor_of(channel: PowerChannel) -> Sensor:
    """The channel in seconds."""
    return Sensor(
        window_s=channel.window_ms / 1000,
        delay_s=channel.delay_ms / 1000,
        noise_w=channel.noise_w,
        spread_s=channel.delay_spread_ms / 1000,
        response=channel.response,
    )


@dataclass(frozen=True, slots=True)
class Stitched:
    """Readings of all runs, ordered by time."""

    tau_s: Floats
    """Time in the run at which each reading's window ended, shape (readings,)."""
    power_w: Floats
    """What it read, shape (readings,)."""
    base_w: float
    """Power before the runs, from readings whose whole window lay there."""


def stitch(runs: Sequence[Run], sensor: Sensor) -> Stitched | None:
    """Readings whose window ended within the run; None without a reading before a run.

    What is drawn after the end of a run is not known, so a window that reaches beyond is left out.
    """
    inside, before = list[tuple[float, float]](), list[float]()
    for run in runs:
        for tau_s, reading in _in_run(run, sensor.delay_s):
            if -sensor.late_s < tau_s <= run.length_s - sensor.late_s:
                inside.append((tau_s, reading.power_w))
            elif sensor.memory_s + sensor.late_s - run.lead_s <= tau_s <= -sensor.late_s:
                before.append(reading.power_w)
    if not before:
        return None
    table = np.array(sorted(inside), dtype=np.float64).reshape(-1, 2)
    return Stitched(table[:, 0], table[:, 1], float(np.mean(before)))


def end_powers(runs: Sequence[Run], sensor: Sensor) -> list[float]:
    """Readings whose whole window lay in the second half of their run, W."""
    return [
        reading.power_w
        for run in runs
        for tau_s, reading in _in_run(run, sensor.delay_s)
        if run.length_s / 2 + sensor.memory_s + sensor.late_s <= tau_s
        and tau_s <= run.length_s - sensor.late_s
    ]


def naive_curve(runs: Sequence[Run], edges_s: Floats) -> list[float | None]:
    """Mean of what was read while the run was that old, as if readings were of the moment."""
    readings = [
        (tau_s, reading.power_w)
        for run in runs
        for tau_s, reading in _in_run(run, 0.0)
        if tau_s <= run.length_s
    ]
    table = np.array(readings, dtype=np.float64).reshape(-1, 2)
    counts, _ = np.histogram(table[:, 0], edges_s)
    sums, _ = np.histogram(table[:, 0], edges_s, weights=table[:, 1])
    return [s / n if n else None for s, n in zip(sums.tolist(), counts.tolist(), strict=True)]


def _in_run(run: Run, delay_s: float) -> list[tuple[float, PowerReading]]:
    start_s = run.starts_s[0] + delay_s
    return [(reading.at_s - start_s, reading) for reading in run.readings]
