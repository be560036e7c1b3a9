"""How far a prediction may be off, as a head of a model says it: bounds by stratum.

They are conformal, quantiles of the log error that jobs left out of training had. A stratum is what
has an interval of its own: of a job its share in percent, "10" to "90", or "uncapped"; of a pair
"split", "at the power limit" or "uncapped", and each of these "on NVIDIA H200" where enough jobs
were measured on that GPU model.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from advisor.core.gpu import WHOLE

UNCAPPED = "uncapped"
"""Without limits of SMs."""

SPLIT = "split"
"""With limits of SMs."""

LIMITED = "at the power limit"
"""With limits of SMs, where the card is expected at its power limit: there the power is known
beforehand, whatever the card. Absent where that was too seldom measured."""

_ON = " on "


@dataclass(frozen=True, slots=True)
class LogBounds:
    """What to add to the logarithm of a prediction for its lower and its upper bound."""

    low: float
    high: float

    @property
    def factors(self) -> tuple[float, float]:
        """What to multiply a prediction with for its bounds."""
        return math.exp(self.low), math.exp(self.high)

    def wider(self, factor: float) -> "LogBounds":
        """Further apart by a factor of 1 or more."""
        return LogBounds(min(self.low, self.low * factor), max(self.high, self.high * factor))


Strata: TypeAlias = Mapping[str, LogBounds]
"""Bounds by stratum."""


def at_share(strata: Strata, share_percent: float) -> LogBounds:
    """Bounds of a job; between two shares, and beyond all, those of the nearest ones.

    Of two the wider: the lower low and the higher high. A share below 100 is a limit, so the bounds
    without limits, which are far apart, are not among its nearest ones.
    """
    known = sorted((name for name in strata if name != UNCAPPED), key=float)
    if UNCAPPED in strata and (share_percent == WHOLE or not known):
        return strata[UNCAPPED]
    above = bisect_left(known, share_percent, key=float)
    exact = above < len(known) and float(known[above]) == share_percent
    near = known[above : above + 1] if exact else known[max(above - 1, 0) : above + 1]
    return LogBounds(min(strata[n].low for n in near), max(strata[n].high for n in near))


def of_pair(strata: Strata, *, uncapped: bool, at_limit: bool, gpu_model: str) -> LogBounds:
    """Bounds of a pair: without limits of SMs, or with them, at the power limit or below it.

    Those of the GPU model, where it has some of its own.
    """
    limited = LIMITED if at_limit and LIMITED in strata else SPLIT
    name = UNCAPPED if uncapped else limited
    return strata.get(on_gpu_model(name, gpu_model), strata[name])


def on_gpu_model(name: str, gpu_model: str) -> str:
    """Name of the part of a pair's stratum that was measured on one GPU model."""
    return f"{name}{_ON}{gpu_model}"


def without_gpu_model(name: str) -> str:
    """The stratum that one of a GPU model is part of; any other is its own."""
    return name.partition(_ON)[0]


def wider(strata: Strata, factor: float) -> dict[str, LogBounds]:
    """All bounds further apart by a factor of 1 or more."""
    return {name: bounds.wider(factor) for name, bounds in strata.items()}
