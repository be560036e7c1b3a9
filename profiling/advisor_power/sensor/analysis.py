"""The record of a card's sensors, from a recording.

Of the energy counter it says whether it sees everything, or only the time in which a sensor looks.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from advisor.errors import InputError
from advisor.predict.profiles import Floats
from advisor.validity.sensor_record import EnergyCounter, PowerChannel, SensorRecord
from advisor.wire.power import SensorCurve
from advisor_power.sensor.fit import (
    COARSE_S,
    LevelTimes,
    Place,
    Sample,
    fit_window,
    noise_w,
    prediction_error,
    refine,
    refine_each,
    sample_of,
    slope,
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
    ReadingSeries,
    RecordedStage,
    SpanS,
    Trace,
    joined,
)

_LEAST_CHANGES = 30  # of a reading: fewer do not show a period
_MOST_DRIFT = 0.05  # relative difference of two parts of a recording: the period has changed
_LEAST_REGULAR = 0.8  # part of all gaps that is near a whole number of periods
_NEAR = 0.25
_MOST_MISSED = 3

_TENTHS = 10
_MOST_SPREAD_MS = 2.0
_MOST_RELATIVE_SPREAD = 0.02  # for windows of a second, in which a burst of 9 ms hardly shows
_MOST_PREDICTION_ERROR = 0.03
_MOST_SPREAD_OF_PERIOD = 0.5  # a delay anywhere within a period would explain nearly any reading

_LONGEST_BETWEEN_LOOKS_S = 5.0
_LONGEST_START_S = 3.0  # a process that starts on another GPU is listed on this one for so long
_MOST_OF_ONE_THAT_INTEGRATES = 0.01
_LEAST_OF_ONE_THAT_SAMPLES = 0.05
_LEAST_PHASES = 10
_LEAST_TICKS = 10


@dataclass(frozen=True, slots=True)
class _Period:
    """Time between two updates of a channel, and the part of all gaps that keeps it."""

    period_s: float
    regular_share: float

    @property
    def regular(self) -> bool:
        """Whether there is one period at all."""
        return self.regular_share >= _LEAST_REGULAR


def period_of(times_s: Floats) -> _Period | None:
    """The period of a channel from the times (n,) of its changes; None where they are too few.

    An update to the same value shows no change, so that a gap may be two or three periods long; the
    median is one period as long as less than half of the updates show none.
    """
    gaps_s = np.diff(times_s)
    if len(gaps_s) < _LEAST_CHANGES:
        return None
    first_s = float(np.median(gaps_s))
    steps = np.rint(gaps_s / first_s)
    near = np.abs(gaps_s - steps * first_s) < _NEAR * first_s
    used = near & (steps >= 1) & (steps <= _MOST_MISSED)
    # Longer gaps are stretches of the same value, which say nothing.
    judged = int(np.count_nonzero(gaps_s < (_MOST_MISSED + 0.5) * first_s))
    if not used.any():
        return _Period(first_s, 0.0)
    return _Period(
        float(gaps_s[used].sum() / steps[used].sum()), float(np.count_nonzero(used)) / judged
    )


def sensor_period(trace: Trace) -> _Period | None:
    """The period of the quickest power channel so far, a regular one if there is; else None."""
    series = [trace.series[name] for name in POWER_CHANNELS if name in trace.series]
    periods = [found for one in series if (found := period_of(one.times_s)) is not None]
    return min(periods, key=lambda found: (not found.regular, found.period_s), default=None)


def power_channel(trace: Trace, name: str) -> tuple[PowerChannel | None, str]:
    """A power channel of a recording, None where it shows nothing; why it is not accepted, or "".

    It is fitted by the bursts, then by the locked waves, too, since few readings meet a burst: of
    bursts alone the window is uncertain by 2.5 ms, or 10 % of a window of a second. The other waves
    are kept to check it with.
    """
    readings = trace.series.get(name)
    if readings is None:
        return None, "the card does not have it, or it reads 0"
    if len(set(readings.values)) <= 2:
        return None, f"it always reads {readings.values[-1]:g} W, whatever runs"
    (bursts,), waves = trace.named(BURSTS), trace.named(WAVE, LOCKED_WAVE)
    during = readings.between(bursts.begun_s, bursts.ended_s)
    first = period_of(during.times_s)
    if first is None:
        changes = len(during.values)
        return None, f"it changed {changes} times during the bursts, too rarely to be fitted"
    if not first.regular:
        return None, f"only {100 * first.regular_share:.0f} % of its changes keep one period"
    used = readings.between(trace.stages[0].begun_s, bursts.ended_s)
    levels = training_levels(trace)
    place = fit_window(sample_of(used, levels)).place
    if locked := trace.named(LOCKED_WAVE):
        used = joined((used, readings.between(locked[0].begun_s, locked[-1].ended_s)))
    sample = sample_of(used, levels)
    place = refine(sample, place, COARSE_S).place
    flat_s = trace.named(FLAT)[0].on
    noise = noise_w(readings.between(flat_s[0][0] + place.settled_s, flat_s[-1][1]))
    if noise is None:
        return None, "too few readings of the flat load for its noise"
    spread_ms = _spread_ms(sample, used.times_s >= bursts.begun_s, place)
    error = _prediction_error(trace, readings, place)
    later = period_of(readings.times_s[readings.times_s > waves[0].begun_s]) if waves else None
    why = _why_not(first, later, spread_ms, place, error)
    channel = PowerChannel(
        name=name,
        period_ms=round(1000 * first.period_s, 3),
        response=place.response,
        window_ms=round(1000 * place.window_s, 3),
        delay_ms=round(1000 * place.delay_s, 3),
        delay_spread_ms=round(1000 * place.spread_s, 3),
        noise_w=round(noise, 3),
        window_spread_ms=round(spread_ms, 3),
        prediction_error=1.0 if error is None else round(error, 5),
        accepted=not why,
    )
    return channel, why


def _spread_ms(sample: Sample, later: npt.NDArray[np.bool_], place: Place) -> float:
    """How far the window would differ between halves of the data: twice its standard error.

    By tenths of the time that are left out in turn (jackknife): two halves themselves differ by
    anything from nothing to twice as much. Readings that are not `later` are never left out.
    """
    tenths = np.where(later, (np.cumsum(later) - 1) * _TENTHS // np.count_nonzero(later), -1)
    rests = [sample.part(tenths != tenth) for tenth in range(_TENTHS)]
    fine_s = min(COARSE_S, place.window_s / 200)
    fits = refine_each(rests, place, place.window_s / 8, fine_s)
    windows_s = [found.place.window_s for found in fits]
    return 2 * 1000 * float(np.std(windows_s)) * math.sqrt(_TENTHS - 1)


def _prediction_error(trace: Trace, readings: ReadingSeries, place: Place) -> float | None:
    waves = trace.named(WAVE)
    if not any(wave.on for wave in waves):
        return None
    seen = readings.between(waves[0].begun_s + place.settled_s, waves[-1].ended_s)
    if len(seen.values) < 30:
        return None
    return prediction_error(sample_of(seen, wave_levels(waves)), place)


def _why_not(
    first: _Period, later: _Period | None, spread_ms: float, place: Place, error: float | None
) -> str:
    later_s, off = (later or first).period_s, error or 0.0
    spread_limit_ms = max(_MOST_SPREAD_MS, _MOST_RELATIVE_SPREAD * 1000 * place.window_s)
    reasons = {
        f"its period changed from {1000 * first.period_s:.1f} to {1000 * later_s:.1f} ms during "
        "the recording": abs(later_s / first.period_s - 1) > _MOST_DRIFT,
        f"its delay varies by {1000 * place.spread_s:.0f} ms, more than half of its period of "
        f"{1000 * first.period_s:.0f} ms": (
            place.spread_s > _MOST_SPREAD_OF_PERIOD * first.period_s
        ),
        f"halves of the data give windows that differ by {spread_ms:.1f} ms": (
            spread_ms > spread_limit_ms
        ),
        "no square waves were recorded to check it with": error is None,
        f"square waves are predicted {100 * off:.1f} % wrong": off > _MOST_PREDICTION_ERROR,
    }
    return next((why for why, is_so in reasons.items() if is_so), "")


def record_of(trace: Trace, source: str) -> SensorRecord:
    """The record of a card by a recording; nothing is accepted of one that was disturbed.

    Raises:
        InputError: it ends before the bursts do, so that there is nothing to fit.
    """
    steps = trace.named(FLAT), trace.named(BURSTS)
    if not all(len(stages) == 1 and stages[0].on for stages in steps):
        raise InputError(
            f"the recording of {trace.header.gpu_model} ends before its bursts",
            why="windows and delays are fitted to them",
            fix="record again: advisor power sensor",
        )
    wrong = faults(trace)
    found = {name: power_channel(trace, name) for name in POWER_CHANNELS}
    counter, why = _energy_counter(trace)
    absent = [name for name, (channel, _) in found.items() if channel is None]
    return SensorRecord(
        gpu_model=trace.header.gpu_model,
        gpu_uuid=trace.header.gpu_uuid,
        driver=trace.header.driver,
        channels=tuple(
            replace(channel, accepted=channel.accepted and not wrong)
            for channel, _ in found.values()
            if channel is not None
        ),
        absent=tuple(absent if counter else [*absent, ENERGY]),
        energy=replace(counter, covers_everything=None) if counter and wrong else counter,
        measured_at=trace.header.started_at,
        seconds=round(trace.stages[-1].ended_s - trace.stages[0].begun_s, 1),
        source=source,
        reasons=(
            *wrong,
            *(f"{name}: {reason}" for name, (_, reason) in found.items() if reason),
            *([f"{ENERGY}: {why}"] if why else ()),
        ),
    )


def faults(trace: Trace) -> tuple[str, ...]:
    """What disturbed the recording as a whole; empty where nothing did."""
    edges_s = (trace.stages[0].begun_s, trace.stages[-1].ended_s) if trace.stages else (0.0, 0.0)
    looks = [look for look in trace.looks if look.time_s >= edges_s[0]]
    reasons = sorted({reason for look in looks for reason in look.reasons})
    pids = frozenset[int]().union(*(look.processes for look in looks))
    seen_s = [[look.time_s for look in looks if pid in look.processes] for pid in pids]
    stayed = [times_s for times_s in seen_s if times_s[-1] - times_s[0] > _LONGEST_START_S]
    looked_s = [edges_s[0], *(look.time_s for look in looks), edges_s[1]]
    gap_s = max(b - a for a, b in itertools.pairwise(looked_s))
    found = {
        "the recording was stopped before its end": not trace.whole,
        "the recording grew too large: a channel changes far more often than it may": trace.full,
        f"the card was throttled ({', '.join(reasons)})": bool(reasons),
        "another process computed on the GPU": len(stayed) > 1,
        "the state of the card was not watched all the time": gap_s > _LONGEST_BETWEEN_LOOKS_S,
    }
    return tuple(fault for fault, is_so in found.items() if is_so)


def _energy_counter(trace: Trace) -> tuple[EnergyCounter | None, str]:
    """The energy counter, or why nothing can be said of it.

    The energy of each locked wave is compared with what its times of load make expect. A counter
    that adds up windows meets the same part of the wave in each, which part depends on the phase.
    """
    ticks = trace.series.get(ENERGY)
    if ticks is None:
        return None, "the card has none, or it reads 0"
    period = period_of(ticks.times_s)
    if period is None:
        return None, f"it changed {len(ticks.values) - 1} times, too rarely for its period"
    # Power off and on by the counter itself: the spread needs their ratio only.
    off, on = (_slope_w(trace.named(name), ticks) for name in (IDLE, FLAT))
    levels_w = (off, on) if off and on else (0.0, 1.0)
    found = [(wave.begun_s, _ratio(wave, ticks, levels_w)) for wave in trace.named(LOCKED_WAVE)]
    ratios = [(begun_s, ratio) for begun_s, ratio in found if ratio]
    if len(ratios) < _LEAST_PHASES:
        return None, f"only {len(ratios)} waves could be compared, {_LEAST_PHASES} are needed"
    table = np.array(ratios, dtype=np.float64)
    times_s, values = table[:, 0], table[:, 1]
    # Around a line: a card that warms up draws more from wave to wave, at whichever phase.
    line = np.polynomial.Polynomial.fit(times_s, values, 1)
    spread = float(np.std(values - line(times_s), ddof=2) / np.mean(values))
    covers = None if spread <= _LEAST_OF_ONE_THAT_SAMPLES else False
    counter = EnergyCounter(
        period_ms=round(1000 * period.period_s, 2),
        coverage_spread=round(spread, 5),
        covers_everything=True if spread <= _MOST_OF_ONE_THAT_INTEGRATES else covers,
    )
    return counter, ""


def _slope_w(stages: Sequence[RecordedStage], ticks: ReadingSeries) -> float | None:
    seen = ticks.between(stages[0].begun_s + 0.5, stages[0].ended_s) if stages else None
    if seen is None or len(seen.values) < 3:
        return None
    return slope(seen.times_s, seen.values)


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
    return slope(spent[0] * levels_w[0] + spent[1] * levels_w[1], seen.values)


_BEFORE_STEP_S, _AFTER_STEP_S = 0.3, 0.7
"""Around the moment at which a flat load begins; after it the sensor has time to settle, too."""


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
        shown = (begun_s, begun_s + 8 * period_s)
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
    times_s = np.linspace(*shown, 400)
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
