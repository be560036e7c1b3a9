"""Predictions for jobs at one split, and the predictors that make them."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields, replace
from functools import cached_property, lru_cache
from typing import Any, Protocol, TypeAlias

import numpy as np

from advisor.core.gpu import Split, without_limits
from advisor.core.objectives import (
    DEFAULT_OBJECTIVE,
    NORMAL_90,
    OBJECTIVES,
    Interval,
    Objective,
    PartResult,
    SplitResult,
)
from advisor.errors import InputError
from advisor.predict.profiles import Floats, Profile
from advisor.validity.safe_counts import CheckedCounts, safe_splits


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
    if profile.serving:
        return profile.serving.served(speeds)
    return np.minimum(speeds, np.array([[1.0], [1.0], [most]]))


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
    def _worst(self) -> SplitResult:
        return self._result([part.speed.low for part in self.parts], self.power_w.high)

    @cached_property
    def _best(self) -> SplitResult:
        return self._result([part.speed.high for part in self.parts], self.power_w.low)

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
        return Interval(value(self.result), value(self._worst), value(self._best))

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
        speed = Interval(*self.speeds[:, job, place].tolist())
        return _PredictedPart(
            speed, *self.solo[job], _interval(self.latencies_p99_ms[:, job, place])
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
    safeties = [profile.safety(checked) for profile in profiles]
    return safe_splits(splits, safeties, mirrored=are_mirrored(profiles))


def predict_exclusive(profiles: Sequence[Profile]) -> Prediction:
    """One after the other: measured, not predicted, so the bounds are the values.

    Of several GPUs those that one job leaves run another meanwhile.
    """
    gpus = max(profile.gpus for profile in profiles)
    part = gpus / sum(profile.gpus for profile in profiles)
    power_w = part * sum(p.whole_gpu_power_w for p in profiles)
    return Prediction(
        split=without_limits("exclusive", len(profiles)),
        parts=tuple(
            replace(predicted_part(p, Interval.sure(part)), latency_p99_ms=ms and Interval.sure(ms))
            for p, ms in ((p, p.whole_gpu_p99_ms) for p in profiles)
        ),
        power_w=Interval.sure(power_w),
    )
