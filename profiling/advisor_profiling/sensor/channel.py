"""What one power channel of a recording does, and whether that is to be believed."""

from advisor.validity.sensor_record import PowerChannel
from advisor_profiling.sensor.fit import (
    WindowFit,
    fit_window,
    noise_w,
    prediction_error,
    refine,
)
from advisor_profiling.sensor.levels import LevelTimes, training_levels, wave_levels
from advisor_profiling.sensor.period import MOST_DRIFT, Period, drift_of, period_of
from advisor_profiling.sensor.stimulus import BURSTS, FLAT, LOCKED_WAVE, WAVE
from advisor_profiling.sensor.trace import Series, Trace

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
    levels = training_levels(trace)
    fit = fit_window(_training(trace, readings), levels)
    noise = noise_w(_settled_flat(trace, readings, fit))
    if noise is None:
        return None, "too few readings of the flat load for its noise"
    later = period_of(readings.times_s[readings.times_s > waves[0].begun_s]) if waves else None
    spread_ms = _spread_ms(trace, readings, levels, fit)
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


def _no_period(readings: Series, period: Period | None) -> str:
    if period is None:
        return f"it changed {len(readings.values)} times during the bursts, too rarely to be fitted"
    return f"only {100 * period.regular_share:.0f} % of its changes keep one period"


def _training(trace: Trace, readings: Series) -> Series:
    return readings.between(trace.stages[0].begun_s, trace.named(BURSTS)[0].ended_s)


def _settled_flat(trace: Trace, readings: Series, fit: WindowFit) -> Series:
    (flat,) = trace.named(FLAT)
    begun_s, ended_s = flat.on[0][0], flat.on[-1][1]
    return readings.between(begun_s + fit.place.settled_s, ended_s)


def _spread_ms(trace: Trace, readings: Series, levels: list[LevelTimes], fit: WindowFit) -> float:
    """How far W differs between the halves of the bursts; both halves see the flat step."""
    (bursts,) = trace.named(BURSTS)
    middle_s = (bursts.begun_s + bursts.ended_s) / 2
    used = _training(trace, readings)
    late = used.times_s >= middle_s
    step = used.times_s < bursts.begun_s
    halves = [Series(used.times_s[half], used.values[half]) for half in (step | ~late, step | late)]
    step_s = fit.place.window_s / 8
    windows = [refine(half, levels, fit.place, step_s).place.window_s for half in halves]
    return 1000 * abs(windows[0] - windows[1])


def _prediction_error(trace: Trace, readings: Series, fit: WindowFit) -> float | None:
    waves = trace.named(WAVE, LOCKED_WAVE)
    if not any(wave.on for wave in waves):
        return None
    begun_s = waves[0].begun_s + fit.place.settled_s
    seen = readings.between(begun_s, waves[-1].ended_s)
    if len(seen.values) < 30:
        return None
    return prediction_error(seen, wave_levels(waves), fit.place)


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
        return f"the halves of the bursts give windows that differ by {spread_ms:.1f} ms"
    if error is None:
        return "no square waves were recorded to check it with"
    if error > MOST_PREDICTION_ERROR:
        return f"square waves are predicted {100 * error:.1f} % wrong"
    return ""
