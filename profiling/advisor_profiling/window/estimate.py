"""Means with standard errors for readings that are correlated in time."""

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

_BATCHES = 10


@dataclass(frozen=True, slots=True)
class MeanEstimate:
    """A mean and its standard error; `stderr` is None below two independent readings."""

    mean: float
    stderr: float | None

    @property
    def relative(self) -> float | None:
        """Standard error over mean; None where either is missing or the mean is 0."""
        return None if self.stderr is None or self.mean == 0 else abs(self.stderr / self.mean)


def mean_estimate(samples: Sequence[tuple[float, float]]) -> MeanEstimate | None:
    """Mean of (time_s, value) readings; the error comes from the means of ten time batches.

    Neighbouring readings repeat or resemble each other, so their plain standard error would be
    too small; batches longer than that memory are independent (batch means, Law and Kelton,
    Simulation Modeling and Analysis, section 9.5).
    """
    if not samples:
        return None
    mean = statistics.fmean(value for _, value in samples)
    return MeanEstimate(mean, _stderr([statistics.fmean(batch) for batch in _batches(samples)]))


def rate_estimate(events: Sequence[tuple[float, float]]) -> MeanEstimate | None:
    """Progress per second from (time_s, total progress) at the moments when the total changed.

    Counting from change to change leaves no error from where a window begins or ends inside a
    step. Few steps: the error comes from the single steps; many: from ten groups of them. Steps
    take different times, above all those of a server whose requests come at random, so it is the
    error of a ratio of sums (Cochran, Sampling Techniques, chapter 6), not of a mean of rates: one
    short step would count for more than all others there.
    """
    if len(events) < 2 or events[-1][0] <= events[0][0]:
        return None
    rate = (events[-1][1] - events[0][1]) / (events[-1][0] - events[0][0])
    marks = events[:: max(1, (len(events) - 1) // _BATCHES)]
    return MeanEstimate(rate, _ratio_stderr(marks, rate))


def _batches(samples: Sequence[tuple[float, float]]) -> list[list[float]]:
    start, end = samples[0][0], samples[-1][0]
    batches: list[list[float]] = [[] for _ in range(_BATCHES)]
    for time_s, value in samples:
        part = (time_s - start) / (end - start) if end > start else 0.0
        batches[min(_BATCHES - 1, int(part * _BATCHES))].append(value)
    return [batch for batch in batches if batch]


def _stderr(values: Sequence[float]) -> float | None:
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None


def _ratio_stderr(marks: Sequence[tuple[float, float]], rate: float) -> float | None:
    groups, span_s = len(marks) - 1, marks[-1][0] - marks[0][0]
    if groups < 2 or span_s <= 0:
        return None
    beyond = [c1 - c0 - rate * (t1 - t0) for (t0, c0), (t1, c1) in itertools.pairwise(marks)]
    return math.sqrt(groups / (groups - 1) * sum(b * b for b in beyond)) / span_s
