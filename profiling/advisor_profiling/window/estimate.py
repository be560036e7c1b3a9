"""Means with standard errors for readings correlated in time, and whether they have settled."""

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

_BATCHES = 10


_Readings = Sequence[tuple[float, float]]
"""(time_s, value) each."""


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


def is_flat(
    power: _Readings, of_jobs: Sequence[_Readings], view: tuple[float, float], flat: float
) -> bool:
    """Whether power and every rate are alike in both halves of a view.

    Args:
        power: Watts.
        of_jobs: Of each job its total progress whenever that changed, since before the view.
        view: When it begins and ends, s.
        flat: Largest relative difference of the halves.
    """
    middle_s = sum(view) / 2
    halves = ((view[0], middle_s), (middle_s, view[1]))
    old_power, new_power = (mean_estimate(_between(power, *half)) for half in halves)
    return _alike(old_power, new_power, flat) and all(
        _steady(events, halves, flat) for events in of_jobs
    )


def _steady(all_events: _Readings, halves: Sequence[tuple[float, float]], flat: float) -> bool:
    events = [_between(all_events, *half) for half in halves]
    if min(map(len, events)) < 3:
        # Too few steps in the view to see the rate move: any progress at all will do.
        return len(all_events) > 1
    old_rate, new_rate = map(rate_estimate, events)
    return _alike(old_rate, new_rate, flat)


def _alike(first: MeanEstimate | None, second: MeanEstimate | None, flat: float) -> bool:
    if first is None or second is None:
        return first is second
    noise = 2 * ((first.stderr or 0) ** 2 + (second.stderr or 0) ** 2) ** 0.5
    return abs(second.mean - first.mean) <= max(flat * abs(second.mean), noise)


def _between(readings: _Readings, start_s: float, end_s: float) -> list[tuple[float, float]]:
    return [reading for reading in readings if start_s <= reading[0] < end_s]
