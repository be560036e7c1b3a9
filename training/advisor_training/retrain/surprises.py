"""How far measured pairs lie from what the champion expects, in units of its own intervals."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from advisor.core.gpu import WHOLE
from advisor.core.interval import Interval
from advisor.core.records import PairPoint
from advisor.predict.predictions import Prediction, is_within
from advisor.predict.profiles import Profile
from advisor_models.manifest import NEGLIGIBLE_PERCENT
from advisor_models.onnx_predictor import OnnxPredictor
from advisor_training.dataset.split_kinds import in_split_order, split_of

LEAST_WIDTH = NEGLIGIBLE_PERCENT / 100
"""Of one side of an interval, as a logarithm: a measured rate repeats no better."""


@dataclass(frozen=True, slots=True)
class Surprise:
    """One pair point next to its prediction.

    Attributes:
        rates: Distance of each job's rate: 1 at the upper bound, -1 at the lower one, 0 as
            expected; on a logarithmic scale.
        power: The same of the power.
    """

    point: PairPoint
    rates: tuple[float, ...]
    power: float

    @property
    def largest(self) -> float:
        """The largest distance, whatever its sign."""
        return max(map(abs, (*self.rates, self.power)))


def surprises(
    points: Iterable[PairPoint],
    profiles: Mapping[tuple[str, str], Profile],
    champion: OnnxPredictor,
) -> list[Surprise]:
    """Those of all points that the champion can say something of.

    These are of two jobs with profiles, uncapped or under limits of the whole GPU at most, with
    both rates and the power.
    """
    groups: dict[tuple[str, ...], list[PairPoint]] = {}
    for point in points:
        groups.setdefault((*point.jobs, point.gpu_model), []).append(point)
    return [found for group in groups.values() for found in _of_pair(group, profiles, champion)]


def _of_pair(
    points: Sequence[PairPoint],
    profiles: Mapping[tuple[str, str], Profile],
    champion: OnnxPredictor,
) -> Iterator[Surprise]:
    of_jobs = [profiles.get((job, points[0].gpu_model)) for job in points[0].jobs]
    known = [profile for profile in of_jobs if profile is not None]
    if len(of_jobs) != 2 or len(known) != 2:
        return
    asked = [point for point in points if _can_be_asked(point, known)]
    for point, expected in zip(
        asked, champion.predict(known, [split_of(point) for point in asked]), strict=True
    ):
        yield _surprise(point, expected)


def _can_be_asked(point: PairPoint, profiles: Sequence[Profile]) -> bool:
    split = split_of(point)
    return (
        (split.sharing == "uncapped" or (split.is_limited and sum(split.shares) <= WHOLE))
        and is_within(split, profiles)
        and all(part.rate for part in point.parts)
        and bool(point.power_w)
    )


def _surprise(point: PairPoint, expected: Prediction) -> Surprise:
    parts = zip(in_split_order(point), expected.parts, strict=True)
    rates = tuple(_distance(part.rate or 0.0, predicted.rate) for part, predicted in parts)
    return Surprise(point, rates, _distance(point.power_w or 0.0, expected.power_w))


def _distance(measured: float, expected: Interval) -> float:
    off = math.log(measured / expected.value)
    bound = expected.high if off > 0 else expected.low
    return off / max(abs(math.log(bound / expected.value)), LEAST_WIDTH)
