"""Predictions for jobs at one split, the predictors that make them, and what one card changes.

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

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from functools import cached_property, lru_cache
from typing import Any, Protocol, TypeAlias

import numpy as np

from advisor.core.gpu import ALL_GPUS, WHOLE, Split, without_limits
from advisor.core.objectives import (
    DEFAULT_OBJECTIVE,
    NORMAL_90,
    OBJECTIVES,
    Interval,
    Objective,
    PartResult,
    SplitResult,
    shrunk,
)
from advisor.core.records import CPU_BOUND, DOUBTFUL, WRONG, SoloPoint
from advisor.core.telemetry import NEAR_LIMIT
from advisor.errors import InputError
from advisor.predict.profiles import Floats, JobKind, Profile, speed_left
from advisor.validity.safe_counts import CheckedCounts, safe_splits
from advisor.wire.answers import CardPower, LowerLimit


@dataclass(frozen=True, slots=True)
class _PredictedPart:
    """What is expected of one of the jobs.

    Attributes:
        speed: Relative speed: 1 is as fast as alone on the whole GPU.
        solo_power_w: Power of the GPUs while the job runs alone on all of what it holds.
        gpus: How many it holds.
        latency_p99_ms: None: it answers no requests, or its p99 alone is not known.
    """

    speed: Interval
    solo_rate: float
    solo_power_w: float
    gpus: int = 1
    latency_p99_ms: Interval | None = None

    @property
    def rate(self) -> Interval:
        """Progress per second, in the job's own unit."""
        return self.speed.times(self.solo_rate)


def possible_speeds(profile: Profile, speeds: Floats, most: float = 1.0) -> Floats:
    """Speeds of at most 1, and measured high ends of at most `most`; servers serve their demand.

    A job that was faster beside others was slow alone (`advisor.validity.slow_alone`). The next
    window may show that again, but it is no extra work. Values, low and high ends, shape (3, n).
    """
    held = np.minimum(speeds, np.array([[1.0], [1.0], [most]]))
    return profile.serving.served(speeds) if profile.serving else held


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """Jobs on one GPU at one split.

    Attributes:
        parts: One for each share of the split.
        memory_power_w: The part of it that its memory draws; None: the model does not say.
        efficiency_factors: What to multiply `energy-efficiency` with for its bounds, where they are
            known by its own errors: a card that draws more draws more for each job alone, too, so
            the bounds of speeds and power together would be too far apart.
    """

    split: Split
    parts: tuple[_PredictedPart, ...]
    power_w: Interval
    memory_power_w: Interval | None = None
    efficiency_factors: tuple[float, float] | None = None

    @cached_property
    def result(self) -> SplitResult:
        """The expected values as objectives take them."""
        return self._result([part.speed.value for part in self.parts], self.power_w.value)

    @cached_property
    def _ends(self) -> tuple[SplitResult, SplitResult]:
        """At their worst and best."""
        low, high = ([getattr(p.speed, end) for p in self.parts] for end in ("low", "high"))
        return self._result(low, self.power_w.high), self._result(high, self.power_w.low)

    @cached_property
    def energy_saved(self) -> Interval:
        """Part of the energy saved for the same work, against one after the other."""
        bounds = self.efficiency
        if bounds is None or bounds.low <= 0:
            return self.range_of(lambda result: result.energy_saved)
        return Interval(self.result.energy_saved, 1 - 1 / bounds.low, 1 - 1 / bounds.high)

    @cached_property
    def stp(self) -> Interval:
        """Sum of relative speeds: how much more is done in an hour than one after the other."""
        return self.range_of(lambda result: result.stp)

    def objective_value(self, objective: Objective) -> Interval:
        """The objective; see `range_of`, and for the default one `efficiency_factors`."""
        # With the caller's prices it is another one.
        efficiency = self.efficiency if objective is OBJECTIVES[DEFAULT_OBJECTIVE] else None
        return efficiency or self.range_of(objective.value)

    @cached_property
    def efficiency(self) -> Interval | None:
        """`energy-efficiency` with bounds of its own errors; None where these are not known."""
        if self.efficiency_factors is None:
            return None
        value = OBJECTIVES[DEFAULT_OBJECTIVE].value(self.result)
        return Interval(value, *(value * factor for factor in self.efficiency_factors))

    def range_of(self, value: Callable[[SplitResult], float]) -> Interval:
        """A value at the expected result, and between all bounds at their worst and best.

        The bounds of speeds and power hold one by one, so these hold more often than they do.
        """
        return Interval(value(self.result), *map(value, self._ends))

    def _result(self, speeds: Sequence[float], power_w: float) -> SplitResult:
        parts = [
            PartResult(speed * part.solo_rate, part.solo_rate, part.solo_power_w, part.gpus)
            for speed, part in zip(speeds, self.parts, strict=True)
        ]
        return SplitResult(tuple(parts), power_w)


