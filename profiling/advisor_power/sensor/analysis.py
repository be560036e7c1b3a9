"""The record of a card's sensors, from a recording.

Of the energy counter it says whether it sees everything, or only the time in which a sensor looks.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.errors import InputError
from advisor.predict.profiles import Floats
from advisor.validity.sensor_record import EnergyCounter, PowerChannel, SensorRecord
from advisor.wire.power_readings import SensorCurve
from advisor_power.sensor.fit import (
    COARSE_S,
    LevelTimes,
    WindowFit,
    fit_window,
    noise_w,
    prediction_error,
    refine,
    refine_each,
    sample_of,
    training_levels,
    wave_levels,
    window_parts,
)
from advisor_power.sensor.trace import (
    BURSTS,
    ENERGY,
    FLAT,
    IDLE,
    LOCKED_WAVE,
    POWER_CHANNELS,
    WAVE,
    Look,
    ReadingSeries,
    RecordedStage,
    SpanS,
    Trace,
    joined,
)

LEAST_CHANGES = 30
"""Fewer do not show a period."""

MOST_DRIFT = 0.05
"""Relative difference between two parts of a recording at which the period has changed."""

_LEAST_REGULAR = 0.8
_NEAR = 0.25
_MOST_MISSED = 3


@dataclass(frozen=True, slots=True)
class Period:
    """Time between two updates of a channel."""

    period_s: float
    regular_share: float
    """Part of all gaps that is near a whole number of periods."""

    @property
    def regular(self) -> bool:
        """Whether there is one period at all."""
        return self.regular_share >= _LEAST_REGULAR


def period_of(times_s: Floats) -> Period | None:
    """The period of a channel from the times (n,) of its changes; None where they are too few.

    An update to the same value shows no change, so that a gap may be two or three periods long; the
    median is one period as long as less than half of the updates show none.
    """
    gaps_s = np.diff(times_s)
    if len(gaps_s) < LEAST_CHANGES:
        return None
    first_s = float(np.median(gaps_s))
    steps = np.rint(gaps_s / first_s)
    near = np.abs(gaps_s - steps * first_s) < _NEAR * first_s
    used = near & (steps >= 1) & (steps <= _MOST_MISSED)
    # Longer gaps are stretches of the same value, which say nothing.
    judged = int(np.count_nonzero(gaps_s < (_MOST_MISSED + 0.5) * first_s))
    if not used.any():
        return Period(first_s, 0.0)
    return Period(
        float(gaps_s[used].sum() / steps[used].sum()), float(np.count_nonzero(used)) / judged
    )


def drift_of(first: Period, second: Period) -> float:
    """Relative difference of two periods."""
    return abs(second.period_s / first.period_s - 1)


TENTHS = 10
MOST_SPREAD_MS = 2.0
MOST_RELATIVE_SPREAD = 0.02
"""For windows of a second, in which a burst of 9 ms hardly shows."""

MOST_PREDICTION_ERROR = 0.03
MOST_SPREAD_OF_PERIOD = 0.5
"""Were the delay anywhere within a period, nearly any reading could be explained."""


def power_channel(trace: Trace, name: str) -> tuple[PowerChannel | None, str]:
    """What a channel does, None where it shows nothing, and why it is not accepted, else ""."""
    readings = trace.series.get(name)
    if readings is None:
        return None, "the card does not have it, or it reads 0"
    if len(set(readings.values)) <= 2:
        return None, f"it always reads {readings.values[-1]:g} W, whatever runs"
    (bursts,), waves = trace.named(BURSTS), trace.named(WAVE, LOCKED_WAVE)
    first = period_of(readings.between(bursts.begun_s, bursts.ended_s).times_s)
    if first is None or not first.regular:
        return None, _no_period(readings.between(bursts.begun_s, bursts.ended_s), first)
    fit = _fit(trace, readings)
    noise = noise_w(_settled_flat(trace, readings, fit))
    if noise is None:
        return None, "too few readings of the flat load for its noise"
    later = period_of(readings.times_s[readings.times_s > waves[0].begun_s]) if waves else None
    spread_ms = _spread_ms(trace, readings, fit)
    error = _prediction_error(trace, readings, fit)
    why = _why_not(first, later, spread_ms, fit, error)
    channel = PowerChannel(
        name=name,
        period_ms=round(1000 * first.period_s, 3),
        response=fit.place.response,
        window_ms=round(1000 * fit.place.window_s, 3),
        delay_ms=round(1000 * fit.place.delay_s, 3),
        delay_spread_ms=round(1000 * fit.place.spread_s, 3),
        noise_w=round(noise, 3),
        window_spread_ms=round(spread_ms, 3),
        prediction_error=1.0 if error is None else round(error, 5),
        accepted=not why,
    )
    return channel, why


def _no_period(readings: ReadingSeries, period: Period | None) -> str:
    if period is None:
        return f"it changed {len(readings.values)} times during the bursts, too rarely to be fitted"
    return f"only {100 * period.regular_share:.0f} % of its changes keep one period"


def _fit(trace: Trace, readings: ReadingSeries) -> WindowFit:
    """By the bursts, then by the locked waves, too: few readings meet a burst.

    Of bursts alone W is uncertain by 2.5 ms, or 10 % of a window of a second. The other waves are
    kept to check it with.
    """
    levels = training_levels(trace)
    fit = fit_window(sample_of(_bursts(trace, readings), levels))
    return refine(sample_of(_training(trace, readings), levels), fit.place, COARSE_S)


def _bursts(trace: Trace, readings: ReadingSeries) -> ReadingSeries:
    return readings.between(trace.stages[0].begun_s, trace.named(BURSTS)[0].ended_s)


def _training(trace: Trace, readings: ReadingSeries) -> ReadingSeries:
    """Readings of all stages that the fit is made of."""
    bursts, waves = _bursts(trace, readings), trace.named(LOCKED_WAVE)
    if not waves:
        return bursts
    return joined((bursts, readings.between(waves[0].begun_s, waves[-1].ended_s)))


def _settled_flat(trace: Trace, readings: ReadingSeries, fit: WindowFit) -> ReadingSeries:
    (flat,) = trace.named(FLAT)
    begun_s, ended_s = flat.on[0][0], flat.on[-1][1]
    return readings.between(begun_s + fit.place.settled_s, ended_s)


def _spread_ms(trace: Trace, readings: ReadingSeries, fit: WindowFit) -> float:
    """How far W would differ between halves of the data: twice its standard error.

    By tenths of the time that are left out in turn (jackknife): two halves themselves differ by
    anything from nothing to twice as much. The flat step is never left out.
    """
    used = _training(trace, readings)
    (bursts,) = trace.named(BURSTS)
    later = used.times_s >= bursts.begun_s
    tenths = np.where(later, (np.cumsum(later) - 1) * TENTHS // np.count_nonzero(later), -1)
    coarse_s = fit.place.window_s / 8
    fine_s = min(COARSE_S, fit.place.window_s / 200)
    whole = sample_of(used, training_levels(trace))
    rests = [whole.part(tenths != tenth) for tenth in range(TENTHS)]
    fits = refine_each(rests, fit.place, coarse_s, fine_s)
    windows_s = [found.place.window_s for found in fits]
    return 2 * 1000 * float(np.std(windows_s)) * math.sqrt(TENTHS - 1)


def _prediction_error(trace: Trace, readings: ReadingSeries, fit: WindowFit) -> float | None:
    waves = trace.named(WAVE)
    if not any(wave.on for wave in waves):
        return None
    seen = readings.between(waves[0].begun_s + fit.place.settled_s, waves[-1].ended_s)
    if len(seen.values) < 30:
        return None
    return prediction_error(sample_of(seen, wave_levels(waves)), fit.place)


def _why_not(
    first: Period,
    later: Period | None,
    spread_ms: float,
    fit: WindowFit,
    error: float | None,
) -> str:
    if later is not None and drift_of(first, later) > MOST_DRIFT:
        return (
            f"its period changed from {1000 * first.period_s:.1f} to "
            f"{1000 * later.period_s:.1f} ms during the recording"
        )
    if fit.place.spread_s > MOST_SPREAD_OF_PERIOD * first.period_s:
        return (
            f"its delay varies by {1000 * fit.place.spread_s:.0f} ms, more than half of its "
            f"period of {1000 * first.period_s:.0f} ms"
        )
    if spread_ms > max(MOST_SPREAD_MS, MOST_RELATIVE_SPREAD * 1000 * fit.place.window_s):
        return f"halves of the data give windows that differ by {spread_ms:.1f} ms"
    if error is None:
        return "no square waves were recorded to check it with"
    if error > MOST_PREDICTION_ERROR:
        return f"square waves are predicted {100 * error:.1f} % wrong"
    return ""


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


_BEFORE_STEP_S, _AFTER_STEP_S = 0.3, 0.7
"""Around the moment at which a flat load begins; after it the sensor has time to settle, too."""

_PERIODS_OF_WAVE = 8
_POINTS = 400


def predicted_curves(trace: Trace, record: SensorRecord) -> list[SensorCurve]:
    """A step and a square wave for each channel of a record, where they were recorded."""
    return [
        curve
        for channel in record.channels
        if (readings := trace.series.get(channel.name)) is not None
        for curve in _curves(trace, channel, readings)
    ]


def _curves(trace: Trace, channel: PowerChannel, readings: ReadingSeries) -> Iterator[SensorCurve]:
    step, waves = trace.named(IDLE, FLAT), trace.named(WAVE)
    if len(step) == 2 and step[1].on:
        begun_s = step[1].on[0][0]
        shown = (begun_s - _BEFORE_STEP_S, begun_s + channel.settle_s + _AFTER_STEP_S)
        yield from _curve("step", step, shown, channel, readings)
    if waves and len(waves[-1].on) > 1:
        wave = waves[-1]
        begun_s = max(wave.on[0][0], wave.begun_s + channel.settle_s)
        period_s = wave.on[1][0] - wave.on[0][0]
        shown = (begun_s, begun_s + _PERIODS_OF_WAVE * period_s)
        yield from _curve("wave", (wave,), shown, channel, readings)


def _curve(
    load: str,
    stages: Sequence[RecordedStage],
    shown: SpanS,
    channel: PowerChannel,
    readings: ReadingSeries,
) -> Iterator[SensorCurve]:
    """The stretch that is shown; nothing where too few readings tell the powers of the load."""
    levels = wave_levels(stages)
    known = readings.between(stages[0].begun_s + channel.settle_s, stages[-1].ended_s)
    seen = readings.between(*shown)
    if len(known.values) <= len(levels) or not len(seen.values):
        return
    powers_w, *_ = np.linalg.lstsq(_parts(levels, known.times_s, channel), known.values)
    times_s = np.linspace(*shown, _POINTS)
    yield SensorCurve(
        channel=channel.name,
        load=load,
        read_s=_plain(seen.times_s - shown[0]),
        read_w=_plain(seen.values),
        times_s=_plain(times_s - shown[0]),
        predicted_w=_plain(_parts(levels, times_s, channel) @ powers_w),
    )


def _parts(levels: Sequence[LevelTimes], times_s: Floats, channel: PowerChannel) -> Floats:
    ends_s = times_s - channel.delay_ms / 1000
    return window_parts(levels, ends_s, channel.window_ms / 1000, channel.response)


def _plain(values: Floats) -> tuple[float, ...]:
    return tuple(map(float, values))
