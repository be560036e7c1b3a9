"""Power and speed of jobs that run with other data than they were profiled with.

A job computes as many operations for each step of its progress whatever its data hold. So what its
data change in the energy of an operation, times its operations per second, is what they change in
the power of the GPU, alone and beside another job. Where a limit holds the clock back, the clock
moves first, and the speed with it: `advisor_power.model.held_back`.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from advisor.core.interval import Interval
from advisor.predict.profiles import Floats, Profile
from advisor.validity.degenerate import LEAST_ACTIVE_PERCENT
from advisor_power.model.held_back import (
    HELD_BACK,
    WORK_EXPONENT,
    Drawn,
    clocks,
    elasticities,
)

OPERATIONS_PER_CYCLE = {"tf32": 2048, "bf16": 4096, "fp16": 4096, "fp8": 8192, "int8": 8192}
"""Of the tensor cores of one SM, dense: 989.4 TFLOP/s of bf16 on 132 SMs at 1830 MHz, twice that in
8 bits, half in tf32 (NVIDIA H100 Tensor Core GPU Architecture, v1.04, table 3)."""

LEAST_PART, MOST_PART = -0.6, 0.06
"""What other data change at most in the power of a product above the idle card: zeros draw 60 %
less than random numbers, nothing measured 6 % more (docs/measurements, bf16 on an H100)."""


@dataclass(frozen=True, slots=True)
class CardBounds:
    """What of a card no data change; by default nothing is known.

    Attributes:
        tops: Part of the highest clock that it can rise to at each share of a profile; (): all.
        rest_w: Of the power above the profile's idle card, what a context draws without work, W.
    """

    tops: tuple[float, ...] = ()
    rest_w: float = 0.0

    def top(self, profile: Profile, share: float) -> float:
        """Part of the highest clock that it can rise to at a share."""
        return float(np.interp(share, profile.shares, self.tops)) if self.tops else 1.0


NO_BOUNDS = CardBounds()


@dataclass(frozen=True, slots=True, kw_only=True)
class DataChange:
    """What other data of a job change.

    Attributes:
        work_w: In the power of the GPU at the job's rate alone on all of it, if the clock were the
            highest one, W.
        whole_gpu_w: In the power of the GPU while the job runs alone on all of it, W.
        whole_gpu_speed: The job's rate there, for each one with the data that were profiled: above
            1 where a limit held the clock back and the data draw less.
        why_unknown: Why it is not known, so that only its bounds are; "": it is.
        card: What of the card they do not change.
    """

    job: str
    work_w: Interval
    whole_gpu_w: Interval
    whole_gpu_speed: Interval
    why_unknown: str = ""
    card: CardBounds = NO_BOUNDS


def data_change(profile: Profile, work_w: Interval, card: CardBounds = NO_BOUNDS) -> DataChange:
    """What data change that draw this much more at the highest clock, W."""
    alone = [_alone(profile, watts, card) for watts in (work_w.value, work_w.low, work_w.high)]
    powers_w = [float(power_w[-1]) - profile.whole_gpu_power_w for power_w, _ in alone]
    speeds = [float(rate[-1]) / profile.whole_gpu_rate for _, rate in alone]
    return DataChange(
        job=profile.job,
        work_w=work_w,
        whole_gpu_w=Interval(*powers_w),
        whole_gpu_speed=Interval(speeds[0], speeds[2], speeds[1]),
        card=card,
    )


def uses_tensor_cores(profile: Profile) -> bool:
    """Whether they are busy while the job runs alone on the whole GPU, as far as is known."""
    return not profile.values["tensor_active_percent"][-1] < LEAST_ACTIVE_PERCENT


def busy_units(profile: Profile) -> Floats:
    """As many SMs as have the tensor cores busy all the time, at each share; shape (shares,)."""
    return profile.values["tensor_active_percent"] / 100 * (profile.units_total or np.nan)


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


def most_operations_per_s(profile: Profile, energy_j: float, idle_w: float) -> float:
    """What the power of the job alone on the whole GPU is enough for.

    Tensor cores can be busy for more cycles than products take, 1.13 times as many on an H200
    (docs/measurements/degenerate_by_data.py). Without this, zeros would save more than they can.

    Args:
        profile: Of the job.
        energy_j: Of one operation above idle, with the profile's data at the highest clock.
        idle_w: Power of the card with a context and without work.
    """
    at_top_w = (profile.whole_gpu_power_w - idle_w) / float(clocks(profile)[-1]) ** WORK_EXPONENT
    return max(at_top_w, 0.0) / energy_j


def unknown_change(profile: Profile, why: str) -> DataChange:
    """Anywhere between the data that draw least and those that draw most."""
    above_w = profile.whole_gpu_power_w - profile.idle_power_w
    at_top_w = above_w / float(clocks(profile)[-1]) ** WORK_EXPONENT
    bounds_w = Interval(0.0, LEAST_PART * at_top_w, MOST_PART * at_top_w)
    return replace(data_change(profile, bounds_w), why_unknown=why)


def with_data(profile: Profile, change: DataChange) -> Profile:
    """The profile as it would have been measured with the other data.

    A change of which only bounds are known is not taken in.
    """
    if change.why_unknown:
        return profile
    power_w, rates = _alone(profile, change.work_w.value, change.card)
    return replace(profile, values={**profile.values, "power_w": power_w, "rate": rates})


def _alone(profile: Profile, work_w: float, card: CardBounds) -> tuple[Floats, Floats]:
    """Power and rate at each share; shape (shares,)."""
    values, at = profile.values, clocks(profile)
    most_w = (profile.power_limit_w or math.inf) - profile.idle_power_w
    power_w, rates = values["power_w"].copy(), values["rate"].copy()
    for place, follows in enumerate(elasticities(profile)):
        clock = float(at[place])
        now = Drawn(float(power_w[place]) - profile.idle_power_w, clock, card.rest_w)
        more_w = work_w * rates[place] / profile.whole_gpu_rate * clock**WORK_EXPONENT
        # Heat holds a clock back below the power limit.
        cap_w = now.above_w if clock < HELD_BACK else max(now.above_w, most_w)
        top = card.top(profile, float(profile.shares[place]))
        then = now.with_work(float(more_w), cap_w, WORK_EXPONENT + float(follows), top)
        power_w[place] = then.above_w + profile.idle_power_w
        rates[place] *= (then.clock / clock) ** float(follows)
    return power_w, np.maximum.accumulate(rates)