@dataclass(frozen=True, eq=False, kw_only=True)
class Predictions:
    """Jobs on one GPU at n splits: columns over them, each of which is a `Prediction`.

    Intervals stand as values, low and high ends; what is not known is NaN.

    Attributes:
        solo: Rate and power of each job alone on the whole GPU, and how many it holds.
        speeds: Relative ones; shape (3, jobs, n).
        power_w: Shape (3, n).
        latencies_p99_ms: As `_PredictedPart` has it; shape (3, jobs, n).
        memory_power_w: Shape (3, n).
        efficiency_factors: Shape (2, n).
    """

    splits: tuple[Split, ...]
    solo: tuple[tuple[float, float, int], ...]
    speeds: Floats
    power_w: Floats
    latencies_p99_ms: Floats
    memory_power_w: Floats
    efficiency_factors: Floats

    @classmethod
    def of(cls, rows: Sequence[Prediction]) -> "Predictions":
        """Columns of predictions of the same jobs, at least one."""
        parts = [[astuple(part.speed) for part in row.parts] for row in rows]
        tails = [[astuple(part.latency_p99_ms or _UNKNOWN) for part in row.parts] for row in rows]
        factors = [row.efficiency_factors or (math.nan, math.nan) for row in rows]
        return cls(
            splits=tuple(row.split for row in rows),
            solo=tuple((part.solo_rate, part.solo_power_w, part.gpus) for part in rows[0].parts),
            speeds=np.array(parts).T,
            power_w=np.array([astuple(row.power_w) for row in rows]).T,
            latencies_p99_ms=np.array(tails).T,
            memory_power_w=np.array([astuple(row.memory_power_w or _UNKNOWN) for row in rows]).T,
            efficiency_factors=np.array(factors).T,
        )

    def __iter__(self) -> Iterator[Prediction]:
        return map(self.__getitem__, range(len(self.splits)))

    @lru_cache(maxsize=8192)  # noqa: B019 - other limits of the same jobs are asked for next
    def __getitem__(self, place: int) -> Prediction:
        low, high = self.efficiency_factors[:, place].tolist()
        return Prediction(
            split=self.splits[place],
            parts=tuple(self.part(place, job) for job in range(len(self.solo))),
            power_w=Interval(*self.power_w[:, place].tolist()),
            memory_power_w=_interval(self.memory_power_w[:, place]),
            efficiency_factors=None if math.isnan(low) else (low, high),
        )

    def part(self, place: int, job: int) -> _PredictedPart:
        """What is expected of one of the jobs at one of the splits."""
        return _PredictedPart(
            Interval(*self.speeds[:, job, place].tolist()),
            *self.solo[job],
            _interval(self.latencies_p99_ms[:, job, place]),
        )

    def values(self, objective: Objective) -> list[float]:
        """What each split is worth: objectives are formulas for arrays of rates and watts, too."""
        parts = [
            PartResult(speeds * rate, rate, alone_w, gpus)
            for speeds, (rate, alone_w, gpus) in zip(self.speeds[0], self.solo, strict=True)
        ]
        values: Any = objective.value(_Results(tuple(parts), self.power_w[0]))
        return values.tolist()

    @cached_property
    def together(self) -> list[int]:
        """Places of the splits at which jobs run at the same time."""
        return [n for n, split in enumerate(self.splits) if split.sharing != "exclusive"]


class _Results(SplitResult):
    """Results at all splits at once: rates and watts are arrays over them."""

    def __post_init__(self) -> None:
        if not np.all(np.greater(self.power_w, 0)):
            raise InputError(f"power_w is {self.power_w}", why="objectives divide by it")

    @property
    def slowest(self) -> Any:
        """Relative speed of the slowest job."""
        return np.min(self.speeds, axis=0)


