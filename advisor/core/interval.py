"""An expected value and its bounds."""

from dataclasses import dataclass

NORMAL_90 = 1.645
"""Standard deviations that hold 90 % of a normal distribution, as the intervals of models do."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An expected value, and the bounds that hold it with the predictor's coverage."""

    value: float
    low: float
    high: float

    def times(self, factor: float) -> "Interval":
        """The interval of a positive multiple of the value."""
        return Interval(self.value * factor, self.low * factor, self.high * factor)

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
