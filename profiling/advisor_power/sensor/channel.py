"""What one power channel of a recording does, and whether that is to be believed."""

import math

import numpy as np

from advisor.validity.sensor_record import PowerChannel
from advisor_power.sensor.fit import (
    COARSE_S,
    WindowFit,
    fit_window,
    noise_w,
    prediction_error,
    refine,
    refine_each,
    sample_of,
)
from advisor_power.sensor.levels import training_levels, wave_levels
from advisor_power.sensor.period import MOST_DRIFT, Period, drift_of, period_of
from advisor_power.sensor.stimulus import BURSTS, FLAT, LOCKED_WAVE, WAVE
from advisor_power.sensor.trace import ReadingSeries, Trace, joined

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