def joined(splits: Sequence[Split], *parts: Predictions) -> Predictions:
    """Predictions of the same jobs at these splits, each by the last part that has it."""
    if len(parts) == 1 and parts[0].splits == tuple(splits):
        return parts[0]
    places = {s: n for n, s in enumerate(split for part in parts for split in part.splits)}
    order = [places[split] for split in splits]
    columns = {
        field.name: np.concatenate([getattr(p, field.name) for p in parts], axis=-1)[..., order]
        for field in fields(Predictions)[2:]
    }
    return Predictions(splits=tuple(splits), solo=parts[0].solo, **columns)


def with_doubt(predictions: Predictions, profiles: Sequence[Profile]) -> Predictions:
    """Bounds that also hold what is not known of estimated profiles, whose errors are independent.

    Errors of rate and power of one job are not: a faster job draws more, so that work per joule is
    as unsure as the work alone.
    """
    if all(profile.doubt is None for profile in profiles):
        return predictions
    shares_of = [
        *zip(profiles, np.array([split.shares for split in predictions.splits]).T, strict=True)
    ]
    beside = [split.sharing != "exclusive" for split in predictions.splits]
    rates, powers = np.moveaxis(np.array([p.doubt_at(of) * beside for p, of in shares_of]), 1, 0)
    alone_w = np.array([p.at(of, "power_w")["power_w"] for p, of in shares_of])
    watts = np.sqrt(((powers * alone_w) ** 2).sum(axis=0)) / predictions.power_w[0]
    speeds = _wider(predictions.speeds, rates)
    for job, profile in enumerate(profiles):
        speeds[:, job] = possible_speeds(profile, speeds[:, job])
    work = predictions.speeds[0] * np.array(predictions.solo)[:, 1:2]
    of_work = np.sqrt(((rates * work) ** 2).sum(axis=0)) / work.sum(axis=0)
    factors = np.array([np.ones(len(predictions.splits)), *predictions.efficiency_factors])
    return replace(
        predictions,
        speeds=speeds,
        power_w=_wider(predictions.power_w, watts),
        efficiency_factors=_wider(factors, of_work)[1:],
    )


def _wider(bounds: Floats, doubt: Floats) -> Floats:
    """Values with low and high ends, moved out by a standard deviation of logarithms."""
    value, low, high = np.log(np.maximum(bounds, 1e-9))
    off = NORMAL_90 * doubt
    return np.exp([value, value - np.hypot(value - low, off), value + np.hypot(high - value, off)])


def solo_of(profiles: Sequence[Profile]) -> tuple[tuple[float, float, int], ...]:
    """As `Predictions` has it."""
    return tuple((p.whole_gpu_rate, p.whole_gpu_power_w, p.gpus) for p in profiles)


_UNKNOWN = Interval(math.nan, math.nan, math.nan)


def _interval(bounds: Floats) -> Interval | None:
    return None if math.isnan(bounds[0]) else Interval(*bounds.tolist())


class Predictor(Protocol):
    """Anything that can say how jobs behave at splits."""

    def predict(self, profiles: Sequence[Profile], splits: Sequence[Split]) -> Predictions:
        """One prediction for each split, at least one, in their order."""
        ...


ExpectedPair: TypeAlias = tuple[Floats, Floats]
"""What is expected of jobs at n splits, without intervals: the speed of each job that always has
something to do, shape (jobs, n), and the power, W, shape (n,)."""

PairQuery: TypeAlias = tuple[Sequence[Profile], Sequence[Split]]
"""Jobs, and the splits that they are asked for at."""


class PairPredictor(Predictor, Protocol):
    """One that can be asked of many pairs at once, which is faster."""

    def expected(self, queries: Sequence[PairQuery]) -> list[ExpectedPair]:
        """Of each pair the values of `predict`, to rounding, in the order of its splits."""
        ...


def predicted_part(profile: Profile, speed: Interval) -> _PredictedPart:
    """What is expected of a job with this profile at a relative speed."""
    return _PredictedPart(speed, profile.whole_gpu_rate, profile.whole_gpu_power_w, profile.gpus)


