"""Power as a few levels over time, and what a sensor that averages over a window reads of it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from advisor_profiling.sensor.stimulus import BURSTS, FLAT
from advisor_profiling.sensor.trace import Floats, RecordedStage, Span, Trace


@dataclass(frozen=True, slots=True)
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


def level_times(spans: Sequence[Span]) -> LevelTimes:
    """Stretches that follow each other and do not overlap; at least one."""
    edges = np.array(spans, dtype=np.float64).reshape(-1)
    lengths_s = np.diff(edges.reshape(-1, 2), axis=1)[:, 0]
    spent_s = np.repeat(np.cumsum(lengths_s), 2)
    spent_s[::2] -= lengths_s
    return LevelTimes(edges, spent_s)


def window_parts(levels: Sequence[LevelTimes], ends_s: Floats, window_s: float) -> Floats:
    """Part of the window before each end (n,) that each level takes up, (n, levels).

    With the levels' powers P, `parts @ P` is what a sensor of that window reads.
    """
    columns = [level.until(ends_s) - level.until(ends_s - window_s) for level in levels]
    return np.stack(columns, axis=1) / window_s


def training_levels(trace: Trace) -> list[LevelTimes]:
    """Levels of the stages that windows are fitted to: idle, flat load, between bursts, bursts.

    A burst does not reach the power of a long load, and a GPU between bursts draws more than an
    idle one: clocks follow the load. So each has a level of its own.
    """
    (flat,), (bursts,) = trace.named(FLAT), trace.named(BURSTS)
    begun_s = trace.stages[0].begun_s
    split_s = flat.on[-1][1]
    return [
        level_times(_outside(flat.on, begun_s - 10, split_s)),
        level_times(flat.on),
        level_times(_outside(bursts.on, split_s, bursts.ended_s + 10)),
        level_times(bursts.on),
    ]


def wave_levels(stages: Sequence[RecordedStage]) -> list[LevelTimes]:
    """Levels of stages that follow each other: off and on."""
    on = [span for stage in stages for span in stage.on]
    return [
        level_times(_outside(on, stages[0].begun_s, stages[-1].ended_s)),
        level_times(on),
    ]


def _outside(spans: Sequence[Span], begun_s: float, ended_s: float) -> list[Span]:
    edges = [begun_s, *(edge for span in spans for edge in span), ended_s]
    return list(zip(edges[::2], edges[1::2], strict=True))
