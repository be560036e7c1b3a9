"""Pair points put together: what was measured of each pair, on which card and in which run.

The nine splits are 10/90..90/10 in steps of 10. Where libraries compute wrong results at some
counts of units, a campaign measures the nearest safe splits instead (advisor/validity); on H100 and
H200 these are 10/90, 11/90, 26/54, 47/54, 50/50 and their mirror images. They differ by GPU model
and by job, and some leave units idle, so they are recognised by what was measured and not by a
list: where a pair was measured in one run on one card at no more than nine splits that use about
the whole GPU, those are its nine. Where there are more, the nine are those in steps of 10, and the
others are a finer grid.
"""

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from advisor.core.gpu import WHOLE
from advisor.core.objectives import PartResult, SplitResult, exclusive
from advisor.core.records import OBSERVED_SOURCE, REPLAY_SOURCE, PairPoint, PointPart, SoloPoint
from advisor.core.split import EQUAL, Split
from advisor.predict.profiles import serving_of
from advisor.validity.points import FASTEST, LARGEST_SLOWDOWN

HIGH_PERCENT = 50.0
"""From here on an axis is high ("Energy-efficient GPU SM allocation", section 5.2)."""

MEMORY_COUNTERS = ("dram_active_percent", "memory_busy_percent")
"""The memory axis, in order of preference.

The paper's axis is memory bandwidth "usage" (table 1) or "utilization" (section 5.2). Its list of
metrics (section 3.1) has that next to a memory busy rate, so the time in which the memory interface
moves data comes first, and the time in which anything used the memory stands in for it.
"""


@dataclass(frozen=True, slots=True)
class SoloReference:
    """Rate and power of one job alone on the whole GPU.

    Attributes:
        slowdown: How much slower that is than in the job's fastest run, as a part of that.
    """

    rate: float
    power_w: float
    slowdown: float


Classes: TypeAlias = Mapping[tuple[str, str], str]
"""Of each (GPU model, job) how much of the GPU it uses alone: compute, then memory, each H (at
least 50 %) or L. Jobs that lack a counter are in no class."""


def whole_gpu(solos: Iterable[SoloPoint]) -> list[SoloPoint]:
    """The points that can be divided by: the whole GPU, with a rate and a power."""
    return [p for p in solos if p.share_percent == 100 and p.rate > 0 and (p.power_w or 0) > 0]


def references_by_job(solos: Iterable[SoloPoint]) -> dict[str, list[SoloPoint]]:
    """Those that can be divided by, by name of job."""
    found: dict[str, list[SoloPoint]] = {}
    for solo in whole_gpu(solos):
        found.setdefault(solo.job, []).append(solo)
    return found


def references_of(
    point: PairPoint, references: Mapping[str, Sequence[SoloPoint]]
) -> list[SoloReference | None]:
    """What each job of a point does alone; None where nobody measured it."""
    # What a replay runs is a record of the job, so its hash tells nothing of the job's definition.
    replayed = point.source == REPLAY_SOURCE
    return [
        solo_reference(
            references.get(part.job, ()),
            None if replayed else part.job_hash,
            point.gpu_model,
            point.gpu_uuid,
            point.run,
        )
        for part in point.parts
    ]


def solo_reference(
    solos: Iterable[SoloPoint], job_hash: str | None, gpu_model: str, gpu_uuid: str, run: str
) -> SoloReference | None:
    """Median rate and power over the solo points nearest to a pair; None where there are none.

    The nearest are those on the pair's card in its run, else on its card, else of its GPU model.
    They are of the job on the whole GPU; points of another definition of it are no reference.
    """
    fitting = [
        point
        for point in solos
        if point.gpu_model == gpu_model and job_hash in (None, point.job_hash or job_hash)
    ]
    on_card = [point for point in fitting if point.gpu_uuid == gpu_uuid]
    nearest = [point for point in on_card if point.run == run] or on_card or fitting
    if not nearest:
        return None
    rate = statistics.median(point.rate for point in nearest)
    power_w = statistics.median(p.power_w for p in nearest if p.power_w is not None)
    serving = serving_of(nearest)
    alone = serving.rate_alone(rate) if serving else rate
    return SoloReference(alone, power_w, 1 - rate / _fastest_run(fitting))


def job_classes(solos: Sequence[SoloPoint]) -> Classes:
    """The class of each (GPU model, job) from its points on the whole GPU, medians over all."""
    points: dict[tuple[str, str], list[SoloPoint]] = {}
    for point in solos:
        points.setdefault((point.gpu_model, point.job), []).append(point)
    return {key: code for key, found in points.items() if (code := _class(found))}


