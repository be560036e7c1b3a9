"""What jobs of a set keep of their speed, and what the card draws: physics with few constants.

Every constant is fitted to the bundled sets of two to seven jobs on H100 and H200 by
docs/measurements/sets/law.py, which prints them as they stand here and says how far off they
are for jobs that they were not fitted to. Arrays have the shape (jobs, ways).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias

import numpy as np

from advisor.core.interval import Interval
from advisor.core.split import Sharing
from advisor.predict.profiles import Floats


@dataclass(frozen=True, slots=True)
class SideBySide:
    """How jobs hold each other up under MPS.

    Attributes:
        supply: Sum of SM (or DRAM) activities, 1 for a whole GPU, at which all slow down.
        sharpness: How sharp the corner is there.
        starved: Part of its speed that a job loses beside jobs whose activities add up to 1, of
            those that fill the GPU: their kernels are long, and its own wait for each of them.
        steepness: How fast that grows with their activity; a limit on them lowers it.
    """

    supply: float
    sharpness: float
    starved: float
    steepness: float

    def crowded(self, sm: Floats, dram: Floats) -> Floats:
        """Part of its speed that each job keeps of what all want together; shape (ways,)."""
        wanted = np.maximum(sm.sum(axis=0), dram.sum(axis=0)) / self.supply
        return (1 + wanted**self.sharpness) ** (-1 / self.sharpness)

    def wanted(self, crowded: Floats) -> Floats:
        """What all want together where they keep so much of their speeds."""
        return self.supply * (crowded**-self.sharpness - 1) ** (1 / self.sharpness)

    def kept(self, sm: Floats, dram: Floats, fills: Floats, served: Floats) -> Floats:
        """Part of its speed that each job keeps; fills and served have the shape (jobs, 1).

        A server has room for what the crowd takes, as far as its capacity goes. A job that fills
        the GPU has its turn of it, however long the kernels of others.
        """
        crowded = self.crowded(sm, dram)[None, :]
        waiting = 1 - self.starved * filling_beside(sm, fills) ** self.steepness
        return np.maximum(np.where(served, 1.0, crowded) * waiting, fills * crowded)


def filling_beside(sm: Floats, fills: Floats) -> Floats:
    """Activity of all other jobs that fill the GPU, at most 1; fills (jobs, 1) is 1 for those."""
    own = sm * fills
    return np.minimum(1.0, own.sum(axis=0) - own)


def room(most: Floats, wanted: Floats, equal: float | Floats, taken: float | None = None) -> Floats:
    """What servers could do beside others, for each 1 that they do alone; shape (jobs, ways).

    Args:
        most: What each could do alone.
        wanted: Part of the GPU that each job is active on alone.
        equal: Part of the GPU that each could have at least, 1 for all of it.
        taken: How much of what others want is lost to a server; `TAKEN` if not given.
    """
    others = wanted.sum(axis=0) - wanted
    return most * np.maximum(1 - (TAKEN if taken is None else taken) * others, equal)


def room_in(busiest: float, sm: Floats) -> Floats:
    """What each could do at most, for each 1 alone, where all use so much of the SMs together.

    `room` counts half of what others want, which many servers together would stretch without end.
    Who wants little gets that first. Activities alone, shape (jobs, ways); `busiest` as `BUSIEST`.
    """
    return _level(sm, busiest) / np.maximum(sm, 1e-9)


@dataclass(frozen=True, slots=True)
class Tails:
    """How much longer the p99 of a server is under MPS than alone at its limit.

    Attributes:
        crowd: For what all want together, SM activities, 1 for a whole GPU: the square of it over
            that of the server alone.
        waiting: Of the logarithm, beside jobs whose activities add up to 1, of those that fill.
        steepness: How fast that grows with their activity.
        burst_ms: A server whose p99 alone is far below that meets jobs that compute in bursts as
            they are in a burst, on the whole GPU; one far above as they are in the mean.
    """

    crowd: float
    waiting: float
    steepness: float
    burst_ms: float

    def longer(self, sm: Floats, fills: Floats, in_bursts: Floats, alone_ms: Floats) -> Floats:
        """Times the p99 alone, `alone_ms` at its limit; shape (jobs, ways).

        Of jobs that compute in bursts (`in_bursts` is 1) the longest burst counts, not their sum.
        """
        burst = _most_beside(in_bursts * (1 - sm)) / (1 + alone_ms / self.burst_ms)
        wanted = sm.sum(axis=0) + burst
        crowded = (1 + (self.crowd * wanted) ** 2) / (1 + (self.crowd * sm) ** 2)
        return crowded * np.exp(self.waiting * filling_beside(sm, fills) ** self.steepness)


def _most_beside(values: Floats) -> Floats:
    """The largest of the other jobs, 0 at least; shape (jobs, ways)."""
    ordered: Floats = np.sort(np.vstack([np.zeros_like(values[:1]), values]), axis=0)
    first, second = ordered[-1], ordered[-2]
    return np.asarray(np.where(values == first, second, first), dtype=np.float64)


def turns(sm: Floats, small: Floats, served: Floats, kept: float | Floats) -> Floats:
    """Part of its speed that each job keeps where the driver gives them equal turns.

    None gets longer than its SMs are active alone, and what those leave is dealt to the others. A
    server makes up in fuller batches for what changes of turns take; others keep `kept` of theirs,
    and small ones an equal part of their speed: a turn ends in each gap between their kernels, and
    the next is after those of all others (docs/measurements/sets/turns.py).

    Args:
        sm: Activity alone, shape (jobs, ways).
        small: 1 for a job that neither fills the GPU, nor serves, nor computes in bursts.
        served: 1 for a server.
        kept: By jobs that are neither, beside others; `TURNS_KEPT`.
    """
    dealt = np.minimum(1.0, _level(sm, 1.0) / np.maximum(sm, 1e-9))
    if len(sm) == 1:
        return dealt
    return dealt * np.where(served, 1.0, np.where(small, 1 / len(sm), kept))


def _level(wanted: Floats, supply: float) -> Floats:
    """The most that any gets, so that all together get `supply` where they want more; (ways,).

    Those who want less than that get what they want, and the others the same.
    """
    ordered = np.sort(wanted, axis=0)
    left = supply - np.cumsum(ordered, axis=0) + ordered
    among = np.arange(len(ordered), 0, -1)
    return (left / among[:, None]).max(axis=0)


def power_w(
    kept: Floats, alone_w: Floats, active_idle_w: Floats, limit_w: float, *, in_turns: bool
) -> Floats:
    """What all add to the active idle power, each as much as it keeps of its speed; (ways,).

    Each adds what it drew over the active idle power of the card that it was measured on, shape
    (jobs, 1) or (jobs, ways). Side by side at least what the hungriest draws alone: it waits only
    while others compute. A job that draws nothing is an empty seat.
    """
    own = kept * np.maximum(0.0, alone_w - active_idle_w)
    jobs = (alone_w > 0).sum(axis=0)
    together = active_idle_w.sum(axis=0) / jobs + own.sum(axis=0)
    return np.minimum(limit_w, together if in_turns else np.maximum(together, alone_w.max(axis=0)))


SetClass: TypeAlias = Literal["no filling", "held", "filling", "time-sliced"]
"""What a job has beside it, by which errors and tails differ: no job that fills the GPU; such ones,
held below `HELD` by limits; above; or any, in turns."""

HELD = 0.6
"""Of `filling_beside`."""


def class_of(sharing: Sharing, filling: float) -> SetClass:
    """The class of a job beside others that fill the GPU so far."""
    if sharing == "time-sliced":
        return "time-sliced"
    return "no filling" if filling == 0 else "held" if filling < HELD else "filling"


MEASURED_ON = ("NVIDIA H100 80GB HBM3", "NVIDIA H200")

MPS = SideBySide(supply=1.0, sharpness=4.0, starved=0.6, steepness=12.0)

TAILS = Tails(crowd=1.5, waiting=1.0, steepness=12.0, burst_ms=24.0)

TAKEN = 0.5
"""Of what others want, by `room`: an SM on which their kernels have a warp is not lost to others.
With it 3 % of the servers that are said to be sure of their demand beside jobs that do not fill the
GPU lack a tenth of it."""

BUSIEST = Interval(1.3, 1.2, math.inf)
"""SM activities alone times speeds, added up, of sets that cannot serve all that is asked: 1.0 to
1.4 (five LLM servers 1.9). The value leaves the mean error of what is served as it is, and with the
low end no more servers are called sure that are not."""

WHOLE_OF_SMALL = 0.75
"""Of the rate at small shares times the whole GPU, what a server that keeps all of it busy has.
Seen once, so taken a little lower than there, at 0.8: three bert-serve-60 have 8,577 a second of an
H200, of which bert-serve-30 has 1,184 at 11 %."""

TURNS_KEPT = 0.8

ACTIVE_IDLE_OVER_W = 50.0
"""Active idle power over that of the empty card, for profiles without the former."""

SPEED_ERRORS: Mapping[SetClass, tuple[float, float]] = MappingProxyType(
    {
        "no filling": (0.71, 1.37),
        "held": (0.68, 1.44),
        "filling": (0.16, 2.23),
        "time-sliced": (0.55, 1.56),
    }
)
"""Measured for each 1 predicted, of a job that was not fitted to: 5th and 95th percentile."""

POWER_ERRORS: Mapping[SetClass, tuple[float, float]] = MappingProxyType(
    {
        "no filling": (0.87, 1.17),
        "held": (0.86, 1.17),
        "filling": (0.81, 1.07),
        "time-sliced": (0.78, 1.21),
    }
)
"""The same of the watts of a set, by the class of the job with most beside it."""

ENERGY_ERRORS: Mapping[SetClass, tuple[float, float]] = MappingProxyType(
    {
        "no filling": (0.87, 1.17),
        "held": (0.90, 1.14),
        "filling": (0.85, 1.20),
        "time-sliced": (0.78, 1.15),
    }
)
"""The same of the energy of the work on a card each, for each 1 together."""

P99_ERRORS: Mapping[SetClass, Interval] = MappingProxyType(
    {
        "no filling": Interval(1.0, 0.49, 2.42),
        "held": Interval(1.0, 0.34, 2.63),
        "filling": Interval(1.0, 0.22, 12.7),
        "time-sliced": Interval(7.04, 2.88, 10.4),
    }
)
"""p99 for each 1 that `TAILS` says, of servers that it was not fitted to, 5th and 95th percentile
(docs/measurements/sets/tails.py); time-sliced for each 1 alone."""
