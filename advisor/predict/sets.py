"""What two to seven jobs do on one GPU, by physics: `advisor.predict.set_law` over profiles."""

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from advisor.core.gpu import WHOLE
from advisor.core.interval import Interval
from advisor.core.records import FILLS_PERCENT
from advisor.core.split import ADVISED_JOBS, Split
from advisor.predict.predictions import (
    PredictedPart,
    Prediction,
    Predictor,
    possible_speed,
    predict_exclusive,
    predicted_part,
)
from advisor.predict.profiles import Floats, Profile, relative_capacity
from advisor.predict.set_law import (
    ACTIVE_IDLE_OVER_W,
    BUSIEST,
    ENERGY_ERRORS,
    MPS,
    P99_ERRORS,
    POWER_ERRORS,
    SPEED_ERRORS,
    TAILS,
    TURNS_KEPT,
    WHOLE_OF_SMALL,
    SetClass,
    class_of,
    filling_beside,
    power_w,
    room,
    room_in,
    turns,
)
from advisor.predict.situation import kind_of

SURE_OF_BUSIEST = BUSIEST.low / BUSIEST.value
"""Part of `Alone.busiest` that servers are sure of."""


def fills(profile: Profile) -> bool:
    """Whether a job fills the GPU alone; one of which no counter was read is taken to."""
    active = float(profile.values["sm_active_percent"][-1])
    return math.isnan(active) or active >= FILLS_PERCENT


class SetPredictor:
    """A `Predictor` of any number of jobs."""

    def predict(self, profiles: Sequence[Profile], splits: Sequence[Split]) -> list[Prediction]:
        """One prediction for each split, in their order.

        Raises:
            InputError: a share lies outside a profile.
        """
        found: dict[Split, Prediction] = {}
        limits, sliced = (
            [s for s in splits if s.sharing in sharings]
            for sharings in (("limited", "uncapped"), ("time-sliced",))
        )
        for own in filter(None, (limits, sliced)):
            found |= {p.split: p for p in _predictions(profiles, own)}
        return [found.get(split) or predict_exclusive(profiles) for split in splits]


def is_by_physics(profiles: Sequence[Profile], split: Split) -> bool:
    """Whether sets tell more of a way than pairs: more than two jobs, turns, and small jobs.

    Two that leave much of the GPU unused were measured in sets; few of the pairs are such, and of
    those that a model of them has not seen it is off by four times as much
    (docs/measurements/sets/pairs.py).
    """
    if len(profiles) > ADVISED_JOBS or split.sharing == "time-sliced":
        return True
    return split.sharing == "uncapped" and not any(map(fills, profiles))


class AnyWay:
    """Two jobs side by side as `of_pairs` says, and by physics what `is_by_physics`."""

    def __init__(self, of_pairs: Predictor) -> None:
        self._of_pairs, self._of_sets = of_pairs, SetPredictor()

    def predict(self, profiles: Sequence[Profile], splits: Sequence[Split]) -> list[Prediction]:
        """One prediction for each split, in their order.

        Raises:
            InputError: as the predictors do.
        """
        found = dict[Split, Prediction]()
        for predictor, by_physics in ((self._of_pairs, False), (self._of_sets, True)):
            own = [s for s in splits if is_by_physics(profiles, s) is by_physics]
            found |= zip(own, predictor.predict(profiles, own), strict=True)
        return [found[split] for split in splits]


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
    at, ones = profile.at(shares), np.ones(len(shares))
    sm = at["sm_active_percent"]
    return np.array(
        [
            at["rate"] / profile.whole_gpu_rate,
            relative_capacity(profile, shares),
            relative_capacity(profile, [WHOLE])[0] * ones,
            at["power_w"],
            np.where(np.isnan(sm), shares, sm) / WHOLE,
            np.nan_to_num(at["dram_active_percent"]) / WHOLE,
            fills(profile) * ones,
            (kind_of(profile) == "server") * ones,
            active_idle_w(profile) * ones,
            profile.in_bursts * ones,
            [_p99_ms(profile, share) for share in shares],
        ]
    )


def _p99_ms(profile: Profile, share_percent: float) -> float:
    alone_ms = profile.serving and profile.serving.p99_alone_ms(share_percent)
    return math.inf if alone_ms is None else alone_ms


def _predictions(profiles: Sequence[Profile], splits: Sequence[Split]) -> Iterator[Prediction]:
    """Of splits that are all time-sliced, or all side by side."""
    alone = alone_at(profiles, np.array([split.shares for split in splits]).T)
    beside, in_turns = filling_beside(alone.sm, alone.fills), splits[0].sharing == "time-sliced"
    if in_turns:
        reach = speeds = alone.rate * turns(alone.sm, alone.small, alone.served, TURNS_KEPT)
        longer = np.ones_like(speeds)
    else:
        speeds = alone.speeds(reach := alone.could)
        longer = alone.tails()
    sure = alone.busiest * (math.inf if in_turns else SURE_OF_BUSIEST)
    limit_w = min((p.power_limit_w for p in profiles if p.power_limit_w), default=math.inf)
    kept = alone.kept(speeds)
    watts = power_w(kept, alone.power_w, alone.idle_w, limit_w, in_turns=in_turns)
    for way, split in enumerate(splits):
        worst = class_of(split.sharing, float(beside[:, way].max()))
        yield Prediction(
            split=split,
            parts=tuple(
                _part(
                    profile,
                    split.shares[job],
                    class_of(split.sharing, float(beside[job, way])),
                    speed=float(speeds[job, way]),
                    reach=float(reach[job, way]),
                    sure=float(sure[job, way]),
                    longer=float(longer[job, way]),
                )
                for job, profile in enumerate(profiles)
            ),
            power_w=_power(float(watts[way]), worst, limit_w),
            efficiency_factors=ENERGY_ERRORS[worst],
        )


def active_idle_w(profile: Profile) -> float:
    """Power with contexts and no work: as it was measured, else over that of the empty card."""
    measured_w = profile.active_idle_power_w
    return profile.idle_power_w + ACTIVE_IDLE_OVER_W if math.isnan(measured_w) else measured_w


def _power(value_w: float, of_class: SetClass, limit_w: float) -> Interval:
    low, high = POWER_ERRORS[of_class]
    return Interval(value_w, low * value_w, max(value_w, min(high * value_w, limit_w)))


def _part(
    profile: Profile,
    share_percent: float,
    of_class: SetClass,
    *,
    speed: float,
    reach: float,
    sure: float,
    longer: float,
) -> PredictedPart:
    low, high = SPEED_ERRORS[of_class]
    if profile.serving and of_class in ("no filling", "held"):
        # What it serves is as sure as that it could do more; of the rest chance decides.
        found = profile.serving.served(Interval(speed, min(low * reach, sure), high * reach))
    else:
        found = possible_speed(profile, Interval(speed, low * speed, high * speed))
    alone_ms = profile.serving and profile.serving.p99_alone_ms(share_percent)
    p99_ms = P99_ERRORS[of_class].times(longer * alone_ms) if alone_ms else None
    return replace(predicted_part(profile, found), latency_p99_ms=p99_ms)
