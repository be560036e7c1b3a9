"""Power as a few levels over time, and what a sensor that averages over a window reads of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from advisor.predict.profiles import Floats
from advisor.validity.sensor_record import Response
from advisor_power.sensor.stimulus import BURSTS, FLAT, LOCKED_WAVE, WAVE
from advisor_power.sensor.trace import RecordedStage, SpanS, Trace


@dataclass(frozen=True, slots=True, eq=False)
class LevelTimes:
    """The stretches of time in which one level of power holds, as time spent in it so far."""

    times_s: Floats
    """Begin and end of each stretch, (2 n,), sorted."""
    spent_s: Floats
    """Seconds of the level until then, (2 n,)."""

    def until(self, times_s: Floats) -> Floats:
        """Seconds of this level before each time."""
        return np.interp(times_s, self.times_s, self.spent_s)

    def mean_before(self, ends_s: Floats, window_s: float) -> Floats:
        """Part of the window before each end that this level takes up."""
        return (self.until(ends_s) - self.until(ends_s - window_s)) / window_s

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
        columns = [level.mean_before(ends_s, window_s) for level in levels]
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
