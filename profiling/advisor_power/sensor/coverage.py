"""Does the energy counter see everything, or only the time in which a sensor looks?"""

from collections.abc import Sequence

import numpy as np

from advisor.validity.sensor_record import EnergyCounter
from advisor_power.sensor.levels import wave_levels
from advisor_power.sensor.period import period_of
from advisor_power.sensor.stimulus import FLAT, IDLE, LOCKED_WAVE
from advisor_power.sensor.trace import ENERGY, Floats, RecordedStage, Series, Trace

MOST_OF_ONE_THAT_INTEGRATES = 0.01
LEAST_OF_ONE_THAT_SAMPLES = 0.05

_LEAST_PHASES = 10
_LEAST_TICKS = 10


def energy_counter(trace: Trace) -> EnergyCounter | str:
    """What the counter covers, or why that cannot be said.

    The energy of each locked wave is compared with what its times of load make expect. A counter
    that adds up windows meets the same part of the wave in each, which part depends on the phase.
    """
    ticks = trace.series.get(ENERGY)
    if ticks is None:
        return "the card has none, or it reads 0"
    period = period_of(ticks.times_s)
    if period is None:
        return f"it changed {len(ticks.values) - 1} times, too rarely for its period"
    levels_w = _levels_w(trace, ticks)
    found = [(wave.begun_s, _ratio(wave, ticks, levels_w)) for wave in trace.named(LOCKED_WAVE)]
    ratios = [(begun_s, ratio) for begun_s, ratio in found if ratio]
    if len(ratios) < _LEAST_PHASES:
        return f"only {len(ratios)} waves could be compared, {_LEAST_PHASES} are needed"
    spread = _spread(*np.array(ratios).T)
    return EnergyCounter(
        period_ms=round(1000 * period.period_s, 2),
        coverage_spread=round(spread, 5),
        covers_everything=_verdict(spread),
    )


def _spread(begun_s: Floats, ratios: Floats) -> float:
    """Around a line: a card that warms up draws more from wave to wave, at whichever phase."""
    line = np.polynomial.Polynomial.fit(begun_s, ratios, 1)
    return float(np.std(ratios - line(begun_s), ddof=2) / np.mean(ratios))


def _verdict(spread: float) -> bool | None:
    if spread <= MOST_OF_ONE_THAT_INTEGRATES:
        return True
    return False if spread > LEAST_OF_ONE_THAT_SAMPLES else None


def _levels_w(trace: Trace, ticks: Series) -> tuple[float, float]:
    """Power off and on by the counter itself: the spread needs their ratio only."""
    off, on = (_slope_w(trace.named(name), ticks) for name in (IDLE, FLAT))
    return (off, on) if off and on else (0.0, 1.0)


def _slope_w(stages: Sequence[RecordedStage], ticks: Series) -> float | None:
    seen = ticks.between(stages[0].begun_s + 0.5, stages[0].ended_s) if stages else None
    if seen is None or len(seen.values) < 3:
        return None
    return _slope(seen.times_s, seen.values)


def _ratio(wave: RecordedStage, ticks: Series, levels_w: tuple[float, float]) -> float | None:
    """Counted over expected energy, from all ticks: the first and the last alone are ± a tick."""
    if not wave.on:
        return None
    seen = ticks.between(wave.on[0][0] + 0.5, wave.on[-1][1])
    if len(seen.values) < _LEAST_TICKS:
        return None
    spent = [level.until(seen.times_s) for level in wave_levels([wave])]
    expected_j = spent[0] * levels_w[0] + spent[1] * levels_w[1]
    return _slope(expected_j, seen.values)


def _slope(x: Floats, y: Floats) -> float:
    """Of the least-squares line."""
    centred = x - x.mean()
    return float(centred @ (y - y.mean()) / (centred @ centred))
