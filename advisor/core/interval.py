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

    @classmethod
    def sure(cls, value: float) -> "Interval":
        """Of what was measured, not predicted."""
        return cls(value, value, value)

    def times(self, factor: float) -> "Interval":
        """The interval of a positive multiple of the value."""
        return Interval(self.value * factor, self.low * factor, self.high * factor)
