"""How far a prediction may be off, as a model's manifest says it: bounds by share.

They are conformal, quantiles of the log error that jobs left out of training had.
"""

import math
from bisect import bisect_left
from dataclasses import dataclass

from advisor.gpu import WHOLE


@dataclass(frozen=True, slots=True)
class Bounds:
    """What to add to the logarithm of a prediction for its lower and its upper bound."""

    low: float
    high: float

    @property
    def factors(self) -> tuple[float, float]:
        """What to multiply a prediction with for its bounds."""
        return math.exp(self.low), math.exp(self.high)

    def wider(self, factor: float) -> "Bounds":
        """Further apart by a factor of 1 or more."""
        return Bounds(min(self.low, self.low * factor), max(self.high, self.high * factor))


@dataclass(frozen=True, slots=True)
class ShareBounds:
    """Bounds of the speed of a job with this share; 100 is without limits."""

    share_percent: float
    low: float
    high: float

    def wider(self, factor: float) -> "ShareBounds":
        """As `Bounds.wider`."""
        wide = Bounds(self.low, self.high).wider(factor)
        return ShareBounds(self.share_percent, wide.low, wide.high)


@dataclass(frozen=True, slots=True)
class PowerBounds:
    """Bounds of the power: with limits, and without."""

    split: Bounds
    uncapped: Bounds


@dataclass(frozen=True, slots=True)
class Intervals:
    """Conformal bounds, and the part of the measured values that they are to hold.

    Attributes:
        speed: By share, ascending.
    """

    coverage: float
    speed: tuple[ShareBounds, ...]
    power: PowerBounds

    def of_speed(self, share_percent: float) -> Bounds:
        """Bounds at a share; between two shares, and beyond all, those of the nearest ones.

        Of two the wider: the lower low and the higher high. A share below 100 is a limit, so the
        bounds without limits, which are far apart, are not among its nearest ones.
        """
        known = [b for b in self.speed if (b.share_percent == WHOLE) == (share_percent == WHOLE)]
        known = known or list(self.speed)
        above = bisect_left(known, share_percent, key=_share)
        exact = above < len(known) and known[above].share_percent == share_percent
        near = known[above : above + 1] if exact else known[max(above - 1, 0) : above + 1]
        return Bounds(min(b.low for b in near), max(b.high for b in near))

    def wider(self, *, speed: float, power: float) -> "Intervals":
        """All bounds further apart, those of speeds and those of power by a factor of 1 or more."""
        return Intervals(
            self.coverage,
            tuple(bounds.wider(speed) for bounds in self.speed),
            PowerBounds(self.power.split.wider(power), self.power.uncapped.wider(power)),
        )


def _share(bounds: ShareBounds) -> float:
    return bounds.share_percent
