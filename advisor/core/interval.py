"""An expected value and its bounds."""

import functools
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

NORMAL_90 = 1.645
"""Standard deviations that hold 90 % of a normal distribution, as the intervals of models do."""


CHANCES = (0.05, 0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995)
WEIGHTS = (-1.04, -0.76, -0.35, -0.16, 0.01, 0.12, 0.36, 0.6, 1.05, 1.17, 1.45)
"""A relative speed exceeds its expected value, lowered by this part of the way to its low end, with
these chances: 1,566 speeds in measured pairs, by trees without their jobs. Of half of the jobs the
weight of 0.9 is 0.23 to 0.51 (docs/measurements/model.md)."""


@functools.cache
def weight_of_low(chance: float) -> float:
    """How far from a speed to its low end, of logarithms, lies what it exceeds with a chance."""
    return max(float(np.interp(chance, CHANCES, WEIGHTS)), 0.0)


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

    def at_least_with(self, chance: float) -> float:
        """What a relative speed exceeds with this chance, by `weight_of_low`."""
        return self._beyond(self.low, weight_of_low(chance))

    def at_most_with(self, chance: float) -> float:
        """What is not exceeded with this chance, where the logarithm is normal."""
        return self._beyond(self.high, weight_of_bound(chance))

    def _beyond(self, bound: float, weight: float) -> float:
        if self.value <= 0 or bound == self.value:
            return min(self.value, bound)
        return self.value * (bound / self.value) ** weight

    def at_most(self, other: "Interval") -> "Interval":
        """The smaller value, and the smaller of either bound."""
        return Interval(
            min(self.value, other.value), min(self.low, other.low), min(self.high, other.high)
        )

    def at_least(self, other: "Interval") -> "Interval":
        """The larger value, and the larger of either bound."""
        return Interval(
            max(self.value, other.value), max(self.low, other.low), max(self.high, other.high)
        )
