"""The record of a card's sensors, from a recording.

Of the energy counter it says whether it sees everything, or only the time in which a sensor looks.
"""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from advisor.errors import InputError
from advisor.predict.profiles import Floats
from advisor.validity.sensor_record import EnergyCounter, SensorRecord
from advisor_power.sensor.channel import power_channel
from advisor_power.sensor.levels import wave_levels
from advisor_power.sensor.period import Period, period_of
from advisor_power.sensor.stimulus import BURSTS, FLAT, IDLE, LOCKED_WAVE
from advisor_power.sensor.trace import (
    ENERGY,
    POWER_CHANNELS,
    Look,
    ReadingSeries,
    RecordedStage,
    Trace,
)

_LONGEST_BETWEEN_LOOKS_S = 5.0
_LONGEST_START_S = 3.0
"""A process that starts on another GPU of the host is listed on this one for so long."""


MOST_OF_ONE_THAT_INTEGRATES = 0.01
LEAST_OF_ONE_THAT_SAMPLES = 0.05
_LEAST_PHASES = 10
_LEAST_TICKS = 10


def record_of(trace: Trace, source: str) -> SensorRecord:
    """What a recording says of the card; nothing is accepted of one that was disturbed.

    Raises:
        InputError: it ends before the bursts do, so that there is nothing to fit.
    """
    _check_begun(trace)
    wrong = faults(trace)
    found = {name: power_channel(trace, name) for name in POWER_CHANNELS}
    counter = _energy_counter(trace)
    channels = [channel for channel, _ in found.values() if channel is not None]
    names = [name for name, (channel, _) in found.items() if channel is None]
    reasons = [f"{name}: {why}" for name, (_, why) in found.items() if why]
    if isinstance(counter, str):
        names.append(ENERGY)
        reasons.append(f"{ENERGY}: {counter}")
    return SensorRecord(
        gpu_model=trace.header.gpu_model,
        gpu_uuid=trace.header.gpu_uuid,
        driver=trace.header.driver,
        channels=tuple(replace(c, accepted=c.accepted and not wrong) for c in channels),
        absent=tuple(names),
        energy=_energy(counter, wrong),
        measured_at=trace.header.started_at,
        seconds=round(trace.stages[-1].ended_s - trace.stages[0].begun_s, 1),
        source=source,
        reasons=(*wrong, *reasons),
    )


def faults(trace: Trace) -> tuple[str, ...]:
    """What disturbed the recording as a whole; empty where nothing did."""
    found: list[str] = []
    if not trace.whole:
        found.append("the recording was stopped before its end")
    if trace.full:
        found.append("the recording grew too large: a channel changes far more often than it may")
    begun_s = trace.stages[0].begun_s if trace.stages else 0.0
    looks = [look for look in trace.looks if look.time_s >= begun_s]
    if reasons := sorted({reason for look in looks for reason in look.reasons}):
        found.append(f"the card was throttled ({', '.join(reasons)})")
    if _others(looks):
        found.append("another process computed on the GPU")
    if _longest_gap_s(trace, looks) > _LONGEST_BETWEEN_LOOKS_S:
        found.append("the state of the card was not watched all the time")
    return tuple(found)


def _others(looks: Sequence[Look]) -> bool:
    """Whether more than the load computed for longer than a start takes."""
    seen: dict[int, list[float]] = {}
    for look in looks:
        for pid in look.processes:
            seen.setdefault(pid, []).append(look.time_s)
    return sum(times_s[-1] - times_s[0] > _LONGEST_START_S for times_s in seen.values()) > 1


def sensor_period(trace: Trace) -> Period | None:
    """The period of the quickest power channel so far, a regular one if there is; else None."""
    series = [trace.series[name] for name in POWER_CHANNELS if name in trace.series]
    periods = [found for one in series if (found := period_of(one.times_s)) is not None]
    return min(periods, key=lambda found: (not found.regular, found.period_s), default=None)


def _longest_gap_s(trace: Trace, looks: Sequence[Look]) -> float:
    edges = (trace.stages[0].begun_s, trace.stages[-1].ended_s) if trace.stages else (0.0, 0.0)
    times_s = [edges[0], *(look.time_s for look in looks), edges[1]]
    return max(b - a for a, b in itertools.pairwise(times_s))


def _check_begun(trace: Trace) -> None:
    steps = trace.named(FLAT), trace.named(BURSTS)
    if all(len(stages) == 1 and stages[0].on for stages in steps):
        return
    raise InputError(
        f"the recording of {trace.header.gpu_model} ends before its bursts",
        why="windows and delays are fitted to them",
        fix="record again: advisor power sensor",
    )


def _energy(counter: EnergyCounter | str, wrong: tuple[str, ...]) -> EnergyCounter | None:
    if isinstance(counter, str):
        return None
    return replace(counter, covers_everything=None) if wrong else counter


def _energy_counter(trace: Trace) -> EnergyCounter | str:
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


def _levels_w(trace: Trace, ticks: ReadingSeries) -> tuple[float, float]:
    """Power off and on by the counter itself: the spread needs their ratio only."""
    off, on = (_slope_w(trace.named(name), ticks) for name in (IDLE, FLAT))
    return (off, on) if off and on else (0.0, 1.0)


def _slope_w(stages: Sequence[RecordedStage], ticks: ReadingSeries) -> float | None:
    seen = ticks.between(stages[0].begun_s + 0.5, stages[0].ended_s) if stages else None
    if seen is None or len(seen.values) < 3:
        return None
    return _slope(seen.times_s, seen.values)


def _ratio(
    wave: RecordedStage, ticks: ReadingSeries, levels_w: tuple[float, float]
) -> float | None:
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
