"""Predictions for jobs that run with other data than they were profiled with."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from advisor.core.gpu import WHOLE
from advisor.core.interval import Interval
from advisor.core.split import Split
from advisor.core.telemetry import NEAR_LIMIT
from advisor.predict.predictions import (
    PredictedPart,
    Prediction,
    Predictor,
    possible_speed,
    predicted_part,
)
from advisor.predict.profiles import Profile
from advisor_power.model.held_back import (
    LEAST_CLOCK,
    WORK_EXPONENT,
    Drawn,
    clock_together,
    elasticities,
    mean_idle_w,
)
from advisor_power.model.other_data import DataChange, with_data

CLOCK_ERROR = 0.065
"""Nine of ten clocks of pairs at the power limit are estimated better, in parts of the highest one
(docs/measurements/power/pair_clock.py)."""

FOLLOWED = 0.5
"""How much of a change of clock a job's rate follows beside another one, of what it follows alone:
cycles are only a part of what both need. Anything from nothing to all was measured
(docs/measurements/power/data_at_limit.py)."""


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
        changes = [self._changes.get(profile.job) for profile in profiles]
        if not any(changes):
            return found
        parts = zip(changes, found.parts, strict=True)
        work_w = _sum(c.work_w.times(part.speed.value) for c, part in parts if c)
        measured = [self._measured[profile] for profile in profiles]
        shares = found.split.shares if found.split.is_limited else [WHOLE] * len(profiles)
        own = zip(changes, measured, shares, strict=True)
        top = min(change.card.top(profile, share) for change, profile, share in own if change)
        power_w, faster = together_with(work_w, found, measured, top)
        moved = (
            _part(part, profile, before, faster, share)
            for part, profile, before, share in zip(
                found.parts, profiles, measured, shares, strict=True
            )
        )
        # Errors of the quotient are known of the data that were profiled.
        return replace(found, parts=tuple(moved), power_w=power_w, efficiency_factors=None)


def together_with(
    work_w: Interval, found: Prediction, measured: Sequence[Profile], top: float = 1.0
) -> tuple[Interval, Interval]:
    """Power of jobs whose work draws more or less, and their clock for each one of before.

    Args:
        work_w: What it draws more at the highest clock, at the speeds of `found`, W.
        found: What is expected of the data that were profiled.
        measured: The profiles, in the order of the split.
        top: Part of the highest clock that it can rise to.
    """
    idle_w, reached = mean_idle_w(measured), _limit_reached(found.power_w, _limit_w(measured))
    clock, before = _clock(found, measured, reached), found.power_w
    above_w, limit_w = before.value - idle_w, max(before.value, _limit_w(measured))
    most_w = limit_w - before.value
    room_w = most_w if clock.value == 1 or not reached else (1 - reached) * most_w
    # The least is drawn where the clock was hardly held back and rates do not follow it.
    cases = (
        (work_w.value, clock.value, FOLLOWED, room_w),
        (work_w.low, clock.high, 0.0, room_w),
        (work_w.high, clock.low, 1.0, most_w),
    )
    moved = [
        Drawn(above_w, at).with_work(
            more_w * at**WORK_EXPONENT,
            above_w + min(free_w, max(more_w, 0.0)),
            WORK_EXPONENT + follows,
            top,
        )
        for more_w, at, follows, free_w in cases
    ]
    faster = [then.clock / at for then, (_, at, *_) in zip(moved, cases, strict=True)]
    value_w, low_w, high_w = (then.above_w + idle_w for then in moved)
    power_w = Interval(
        value_w,
        value_w - _both(before.value - before.low, value_w - low_w),
        min(value_w + _both(before.high - before.value, high_w - value_w), limit_w),
    )
    return power_w, Interval(faster[0], min(faster), max(faster))


def _limit_reached(power_w: Interval, limit_w: float) -> float:
    """How sure it is that the power limit holds the clock back, from 0 to 1.

    All or nothing would let two splits whose power is expected a watt apart differ by hundreds.
    """
    near_w = NEAR_LIMIT * limit_w
    if power_w.value >= near_w:
        return 1.0
    return max(0.0, power_w.high - near_w) / (power_w.high - power_w.value or 1.0)


def _clock(found: Prediction, measured: Sequence[Profile], reached: float) -> Interval:
    """Part of the highest clock that the limit leaves.

    Where it may be reached or not, the bounds hold both.
    """
    if not reached:
        return Interval(1.0, 1.0, 1.0)
    at = clock_together(measured, found)
    low, high = max(at - CLOCK_ERROR, LEAST_CLOCK), min(at + CLOCK_ERROR, 1.0)
    return Interval(
        1 - reached * (1 - at),
        1 - min(1.0, 2 * reached) * (1 - low),
        1 - max(0.0, 2 * reached - 1) * (1 - high),
    )


def _limit_w(measured: Sequence[Profile]) -> float:
    return min((p.power_limit_w for p in measured if p.power_limit_w), default=math.inf)


def _both(one_w: float, other_w: float) -> float:
    """Two errors that know nothing of each other."""
    return math.hypot(max(one_w, 0.0), max(other_w, 0.0))


def _part(
    part: PredictedPart, profile: Profile, measured: Profile, faster: Interval, share: float
) -> PredictedPart:
    """Speed is relative to that alone, which other data change as well."""
    follows = float(np.interp(share, measured.shares, elasticities(measured)))
    alone = profile.whole_gpu_rate / measured.whole_gpu_rate
    speed = Interval(
        part.speed.value * faster.value ** (FOLLOWED * follows) / alone,
        part.speed.low * min(1.0, faster.low**follows) / alone,
        part.speed.high * max(1.0, faster.high**follows) / alone,
    )
    return predicted_part(profile, possible_speed(profile, speed))


def _sum(parts: Iterable[Interval]) -> Interval:
    values = [(part.value, part.low, part.high) for part in parts]
    return Interval(*(float(total) for total in np.sum(values, axis=0)))
