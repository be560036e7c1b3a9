"""A head of a loaded model: from the trees' answers to values with intervals."""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from advisor.core.interval import Interval
from advisor.core.split import Split
from advisor.core.telemetry import NEAR_LIMIT, OVER_LIMIT
from advisor.predict.features import Float32s, Side
from advisor.predict.profiles import Floats, of_job, of_pair
from advisor_models.heads import Head, HeadInputs, inputs_of
from advisor_models.intervals import LIMITED, SPLIT, UNCAPPED, bounds_of_stratum, place_of, wider
from advisor_models.manifest import Manifest
from advisor_models.trained_head import Range, TrainedHead

OUTSIDE = 0.05
"""A feature is outside what the model has seen when it lies further beyond its range than this part
of the range."""

Values: TypeAlias = tuple[list[Interval], ...]
"""For each part, a job or the pair, one value for each split."""

_Factors = tuple[float, float]


@dataclass(frozen=True, slots=True, eq=False)
class PredictionRequest:
    """Jobs at splits, and how well the model knows them.

    Attributes:
        sides: Each job at its shares.
        kinds: What each job is.
        splits: The same shares.
        gpu_model: Which they share.
        seen: The model has seen it.
        whole: The profiles have every column.
    """

    sides: tuple[Side, ...]
    kinds: tuple[str, ...]
    splits: Sequence[Split]
    gpu_model: str
    seen: bool
    whole: bool


class ServedHead:
    """One head between the sides of a pair and its values."""

    def __init__(self, head: Head, manifest: Manifest) -> None:
        self.head = head
        self.trained: TrainedHead = manifest.head(head.name)
        known = {(seen, whole) for seen in (True, False) for whole in (True, False)}
        self._factors = {
            key: _factors(self.trained, manifest, seen=key[0], whole=key[1]) for key in known
        }

    def inputs(self, sides: Sequence[Side]) -> HeadInputs:
        """What the trees and the prior take of jobs at their shares."""
        return inputs_of(self.head, sides)

    def values(self, inputs: HeadInputs, logs: Sequence[float], asked: PredictionRequest) -> Values:
        """What the trees' answers mean: one log for each row of the features."""
        n, factors = len(asked.splits), self._factors[asked.seen, asked.whole]
        limit = self.head.limit_of(asked.sides) if self.head.limit_of else math.inf
        near, most = NEAR_LIMIT * limit, OVER_LIMIT * limit
        return tuple(
            [
                _around(value, factors(asked, split, part, value >= near), most)
                for split, value in zip(
                    asked.splits, _scaled(logs[part * n : (part + 1) * n], prior), strict=True
                )
            ]
            for part, prior in enumerate(inputs.priors)
        )

    def outside(self, rows: Float32s) -> list[str]:
        """Features that lie outside of what was learned from; shape (rows, features)."""
        return _outside(self.trained.features, self.trained.ranges, rows)


def _factors(
    trained: TrainedHead, manifest: Manifest, *, seen: bool, whole: bool
) -> Callable[[PredictionRequest, Split, int, bool], _Factors]:
    """Factors of the intervals, worked out once for each stratum."""
    strata = trained.intervals
    if not seen:
        # Whether another GPU model is at its limit is not known beforehand.
        strata = {n: bounds for n, bounds in strata.items() if place_of(n) != LIMITED}
        strata = wider(strata, manifest.other_gpu.widening[trained.name])
    if not whole and manifest.no_counters is not None:
        strata = wider(strata, manifest.no_counters[trained.name])

    @functools.cache
    def at(name: str, gpu_model: str) -> _Factors:
        return bounds_of_stratum(strata, name, gpu_model).factors

    def of(asked: PredictionRequest, split: Split, part: int, at_limit: bool) -> _Factors:
        place = UNCAPPED if not split.is_limited else LIMITED if at_limit else SPLIT
        if trained.of == "pair":
            return at(of_pair(asked.kinds, place), asked.gpu_model)
        own, others = asked.kinds[part], (*asked.kinds[:part], *asked.kinds[part + 1 :])
        return at(of_job(own, others, split.shares[part], place), "")

    return of


def _scaled(logs: Sequence[float], factors: Floats) -> list[float]:
    # One by one: where a value stands in an array may change the last bit of numpy's exp.
    return [math.exp(log) * f for log, f in zip(logs, factors.tolist(), strict=True)]


def _around(value: float, factors: _Factors, most: float) -> Interval:
    return Interval(value, value * factors[0], max(value, min(value * factors[1], most)))


def _outside(names: Sequence[str], ranges: Sequence[Range], rows: Float32s) -> list[str]:
    low, high = np.array(ranges).T
    # A feature that was the same in all rows has no width; rounding is no extrapolation.
    reach = OUTSIDE * (high - low) + 1e-6 * np.maximum(np.abs(low), np.abs(high))
    found = ((rows < low - reach) | (rows > high + reach)).any(axis=0)
    return [name for name, is_outside in zip(names, found, strict=True) if is_outside]
