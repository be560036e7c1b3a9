"""Golden runs: those whose executions took about as long as most others did.

Runs, readings and margins by execution time are those of FinGraV's Table I.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from advisor.wire.power import Histogram

LEAST_GOLDEN = 20
"""With fewer runs a curve would show single runs, not the operation."""

HISTOGRAM_BINS = 20


@dataclass(frozen=True, slots=True)
class Guidance:
    """What FinGraV's Table I says for one range of execution times."""

    up_to_ms: float
    """Longest execution of the range."""
    runs: int
    margin: float
    """Within which golden runs agree, as a part."""


TABLE_I = (
    Guidance(0.05, 400, 0.05),
    Guidance(0.2, 200, 0.05),
    Guidance(math.inf, 200, 0.02),
)


@dataclass(frozen=True, slots=True)
class Golden:
    """The bin of execution times with most runs in it."""

    runs: tuple[int, ...]
    """Their positions, in order."""
    low_ms: float
    high_ms: float
    dropped: int
    """Runs outside of it."""

    @property
    def enough(self) -> bool:
        """Whether a curve can be made of them."""
        return len(self.runs) >= LEAST_GOLDEN


def guidance(execution_ms: float) -> Guidance:
    """The row of Table I; an execution below its 25 us takes the first."""
    return next(row for row in TABLE_I if execution_ms < row.up_to_ms or row is TABLE_I[-1])


def golden(times_ms: Sequence[float], margin: float) -> Golden:
    """The runs of the bin with most members within the margin; of equal bins the fastest.

    The longest time of a bin is at most this part above its shortest.
    """
    if not times_ms:
        return Golden((), 0.0, 0.0, 0)
    order = np.argsort(times_ms, kind="stable")
    ordered = np.asarray(times_ms)[order]
    # A bin begins at each time; how far it reaches is found at once for all of them.
    ends = np.searchsorted(ordered, ordered * (1 + margin), side="right")
    begin = int(np.argmax(ends - np.arange(len(ordered))))
    members = sorted(int(place) for place in order[begin : ends[begin]])
    low, high = float(ordered[begin]), float(ordered[ends[begin] - 1])
    return Golden(tuple(members), low, high, len(ordered) - len(members))


def histogram(times_ms: Sequence[float]) -> Histogram:
    """Counts of execution times in bins of equal width."""
    counts, edges = np.histogram(times_ms, bins=HISTOGRAM_BINS)
    return Histogram(tuple(map(float, edges)), tuple(map(int, counts)))
