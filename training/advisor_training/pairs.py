"""Pair points put together: what was measured of each pair, on which card and in which run."""

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from advisor.objectives import SplitResult, exclusive
from advisor.records import REPLAY_SOURCE, PairPoint, SoloPoint
from advisor_training.solo import (
    LARGEST_SLOWDOWN,
    SOLO_SOURCES,
    SoloReference,
    SoloSource,
    solo_reference,
    whole_gpu,
)

Split = tuple[float, float]
"""Shares asked for the first and the second job, percent."""

Results = Mapping[Split, SplitResult]

Kind = Literal["nine", "grid", "over-subscribed", "other", "uncapped", "time-sliced"]
"""nine: 10/90..90/10 in steps of 10. grid: exact counts of units that add up to the whole GPU.
over-subscribed: shares of more than the GPU, such as 70/70. other: shares of less than it."""

KINDS: tuple[Kind, ...] = get_args(Kind)

EQUAL: Split = (50.0, 50.0)

LARGEST_GAP = 0.25
"""Part of the nine splits that may be missing, left out for a flag, before a pair is left out."""


DISTURBED = (
    f"a job alone beside the pair ran over {LARGEST_SLOWDOWN:.0%} slower than in its fastest run"
)
"""Why a measurement on a disturbed host is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One pair on one card in one run; splits are compared within one of these only.

    Values are medians over repeats.

    Attributes:
        points: How many pair points it is made of.
        solo_source: Where the solo rates come from; the farther one of the two jobs'.
        exclusive: One after the other, from the solo points.
        splits: What was measured, by kind of split and by shares.
        repeats: The nine splits of each repeat by itself.
    """

    job_a: str
    job_b: str
    gpu_model: str
    gpu_uuid: str
    run: str
    points: int
    solo_source: SoloSource
    exclusive: SplitResult
    splits: Mapping[Kind, Results]
    repeats: tuple[Results, ...]

    @property
    def nine(self) -> Results:
        """10/90..90/10; of a job beside itself 10/90..50/50, the others being the same again."""
        return self.splits["nine"]

    @property
    def equal(self) -> SplitResult:
        """At 50/50."""
        return self.nine[EQUAL]

    @property
    def uncapped(self) -> SplitResult | None:
        """Under MPS without limits, if it was measured."""
        return next(iter(self.splits["uncapped"].values()), None)

    @property
    def time_sliced(self) -> SplitResult | None:
        """Without MPS, if it was measured."""
        return next(iter(self.splits["time-sliced"].values()), None)


@dataclass(frozen=True, slots=True)
class Pair:
    """All measurements of two jobs on one GPU model, the one with the most points first."""

    job_a: str
    job_b: str
    gpu_model: str
    measurements: tuple[Measurement, ...]

    @property
    def main(self) -> Measurement:
        """The measurement that stands for the pair; the others tell the noise."""
        return self.measurements[0]

    @property
    def beside_itself(self) -> bool:
        """Whether both jobs are the same one."""
        return self.job_a == self.job_b


@dataclass(frozen=True, slots=True, order=True)
class LeftOut:
    """Points that the analysis does not use, and why."""

    reason: str
    points: int


@dataclass(frozen=True, slots=True)
class _Reading:
    """A pair point with its jobs in the order of their names."""

    kind: Kind
    split: Split
    repeat: int
    rates: tuple[float, float]
    power_w: float


def kind_of(point: PairPoint) -> Kind:
    """What sort of split a point was measured at."""
    if point.mode == "time-sliced":
        return "time-sliced"
    shares = (point.share_a_percent, point.share_b_percent)
    if point.mode == "uncapped" or shares == (100, 100):
        return "uncapped"
    if sum(shares) == 100 and all(share % 10 == 0 for share in shares):
        return "nine"
    if point.units_total and (point.units_a or 0) + (point.units_b or 0) == point.units_total:
        return "grid"
    return "over-subscribed" if sum(shares) > 100 else "other"


def make_pairs(
    points: Iterable[PairPoint], solos: Iterable[SoloPoint]
) -> tuple[list[Pair], list[LeftOut]]:
    """The pairs that were measured well enough to be compared, by name, and what is left out."""
    left_out: Counter[str] = Counter()
    references: dict[str, list[SoloPoint]] = {}
    for solo in whole_gpu(solos):
        references.setdefault(solo.job, []).append(solo)
    pairs: dict[tuple[str, str, str], list[Measurement]] = {}
    for group in _groups(_readable(points, left_out)):
        made = _measurement(group, references)
        if isinstance(made, str):
            left_out[made] += len(group)
        else:
            pairs.setdefault((made.job_a, made.job_b, made.gpu_model), []).append(made)
    return (
        [Pair(*key, _fullest_first(found)) for key, found in sorted(pairs.items())],
        sorted(LeftOut(reason, count) for reason, count in left_out.items()),
    )


