"""A measured pair as a predictor that knows it: what expected pairs can be asked, it can, too."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from advisor.core.interval import Interval
from advisor.core.records import PairPoint
from advisor.core.split import UNCAPPED, Split
from advisor.core.telemetry import NEAR_LIMIT
from advisor.predict.predictions import PredictedPart, Prediction
from advisor.predict.profiles import Profile


@dataclass(frozen=True, slots=True)
class MeasuredPair:
    """One split of a pair.

    Attributes:
        profiles: Of both jobs alone, in the order of the point's.
    """

    point: PairPoint
    profiles: tuple[Profile, ...]

    @property
    def split(self) -> Split:
        """As it was measured."""
        return UNCAPPED if self.point.mode == "uncapped" else Split(self.point.shares_percent)

    @property
    def seen(self) -> Prediction:
        """What was measured, as if it had been expected without any error."""
        watts = self.point.power_w or 0.0
        speeds = [
            (part.rate or 0.0) / profile.whole_gpu_rate
            for part, profile in zip(self.point.parts, self.profiles, strict=True)
        ]
        return Prediction(
            split=self.split,
            parts=tuple(
                PredictedPart(Interval(s, s, s), p.whole_gpu_rate, p.whole_gpu_power_w)
                for s, p in zip(speeds, self.profiles, strict=True)
            ),
            power_w=Interval(watts, watts, watts),
        )

    @property
    def top_mhz(self) -> float:
        """Highest clock of either job alone."""
        return max(float(np.nanmax(p.values["sm_clock_mhz"])) for p in self.profiles)

    def predict(self, profiles: Sequence[Profile], splits: Sequence[Split]) -> list[Prediction]:
        """What was measured, at the one split that was.

        Raises:
            ValueError: another split, or other jobs, are asked for.
        """
        if list(splits) != [self.split] or tuple(profiles) != self.profiles:
            raise ValueError(f"only {self.split} of {self.point.jobs} was measured")
        return [self.seen]


def at_limit(point: PairPoint) -> bool:
    """Whether the power limit holds it: what held a clock back further below is not told."""
    return (point.power_w or 0.0) >= NEAR_LIMIT * (point.power_limit_w or math.inf)