def are_mirrored(profiles: Sequence[Profile]) -> bool:
    """Whether the jobs stand against the order of their names, as `safe_splits` takes it."""
    return profiles[0].job > profiles[-1].job


def is_within(split: Split, profiles: Sequence[Profile]) -> bool:
    """Whether each job was measured at its share, or below it."""
    return all(s >= p.shares[0] for s, p in zip(split.shares, profiles, strict=True))


def safe_splits_of(
    profiles: Sequence[Profile], splits: Sequence[Split], checked: CheckedCounts | None
) -> tuple[Split | None, ...]:
    """For each split of jobs the nearest one that is safe; see `safe_splits`."""
    return safe_splits(
        splits,
        [profile.safety(checked) for profile in profiles],
        mirrored=are_mirrored(profiles),
    )


def predict_exclusive(profiles: Sequence[Profile]) -> Prediction:
    """One after the other: measured, not predicted, so the bounds are the values.

    Of several GPUs those that one job leaves run another meanwhile.
    """
    part = max(profile.gpus for profile in profiles) / sum(profile.gpus for profile in profiles)
    return Prediction(
        split=without_limits("exclusive", len(profiles)),
        parts=tuple(
            replace(predicted_part(p, Interval.sure(part)), latency_p99_ms=ms and Interval.sure(ms))
            for p, ms in ((p, p.whole_gpu_p99_ms) for p in profiles)
        ),
        power_w=Interval.sure(part * sum(p.whole_gpu_power_w for p in profiles)),
    )


CARD_SPREAD = 0.04
"""Standard deviation between cards of the log power of one job alone at the same rate, below the
power limit: inference and benchmarks on 12 cards of H200 and 3 of H100, 1.5 % between jobs of one
card taken off. With single windows beside launches, on 18 cards, docs/measurements/model.md
has 3.1 %; the larger one stays, where intervals of one run are made of it."""

# Standard deviation of that between steady jobs of one card, training among them
# (docs/measurements/model.md; 2.7 % with single windows beside launches).
# That of the log power of a pair over what the model expects, cards taken off: between pairs of a
# card 3.0 % on H200 and, where both jobs are new, 4.7 % on H100 (docs/measurements/model.md,
# 2026-11-23).
_REFERENCE_SPREAD, _OBSERVATION_SPREAD = 0.024, 0.04

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


