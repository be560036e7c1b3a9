"""What two to seven jobs do on one GPU: an interference model with few constants.

Every constant is fitted to the bundled sets of two to seven jobs on H100 and H200 by
docs/measurements/sets/law.py, which prints them as they stand here and says how far off they
are for jobs that they were not fitted to. Arrays have the shape (jobs, ways).
"""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from advisor.core.gpu import WHOLE
from advisor.core.interval import Interval
from advisor.core.records import FILLS_PERCENT
from advisor.core.split import ADVISED_JOBS, ISOLATING, Sharing, Split
from advisor.predict.predictions import (
    Predictions,
    Predictor,
    joined,
    possible_speeds,
    predict_exclusive,
    solo_of,
)
from advisor.predict.profiles import Floats, Profile, kind_of, relative_capacity


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
    """Relative capacity of servers under colocation, 1 is running alone; shape (jobs, ways).

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
    the next is after those of all others (docs/measurements/sets.md).

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
    kept: Floats,
    alone_w: Floats,
    active_idle_w: Floats,
    limit_w: float,
    *,
    in_turns: bool | npt.NDArray[np.bool_],
) -> Floats:
    """What all add to the active idle power, each as much as it keeps of its speed; (ways,).

    Each adds what it drew over the active idle power of the card that it was measured on, shape
    (jobs, 1) or (jobs, ways). Side by side at least what the hungriest draws alone: it waits only
    while others compute. A job that draws nothing is an empty seat.
    """
    own = kept * np.maximum(0.0, alone_w - active_idle_w)
    jobs = (alone_w > 0).sum(axis=0)
    together = active_idle_w.sum(axis=0) / jobs + own.sum(axis=0)
    beside: Floats = np.maximum(together, alone_w.max(axis=0))
    return np.minimum(limit_w, np.where(in_turns, together, beside))


SetClass: TypeAlias = Literal["no filling", "held", "filling", "time-sliced"]
"""What a job has beside it, by which errors and tails differ: no job that fills the GPU; such ones,
held below `HELD` by limits; above; or any, in turns."""

CLASSES: tuple[SetClass, ...] = get_args(SetClass)

HELD = 0.6
"""Of `filling_beside`."""


def class_of(sharing: Sharing, filling: float) -> SetClass:
    """The class of a job beside others that fill the GPU so far."""
    return "time-sliced" if sharing == "time-sliced" else CLASSES[int(class_numbers(filling))]


def class_numbers(filling: float | Floats) -> npt.NDArray[np.intp]:
    """Places in `CLASSES` of jobs of which none takes turns."""
    return np.where(filling == 0, 0, np.where(filling < HELD, 1, 2))


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

_SPEED_ERRORS, _POWER_ERRORS, _ENERGY_ERRORS = (
    np.array([errors[name] for name in CLASSES])
    for errors in (SPEED_ERRORS, POWER_ERRORS, ENERGY_ERRORS)
)
_P99_ERRORS = np.array([astuple(P99_ERRORS[name]) for name in CLASSES])
"""By the numbers of the classes."""

SURE_OF_BUSIEST = BUSIEST.low / BUSIEST.value
"""Lower confidence bound of `JobsAlone.busiest`, as a fraction of its value."""


def fills(profile: Profile) -> bool:
    """Whether a job fills the GPU alone; one of which no counter was read is taken to."""
    active = float(profile.values["sm_active_percent"][-1])
    return math.isnan(active) or active >= FILLS_PERCENT


class SetPredictor:
    """A `Predictor` of any number of jobs."""

    def predict(self, profiles: Sequence[Profile], splits: Sequence[Split]) -> Predictions:
        """One prediction for each split, in their order.

        Raises:
            InputError: a share lies outside a profile.
        """
        alone = alone_at(profiles, np.array([split.shares for split in splits]).T)
        in_turns, apart = (
            np.array([split.sharing == sharing for split in splits]) for sharing in ISOLATING
        )
        filling = filling_beside(alone.sm, alone.fills)
        classes = np.where(in_turns, CLASSES.index("time-sliced"), class_numbers(filling))
        reach = np.where(in_turns, alone.in_turns, alone.could)
        speeds = np.where(in_turns, reach, alone.speeds(reach))
        low, high = np.moveaxis(_SPEED_ERRORS[classes], -1, 0)
        # What a server serves is as sure as that it could do more; of the rest chance decides.
        is_server = np.array([[profile.serving is not None] for profile in profiles])
        has_room = is_server & (classes < CLASSES.index("filling"))
        sure = np.minimum(low * reach, SURE_OF_BUSIEST * alone.busiest)
        bounds = np.where(
            has_room, [speeds, sure, high * reach], [speeds, low * speeds, high * speeds]
        )
        for job, profile in enumerate(profiles):
            bounds[:, job] = possible_speeds(profile, bounds[:, job])
        alone_ms = np.where(alone.p99_ms > 0, alone.p99_ms, np.inf)
        longer = np.where(in_turns, 1.0, alone.tails())
        tails_ms = np.moveaxis(_P99_ERRORS[classes], -1, 0) * (longer * alone_ms)
        limit_w = min((p.power_limit_w for p in profiles if p.power_limit_w), default=math.inf)
        kept, worst = alone.kept(speeds), classes.max(axis=0)
        watts = power_w(kept, alone.power_w, alone.idle_w, limit_w, in_turns=in_turns)
        low_w, high_w = _POWER_ERRORS[worst].T * watts
        exclusive = predict_exclusive(profiles)
        return Predictions(
            splits=tuple(splits),
            solo=solo_of(profiles),
            speeds=np.where(apart, exclusive.parts[0].speed.value, bounds),
            power_w=np.where(
                apart,
                exclusive.power_w.value,
                [watts, low_w, np.maximum(watts, np.minimum(high_w, limit_w))],
            ),
            latencies_p99_ms=np.where(apart | np.isinf(tails_ms), np.nan, tails_ms),
            memory_power_w=np.full((3, len(splits)), np.nan),
            efficiency_factors=np.where(apart, np.nan, _ENERGY_ERRORS[worst].T),
        )


def is_by_physics(profiles: Sequence[Profile], split: Split) -> bool:
    """Whether the law of sets knows an option better than the model of pairs.

    The model has learned from two jobs at limits that add up to the GPU, and without limits where
    one of them fills it. All else was measured in sets: more than two jobs, time slicing, limits
    that overlap, and small jobs without limits, of which the model is off by four times as much
    where it has not seen them (docs/measurements/sets.md).
    """
    if len(profiles) > ADVISED_JOBS or split.sharing in ISOLATING:
        return True
    if split.is_limited:
        return sum(split.shares) > WHOLE + 1
    return not any(map(fills, profiles))


class AnyWay:
    """Two jobs side by side as `of_pairs` says, and by physics what `is_by_physics`."""

    def __init__(self, of_pairs: Predictor) -> None:
        self._of_pairs, self._of_sets = of_pairs, SetPredictor()

    def predict(self, profiles: Sequence[Profile], splits: Sequence[Split]) -> Predictions:
        """One prediction for each split, in their order."""
        own: tuple[list[Split], list[Split]] = [], []
        for split in splits:
            own[is_by_physics(profiles, split)].append(split)
        both = zip((self._of_pairs, self._of_sets), own, strict=True)
        return joined(splits, *(by.predict(profiles, some) for by, some in both if some))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class JobsAlone:
    """Jobs alone at their shares; shape (jobs, ways) each. A row of zeros is an empty seat.

    Attributes:
        rate: For each 1 on the whole GPU.
        reach: What it could do with more requests, as `rate`.
        most: The same on the whole GPU.
        fills: 1 for a job that fills the GPU alone.
        served: 1 for a server.
        idle_w: Of the card that it was measured on, with contexts and no work.
        in_bursts: 1 for a job that computes in bursts.
        p99_ms: Of a server; infinite where it is not known.
    """

    rate: Floats
    reach: Floats
    most: Floats
    power_w: Floats
    sm: Floats
    dram: Floats
    fills: Floats
    served: Floats
    idle_w: Floats
    in_bursts: Floats
    p99_ms: Floats

    def seated(self, rows: Any, levels: Any) -> "JobsAlone":
        """Those of some rows and columns, as numpy takes them."""
        return JobsAlone(**{f.name: getattr(self, f.name)[rows, levels] for f in fields(self)})

    @property
    def needed(self) -> Floats:
        """Part of the GPU that each takes: a server its demand over its capacity."""
        return np.where(self.served, 1 / np.maximum(self.most, 1e-9), self.sm)

    @property
    def small(self) -> Floats:
        """1 for a job that neither fills the GPU, nor serves, nor computes in bursts."""
        return (1 - self.fills) * (1 - self.served) * (1 - self.in_bursts)

    @property
    def could(self) -> Floats:
        """What each server could do in the part that the others leave, or in equal parts."""
        equal = 1 / (self.power_w > 0).sum(axis=0)
        return np.minimum(self.reach, room(self.most, self.needed, equal))

    @property
    def in_turns(self) -> Floats:
        """What each does where the driver gives them equal turns, as `rate`."""
        return self.rate * turns(self.sm, self.small, self.served, TURNS_KEPT)

    @property
    def wanted(self) -> Floats:
        """Of the SMs at least: in fuller batches a server needs less than it is active on alone."""
        by_rate = BUSIEST.value / (WHOLE_OF_SMALL * np.maximum(self.most, 1e-9))
        return np.where(self.served, np.minimum(self.sm, by_rate), self.sm)

    @property
    def busiest(self) -> Floats:
        """What each could do where all SMs are busy; infinite for jobs that are no servers."""
        return np.where(self.served, self.rate * room_in(BUSIEST.value, self.wanted), np.inf)

    def speeds(self, could: Floats) -> Floats:
        """Of each, relative to its own on the whole GPU, side by side under MPS."""
        served = np.minimum(np.minimum(1.0, could), self.busiest)
        first = np.where(self.served, served, self.rate)
        return first * MPS.kept(self.sm, self.dram, self.fills, self.served)

    def tails(self) -> Floats:
        """Times its p99 alone at its share, of each that is a server, under MPS."""
        return TAILS.longer(self.sm, self.fills, self.in_bursts, self.p99_ms)

    def kept(self, speeds: Floats) -> Floats:
        """Part of its speed alone at its share that each keeps."""
        return np.minimum(1.0, speeds / np.maximum(self.rate, 1e-9))


def alone_at(profiles: Sequence[Profile], shares: Floats) -> JobsAlone:
    """Each at its shares, percent; shape (jobs, ways)."""
    jobs = [_alone(p, tuple(own)) for p, own in zip(profiles, shares.tolist(), strict=True)]
    columns = np.moveaxis(np.array(jobs), 1, 0)
    return JobsAlone(
        **{field.name: own for field, own in zip(fields(JobsAlone), columns, strict=True)}
    )


@functools.lru_cache(maxsize=4096)  # who places jobs asks for many sets of few jobs
def _alone(profile: Profile, shares: tuple[float, ...]) -> Floats:
    """The fields of `JobsAlone` of one job, in their order; shape (fields, ways)."""
    names = "rate", "power_w", "sm_active_percent", "dram_active_percent"
    rates, powers_w, sm, dram = profile.at(shares, *names).values()
    ones = np.ones(len(shares))
    serving = profile.serving
    alone_ms = [serving.p99_alone_ms(share) if serving else None for share in shares]
    return np.array(
        [
            rates / profile.whole_gpu_rate,
            relative_capacity(profile, shares),
            relative_capacity(profile, [WHOLE])[0] * ones,
            powers_w,
            np.where(np.isnan(sm), shares, sm) / WHOLE,
            np.nan_to_num(dram) / WHOLE,
            fills(profile) * ones,
            (kind_of(profile) == "server") * ones,
            active_idle_w(profile) * ones,
            profile.in_bursts * ones,
            [math.inf if ms is None else ms for ms in alone_ms],
        ]
    )


def active_idle_w(profile: Profile) -> float:
    """Power with contexts and no work: as it was measured, else over that of the empty card."""
    measured_w = profile.active_idle_power_w
    return profile.idle_power_w + ACTIVE_IDLE_OVER_W if math.isnan(measured_w) else measured_w
