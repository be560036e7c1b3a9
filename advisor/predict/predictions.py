"""What is expected of a pair at one split, and who can say so."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from advisor.core.interval import Interval
from advisor.core.objectives import DEFAULT_OBJECTIVE, OBJECTIVES, Objective, SplitResult
from advisor.predict.profiles import Profile
from advisor.validity.safe_counts import CheckedCounts
from advisor.validity.safe_splits import safe_shares

Split: TypeAlias = tuple[float, float]
"""Shares of the first and the second job, percent; (100, 100) is `uncapped`."""

UNCAPPED: Split = (100.0, 100.0)

NINE: tuple[Split, ...] = tuple((float(share), 100.0 - share) for share in range(10, 100, 10))
"""10/90, 20/80 .. 90/10."""

Way = Literal["split", "uncapped", "exclusive"]
"""How two jobs use one GPU: each under its share, both without limits under MPS, or one after the
other, each alone on the whole GPU for half of the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Two jobs on one GPU in one way.

    Attributes:
        share_a_percent: Share of the first job; 100 where there are no limits.
        share_b_percent: Share of the second job.
        speed_a: Relative speed of the first job: 1 is as fast as alone on the whole GPU.
        speed_b: Relative speed of the second job.
        power_w: Power of the GPU.
        solo_rate_a: Rate of the first job alone on the whole GPU.
        solo_rate_b: Rate of the second job alone on the whole GPU.
        solo_power_a_w: Power of the GPU while the first job runs alone on all of it.
        solo_power_b_w: The same of the second job.
        efficiency_factors: What to multiply `energy-efficiency` with for its bounds, where they are
            known by its own errors: a card that draws more draws more for each job alone, too, so
            the bounds of speeds and power together would be too far apart.
    """

    way: Way
    share_a_percent: float
    share_b_percent: float
    speed_a: Interval
    speed_b: Interval
    power_w: Interval
    solo_rate_a: float
    solo_rate_b: float
    solo_power_a_w: float
    solo_power_b_w: float
    efficiency_factors: tuple[float, float] | None = None

    @property
    def rate_a(self) -> Interval:
        """Progress of the first job per second, in its own unit."""
        return self.speed_a.times(self.solo_rate_a)

    @property
    def rate_b(self) -> Interval:
        """Progress of the second job per second, in its own unit."""
        return self.speed_b.times(self.solo_rate_b)

    @property
    def result(self) -> SplitResult:
        """The expected values as objectives take them."""
        return self._result(self.speed_a.value, self.speed_b.value, self.power_w.value)

    @property
    def energy_saved(self) -> Interval:
        """Part of the energy saved for the same work, against one after the other."""
        bounds = self.efficiency
        if bounds is None or bounds.low <= 0:
            return self.range_of(lambda result: result.energy_saved)
        return Interval(self.result.energy_saved, 1 - 1 / bounds.low, 1 - 1 / bounds.high)

    @property
    def stp(self) -> Interval:
        """Sum of relative speeds: how much more is done in an hour than one after the other."""
        return self.range_of(lambda result: result.stp)

    def worth(self, objective: Objective) -> Interval:
        """The objective; see `range_of`, and for the default one `efficiency_factors`."""
        own = self.efficiency if objective.name == DEFAULT_OBJECTIVE else None
        return own or self.range_of(objective.value)

    @property
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
        return Interval(
            value(self.result),
            value(self._result(self.speed_a.low, self.speed_b.low, self.power_w.high)),
            value(self._result(self.speed_a.high, self.speed_b.high, self.power_w.low)),
        )

    def _result(self, speed_a: float, speed_b: float, power_w: float) -> SplitResult:
        return SplitResult(
            rate_a=speed_a * self.solo_rate_a,
            rate_b=speed_b * self.solo_rate_b,
            solo_rate_a=self.solo_rate_a,
            solo_rate_b=self.solo_rate_b,
            solo_power_a_w=self.solo_power_a_w,
            solo_power_b_w=self.solo_power_b_w,
            power_w=power_w,
        )


class Predictor(Protocol):
    """Anything that can say how a pair behaves at splits."""

    def predict(self, a: Profile, b: Profile, splits: Sequence[Split]) -> list[Prediction]:
        """One prediction for each split, in their order."""
        ...


def safe_pair_splits(
    a: Profile, b: Profile, wanted: Sequence[Split], checked: CheckedCounts | None
) -> tuple[Split | None, ...]:
    """For each split of two jobs the nearest one that is safe; see `safe_splits`."""
    mirrored = a.job > b.job
    return safe_shares(wanted, a.safety(checked), b.safety(checked), mirrored=mirrored)


def predict_exclusive(a: Profile, b: Profile) -> Prediction:
    """One after the other: measured, not predicted, so the bounds are the values."""
    power_w = (a.whole_gpu_power_w + b.whole_gpu_power_w) / 2
    half = Interval(0.5, 0.5, 0.5)
    return Prediction(
        way="exclusive",
        share_a_percent=100.0,
        share_b_percent=100.0,
        speed_a=half,
        speed_b=half,
        power_w=Interval(power_w, power_w, power_w),
        solo_rate_a=a.whole_gpu_rate,
        solo_rate_b=b.whole_gpu_rate,
        solo_power_a_w=a.whole_gpu_power_w,
        solo_power_b_w=b.whole_gpu_power_w,
    )
