"""Window, delay and noise of a channel, from readings of a load that is known.

A reading at u is the mean of P(t) over [u - d - W, u - d] (`advisor.validity.sensor_record`). For
each W and d the levels of power follow by linear least squares; W and d are those that leave the
smallest squares: a grid first, since there are many minima, then ever smaller steps from the best.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from advisor_profiling.sensor.levels import LevelTimes, window_parts
from advisor_profiling.sensor.trace import Series, Span

_WINDOWS_S = tuple(float(w) for w in np.geomspace(0.003, 1.6, 26))
_MOST_DELAY_S = 0.4
_LEAST_DELAY_STEP_S = 0.006
_FINEST_S = 5e-6
_MOVES = tuple(move for move in itertools.product((-1, 0, 1), repeat=2) if any(move))
_LEAST_FLAT = 8


@dataclass(frozen=True, slots=True)
class WindowFit:
    """W and d, s, the power of each level, W, and the sum of squares that is left, W²."""

    window_s: float
    delay_s: float
    levels_w: tuple[float, ...]
    squares: float


def fit_window(readings: Series, levels: Sequence[LevelTimes]) -> WindowFit:
    """W and d from readings (n,) of a load of these levels."""
    places = [(w, d) for w in _WINDOWS_S for d in _delays(w)]
    best = min(places, key=lambda place: at(readings, levels, *place).squares)
    return refine(readings, levels, best, (best[0] / 8, max(_LEAST_DELAY_STEP_S, best[0] / 8)))


def refine(readings: Series, levels: Sequence[LevelTimes], start: Span, steps_s: Span) -> WindowFit:
    """The minimum near a start (W, d): by steps that are halved where none leads down."""

    def cost(place: Span) -> float:
        return at(readings, levels, *place).squares

    best, least = start, cost(start)
    while max(steps_s) > _FINEST_S:
        near = [(best[0] + i * steps_s[0], best[1] + j * steps_s[1]) for i, j in _MOVES]
        tried = [(cost(place), place) for place in near if place[0] > 0 and place[1] >= 0]
        found, place = min(tried)
        if found < least:
            best, least = place, found
        else:
            steps_s = (steps_s[0] / 2, steps_s[1] / 2)
    return at(readings, levels, *best)


def at(
    readings: Series, levels: Sequence[LevelTimes], window_s: float, delay_s: float
) -> WindowFit:
    """The best powers of the levels for a window and a delay."""
    parts = window_parts(levels, readings.times_s - delay_s, window_s)
    powers, *_ = np.linalg.lstsq(parts, readings.values)
    left = readings.values - parts @ powers
    return WindowFit(window_s, delay_s, tuple(map(float, powers)), float(left @ left))


def noise_w(flat: Series) -> float | None:
    """Standard deviation of readings of a steady load around a line: cards warm up.

    None where there are fewer than eight.
    """
    if len(flat.values) < _LEAST_FLAT:
        return None
    line = np.polynomial.Polynomial.fit(flat.times_s, flat.values, 1)
    return float(np.std(flat.values - line(flat.times_s), ddof=2))


def prediction_error(
    readings: Series, levels: Sequence[LevelTimes], window_s: float, delay_s: float
) -> float:
    """Root mean square of predicted less read, over the mean read, at a window and delay of others.

    The two powers are those that suit the waves best, since bursts and waves do not draw the same;
    how readings move between them is predicted.
    """
    squares = at(readings, levels, window_s, delay_s).squares
    return float(np.sqrt(squares / len(readings.values)) / readings.values.mean())


def _delays(window_s: float) -> list[float]:
    step_s = max(_LEAST_DELAY_STEP_S, window_s / 4)
    return [float(d) for d in np.arange(0, _MOST_DELAY_S, step_s)]