def _fastest_run(points: Iterable[SoloPoint]) -> float:
    """Highest of the median rates of each run on each card."""
    rates: dict[tuple[str, str], list[float]] = {}
    for point in points:
        rates.setdefault((point.run, point.gpu_uuid), []).append(point.rate)
    return max(map(statistics.median, rates.values()))


def _class(points: Sequence[SoloPoint]) -> str | None:
    compute = _median_of(points, "sm_active_percent")
    known = (_median_of(points, name) for name in MEMORY_COUNTERS)
    memory = next((percent for percent in known if percent is not None), None)
    if compute is None or memory is None:
        return None
    return "".join("H" if percent >= HIGH_PERCENT else "L" for percent in (compute, memory))


def _median_of(points: Sequence[SoloPoint], column: str) -> float | None:
    values: list[float] = [v for p in points if (v := getattr(p, column)) is not None]
    return statistics.median(values) if values else None


SplitKind = Literal["nine", "grid", "over-subscribed", "other", "uncapped", "time-sliced"]
"""nine: the nine splits of the pair, in steps of 10 or at safe counts. grid: exact counts of units
that add up to the whole GPU, next to the nine. over-subscribed: shares of more than the GPU, such
as 70/70. other: shares of less than it."""

KINDS: tuple[SplitKind, ...] = get_args(SplitKind)

LARGEST_GAP = 0.25
"""Part of the nine splits that may be missing, left out for a flag, before a pair is left out."""

LEAST_ON_A_SIDE = 2
"""Splits with the larger share for one job, and for the other. Any seven of the nine in steps of 10
have them; what flags leave of a finer grid around the best split may not."""

LEAST_USED = 0.75
"""Part of the units that a split of the nine uses at least. The safe counts nearest to 30/70 on an
H100, 34 and 70 SMs, use 79 % of them."""


def kinds_of(points: Sequence[PairPoint]) -> list[SplitKind]:
    """The kind of each point; those of one pair, card and run are looked at together."""
    groups: dict[tuple[str, ...], set[Split]] = {}
    for point in points:
        splits = groups.setdefault(measurement_of(point), set())
        if uses_the_gpu(point):
            splits.add(split_of(point))
    own = {
        key
        for key, splits in groups.items()
        for beside_itself in [key[0] == key[1]]
        if len(splits) <= how_many(beside_itself=beside_itself)
        if is_full(splits, beside_itself=beside_itself)
    }
    return [
        "nine"
        # A launch has one split, which was chosen among the nine of its GPU or by its user.
        if (measurement_of(point) in own or point.source == OBSERVED_SOURCE) and uses_the_gpu(point)
        else _by_itself(point)
        for point in points
    ]


def is_full(splits: Iterable[Split], *, beside_itself: bool) -> bool:
    """Whether 50/50 and enough of the nine splits are there for their best to be an oracle."""
    present = set(splits)
    shares = [split.shares for split in present]
    sides = sum(own < other for own, other in shares), sum(own > other for own, other in shares)
    return (
        EQUAL in present
        and len(present) >= how_many(beside_itself=beside_itself) * (1 - LARGEST_GAP)
        and (beside_itself or min(sides) >= LEAST_ON_A_SIDE)
    )


def how_many(*, beside_itself: bool) -> int:
    """How many splits the nine are: five of a job next to itself, where the others are the same."""
    return 5 if beside_itself else 9


def split_of(point: PairPoint) -> Split:
    """Shares in the order of the jobs' names; of a job next to itself, the smaller share first.

    A job at 90 % next to itself at 10 % is what it is at 10 % next to itself at 90 %.
    """
    shares = tuple(part.share_percent for part in _in_split_order(point))
    return Split(shares, _sharing(point))


def _in_split_order(point: PairPoint) -> list[PointPart]:
    """The parts in the order of `split_of`."""
    return sorted(point.parts, key=lambda part: (part.job, part.share_percent))


def measurement_of(point: PairPoint) -> tuple[str, ...]:
    """Which measurement a point is of: its jobs, GPU model, card and run."""
    return (*point.jobs, point.gpu_model, point.gpu_uuid, point.run)


def uses_the_gpu(point: PairPoint) -> bool:
    """Whether it is of two jobs with limits, and together about the whole GPU but not more."""
    if len(point.parts) > 2 or _by_itself(point) in ("uncapped", "time-sliced"):
        return False
    units, total = [part.units or 0 for part in point.parts], point.units_total
    used = sum(units) / total if total and all(units) else sum(point.shares_percent) / 100
    return LEAST_USED <= used <= 1


