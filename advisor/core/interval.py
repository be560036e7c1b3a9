"""An expected value and its bounds."""

import functools
from dataclasses import dataclass
from statistics import NormalDist

NORMAL_90 = 1.645
"""Standard deviations that hold 90 % of a normal distribution, as the intervals of models do."""


@functools.cache
def weight_of_bound(chance: float) -> float:
    """How far from the value to the bound, of logarithms, lies what holds with a chance."""
    return NormalDist().inv_cdf(chance) / NORMAL_90


@dataclass(frozen=True, slots=True)
class Interval:
    """An expected value, and the bounds that hold it with the predictor's coverage."""

    value: float
    low: float
    high: float

    def times(self, factor: float) -> "Interval":
        """The interval of a positive multiple of the value."""
        return Interval(self.value * factor, self.low * factor, self.high * factor)

    def at_most_with(self, chance: float) -> float:
        """What is not exceeded with this chance, where the logarithm is normal."""
        if self.value <= 0 or self.high == self.value:
            return min(self.value, self.high)
        return self.value * (self.high / self.value) ** weight_of_bound(chance)
