"""What predictions are corrected by: how much one card draws, and a power limit it is lowered to.

Cards of one model differ by several percent in power at the same rate. The factor of a card is
what was seen of it, `shrunk` towards 1 by how much cards differ; that of a host for rates likewise.
docs/measurements/model.md has its effect. All power is scaled, idle power
with it: between jobs of one card the ratio of the whole power spreads by 1.5 % (2.9 % with single
windows beside launches), that of the power above idle by 3.4 % (4.2 %).

A GPU at its power limit L lowers its clocks. A job that would draw P without the limit keeps
((L - f) / (P - f)) ** a of its speed. f is drawn at any clock: 0.35 of the card's own limit; a is
0.25. Both fit V100 and A40 of the traces of Zeus (NSDI 2023) best. They are off by 3.2 % on P100
and 5.3 % on RTX 6000 (`advisor evaluate --public zeus`), and by 2.0 % for clocks of bundled windows
at the limit (docs/measurements/power/limits.py). The form is a ratio, so it also holds for work
that was measured at its limit; higher limits are unknown.
"""

import functools
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.core.gpu import ALL_GPUS, WHOLE, Split
from advisor.core.objectives import NORMAL_90, Interval, shrunk
from advisor.core.records import CPU_BOUND, DOUBTFUL, WRONG, SoloPoint
from advisor.core.telemetry import NEAR_LIMIT
from advisor.errors import InputError
from advisor.predict.features import speed_left
from advisor.predict.profiles import (
    Floats,
    JobKind,
    Prediction,
    Predictions,
    Predictor,
    Profile,
    solo_of,
)
from advisor.wire.answers import CardPower, LowerLimit

CARD_SPREAD = 0.04
"""Standard deviation between cards of the log power of one job alone at the same rate, below the
power limit: inference and benchmarks on 12 cards of H200 and 3 of H100, 1.5 % between jobs of one
card taken off. With single windows beside launches, on 18 cards, docs/measurements/model.md
has 3.1 %; the larger one stays, where intervals of one run are made of it."""

# Standard deviation of that between steady jobs of one card, training among them
# (docs/measurements/model.md; 2.7 % with single windows beside launches).
_REFERENCE_SPREAD = 0.024

# Standard deviation of the log power of a pair over what the model expects, cards taken off:
# between pairs of a card 3.0 % on H200 and, where both jobs are new, 4.7 % on H100
# (docs/measurements/model.md, 2026-11-23).
_OBSERVATION_SPREAD = 0.04

# Above this part of the power limit all cards draw the same.
_BELOW_LIMIT = 0.95

# Flags of points whose power depends on more than the card and the job.
_UNSTEADY = WRONG | {"noisy-rate", "noisy-power", CPU_BOUND}


