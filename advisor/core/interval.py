"""An expected value and its bounds."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

NORMAL_90 = 1.645
"""Standard deviations that hold 90 % of a normal distribution, as the intervals of models do."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An expected value, and the bounds that hold it with the predictor's coverage."""

    value: float
    low: float
    high: float

    @classmethod
    def sure(cls, value: float) -> "Interval":
        """Of what was measured, not predicted."""
        return cls(value, value, value)

    def times(self, factor: float) -> "Interval":
        """The interval of a positive multiple of the value."""
        return Interval(self.value * factor, self.low * factor, self.high * factor)

    def spread_by(self, variance: float) -> "Interval":
        """The interval with bounds further out, by a variance of the value's logarithm.

        Below 0 that much is taken out of them again.
        """
        more = math.copysign(NORMAL_90**2, variance) * abs(variance)
        low, high = (
            math.sqrt(max(0.0, math.log(bound / self.value) ** 2 + more)) if bound else math.inf
            for bound in (self.low, self.high)
        )
        return Interval(self.value, self.value * math.exp(-low), self.value * math.exp(high))


def shrunk(seen: Iterable[tuple[float, float]], spread: float) -> tuple[float, float]:
    """A logarithm and its standard deviation, from values that were seen of it.

    The normal-normal empirical Bayes estimate (Efron and Morris, "Stein's estimation rule and its
    competitors", 1973): shrunk towards 0 by how much it differs.

    Args:
        seen: Each value and its variance.
        spread: Standard deviation of what is usual.
    """
    known = [(0.0, spread**2), *seen]
    precision = sum(1 / variance for _, variance in known)
    return sum(value / variance for value, variance in known) / precision, 1 / math.sqrt(precision)
