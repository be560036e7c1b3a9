"""What jobs keep of their speed under a lower power limit.

A GPU at its power limit L lowers its clocks. A job that would draw P without the limit keeps
((L - f) / (P - f)) ** a of its speed. f is drawn at any clock: 0.35 of the card's own limit; a is
0.25. Both fit V100 and A40 of the traces of Zeus (NSDI 2023) best. They are off by 3.2 % on P100
and 5.3 % on RTX 6000 (`advisor evaluate --public zeus`), and by 2.0 % for clocks of bundled windows
at the limit (docs/measurements/power/limits.py). The form is a ratio, so it also holds for work
that was measured at its limit; higher limits are unknown.
"""

import functools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from advisor.core.gpu import ALL_GPUS, Split
from advisor.core.objectives import Interval
from advisor.errors import InputError
from advisor.predict.predictions import Predictions, Predictor, solo_of
from advisor.predict.profiles import Profile, speed_left
from advisor.wire.answers import LowerLimit

_SLOWDOWNS = 0.4, 2.1
"""Of the speed lost, for each 1 that is said, in 90 % of the points of these traces."""

LEAST = 0.5
"""Of the card's own limit: below it few of these traces have points, and some cards no setting."""

KEPT = 0.95
"""Least part of the speed that a limit may leave which is offered unasked."""

STEP_W = 5.0

_SAME_W = 1.0
"""By which two limits differ that are the same."""

_LEAST_SAVING = 0.03
"""Least part of the energy that such a limit saves: less is within the error of the form."""


@functools.lru_cache(maxsize=1024)  # copies of a job have one profile
def under_limit(profile: Profile, limit_w: float) -> Profile:
    """The job as a card with that limit would have measured it: as it is where that is no lower.

    Of another limit `measured` says that it was asked for (`limit_warnings`).

    Raises:
        InputError: the limit is below half of that of the profile.
    """
    profiled_w = profile.power_limit_w
    if profiled_w is None or limit_w > profiled_w + _SAME_W:
        return replace(profile, measured=profile)
    if limit_w > profiled_w - _SAME_W:
        return profile
    if limit_w < LEAST * profiled_w:
        raise InputError(
            f"what {profile.job} does at {limit_w:g} W is not known",
            why=(
                f"it was profiled under {profiled_w:g} W, and limits are known down to half of that"
            ),
            fix=f"profile it under that limit: advisor profile {profile.job}",
        )
    left = speed_left(limit_w, profile.values["power_w"], profiled_w)
    doubt = np.zeros((2, len(left))) if profile.doubt is None else profile.doubt
    # The range of lost speed is for 90 %, so 3.3 standard deviations wide.
    of_form = (max(_SLOWDOWNS) - min(_SLOWDOWNS)) / 3.3 * (1 - left)
    return replace(
        profile,
        power_limit_w=limit_w,
        measured=profile,
        values={
            **profile.values,
            **{name: profile.values[name] * left for name in ("rate", "sm_clock_mhz")},
            "power_w": np.minimum(profile.values["power_w"], limit_w),
        },
        doubt=np.array([np.hypot(doubt[0], of_form), doubt[1]]),
    )


def limit_warnings(profiles: Iterable[Profile]) -> Iterator[str]:
    """Warnings for jobs under a power limit at which they were not measured."""
    for profile in (p for p in profiles if p.measured):
        limit_w = profile.power_limit_w
        under = "a power limit that was not read" if limit_w is None else f"{limit_w:g} W"
        yield (
            f"no job was measured at a power limit of {under}: speeds there follow from traces of "
            "other cards"
            if profile.lowered_w
            else f"{profile.job} was profiled under {under}, so this is for that limit: nothing "
            f"was measured above it (advisor profile {profile.job})"
        )


class LimitPredictor:
    """Predicts for a card with a lower power limit than the profiles were measured under."""

    def __init__(self, predictor: Predictor, profiles: Iterable[Profile], limit_w: float) -> None:
        self._predictor, self._limit_w = predictor, limit_w
        self._brought = {profile: under_limit(profile, limit_w) for profile in profiles}
        self._measured = {brought: profile for profile, brought in self._brought.items()}

    def brought(self, profiles: Iterable[Profile]) -> tuple[Profile, ...]:
        """The profiles as the card would have measured them."""
        return tuple(self._brought[profile] for profile in profiles)

    def predict(self, profiles: Sequence[Profile], splits: Sequence[Split]) -> Predictions:
        """One prediction for each split, in their order; profiles are `brought` ones.

        Jobs together slow down as their watts say, and each alone as its own do. Of several
        GPUs the one that draws most decides, by what its jobs draw alone.
        """
        measured = [self._measured[profile] for profile in profiles]
        predictions = self._predictor.predict(measured, splits)
        profiled_w = min(profile.power_limit_w or np.inf for profile in measured)
        seats = np.array([split.gpus or (ALL_GPUS,) * len(measured) for split in splits]).T
        alone_w = np.array([[profile.values["power_w"][-1]] for profile in measured])
        gpus = max(profile.gpus for profile in measured)
        there = np.array([(seats == ALL_GPUS) | (seats == gpu) for gpu in range(gpus)])
        of_gpus_w = (there * alone_w).sum(axis=1)
        most_w = predictions.power_w * of_gpus_w.max(axis=0) / of_gpus_w.sum(axis=0)
        together = speed_left(self._limit_w, np.minimum(most_w, profiled_w), profiled_w)
        solo = solo_of(profiles)
        alone = [rate / was for (rate, *_), (was, *_) in zip(solo, predictions.solo, strict=True)]
        apart = np.array([split.sharing == "exclusive" for split in splits])
        part = np.where(apart, 1.0, together[0] / np.array(alone)[:, None])
        return replace(
            predictions,
            solo=solo,
            speeds=np.minimum(predictions.speeds * part, np.maximum(predictions.speeds, 1.0)),
            power_w=np.minimum(predictions.power_w, gpus * self._limit_w),
            latencies_p99_ms=predictions.latencies_p99_ms / part,
        )


def lower_limit(
    profiles: Sequence[Profile],
    power_w: float,
    floors: Iterable[float],
) -> LowerLimit | None:
    """The limit with the least energy for the same work; None: none saves enough.

    Args:
        profiles: Of the jobs on the GPU, measured under one limit.
        power_w: What they draw under it.
        floors: What each is to keep, for each 1 of its speed under it.
    """
    now_w, *others = {profile.power_limit_w for profile in profiles}
    profiled_w = (profiles[0].measured or profiles[0]).power_limit_w
    if others or now_w is None or profiled_w is None:
        return None
    limits_w = np.arange(math.ceil(LEAST * profiled_w / STEP_W) * STEP_W, now_w, STEP_W)
    left = speed_left(limits_w, power_w, profiled_w)
    if not left.size:
        return None
    saved = 1 - np.minimum(limits_w / power_w, 1.0) / left
    saved = np.where(left >= max(KEPT, *floors), saved, 0.0)
    best = int(saved.argmax())
    if saved[best] < _LEAST_SAVING:
        return None
    part, lost = limits_w[best] / power_w, 1 - left[best]
    expected, low, high = (float(1 - lost * by) for by in (1.0, *reversed(_SLOWDOWNS)))
    return LowerLimit(
        jobs=tuple(profile.job for profile in profiles),
        power_limit_w=float(limits_w[best]),
        energy_saved=Interval(*(float(1 - part / left) for left in (expected, low, high))),
        longer=Interval(*(1 / left - 1 for left in (expected, high, low))),
    )
