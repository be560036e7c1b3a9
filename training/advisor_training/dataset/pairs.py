"""Pair points put together: what was measured of each pair, on which card and in which run."""

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from advisor.core.objectives import PartResult, SplitResult, exclusive
from advisor.core.records import PairPoint, SoloPoint
from advisor.core.split import EQUAL, Split
from advisor.validity.points import FASTEST, LARGEST_SLOWDOWN
from advisor_training.dataset.solo import SoloReference, references_by_job, references_of
from advisor_training.dataset.split_kinds import (
    KINDS,
    SplitKind,
    in_split_order,
    is_full,
    is_observed,
    kinds_of,
    measurement_of,
    split_of,
)

ResultsBySplit = Mapping[Split, SplitResult]

DISTURBED = (
    f"a job alone beside the pair ran over {LARGEST_SLOWDOWN:.0%} slower than in its fastest run, "
    "or than in the pair itself"
)
"""Why a measurement on a disturbed host is left out."""

_JOBS = 2
"""Of a pair: what is learned from is pairwise."""

NOT_FULL = "without 50/50, or with too few of the nine splits in one run"
"""Why a measurement whose best split would be no oracle is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One pair on one card in one run; splits are compared within one of these only.

    Values are medians over repeats.

    Attributes:
        exclusive: One after the other, from the solo points.
        splits: What was measured, by kind of split and by shares.
        repeats: The nine splits of each repeat by itself.
        observed: It is made of launches, not of measured windows.
    """

    jobs: tuple[str, str]
    gpu_model: str
    gpu_uuid: str
    run: str
    points: int
    exclusive: SplitResult
    splits: Mapping[SplitKind, ResultsBySplit]
    repeats: tuple[ResultsBySplit, ...]
    observed: bool = False

    @property
    def is_full(self) -> bool:
        """Whether enough of the nine splits are there for their best to be an oracle.

        Launches on different days are no comparison of splits, however many there are.
        """
        beside_itself = self.jobs[0] == self.jobs[1]
        return not self.observed and is_full(self.nine, beside_itself=beside_itself)

    @property
    def nine(self) -> ResultsBySplit:
        """The nine splits as they were measured in this run: see `split_kinds`.

        In steps of 10, or at the safe counts nearest to those; some may be missing, and
        50/50 where it is not full.
        "The best of nine", the oracle, is the best of these: where pairs were measured at different
        splits, each is compared with the best of its own. 50/50 is the same split in all of them.
        Of a job next to itself these are 10/90..50/50, the others being the same again.
        """
        return self.splits["nine"]

    @property
    def equal(self) -> SplitResult:
        """At 50/50.

        Raises:
            KeyError: that split is missing, as it may where the measurement is not full.
        """
        return self.nine[EQUAL]

    @property
    def uncapped(self) -> SplitResult | None:
        """Under MPS without limits, if it was measured."""
        return next(iter(self.splits["uncapped"].values()), None)

    @property
    def time_sliced(self) -> SplitResult | None:
        """Without MPS, if it was measured."""
        return next(iter(self.splits["time-sliced"].values()), None)


BASELINES: Mapping[str, Callable[[Measurement], SplitResult | None]] = {
    "equal": lambda m: m.equal,
    "uncapped": lambda m: m.uncapped,
    "time-sliced": lambda m: m.time_sliced,
    "exclusive": lambda m: m.exclusive,
}
"""What a split is compared with, by name."""


@dataclass(frozen=True, slots=True)
class MeasuredPair:
    """All measurements of two jobs on one GPU model, the one with the most points first."""

    jobs: tuple[str, str]
    gpu_model: str
    measurements: tuple[Measurement, ...]

    @property
    def main(self) -> Measurement:
        """The one that stands for the pair, with its own nine; the others tell the noise."""
        return self.measurements[0]

    @property
    def beside_itself(self) -> bool:
        """Whether it is one job twice: the splits a/b and b/a are the same measurement then."""
        return self.jobs[0] == self.jobs[1]


@dataclass(frozen=True, slots=True, order=True)
class LeftOut:
    """Points that the analysis does not use, and why."""

    reason: str
    points: int


@dataclass(frozen=True, slots=True)
class _Reading:
    """A pair point with its jobs in the order of their names."""

    kind: SplitKind
    split: Split
    repeat: int
    rates: tuple[float, float]
    power_w: float
    memory_power_w: float | None


