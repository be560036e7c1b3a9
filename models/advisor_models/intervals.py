"""How far a prediction may be off, as a model's manifest says it: bounds by share.

They are conformal, quantiles of the log error that jobs left out of training had.
"""

import math
from bisect import bisect_left
from dataclasses import dataclass, replace

from advisor.core.gpu import WHOLE

NEAR_LIMIT = 0.97
"""From this part of the power limit on a card counts as held back by it: at the limit H200 cards
read 680 to 703 of 700 W (data/advisor_data/bundled)."""


@dataclass(frozen=True, slots=True)
class Widening:
    """How much further apart bounds must be to hold what they promise; 1 or more.

    Attributes:
        speed: Of speeds.
        power: Of power.
    """

    speed: float
    power: float


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
    """Bounds of the power.

    Attributes:
        split: With limits of SMs.
        uncapped: Without.
        limited: With limits of SMs, where the card is expected at its power limit: there the power
            is known beforehand, whatever the card. None where that was too seldom measured.
    """

    split: Bounds
    uncapped: Bounds
    limited: Bounds | None = None

    def at(self, power_w: float, limit_w: float) -> Bounds:
        """Those of a split by the expected power, W, and the limit, infinite where not known."""
        at_limit = power_w >= NEAR_LIMIT * limit_w
        return self.limited if self.limited is not None and at_limit else self.split

    def wider(self, factor: float) -> "PowerBounds":
        """All of them further apart by a factor of 1 or more."""
        limited = self.limited.wider(factor) if self.limited is not None else None
        return PowerBounds(self.split.wider(factor), self.uncapped.wider(factor), limited)


@dataclass(frozen=True, slots=True)
class Intervals:
    """Conformal bounds, and the part of the measured values that they are to hold.

    Power in watts differs from card to card, which energy for the same work hardly does: cards that
    draw more draw more for each job alone, too. So it has bounds of its own errors, not those of
    speeds and power together, which count the card twice.

    Attributes:
        speed: By share, ascending.
        efficiency: Of `energy-efficiency` at splits; None where it is not known.
    """

    coverage: float
    speed: tuple[ShareBounds, ...]
    power: PowerBounds
    efficiency: Bounds | None = None

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
        efficiency = self.efficiency
        return Intervals(
            self.coverage,
            tuple(bounds.wider(speed) for bounds in self.speed),
            self.power.wider(power),
            # Speeds and power are both in it.
            efficiency.wider(max(speed, power)) if efficiency is not None else None,
        )

    def without_limit(self) -> "Intervals":
        """For a GPU model that was not seen: whether it is at its limit is not known beforehand."""
        return replace(self, power=replace(self.power, limited=None))


def _share(bounds: ShareBounds) -> float:
    return bounds.share_percent
