"""What two to seven jobs do on one GPU, by physics: `advisor.predict.set_law` over profiles."""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

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
    ENERGY_ERRORS,
    MPS,
    P99_ERRORS,
    POWER_ERRORS,
    SPEED_ERRORS,
    TAILS,
    TURNS_EXPONENT,
    SetClass,
    class_of,
    filling_beside,
    power_w,
    room,
    turns,
)

_LEAST_ACTIVE = 0.01
"""No job is taken for smaller."""


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


class AnyWay:
    """Two jobs side by side as `of_pairs` says; in turns, and more than two, by physics."""

    def __init__(self, of_pairs: Predictor) -> None:
        self._of_pairs, self._of_sets = of_pairs, SetPredictor()

    def predict(self, profiles: Sequence[Profile], splits: Sequence[Split]) -> list[Prediction]:
        """One prediction for each split, in their order.

        Raises:
            InputError: as the predictors do.
        """
        is_pair, found = len(profiles) == ADVISED_JOBS, dict[Split, Prediction]()
        for predictor, in_turns in ((self._of_pairs, False), (self._of_sets, True)):
            own = [s for s in splits if (not is_pair or s.sharing == "time-sliced") is in_turns]
            found |= zip(own, predictor.predict(profiles, own), strict=True)
        return [found[split] for split in splits]


@dataclass(frozen=True, slots=True, eq=False)
class _Alone:
    """All jobs alone at their shares; shape (jobs, ways) each.

    Attributes:
        rate: For each 1 on the whole GPU.
        reach: What it could do with more requests, as `rate`.
        fills: 1 for each job that fills the GPU alone; shape (jobs, 1).
    """

    rate: Floats
    reach: Floats
    power_w: Floats
    sm: Floats
    dram: Floats
    fills: Floats


def _alone(profiles: Sequence[Profile], splits: Sequence[Split]) -> _Alone:
    shares = np.array([split.shares for split in splits]).T
    at = [profile.at(of_job) for profile, of_job in zip(profiles, shares, strict=True)]
    wholes = [profile.whole_gpu_rate for profile in profiles]
    sm, dram = (np.array([a[f"{name}_active_percent"] for a in at]) for name in ("sm", "dram"))
    return _Alone(
        rate=np.array([a["rate"] / whole for a, whole in zip(at, wholes, strict=True)]),
        reach=np.array([relative_capacity(p, s) for p, s in zip(profiles, shares, strict=True)]),
        power_w=np.array([a["power_w"] for a in at]),
        sm=np.where(np.isnan(sm), shares, sm) / WHOLE,
        dram=np.nan_to_num(dram) / WHOLE,
        fills=np.array([[1.0 if fills(profile) else 0.0] for profile in profiles]),
    )


def _predictions(profiles: Sequence[Profile], splits: Sequence[Split]) -> Iterator[Prediction]:
    """Of splits that are all time-sliced, or all side by side."""
    alone, in_turns = _alone(profiles, splits), splits[0].sharing == "time-sliced"
    beside = filling_beside(alone.sm, alone.fills)
    if in_turns:
        reach = speeds = alone.rate * turns(alone.sm, TURNS_EXPONENT)
        longer = np.ones_like(speeds)
    else:
        served = _served(profiles)
        reach = np.minimum(alone.reach, _room(profiles, alone))
        room = np.where(served, np.minimum(1.0, reach), alone.rate)
        speeds = room * MPS.kept(alone.sm, alone.dram, alone.fills, served)
        longer = TAILS.longer(alone.sm, alone.fills)
    kept = np.minimum(1.0, speeds / np.maximum(alone.rate, 1e-9))
    limit_w = min((p.power_limit_w for p in profiles if p.power_limit_w), default=math.inf)
    watts = power_w(kept, alone.power_w, active_idle_w(profiles), limit_w, in_turns=in_turns)
    for way, split in enumerate(splits):
        worst = class_of(split.sharing, float(beside[:, way].max()))
        yield Prediction(
            split=split,
            parts=tuple(
                _part(
                    profile,
                    split,
                    split.shares[job],
                    class_of(split.sharing, float(beside[job, way])),
                    speed=float(speeds[job, way]),
                    reach=float(reach[job, way]),
                    longer=float(longer[job, way]),
                )
                for job, profile in enumerate(profiles)
            ),
            power_w=_power(float(watts[way]), worst, limit_w),
            efficiency_factors=ENERGY_ERRORS[worst],
        )


def _served(profiles: Sequence[Profile]) -> Floats:
    """1 for each server; shape (jobs, 1)."""
    return np.array([[1.0 if profile.serving else 0.0] for profile in profiles])


def _room(profiles: Sequence[Profile], alone: _Alone) -> Floats:
    """What each server could do in the part of the GPU that the others leave, or in equal parts."""
    most = np.array([[most_of(profile)] for profile in profiles])
    return room(most, np.where(_served(profiles), 1 / most, alone.sm), 1 / len(profiles))


def most_of(profile: Profile) -> float:
    """What a server could do on the whole GPU alone, for each 1 that it does; 1 of other jobs.

    A server takes its demand over its capacity, and its SM activity at most: it answers fuller
    batches where it waits. The former is what counts of one that was measured at small shares, the
    latter of one that was not, as nobody saw what it could do.
    """
    if profile.serving is None:
        return 1.0
    active = float(profile.at([WHOLE])["sm_active_percent"][0]) / WHOLE
    capacity = float(relative_capacity(profile, [WHOLE])[0])
    return capacity if math.isnan(active) else max(capacity, 1 / max(active, _LEAST_ACTIVE))


def active_idle_w(profiles: Sequence[Profile]) -> float:
    """Power with contexts and no work: as it was measured, else over that of the empty card."""
    measured = [p.active_idle_power_w for p in profiles if not math.isnan(p.active_idle_power_w)]
    if measured:
        return statistics.median(measured)
    return statistics.fmean(p.idle_power_w for p in profiles) + ACTIVE_IDLE_OVER_W


def _power(value_w: float, of_class: SetClass, limit_w: float) -> Interval:
    low, high = POWER_ERRORS[of_class]
    return Interval(value_w, low * value_w, max(value_w, min(high * value_w, limit_w)))


def _part(
    profile: Profile,
    split: Split,
    share_percent: float,
    of_class: SetClass,
    *,
    speed: float,
    reach: float,
    longer: float,
) -> PredictedPart:
    low, high = SPEED_ERRORS[of_class]
    if profile.serving and of_class in ("no filling", "held"):
        # What it serves is as sure as that it could do more; of the rest chance decides.
        found = profile.serving.served(Interval(speed, low * reach, high * reach))
    else:
        found = possible_speed(profile, Interval(speed, low * speed, high * speed))
    alone_ms = profile.serving and profile.serving.p99_alone_ms(share_percent)
    p99_ms = P99_ERRORS[of_class].times(longer * alone_ms) if alone_ms else None
    return replace(predicted_part(profile, found), latency_p99_ms=p99_ms)
