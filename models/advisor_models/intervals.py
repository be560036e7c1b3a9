"""How far a prediction may be off, as a head of a model says it: bounds by stratum.

They are conformal, quantiles of the log error that jobs left out of training had. A stratum is what
has an interval of its own: a place ("split", "at the power limit" or "uncapped") and what the jobs
are beside each other (`advisor.predict.profiles`), and of a pair each of these "on NVIDIA H200"
where enough jobs were measured on that GPU model.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

UNCAPPED = "uncapped"
"""Without limits of SMs."""

SPLIT = "split"
"""With limits of SMs."""

LIMITED = "at the power limit"
"""With limits of SMs, where the card is expected at its power limit: there the power is known
beforehand, whatever the card. Absent where that was too seldom measured."""

_ON, _IN = " on ", ", "


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


def bounds_of_stratum(strata: Strata, name: str, gpu_model: str = "") -> LogBounds:
    """Bounds of a stratum; of a GPU model with some of its own the wider ones of both.

    Its cards are few, so a GPU model's own bounds may be too narrow for the next card. A situation
    that was not measured has the lowest low and the highest high of its place.
    """
    place = place_of(name)
    if place == LIMITED and not any(place_of(known) == LIMITED for known in strata):
        return bounds_of_stratum(strata, name.replace(LIMITED, SPLIT, 1), gpu_model)
    own = [strata[known] for known in (on_gpu_model(name, gpu_model), name) if known in strata]
    every = [b for known, b in strata.items() if place_of(known) == place and _ON not in known]
    wide = own if name in strata else own + every
    return LogBounds(min(b.low for b in wide), max(b.high for b in wide))


def place_of(name: str) -> str:
    """The place of a stratum."""
    return name.partition(_ON)[0].partition(_IN)[0]


def on_gpu_model(name: str, gpu_model: str) -> str:
    """Name of the part of a pair's stratum that was measured on one GPU model."""
    return f"{name}{_ON}{gpu_model}"


def wider(strata: Strata, factor: float) -> dict[str, LogBounds]:
    """All bounds further apart by a factor of 1 or more."""
    return {name: bounds.wider(factor) for name, bounds in strata.items()}
