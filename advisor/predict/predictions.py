"""What is expected of jobs at one split, and who can say so."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeAlias

from advisor.core.interval import Interval
from advisor.core.objectives import (
    DEFAULT_OBJECTIVE,
    OBJECTIVES,
    Objective,
    PartResult,
    SplitResult,
)
from advisor.core.split import Split, without_limits
from advisor.predict.profiles import Floats, Profile
from advisor.validity.safe_counts import CheckedCounts, safe_splits


@dataclass(frozen=True, slots=True)
class PredictedPart:
    """What is expected of one of the jobs.

    Attributes:
        speed: Relative speed: 1 is as fast as alone on the whole GPU.
        solo_power_w: Power of the GPU while the job runs alone on all of it.
        latency_p99_ms: Its p99 latency, where more is known of it than by class: what it was beside
            the same jobs at the same split, or of a set; None: nothing more.
    """

    speed: Interval
    solo_rate: float
    solo_power_w: float
    latency_p99_ms: Interval | None = None

    @property
    def rate(self) -> Interval:
        """Progress per second, in the job's own unit."""
        return self.speed.times(self.solo_rate)

    def p99_ms(self, profile: Profile, split: Split, share_percent: float) -> Interval | None:
        """Its p99 latency as it was measured there, else by class; None: not known alone."""
        if self.latency_p99_ms is not None:
            return self.latency_p99_ms
        return profile.serving and profile.serving.p99_beside_ms(split, share_percent)


def possible_speed(profile: Profile, speed: Interval, most: float = 1.0) -> Interval:
    """No faster than alone is expected, or measured than `most`; a server serves what it is asked.

    A job that was faster beside others was slow alone (`advisor.validity.slow_alone`), so the next
    window may show that again, but what it does more than alone is work that nobody does.
    """
    if profile.serving:
        return profile.serving.served(speed)
    return Interval(min(speed.value, 1.0), min(speed.low, 1.0), min(speed.high, most))


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
    parts: tuple[PredictedPart, ...]
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
        if objective is not OBJECTIVES.get(objective.name):
            return self.range_of(objective.value)  # by prices of whoever asks
        if (known := self._values.get(objective.name)) is None:
            own = self.efficiency if objective.name == DEFAULT_OBJECTIVE else None
            known = self._values[objective.name] = own or self.range_of(objective.value)
        return known

    @cached_property
    def _values(self) -> dict[str, Interval]:
        return {}

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
            PartResult(speed * part.solo_rate, part.solo_rate, part.solo_power_w)
            for speed, part in zip(speeds, self.parts, strict=True)
        ]
        return SplitResult(tuple(parts), power_w)


class Predictor(Protocol):
    """Anything that can say how jobs behave at splits."""

    def predict(self, profiles: Sequence[Profile], splits: Sequence[Split]) -> list[Prediction]:
        """One prediction for each split, in their order."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class ExpectedPair:
    """What is expected of jobs at n splits, without intervals.

    Attributes:
        speeds: Of each job that always has something to do; shape (jobs, n).
        power_w: Shape (n,).
    """

    speeds: Floats
    power_w: Floats


AskedPair: TypeAlias = tuple[Sequence[Profile], Sequence[Split]]
"""Jobs, and the splits that they are asked for at."""


class PairPredictor(Predictor, Protocol):
    """One that can be asked of many pairs at once, which is faster."""

    def expected(self, asked: Sequence[AskedPair]) -> list[ExpectedPair]:
        """Of each pair the values of `predict`, to rounding, in the order of its splits."""
        ...


def predicted_part(profile: Profile, speed: Interval) -> PredictedPart:
    """What is expected of a job with this profile at a relative speed."""
    return PredictedPart(speed, profile.whole_gpu_rate, profile.whole_gpu_power_w)


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
    """One after the other: measured, not predicted, so the bounds are the values."""
    n = len(profiles)
    power_w, part = sum(p.whole_gpu_power_w for p in profiles) / n, 1 / n
    return Prediction(
        split=without_limits("exclusive", n),
        parts=tuple(predicted_part(p, Interval(part, part, part)) for p in profiles),
        power_w=Interval(power_w, power_w, power_w),
    )
