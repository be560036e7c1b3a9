"""Window, delay and noise of a channel, from readings of a load that is known.

A reading at u is the mean of P(t) over [u - d - W, u - d], or forgets exponentially
(`advisor.validity.sensor_record`); d is another one each time, anywhere within a spread: a driver
shows the newest of the values that the card makes in its own time. For each response, window, mean
delay and spread the levels of power follow by weighted least squares, and what is left is likely or
not: readings near a change of load may be off by what the spread explains, others by noise alone. A
grid without a spread comes first, since there are many minima, then ever smaller steps from the
best.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from advisor.predict.profiles import Floats
from advisor.validity.sensor_record import Response, memory_s
from advisor_power.sensor.trace import (
    BURSTS,
    FLAT,
    LOCKED_WAVE,
    WAVE,
    ReadingSeries,
    RecordedStage,
    SpanS,
    Trace,
)


@dataclass(frozen=True, slots=True, eq=False)
class LevelTimes:
    """The stretches of time in which one level of power holds, as time spent in it so far.

    Attributes:
        times_s: Begin and end of each stretch, (2 n,), sorted.
        spent_s: Seconds of the level until then, (2 n,).
    """

    times_s: Floats
    spent_s: Floats

    def until(self, times_s: Floats) -> Floats:
        """Seconds of this level before each time."""
        return np.interp(times_s, self.times_s, self.spent_s)

    def remembered(self, ends_s: Floats, constant_s: float) -> Floats:
        """Part of an exponential response at each end that is of this level."""
        at_edges = _remembered_at_edges(self, constant_s)
        last = np.searchsorted(self.times_s, ends_s, side="right")
        since_s = ends_s - self.times_s[np.maximum(last - 1, 0)]
        levels = (last % 2 == 1).astype(np.float64)
        return levels + (at_edges[last] - levels) * np.exp(-np.maximum(since_s, 0) / constant_s)


@lru_cache(64)  # neighbours in a search differ in their delay alone
def _remembered_at_edges(level: LevelTimes, constant_s: float) -> Floats:
    """Part of an exponential response that is of a level: before all, and at each edge."""
    shares = np.exp(-np.diff(level.times_s, prepend=level.times_s[0]) / constant_s).tolist()
    found = [0.0]
    for off, on in zip(shares[::2], shares[1::2], strict=True):
        before = found[-1] * off
        found += before, 1 + (before - 1) * on
    return np.array(found)


def level_times(spans: Sequence[SpanS]) -> LevelTimes:
    """Stretches that follow each other and do not overlap; at least one."""
    edges = np.array(spans, dtype=np.float64).reshape(-1)
    lengths_s = np.diff(edges.reshape(-1, 2), axis=1)[:, 0]
    spent_s = np.repeat(np.cumsum(lengths_s), 2)
    spent_s[::2] -= lengths_s
    return LevelTimes(edges, spent_s)


def window_parts(
    levels: Sequence[LevelTimes], ends_s: Floats, window_s: float, response: Response = "mean"
) -> Floats:
    """Part of a reading before each end (n,) that is of each level, (n, levels).

    With the levels' powers P, `parts @ P` is what a sensor of that window reads.
    """
    if response == "mean":
        spent_s = [level.until(ends_s) - level.until(ends_s - window_s) for level in levels]
        columns = [of_level_s / window_s for of_level_s in spent_s]
    else:
        columns = [level.remembered(ends_s, window_s / 2) for level in levels]
    return np.stack(columns, axis=1)


def training_levels(trace: Trace) -> list[LevelTimes]:
    """Levels of all stages: idle, flat load, between bursts, bursts, off and on in waves.

    A burst does not reach the power of a long load, and a GPU between bursts draws more than an
    idle one: clocks follow the load. So each has a level of its own. A recording without waves has
    none of theirs.
    """
    (flat,), (bursts,) = trace.named(FLAT), trace.named(BURSTS)
    begun_s, split_s = trace.stages[0].begun_s, flat.on[-1][1]
    waves = [wave for wave in trace.named(WAVE, LOCKED_WAVE) if wave.on]
    ended_s = waves[0].begun_s if waves else bursts.ended_s + 10
    return [
        level_times(_outside(flat.on, begun_s - 10, split_s)),
        level_times(flat.on),
        level_times(_outside(bursts.on, split_s, ended_s)),
        level_times(bursts.on),
        *(wave_levels(waves) if waves else ()),
    ]


def wave_levels(stages: Sequence[RecordedStage]) -> list[LevelTimes]:
    """Levels of stages that follow each other: off and on."""
    on = [span for stage in stages for span in stage.on]
    return [
        level_times(_outside(on, stages[0].begun_s, stages[-1].ended_s)),
        level_times(on),
    ]


def _outside(spans: Sequence[SpanS], begun_s: float, ended_s: float) -> list[SpanS]:
    edges = [begun_s, *(edge for span in spans for edge in span), ended_s]
    return list(zip(edges[::2], edges[1::2], strict=True))


class Place(NamedTuple):
    """How a channel may read: response, window, mean delay and spread of the delay, s."""

    response: Response
    window_s: float
    delay_s: float
    spread_s: float = 0.0

    @property
    def settled_s(self) -> float:
        """After a change of load a reading is of the new load alone."""
        return memory_s(self.response, self.window_s) + self.delay_s + self.spread_s / 2


_DELAYS = 9
"""Of those within the spread, how many are looked at."""

_WINDOWS_S = tuple(float(w) for w in np.geomspace(0.003, 1.6, 26))
_MOST_DELAY_S = 0.4
_LEAST_DELAY_STEP_S = 0.006
_SPREADS = (0.0, 0.7)  # of the window, from which steps begin


COARSE_S, _FINEST_S = 1e-3, 5e-5
_MOVES = (
    *itertools.chain.from_iterable(((i, 0, 0), (0, i, 0), (0, 0, i)) for i in (-1, 1)),
    (1, -1, 0), (-1, 1, 0), (0, 1, 1), (0, -1, -1),
)  # fmt: skip
"""Of window, delay and spread: a longer window is much like a longer delay."""


@dataclass(frozen=True, slots=True)
class _WindowFit:
    """How a channel reads, the power of each level, W, and how unlikely the readings are."""

    place: Place
    levels_w: tuple[float, ...]
    cost: float


@dataclass(frozen=True, slots=True)
class Sample:
    """Values read (n,), and the parts of their windows in each level (`_parts_of`) at any place."""

    values: Floats
    parts: Callable[[Place], Floats]

    def part(self, kept: npt.NDArray[np.bool_]) -> "Sample":
        """Some of the readings; each part is worked out once for all of them."""
        return Sample(self.values[kept], lambda place: self.parts(place).compress(kept, axis=1))


def sample_of(readings: ReadingSeries, levels: Sequence[LevelTimes]) -> Sample:
    """Readings of a load of these levels."""
    # A search looks at the ten neighbours of a place, most of them again after a step.
    known = lru_cache(32)(partial(_parts_of, readings.times_s, levels))
    return Sample(readings.values, known)


def fit_window(sample: Sample) -> _WindowFit:
    """How a channel reads, from readings of a load that is known."""
    places = [Place("mean", w, d) for w in _WINDOWS_S for d in _delays(w)]
    _, window_s, delay_s, _ = min(places, key=lambda place: _squares(sample, place))
    starts = [
        Place(response, window_s, max(delay_s, part * window_s / 2), part * window_s)
        for response in get_args(Response)
        for part in _SPREADS
    ]
    found = [refine(sample, s, window_s / 8, COARSE_S) for s in starts if _possible(s)]
    best = min(found, key=lambda fit: fit.cost)
    return refine(sample, best.place, COARSE_S)


def refine(sample: Sample, start: Place, step_s: float, finest_s: float = _FINEST_S) -> _WindowFit:
    """The minimum near a start: by steps that are halved where none leads down."""
    (best,) = refine_each([sample], start, step_s, finest_s)
    return best


def refine_each(
    samples: Sequence[Sample], start: Place, step_s: float, finest_s: float
) -> list[_WindowFit]:
    """As `refine` of each sample; step by step, since parts of the same readings look alike."""
    fits = [at(sample, start) for sample in samples]
    while step_s >= finest_s:
        fits = [_down(sample, fit, step_s) for sample, fit in zip(samples, fits, strict=True)]
        step_s /= 2
    return fits


def _down(sample: Sample, best: _WindowFit, step_s: float) -> _WindowFit:
    """From a place down by steps of one length, until none leads down."""
    while (found := _lowest_beside(sample, best, step_s)).cost < best.cost:
        best = found
    return best


def _lowest_beside(sample: Sample, fit: _WindowFit, step_s: float) -> _WindowFit:
    places = [_moved(fit.place, move, step_s) for move in _MOVES]
    tried = [at(sample, place) for place in places if _possible(place)]
    return min(tried, key=lambda fit: fit.cost, default=fit)


def at(sample: Sample, place: Place) -> _WindowFit:
    """The best powers of the levels for a window, a delay and its spread."""
    parts, values = sample.parts(place), sample.values
    mean = parts.mean(axis=0)
    variance = np.ones(len(values))
    powers = _solve(mean, values, variance)
    for _ in range(2):
        seen = parts @ powers
        scatter = seen.var(axis=0)
        variance = scatter + _noise_power(values - seen.mean(axis=0), seen)
        powers = _solve(mean, values, variance**-0.5)
    left = values - mean @ powers
    # At most five standard deviations: few readings, seen late, must not stretch the spread.
    unlikely = np.minimum(left**2 / variance, 5.0**2)
    return _WindowFit(place, tuple(map(float, powers)), float(np.sum(np.log(variance) + unlikely)))


def _parts_of(times_s: Floats, levels: Sequence[LevelTimes], place: Place) -> Floats:
    """Part of each window (n,) in each level, at delays within the spread: (delays, n, levels)."""
    parts = (np.arange(_DELAYS) + 0.5) / _DELAYS - 0.5 if place.spread_s else np.zeros(1)
    ends_s = times_s - (place.delay_s + place.spread_s * parts)[:, None]
    found = window_parts(levels, ends_s.ravel(), place.window_s, place.response)
    return found.reshape(*ends_s.shape, len(levels))


def noise_w(flat: ReadingSeries) -> float | None:
    """Standard deviation of readings of a steady load around a line: cards warm up.

    None where there are fewer than eight.
    """
    if len(flat.values) < 8:
        return None
    line = np.polynomial.Polynomial.fit(flat.times_s, flat.values, 1)
    return float(np.std(flat.values - line(flat.times_s), ddof=2))


def slope(x: Floats, y: Floats) -> float:
    """Of the line of least squares."""
    centred = x - x.mean()
    return float(centred @ (y - y.mean()) / (centred @ centred))


def prediction_error(sample: Sample, place: Place) -> float:
    """Root mean square of predicted less read, over the mean read, of a load not fitted to.

    Each reading is compared at the delay within the spread that suits it best: what lies between
    the least and the largest prediction is not wrong. One reading in fifty may be of any time: it
    was seen late. The two powers are those that suit the waves best, since bursts and waves do not
    draw the same; how readings move between them is predicted.
    """
    values = sample.values
    seen = sample.parts(place) @ np.array(at(sample, place).levels_w)
    off = np.abs(values - np.clip(values, seen.min(axis=0), seen.max(axis=0)))
    # Of what the driver shows, or the host sees, one reading in fifty is tens of milliseconds
    # late.
    kept = np.sort(off)[: int(np.ceil(0.98 * len(off)))]
    return float(np.sqrt(np.mean(kept**2)) / values.mean())


def _squares(sample: Sample, place: Place) -> float:
    (parts,) = sample.parts(place)
    left = sample.values - parts @ _solve(parts, sample.values, np.ones(len(parts)))
    return float(left @ left)


def _solve(parts: Floats, values: Floats, weights: Floats) -> Floats:
    powers, *_ = np.linalg.lstsq(parts * weights[:, None], values * weights)
    return np.asarray(powers, dtype=np.float64)


def _noise_power(left: Floats, seen: Floats) -> float:
    """Mean square of what is left where the delay does not matter."""
    # A reading that no delay within the spread changes by more than 1 W shows noise alone.
    certain = np.ptp(seen, axis=0) < 1.0
    used = left[certain] if np.count_nonzero(certain) >= 20 else left
    return max(float(np.mean(used**2)), 1e-6)


def _moved(place: Place, move: tuple[int, ...], step_s: float) -> Place:
    window, delay, spread = (step_s * part for part in move)
    return Place(
        place.response, place.window_s + window, place.delay_s + delay, place.spread_s + spread
    )


def _possible(place: Place) -> bool:
    """A reading is never of what comes later."""
    _, window_s, delay_s, spread_s = place
    # In a mean over a longer time some milliseconds more or less of delay do not show.
    visible = spread_s == 0 or window_s <= 0.3
    return window_s > 0 and spread_s >= 0 and delay_s >= spread_s / 2 and visible


def _delays(window_s: float) -> list[float]:
    step_s = max(_LEAST_DELAY_STEP_S, window_s / 4)
    return [float(d) for d in np.arange(0, _MOST_DELAY_S, step_s)]
