"""What this version can predict of a pair: one declaration for each head, and how it is served.

A new head is one more `Head` here and one `HeadLearner` in `advisor_training.learners`; rows, the
trees, intervals, the manifest and the predictor go by these.
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from advisor.core.gpu import Split
from advisor.core.telemetry import NEAR_LIMIT, OVER_LIMIT
from advisor.predict.features import (
    Float32s,
    Side,
    beside,
    matrix,
    physical_power_w,
    power_features,
    power_limit_w,
    speed_features,
)
from advisor.predict.profiles import Floats, of_job, of_pair
from advisor_models.registry import (
    LIMITED,
    SPLIT,
    UNCAPPED,
    Manifest,
    Of,
    TrainedHead,
    bounds_of_stratum,
    place_of,
    wider,
)

Features: TypeAlias = dict[str, Floats]
"""By name, in the order of the columns; each shape (n,)."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Head:
    """A quantity of a pair at splits, learned as the logarithm of its distance to a prior.

    Attributes:
        name: As in the manifest, and of the file with its trees.
        of: What it has a value of: for "job" the functions get each job's side first in turn.
        prior: What `prior_of` gives, in words; another prior needs other words, since a model that
            was trained over one must not be used with the other.
        features_of: What the model sees of the jobs.
        prior_of: The target without learning, shape (n,); the features are given so that nothing is
            worked out twice.
        limit_of: What holds the target back: at 97 % of it the intervals "at the power limit" hold.
            Infinite where it is not known; None: nothing does.
    """

    name: str
    of: Of
    target: str
    unit: str
    prior: str
    features_of: Callable[[Sequence[Side]], Features]
    prior_of: Callable[[Sequence[Side], Features], Floats]
    limit_of: Callable[[Sequence[Side]], float] | None = None


def inputs_of(head: Head, sides: Sequence[Side]) -> tuple[Float32s, tuple[Floats, ...]]:
    """What a head takes of jobs at n splits: a part for each job, or one of all.

    Features are all of the first part, then all of the next, shape (parts x n, features); priors
    are of each part, shape (n,).
    """
    views = [(one, *beside(sides, n)) for n, one in enumerate(sides)]
    views = views if head.of == "job" else [tuple(sides)]
    features = [head.features_of(view) for view in views]
    priors = [head.prior_of(view, f) for view, f in zip(views, features, strict=True)]
    return np.concatenate([*map(matrix, features)]), tuple(priors)


SPEED = Head(
    name="speed",
    of="job",
    target="relative speed of a job that always has something to do",
    unit="1",
    prior="prior_kept x relative rate alone at the share",
    features_of=lambda sides: speed_features(sides[0], sides[1:]),
    prior_of=lambda sides, features: features["prior_kept"] * sides[0].capacity,
)

POWER = Head(
    name="power",
    of="pair",
    target="power of the GPU",
    unit="W",
    prior="both powers less one active idle power, up to the limit",
    features_of=power_features,
    prior_of=lambda sides, _: physical_power_w(sides),
    limit_of=power_limit_w,
)

MEMORY_POWER = Head(
    name="memory_power",
    of="pair",
    target="power of the memory of the GPU",
    unit="W",
    prior="that of the whole GPU: both powers less one active idle power, up to the limit",
    features_of=power_features,
    prior_of=lambda sides, _: physical_power_w(sides),
)
"""Part of the power; few cards read it, so most models are without it."""

HEADS = (SPEED, POWER)
"""The heads that every model has."""

KNOWN_HEADS = (*HEADS, MEMORY_POWER)
"""All heads of this version; a model may be without the later ones."""

OUTSIDE = 0.05
"""A feature is outside what the model has seen when it lies further beyond its range than this part
of the range."""

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

    def __init__(self, head: Head, trained: TrainedHead, manifest: Manifest) -> None:
        self.head, self.trained = head, trained
        known = {(seen, whole) for seen in (True, False) for whole in (True, False)}
        self._factors = {
            key: _factors(self.trained, manifest, seen=key[0], whole=key[1]) for key in known
        }

    def values(
        self, priors: Sequence[Floats], logs: Sequence[float], asked: PredictionRequest
    ) -> Floats:
        """What the trees' answers mean: one log for each row of the features.

        For each part, a job or the pair, values, low and high ends; shape (parts, 3, n).
        """
        n, factors = len(asked.splits), self._factors[asked.seen, asked.whole]
        limit = self.head.limit_of(asked.sides) if self.head.limit_of else math.inf
        near, most = NEAR_LIMIT * limit, OVER_LIMIT * limit
        found = [
            [
                _around(value, factors(asked, split, part, value >= near), most)
                for split, value in zip(
                    asked.splits, _scaled(logs[part * n : (part + 1) * n], prior), strict=True
                )
            ]
            for part, prior in enumerate(priors)
        ]
        return np.moveaxis(np.array(found), -1, 1)

    def outside(self, rows: Float32s) -> list[str]:
        """Features that lie outside of what was learned from; shape (rows, features)."""
        low, high = np.array(self.trained.ranges).T
        # A feature that was the same in all rows has no width; rounding is no extrapolation.
        reach = OUTSIDE * (high - low) + 1e-6 * np.maximum(np.abs(low), np.abs(high))
        found = ((rows < low - reach) | (rows > high + reach)).any(axis=0)
        names = zip(self.trained.features, found, strict=True)
        return [name for name, is_outside in names if is_outside]


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


def _around(value: float, factors: _Factors, most: float) -> tuple[float, float, float]:
    return value, value * factors[0], max(value, min(value * factors[1], most))
