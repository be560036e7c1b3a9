"""What a limit makes of work that costs other power: another clock, other power, or some of both.

Power of the work grows with a power of the clock: with the square of the voltage, for each cycle,
and with how much of a change of clock the rate follows. docs/measurements/power/pair_clock.py
compares the clock of pairs that follows from it with the measured one, data_at_limit.py what other
data change.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.core.gpu import WHOLE
from advisor.predict.predictions import Prediction
from advisor.predict.profiles import Floats, Profile
from advisor_power.components.activity import SM_POWER_EXPONENT

WORK_EXPONENT = SM_POWER_EXPONENT - 1
"""The energy of the same work grows with this power of the clock."""

HELD_BACK = 0.98
"""Below this part of a profile's highest clock something held it back: power limit or heat."""

FEWER_CYCLES = 0.75
"""Rates are compared with those at this part of the cycles or less: nearer ones differ by noise."""

LEAST_CLOCK = 0.3
"""Least part of the highest clock that is considered."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """What a GPU draws, and its clock.

    Attributes:
        above_w: Above the idle card.
        clock: Part of the highest one.
        rest_w: Of what is above the idle card, what no work draws: it stays.
    """

    above_w: float
    clock: float
    rest_w: float = 0.0

    def with_work(self, more_w: float, most_w: float, exponent: float, top: float = 1.0) -> "Drawn":
        """The same jobs when their work costs more or less.

        Args:
            more_w: What it costs more at the clock of now; below 0: less.
            most_w: What is left to the jobs above the idle card.
            exponent: Of the clock in the power of the work.
            top: Part of the highest clock that it can rise to; it does not fall to it.
        """
        top, rest_w = max(top, self.clock), min(self.rest_w, self.above_w)
        work_w = max(self.above_w - rest_w + more_w, 0.0) * (top / self.clock) ** exponent
        left_w = max(most_w - rest_w, 0.0)
        if work_w <= left_w:
            return replace(self, above_w=rest_w + work_w, clock=top)
        return replace(self, above_w=most_w, clock=top * (left_w / work_w) ** (1 / exponent))


def clocks(profile: Profile) -> Floats:
    """Part of the highest clock at each share, shape (shares,); 1 where it is not known."""
    measured = profile.values["sm_clock_mhz"]
    if np.isnan(measured).all():
        return np.ones_like(measured)
    found = measured / np.nanmax(measured)
    return np.where(np.isnan(found), 1.0, found)


def elasticities(profile: Profile) -> Floats:
    """How much of a change of clock the rate follows, 0 none and 1 all of it; shape (shares,).

    What more SMs or a higher clock give is cycles. The rate follows them at a share as it did from
    the most cycles that are a quarter fewer, and all of them where no share has fewer.
    """
    cycles, rates = profile.shares * clocks(profile), profile.values["rate"]
    found = np.ones_like(rates)
    for place, own in enumerate(cycles):
        fewer = np.flatnonzero(cycles[:place] <= FEWER_CYCLES * own)
        if fewer.size:
            other = fewer[-1]
            found[place] = np.log(rates[place] / rates[other]) / np.log(own / cycles[other])
    return np.clip(found, 0.0, 1.0)


def clock_together(profiles: Sequence[Profile], together: Prediction) -> float:
    """Part of the highest clock at which jobs side by side draw the power that is expected of them.

    Each draws above idle what it does alone at its share, as much of it as it keeps of that rate,
    and at another clock the energy of that clock.

    Args:
        profiles: As measured, in the order of the split.
        together: What is expected of them: speeds and power.
    """
    shares = together.split.shares if together.split.is_limited else [WHOLE] * len(profiles)
    at_top_w = sum(
        _at_top_w(profile, share, part.rate.value)
        for profile, share, part in zip(profiles, shares, together.parts, strict=True)
    )
    above_w = together.power_w.value - mean_idle_w(profiles)
    if at_top_w <= above_w:
        return 1.0
    return max(LEAST_CLOCK, (max(above_w, 0.0) / at_top_w) ** (1 / WORK_EXPONENT))


def mean_idle_w(profiles: Sequence[Profile]) -> float:
    """Power of the GPU without jobs, by the profiles of several."""
    return float(np.mean([profile.idle_power_w for profile in profiles]))


def _at_top_w(profile: Profile, share: float, rate: float) -> float:
    """Above idle, at the energy of the highest clock."""
    alone = {name: profile.values[name] for name in ("power_w", "rate")} | {
        "clock": clocks(profile)
    }
    at = {name: float(np.interp(share, profile.shares, of)) for name, of in alone.items()}
    kept = min(1.0, rate / at["rate"])
    return kept * (at["power_w"] - profile.idle_power_w) / at["clock"] ** WORK_EXPONENT