def is_full(splits: Iterable[Split], *, beside_itself: bool) -> bool:
    """Whether 50/50 and enough of the nine splits are there for their best to be an oracle."""
    present = set(splits)
    possible = 5 if beside_itself else 9
    return EQUAL in present and len(present) >= possible * (1 - LARGEST_GAP)


def split_text(split: Split) -> str:
    """Shares as people write them."""
    return f"{split[0]:g}/{split[1]:g}"


def _readable(points: Iterable[PairPoint], left_out: Counter[str]) -> Iterator[PairPoint]:
    for point in points:
        if point.rate_a is None or point.rate_b is None:
            left_out["no rates: a job of the pair failed"] += 1
        elif not point.power_w:
            left_out["no reading of power"] += 1
        else:
            yield point


def _groups(points: Iterable[PairPoint]) -> list[list[PairPoint]]:
    groups: dict[tuple[str, ...], list[PairPoint]] = {}
    for point in points:
        key = (*sorted(point.pair), point.gpu_model, point.gpu_uuid, point.run)
        groups.setdefault(key, []).append(point)
    return [group for _, group in sorted(groups.items())]


def _fullest_first(found: Iterable[Measurement]) -> tuple[Measurement, ...]:
    return tuple(sorted(found, key=lambda m: (-m.points, m.run, m.gpu_uuid)))


def _measurement(
    group: Sequence[PairPoint], references: Mapping[str, Sequence[SoloPoint]]
) -> Measurement | str:
    """The measurement that the points make, or why they make none."""
    point = group[0]
    job_a, job_b = sorted(point.pair)
    # What a replay runs is a record of the job, so its hash tells nothing of the job's definition.
    replayed = point.source == REPLAY_SOURCE
    hashes = {} if replayed else {point.job_a: point.job_a_hash, point.job_b: point.job_b_hash}
    solos: list[SoloReference] = []
    for job in (job_a, job_b):
        solo = solo_reference(
            references.get(job, ()), hashes.get(job), point.gpu_model, point.gpu_uuid, point.run
        )
        if solo is None:
            return f"no solo point of {job} on the whole {point.gpu_model}"
        if solo.slowdown > LARGEST_SLOWDOWN:
            return DISTURBED
        solos.append(solo)
    readings = [_reading(point) for point in group]
    nine = [reading.split for reading in readings if reading.kind == "nine"]
    if not is_full(nine, beside_itself=job_a == job_b):
        return "without 50/50, or with too few of the nine splits in one run"
    return _assembled(point, (job_a, job_b), readings, (solos[0], solos[1]))


def _assembled(
    point: PairPoint,
    jobs: tuple[str, str],
    readings: Sequence[_Reading],
    solos: tuple[SoloReference, SoloReference],
) -> Measurement:
    nine = [reading for reading in readings if reading.kind == "nine"]
    repeats = sorted({reading.repeat for reading in nine})
    return Measurement(
        job_a=jobs[0],
        job_b=jobs[1],
        gpu_model=point.gpu_model,
        gpu_uuid=point.gpu_uuid,
        run=point.run,
        points=len(readings),
        solo_source=max(solos, key=lambda solo: SOLO_SOURCES.index(solo.source)).source,
        exclusive=exclusive(
            solo_rate_a=solos[0].rate,
            solo_rate_b=solos[1].rate,
            solo_power_a_w=solos[0].power_w,
            solo_power_b_w=solos[1].power_w,
        ),
        splits={k: _medians([r for r in readings if r.kind == k], solos) for k in KINDS},
        repeats=tuple(_medians([r for r in nine if r.repeat == n], solos) for n in repeats),
    )


def _reading(point: PairPoint) -> _Reading:
    """The reading of a point; of a job beside itself, the smaller share comes first.

    A job at 90 % beside itself at 10 % is what it is at 10 % beside itself at 90 %.
    """
    shares, rates = _shares(point), (point.rate_a or 0.0, point.rate_b or 0.0)
    if (point.job_a, shares[0]) > (point.job_b, shares[1]):
        shares, rates = (shares[1], shares[0]), (rates[1], rates[0])
    return _Reading(kind_of(point), shares, point.repeat, rates, point.power_w or 0.0)


def _shares(point: PairPoint) -> Split:
    return point.share_a_percent, point.share_b_percent


def _medians(
    readings: Sequence[_Reading], solos: tuple[SoloReference, SoloReference]
) -> dict[Split, SplitResult]:
    """One result for each split: medians over its readings."""
    splits = sorted({reading.split for reading in readings})
    return {split: _median([r for r in readings if r.split == split], solos) for split in splits}


def _median(
    readings: Sequence[_Reading], solos: tuple[SoloReference, SoloReference]
) -> SplitResult:
    return SplitResult(
        rate_a=statistics.median(reading.rates[0] for reading in readings),
        rate_b=statistics.median(reading.rates[1] for reading in readings),
        solo_rate_a=solos[0].rate,
        solo_rate_b=solos[1].rate,
        solo_power_a_w=solos[0].power_w,
        solo_power_b_w=solos[1].power_w,
        power_w=statistics.median(reading.power_w for reading in readings),
    )