def card_factor(
    gpu_uuid: str,
    references: Mapping[str, Mapping[str, float]],
    observations: Mapping[tuple[str, ...], Sequence[float]],
) -> CardPower | None:
    """What a card draws; None where nothing was seen of it.

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
    off = NORMAL_90 * log_stderr
    return CardPower(
        gpu_uuid=gpu_uuid,
        power_factor=Interval(*(math.exp(log_factor + by) for by in (0.0, -off, off))),
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
        profile, power_w = profiles.get((point.job, gpu_model)), point.power_w
        if point.gpu_model != gpu_model or profile is None or point.gpu_uuid in profile.gpu_uuids:
            continue
        # Of several GPUs it is of no single card.
        if not power_w or point.share_percent != WHOLE or point.gpus or profile.gpus > 1:
            continue
        limit_w = profile.power_limit_w or math.inf
        below = max(power_w, profile.whole_gpu_power_w) < _BELOW_LIMIT * limit_w
        # Only where the job runs at nearly the profile's rate does power tell of the card.
        is_near = abs(point.rate / profile.whole_gpu_rate - 1) < 0.02
        is_same = is_near and profile.is_of(point.job_hash)
        if below and is_same and _UNSTEADY.isdisjoint(point.flags):
            logs = ratios.setdefault(point.gpu_uuid, {}).setdefault(point.job, [])
            logs.append(math.log(power_w / profile.whole_gpu_power_w))
    return {
        card: {job: statistics.median(logs) for job, logs in jobs.items()}
        for card, jobs in ratios.items()
    }


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
        and profile.is_of(point.job_hash)
        and DOUBTFUL.isdisjoint(point.flags)
    ]
    log_factor, stderr = shrunk([(log, between_windows**2) for log in logs], between_hosts)
    return log_factor, math.hypot(stderr, between_windows)


def observation_ratio(
    power_w: float, rates: Sequence[float], expected: Prediction, limit_w: float | None
) -> float | None:
    """Log of a pair's observed power over a usual card's expected one; None: not comparable."""
    below = max(power_w, expected.power_w.value) < _BELOW_LIMIT * (limit_w or math.inf)
    # Within 5 % of the rates, since those of a pair are predicted.
    same = all(
        abs(rate / part.rate.value - 1) < 0.05
        for rate, part in zip(rates, expected.parts, strict=True)
    )
    return math.log(power_w / expected.power_w.value) if below and same else None


def _on_card(profile: Profile, card: CardPower) -> Profile:
    """The profile as the card would have measured it.

    Where the profile is at the power limit the card is, too: how far beyond it the job would go is
    not known. A profile that has points of the card already is as it is.
    """
    if card.gpu_uuid in profile.gpu_uuids:
        return profile
    limit_w, power_w = profile.power_limit_w or math.inf, profile.values["power_w"]
    scaled = np.minimum(power_w * card.power_factor.value, limit_w)
    kept = np.where(power_w >= NEAR_LIMIT * limit_w, power_w, scaled)
    return replace(profile, values={**profile.values, "power_w": kept})


class CardPredictor:
    """Predicts for profiles that were brought to a card: rates as they were, power as it is there.

    Intervals of power move with it and stay as wide: on one GPU model the errors of a model differ
    by 3 to 5 % from pair to pair of a card and by under 1 % from card to card, so there is little
    in them that a factor could take out (docs/measurements/model.md, 2026-11-23).

    It is made with the predictor of a usual card and with profiles that were measured.

    Attributes:
        brought: The profiles as the card would have measured them.
    """

    def __init__(self, predictor: Predictor, profiles: Sequence[Profile], card: CardPower) -> None:
        self._predictor = predictor
        on_card = {profile: _on_card(profile, card) for profile in profiles}
        self.brought = tuple(on_card[profile] for profile in profiles)
        self._measured = dict(zip(self.brought, profiles, strict=True))

    def predict(self, profiles: Sequence[Profile], splits: Sequence[Split]) -> Predictions:
        """One prediction for each split, in their order; profiles are `brought` ones."""
        usual = self._predictor.predict([self._measured[p] for p in profiles], splits)
        return replace(self._predictor.predict(profiles, splits), speeds=usual.speeds)


# Of the speed lost, for each 1 that is said, in 90 % of the points of the traces of Zeus.
_SLOWDOWNS = 0.4, 2.1

LEAST_LIMIT = 0.5
"""Of the card's own limit: below it few of these traces have points, and some cards no setting."""

KEPT = 0.95
"""Least part of the speed that a limit may leave which is offered unasked."""

STEP_W = 5.0

# By which two limits differ that are the same.
_SAME_W = 1.0


@lru_cache(maxsize=1024)  # copies of a job have one profile
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
    if limit_w < LEAST_LIMIT * profiled_w:
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
    """Predicts for a card with a lower power limit than the profiles were measured under.

    Attributes:
        brought: The profiles as the card would have measured them.
    """

    def __init__(self, predictor: Predictor, profiles: Sequence[Profile], limit_w: float) -> None:
        self._predictor, self._limit_w = predictor, limit_w
        self.brought = tuple(under_limit(profile, limit_w) for profile in profiles)
        self._measured = dict(zip(self.brought, profiles, strict=True))

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
    limits_w = np.arange(math.ceil(LEAST_LIMIT * profiled_w / STEP_W) * STEP_W, now_w, STEP_W)
    left = speed_left(limits_w, power_w, profiled_w)
    if not left.size:
        return None
    saved = 1 - np.minimum(limits_w / power_w, 1.0) / left
    saved = np.where(left >= max(KEPT, *floors), saved, 0.0)
    best = int(saved.argmax())
    if saved[best] < 0.03:  # of the energy: less is within the error of the form
        return None
    part, lost = limits_w[best] / power_w, 1 - left[best]
    expected, low, high = (float(1 - lost * by) for by in (1.0, *reversed(_SLOWDOWNS)))
    return LowerLimit(
        jobs=tuple(profile.job for profile in profiles),
        power_limit_w=float(limits_w[best]),
        energy_saved=Interval(*(float(1 - part / left) for left in (expected, low, high))),
        longer=Interval(*(1 / left - 1 for left in (expected, high, low))),
    )