def make_pairs(
    points: Iterable[PairPoint], solos: Iterable[SoloPoint], *, full: bool = True
) -> tuple[list[MeasuredPair], list[LeftOut]]:
    """The pairs by name, and what is left out.

    Jobs alone on the whole GPU are the references. `full` leaves out measurements whose best split
    would be no oracle (`Measurement.is_full`); each of their splits can be learned from all the
    same.
    """
    left_out: Counter[str] = Counter()
    references = references_by_job(solos)
    pairs: dict[tuple[tuple[str, str], str], list[Measurement]] = {}
    for group in _groups(_readable(points, left_out)):
        made = _measurement(group, references)
        if isinstance(made, str):
            left_out[made] += len(group)
        elif full and not made.is_full:
            left_out[NOT_FULL] += len(group)
        else:
            pairs.setdefault((made.jobs, made.gpu_model), []).append(made)
    return (
        [
            MeasuredPair(jobs, gpu_model, _fullest_first(found))
            for (jobs, gpu_model), found in sorted(pairs.items())
        ],
        sorted(LeftOut(reason, count) for reason, count in left_out.items()),
    )


def _readable(points: Iterable[PairPoint], left_out: Counter[str]) -> Iterator[PairPoint]:
    for point in points:
        if len(point.parts) > _JOBS:
            left_out["more than two jobs"] += 1
        elif any(part.rate is None for part in point.parts):
            left_out["no rates: a job of the pair failed"] += 1
        elif not point.power_w:
            left_out["no reading of power"] += 1
        else:
            yield point


def _groups(points: Iterable[PairPoint]) -> list[list[PairPoint]]:
    groups: dict[tuple[str, ...], list[PairPoint]] = {}
    for point in points:
        groups.setdefault(measurement_of(point), []).append(point)
    return list(groups.values())


def _fullest_first(found: Iterable[Measurement]) -> tuple[Measurement, ...]:
    return tuple(sorted(found, key=lambda m: (-m.points, m.run, m.gpu_uuid)))


def _measurement(
    group: Sequence[PairPoint], references: Mapping[str, Sequence[SoloPoint]]
) -> Measurement | str:
    """The measurement that the points make, or why they make none."""
    point = group[0]
    job_a, job_b = point.jobs
    solos: list[SoloReference] = []
    for job, solo in zip(point.jobs, references_of(point, references), strict=True):
        if solo is None:
            return f"no solo point of {job} on the whole {point.gpu_model}"
        if solo.slowdown > LARGEST_SLOWDOWN:
            return DISTURBED
        solos.append(solo)
    kinds = kinds_of(group)
    readings = [_reading(point, kind) for point, kind in zip(group, kinds, strict=True)]
    found = _assembled(point, (job_a, job_b), readings, (solos[0], solos[1]))
    return DISTURBED if _fastest(found) > FASTEST else found


def _fastest(measurement: Measurement) -> float:
    """The highest relative speed of a job beside another one."""
    shared = (split for kind in KINDS for split in measurement.splits[kind].values())
    return max(speed for result in shared for speed in result.speeds)


def _assembled(
    point: PairPoint,
    jobs: tuple[str, str],
    readings: Sequence[_Reading],
    solos: tuple[SoloReference, SoloReference],
) -> Measurement:
    nine = [reading for reading in readings if reading.kind == "nine"]
    repeats = sorted({reading.repeat for reading in nine})
    return Measurement(
        jobs=jobs,
        gpu_model=point.gpu_model,
        gpu_uuid=point.gpu_uuid,
        run=point.run,
        points=len(readings),
        exclusive=exclusive([(solo.rate, solo.power_w) for solo in solos]),
        splits={k: _medians([r for r in readings if r.kind == k], solos) for k in KINDS},
        repeats=tuple(_medians([r for r in nine if r.repeat == n], solos) for n in repeats),
        observed=is_observed(point),
    )


def _reading(point: PairPoint, kind: SplitKind) -> _Reading:
    """The reading of a point, with its rates in the order of its split."""
    first, second = in_split_order(point)
    rates = (first.rate or 0.0, second.rate or 0.0)
    power_w = point.power_w or 0.0
    return _Reading(kind, split_of(point), point.repeat, rates, power_w, _memory_power_w(point))


def _memory_power_w(point: PairPoint) -> float | None:
    """What cannot be is no reading."""
    memory_w = point.memory_power_w
    return memory_w if memory_w and 0 < memory_w < (point.power_w or 0.0) else None


def _medians(
    readings: Sequence[_Reading], solos: tuple[SoloReference, SoloReference]
) -> dict[Split, SplitResult]:
    """One result for each split: medians over its readings."""
    splits = sorted({reading.split for reading in readings})
    return {split: _median([r for r in readings if r.split == split], solos) for split in splits}


def _median(
    readings: Sequence[_Reading], solos: tuple[SoloReference, SoloReference]
) -> SplitResult:
    rates = zip(*(reading.rates for reading in readings), strict=True)
    memory_w = [r.memory_power_w for r in readings if r.memory_power_w is not None]
    return SplitResult(
        parts=tuple(
            PartResult(statistics.median(of_job), solo.rate, solo.power_w)
            for of_job, solo in zip(rates, solos, strict=True)
        ),
        power_w=statistics.median(reading.power_w for reading in readings),
        memory_power_w=statistics.median(memory_w) if memory_w else None,
    )
