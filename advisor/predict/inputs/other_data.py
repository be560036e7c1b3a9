"""Power of jobs that run with other data than they were profiled with.

A job computes as many operations for each step of its progress whatever its data hold. So what its
data change in the energy of an operation, times its operations per second, is what they change in
the power of the GPU, alone and beside another job.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.core.interval import Interval
from advisor.core.split import Split
from advisor.predict.card_factor import NEAR_LIMIT
from advisor.predict.predictions import Prediction, Predictor
from advisor.predict.profiles import Profile

OPERATIONS_PER_CYCLE = {"tf32": 2048, "bf16": 4096, "fp16": 4096, "fp8": 8192, "int8": 8192}
"""Of the tensor cores of one SM, dense: 989.4 TFLOP/s of bf16 on 132 SMs at 1830 MHz, twice that in
8 bits, half in tf32 (NVIDIA H100 Tensor Core GPU Architecture, v1.04, table 3)."""

LEAST_PART, MOST_PART = -0.6, 0.06
"""What other data change at most in the power of a product above the idle card: zeros draw 60 %
less than random numbers, nothing measured 6 % more (docs/measurements, bf16 on an H100)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataChange:
    """What other data of a job change.

    Attributes:
        whole_gpu_w: In the power of the GPU while the job runs alone on all of it, W.
        why_unknown: Why it is not known, so that only its bounds are; "": it is.
    """

    job: str
    whole_gpu_w: Interval
    why_unknown: str = ""


def operations_per_s(profile: Profile, dtype: str) -> float | None:
    """Of the tensor cores while the job runs alone on the whole GPU; None: not known."""
    per_cycle = OPERATIONS_PER_CYCLE.get(dtype)
    active_percent = float(profile.values["tensor_active_percent"][-1])
    clock_mhz = float(profile.values["sm_clock_mhz"][-1])
    if (
        per_cycle is None
        or profile.units_total is None
        or np.isnan([active_percent, clock_mhz]).any()
    ):
        return None
    return active_percent / 100 * per_cycle * profile.units_total * clock_mhz * 1e6


def unknown_change(profile: Profile, why: str) -> DataChange:
    """Anywhere between the data that draw least and those that draw most."""
    above_w = profile.whole_gpu_power_w - profile.idle_power_w
    bounds_w = Interval(0.0, LEAST_PART * above_w, MOST_PART * above_w)
    return DataChange(job=profile.job, whole_gpu_w=bounds_w, why_unknown=why)


def with_data(profile: Profile, change: DataChange) -> Profile:
    """The profile as it would have been measured with the other data: power by `moved_power`.

    A change of which only bounds are known is not taken in.
    """
    if change.why_unknown:
        return profile
    limit_w = profile.power_limit_w or math.inf
    speeds = profile.values["rate"] / profile.whole_gpu_rate
    moved_w = [
        moved_power(Interval(watts, watts, watts), change.whole_gpu_w.times(speed), limit_w).value
        for watts, speed in zip(profile.values["power_w"].tolist(), speeds.tolist(), strict=True)
    ]
    power_w = np.maximum(moved_w, min(profile.idle_power_w, float(profile.values["power_w"].min())))
    return replace(profile, values={**profile.values, "power_w": power_w})


class DataPredictor:
    """Predicts for profiles with other data: speeds as they were, power as it is then.

    Args:
        predictor: Of the data that were profiled.
        profiles: As the predictor takes them.
        changes: By job.
    """

    def __init__(
        self, predictor: Predictor, profiles: Iterable[Profile], changes: Mapping[str, DataChange]
    ) -> None:
        self._predictor, self._changes = predictor, changes
        self._changed = {p: with_data(p, c) if (c := changes.get(p.job)) else p for p in profiles}
        self._measured = {changed: profile for profile, changed in self._changed.items()}

    def changed(self, profiles: Iterable[Profile]) -> tuple[Profile, ...]:
        """The profiles as they would have been measured with the other data."""
        return tuple(self._changed[profile] for profile in profiles)

    def predict(self, profiles: Sequence[Profile], splits: Sequence[Split]) -> list[Prediction]:
        """One prediction for each split, in their order; profiles are `changed` ones.

        Raises:
            InputError: as the predictor does.
        """
        usual = self._predictor.predict([self._measured[p] for p in profiles], splits)
        return [self._moved(found, profiles) for found in usual]

    def _moved(self, found: Prediction, profiles: Sequence[Profile]) -> Prediction:
        parts = [
            (change.whole_gpu_w, part.speed.value)
            for profile, part in zip(profiles, found.parts, strict=True)
            if (change := self._changes.get(profile.job))
        ]
        if not parts:
            return found
        value_w, low_w, high_w = (
            sum(getattr(watts, name) * speed for watts, speed in parts)
            for name in ("value", "low", "high")
        )
        limit_w = min((p.power_limit_w for p in profiles if p.power_limit_w), default=math.inf)
        alone = tuple(
            replace(part, solo_power_w=profile.whole_gpu_power_w)
            for part, profile in zip(found.parts, profiles, strict=True)
        )
        power_w = moved_power(found.power_w, Interval(value_w, low_w, high_w), limit_w)
        # Errors of the quotient are known of the data that were profiled.
        return replace(found, parts=alone, power_w=power_w, efficiency_factors=None)


def moved_power(power_w: Interval, change_w: Interval, limit_w: float) -> Interval:
    """Power after a change, within the limit.

    At the limit more would be drawn if it could be. Data that draw less then partly raise the
    clock, and power is anywhere between the limit and the whole change below it: half of the change
    is expected, of a job alone as of a pair, or one of both would seem to save what it does not.
    """
    if power_w.value >= NEAR_LIMIT * limit_w and change_w.value < 0:
        change_w = Interval(change_w.value / 2, change_w.low, max(change_w.high, 0.0))
    value_w = min(power_w.value + change_w.value, limit_w)
    low_w = value_w - _both(power_w.value - power_w.low, change_w.value - change_w.low)
    high_w = value_w + _both(power_w.high - power_w.value, change_w.high - change_w.value)
    return Interval(value_w, low_w, max(value_w, min(high_w, limit_w)))


def _both(one_w: float, other_w: float) -> float:
    """Two errors that know nothing of each other."""
    return math.hypot(max(one_w, 0.0), max(other_w, 0.0))