RATE_SPREADS: Mapping[JobKind, tuple[float, float]] = {
    "launch-bound": (0.474, 0.17),
    "filling": (0.061, 0.04),
}
"""Standard deviations of the log rate of one job alone on the whole GPU, over that of its profile:
between hosts, and between windows on one. Of 226 rates on other cards of H200 that come with
advisor. Of 70 on H100, 0.42 to 1.49 times those of the profiles, 98 % are in ranges for 90 %; where
a job had one window there before, 10 of 11 in ranges half as wide, at an error of 0.15 for 0.35.
Other jobs of the host told nothing there (0.36), so they do not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFactor:
    """What a card draws, for each watt of what others of its model do.

    Attributes:
        log_factor: Natural logarithm of it.
        log_stderr: Standard deviation of what is known of that.
        references: Jobs alone on the whole GPU that it was learned from.
        observations: Pairs of jobs that it was learned from.
    """

    gpu_uuid: str
    log_factor: float
    log_stderr: float
    references: int
    observations: int

    @property
    def factor(self) -> Interval:
        """With the bounds that hold it in 90 % of cards."""
        off = NORMAL_90 * self.log_stderr
        low, value, high = (math.exp(self.log_factor + by) for by in (-off, 0.0, off))
        return Interval(value, low, high)

    @property
    def summary(self) -> CardPower:
        """As command line, service and client tell it."""
        return CardPower(
            gpu_uuid=self.gpu_uuid,
            power_factor=self.factor,
            references=self.references,
            observations=self.observations,
        )

    @property
    def text(self) -> str:
        """In words."""
        percent, stderr = 100 * math.expm1(self.log_factor), 100 * self.log_stderr
        word = "less" if percent < 0 else "more"
        return (
            f"this card ({self.gpu_uuid}) draws {abs(percent):.1f} ± {stderr:.1f} % {word} than "
            "others of its model: power is corrected for it"
        )


def card_factor(
    gpu_uuid: str,
    references: Mapping[str, Mapping[str, float]],
    observations: Mapping[tuple[str, ...], Sequence[float]],
) -> CardFactor | None:
    """The factor of a card; None where nothing was seen of it.

    Args:
        gpu_uuid: The card.
        references: Logarithms of `reference_ratio` of its GPU model, by card and job. The other
            cards say where a usual one stands, seen from the profiles.
        observations: Logarithms of observed over expected power on the card, by pair. What a model
            gets wrong of a pair it gets wrong each time, so that a pair counts once.
    """
    logs = references.get(gpu_uuid, {})
    if not logs and not observations:
        return None
    others = [statistics.mean(of.values()) for card, of in references.items() if card != gpu_uuid]
    usual = statistics.mean(others) if others else 0.0
    estimates: list[tuple[float, float]] = []
    if logs:
        # Without other cards the one that was profiled on stands for them.
        variance = _REFERENCE_SPREAD**2 / len(logs) + CARD_SPREAD**2 / max(len(others), 1)
        estimates.append((statistics.mean(logs.values()) - usual, variance))
    if observations:
        pairs = [statistics.median(logs) for logs in observations.values()]
        estimates.append((statistics.mean(pairs), _OBSERVATION_SPREAD**2 / len(pairs)))
    log_factor, log_stderr = shrunk(estimates, CARD_SPREAD)
    return CardFactor(
        gpu_uuid=gpu_uuid,
        log_factor=log_factor,
        log_stderr=log_stderr,
        references=len(logs),
        observations=len(observations),
    )


def reference_logs(
    points: Iterable[SoloPoint], profiles: Mapping[tuple[str, str], Profile], gpu_model: str
) -> dict[str, dict[str, float]]:
    """By card and job, the log of power alone over the profile's: the median of repeats.

    A profile that was measured on the card itself says nothing of it.
    """
    ratios: dict[str, dict[str, list[float]]] = {}
    for point in points:
        profile = profiles.get((point.job, gpu_model))
        if point.gpu_model != gpu_model or profile is None or point.gpu_uuid in profile.gpu_uuids:
            continue
        if (
            not (point.gpus or profile.gpus > 1)  # else of no single card
            and (ratio := _reference_ratio(point, profile)) is not None
        ):
            ratios.setdefault(point.gpu_uuid, {}).setdefault(point.job, []).append(ratio)
    return {
        card: {job: statistics.median(logs) for job, logs in jobs.items()}
        for card, jobs in ratios.items()
    }


def _reference_ratio(point: SoloPoint, profile: Profile) -> float | None:
    """Log of a job's power alone on the whole GPU over its profile's; None: not comparable."""
    power_w, limit_w = point.power_w, profile.power_limit_w or math.inf
    if not power_w or not _UNSTEADY.isdisjoint(point.flags) or point.share_percent != WHOLE:
        return None
    below = max(power_w, profile.whole_gpu_power_w) < _BELOW_LIMIT * limit_w
    # Only where the job runs within this part of the profile's rate does power tell of the card.
    if not below or abs(point.rate / profile.whole_gpu_rate - 1) >= 0.02:
        return None
    return math.log(power_w / profile.whole_gpu_power_w)


def host_factor(kind: JobKind, profile: Profile, here: Iterable[SoloPoint]) -> tuple[float, float]:
    """Log of a job's rate on a host over that of its profile from elsewhere; standard deviation.

    Args:
        kind: How much hosts differ for it.
        profile: Of another host.
        here: Points of the job on cards of this one; windows alone on the whole GPU count.
    """
    between_hosts, between_windows = RATE_SPREADS[kind]
    logs = [
        math.log(point.rate / profile.whole_gpu_rate)
        for point in here
        if (point.share_percent, point.rate_unit) == (WHOLE, profile.rate_unit)
        and point.rate > 0
        and DOUBTFUL.isdisjoint(point.flags)
    ]
    log_factor, stderr = shrunk([(log, between_windows**2) for log in logs], between_hosts)
    return log_factor, math.hypot(stderr, between_windows)


def observation_ratio(
    power_w: float, rates: Sequence[float], expected: Prediction, limit_w: float | None
) -> float | None:
    """Log of a pair's observed power over a usual card's expected one; None: not comparable."""
    below = max(power_w, expected.power_w.value) < _BELOW_LIMIT * (limit_w or math.inf)
    parts = zip(rates, expected.parts, strict=True)
    # Within 5 % of the rates, since those of a pair are predicted.
    same = all(abs(rate / part.rate.value - 1) < 0.05 for rate, part in parts)
    return math.log(power_w / expected.power_w.value) if below and same else None


def _on_card(profile: Profile, factor: CardFactor) -> Profile:
    """The profile as the card would have measured it.

    Where the profile is at the power limit the card is, too: how far beyond it the job would go is
    not known. A profile that has points of the card already is as it is.
    """
    if factor.gpu_uuid in profile.gpu_uuids:
        return profile
    limit_w = profile.power_limit_w or math.inf
    power_w = profile.values["power_w"]
    scaled: Floats = np.minimum(power_w * math.exp(factor.log_factor), limit_w)
    kept = np.where(power_w >= NEAR_LIMIT * limit_w, power_w, scaled)
    return replace(profile, values={**profile.values, "power_w": kept})


class CardPredictor:
    """Predicts for profiles that were brought to a card: rates as they were, power as it is there.

    Intervals of power move with it and stay as wide: on one GPU model the errors of a model differ
    by 3 to 5 % from pair to pair of a card and by under 1 % from card to card, so there is little
    in them that a factor could take out (docs/measurements/model.md, 2026-11-23).

    It is made with the predictor of a usual card and with profiles that were measured.
    """

    def __init__(
        self, predictor: Predictor, profiles: Iterable[Profile], factor: CardFactor
    ) -> None:
        self._predictor = predictor
        self._brought = {profile: _on_card(profile, factor) for profile in profiles}
        self._measured = {brought: profile for profile, brought in self._brought.items()}

    def brought(self, profiles: Iterable[Profile]) -> tuple[Profile, ...]:
        """The profiles as the card would have measured them."""
        return tuple(self._brought[profile] for profile in profiles)

    def predict(self, profiles: Sequence[Profile], splits: Sequence[Split]) -> Predictions:
        """One prediction for each split, in their order; profiles are `brought` ones."""
        usual = self._predictor.predict([self._measured[p] for p in profiles], splits)
        return replace(self._predictor.predict(profiles, splits), speeds=usual.speeds)


# Of the speed lost, for each 1 that is said, in 90 % of the points of these traces.
_SLOWDOWNS = 0.4, 2.1

LEAST = 0.5
"""Of the card's own limit: below it few of these traces have points, and some cards no setting."""

KEPT = 0.95
"""Least part of the speed that a limit may leave which is offered unasked."""

STEP_W = 5.0

# By which two limits differ that are the same.
_SAME_W = 1.0

# Least part of the energy that such a limit saves: less is within the error of the form.
_LEAST_SAVING = 0.03


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