def _by_itself(point: PairPoint) -> SplitKind:
    """The kind of a point without a look at the others of its run."""
    if (sharing := _sharing(point)) != "limited":
        return sharing
    shares = point.shares_percent
    if sum(shares) == 100 and all(share % 10 == 0 for share in shares):
        return "nine"
    if point.units_total and sum(part.units or 0 for part in point.parts) == point.units_total:
        return "grid"
    return "over-subscribed" if sum(shares) > 100 else "other"


def _sharing(point: PairPoint) -> Literal["limited", "uncapped", "time-sliced"]:
    """How the jobs of a point shared the GPU; limits of 100 % each are none."""
    if point.mode == "time-sliced":
        return "time-sliced"
    whole = all(share == WHOLE for share in point.shares_percent)
    return "uncapped" if point.mode == "uncapped" or whole else "limited"


ResultsBySplit = Mapping[Split, SplitResult]

DISTURBED = (
    f"a job alone beside the pair ran over {LARGEST_SLOWDOWN:.0%} slower than in its fastest run, "
    "or than in the pair itself"
)
"""Why a measurement on a disturbed host is left out."""


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
        return not self.observed and is_full(self.nine, beside_itself=self.jobs[0] == self.jobs[1])

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
    groups: dict[tuple[str, ...], list[PairPoint]] = {}
    for point in _readable(points, left_out):
        groups.setdefault(measurement_of(point), []).append(point)
    for group in groups.values():
        made = _measurement(group, references)
        if isinstance(made, str):
            left_out[made] += len(group)
        elif full and not made.is_full:
            left_out[NOT_FULL] += len(group)
        else:
            pairs.setdefault((made.jobs, made.gpu_model), []).append(made)
    return (
        [
            MeasuredPair(
                jobs,
                gpu_model,
                tuple(sorted(found, key=lambda m: (-m.points, m.run, m.gpu_uuid))),
            )
            for (jobs, gpu_model), found in sorted(pairs.items())
        ],
        sorted(LeftOut(reason, count) for reason, count in left_out.items()),
    )


def _readable(points: Iterable[PairPoint], left_out: Counter[str]) -> Iterator[PairPoint]:
    for point in points:
        if len(point.parts) > 2:
            left_out["more than two jobs"] += 1
        elif any(part.rate is None for part in point.parts):
            left_out["no rates: a job of the pair failed"] += 1
        elif not point.power_w:
            left_out["no reading of power"] += 1
        else:
            yield point


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
    readings = [_reading(*each) for each in zip(group, kinds_of(group), strict=True)]
    nine = [reading for reading in readings if reading.kind == "nine"]
    repeats = sorted({reading.repeat for reading in nine})
    found = Measurement(
        jobs=(job_a, job_b),
        gpu_model=point.gpu_model,
        gpu_uuid=point.gpu_uuid,
        run=point.run,
        points=len(readings),
        exclusive=exclusive([(solo.rate, solo.power_w) for solo in solos]),
        splits={k: _medians([r for r in readings if r.kind == k], solos) for k in KINDS},
        repeats=tuple(_medians([r for r in nine if r.repeat == n], solos) for n in repeats),
        observed=point.source == OBSERVED_SOURCE,
    )
    shared = (split for kind in KINDS for split in found.splits[kind].values())
    fastest = max(speed for result in shared for speed in result.speeds)
    return DISTURBED if fastest > FASTEST else found


def _reading(point: PairPoint, kind: SplitKind) -> _Reading:
    """The reading of a point, with its rates in the order of its split."""
    first, second = _in_split_order(point)
    rates = (first.rate or 0.0, second.rate or 0.0)
    power_w = point.power_w or 0.0
    # What cannot be is no reading.
    memory_w = point.memory_power_w if 0 < (point.memory_power_w or 0.0) < power_w else None
    return _Reading(kind, split_of(point), point.repeat, rates, power_w, memory_w)


def _medians(
    readings: Sequence[_Reading], solos: Sequence[SoloReference]
) -> dict[Split, SplitResult]:
    """One result for each split: medians over its readings."""
    splits = sorted({reading.split for reading in readings})
    return {split: _median([r for r in readings if r.split == split], solos) for split in splits}


def _median(readings: Sequence[_Reading], solos: Sequence[SoloReference]) -> SplitResult:
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
