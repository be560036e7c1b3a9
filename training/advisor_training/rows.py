"""Measured pairs and profiles as the arrays that learners take.

Active idle power that was not measured is estimated from pairs below their power limit: two jobs
together draw both powers less what one GPU draws with jobs open and none at work. That is more than
it draws empty, since its clocks are up.

Points are put together first: what was measured of each pair, on which card and in which run. The
nine splits are 10/90..90/10 in steps of 10. Where libraries compute wrong results at some counts of
units, a campaign measures the nearest safe splits instead (advisor/validity); on H100 and H200
these are 10/90, 11/90, 26/54, 47/54, 50/50 and their mirror images. They differ by GPU model and by
job, and some leave units idle, so they are recognised by what was measured and not by a list: where
a pair was measured in one run on one card at no more than nine splits that use about the whole GPU,
those are its nine. Where there are more, the nine are those in steps of 10, and the others are a
finer grid.

They come from files, the store, launches, or the bundled ones. A launch has one split and no
repeats, on a GPU of its own, and without the care of a campaign. So it teaches only
where its results, its limits and its time together are beyond doubt.
"""

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, get_args

import numpy as np
import numpy.typing as npt

from advisor.core.gpu import EQUAL, WHOLE, Split
from advisor.core.objectives import PartResult, SplitResult
from advisor.core.records import (
    DOUBTFUL,
    OBSERVED_SOURCE,
    REPLAY_SOURCE,
    SETTLE_S,
    WRONG,
    Observation,
    ObservedPart,
    PairPoint,
    PointPart,
    Record,
    SoloPoint,
    grouped,
)
from advisor.core.telemetry import NEAR_LIMIT
from advisor.core.wording import count_of, listed
from advisor.errors import InputError
from advisor.formats.rows import flat as flat_row, flat_name, to_row
from advisor.predict.predictions import is_within
from advisor.predict.profiles import (
    ACTIVE_IDLE_ABOVE,
    Floats,
    Profile,
    active_idle_above_of,
    demanded_power_w,
    is_launch_bound,
    kind_of,
    make_profiles,
    of_job,
    of_pair,
    power_limit_w,
    serving_of,
    side,
    with_active_idle,
)
from advisor.settings import Settings
from advisor.validity.points import (
    FASTEST,
    LARGEST_SLOWDOWN,
    results_of_job,
    undisputed,
    with_pair_flags,
    with_solo_flags,
)
from advisor.validity.safe_counts import CheckedCounts, Safety
from advisor.wire.answers import frame
from advisor_data import is_begun, open_store
from advisor_data.bundled import (
    bundled_pair_points,
    bundled_reference_points,
    bundled_set_points,
    bundled_set_references,
    bundled_solo_points,
    checked_counts,
    select,
)
from advisor_data.files import read_points
from advisor_models.model_predictor import HEADS, Head, inputs_of
from advisor_models.registry import SPLIT, UNCAPPED

if TYPE_CHECKING:
    import pandas as pd

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


def whole_gpu(solos: Iterable[SoloPoint]) -> list[SoloPoint]:
    """The points that can be divided by: the whole GPU, with a rate and a power."""
    return [p for p in solos if p.share_percent == 100 and p.rate > 0 and (p.power_w or 0) > 0]


def _references_of(
    point: PairPoint, references: Mapping[str, Sequence[SoloPoint]]
) -> list[SoloReference | None]:
    """What each job of a point does alone; None if it was not measured."""
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
    runs = grouped(fitting, lambda point: (point.run, point.gpu_uuid)).values()
    fastest = max(statistics.median(point.rate for point in of_run) for of_run in runs)
    return SoloReference(serving.rate_alone(rate) if serving else rate, power_w, 1 - rate / fastest)


def job_classes(solos: Sequence[SoloPoint]) -> Mapping[tuple[str, str], str]:
    """The class of each (GPU model, job) from its points on the whole GPU, medians over all.

    How much of the GPU it uses alone: compute, then memory, each H (at least 50 %) or L. Jobs that
    lack a counter are in no class.
    """
    classes: dict[tuple[str, str], str] = {}
    for key, points in grouped(solos, lambda point: (point.gpu_model, point.job)).items():
        compute = _median_of(points, "sm_active_percent")
        medians = (_median_of(points, name) for name in MEMORY_COUNTERS)
        memory = next((percent for percent in medians if percent is not None), None)
        if compute is not None and memory is not None:
            of_axes = ("H" if percent >= HIGH_PERCENT else "L" for percent in (compute, memory))
            classes[key] = "".join(of_axes)
    return classes


def _median_of(points: Sequence[SoloPoint], column: str) -> float | None:
    values: list[float] = [v for p in points if (v := getattr(p, column)) is not None]
    return statistics.median(values) if values else None


# nine: the nine splits of the pair, in steps of 10 or at safe counts. grid: exact counts of units
# that add up to the whole GPU, next to the nine. over-subscribed: shares of more than the GPU, such
# as 70/70. other: shares of less than it.
_SplitKind = Literal["nine", "grid", "over-subscribed", "other", "uncapped", "time-sliced"]

KINDS: tuple[_SplitKind, ...] = get_args(_SplitKind)

# Part of the nine splits that may be missing, left out for a flag, before a pair is left out.
_LARGEST_GAP = 0.25

# Splits with the larger share for one job, and for the other. Any seven of the nine in steps of 10
# have them; what flags leave of a finer grid around the best split may not.
_LEAST_ON_A_SIDE = 2

# Part of the units that a split of the nine uses at least. The safe counts nearest to 30/70 on an
# H100, 34 and 70 SMs, use 79 % of them.
_LEAST_USED = 0.75


def kinds_of(points: Sequence[PairPoint]) -> list[_SplitKind]:
    """The kind of each point; those of one pair, card and run are looked at together."""
    limited = {
        key
        for key, splits in {
            key: {split_of(point) for point in of_measurement if uses_the_gpu(point)}
            for key, of_measurement in grouped(points, measurement_of).items()
        }.items()
        for beside_itself in [key[0] == key[1]]
        if len(splits) <= how_many(beside_itself=beside_itself)
        if is_full(splits, beside_itself=beside_itself)
    }
    return [
        "nine"
        # A launch has one split, which was chosen among the nine of its GPU or by its user.
        if (measurement_of(point) in limited or point.source == OBSERVED_SOURCE)
        and uses_the_gpu(point)
        else _by_itself(point)
        for point in points
    ]


def is_full(splits: Iterable[Split], *, beside_itself: bool) -> bool:
    """Whether 50/50 and enough of the nine splits are there for their best to be an oracle."""
    present = set(splits)
    shares = [split.shares for split in present]
    sides = (
        sum(first < other for first, other in shares),
        sum(first > other for first, other in shares),
    )
    return (
        EQUAL in present
        and len(present) >= how_many(beside_itself=beside_itself) * (1 - _LARGEST_GAP)
        and (beside_itself or min(sides) >= _LEAST_ON_A_SIDE)
    )


def how_many(*, beside_itself: bool) -> int:
    """How many splits the nine are: five of a job next to itself, where the others are the same."""
    return 5 if beside_itself else 9


def split_of(point: PairPoint) -> Split:
    """Shares in the order of the jobs' names; of a job next to itself, the smaller share first.

    A job at 90 % next to itself at 10 % is what it is at 10 % next to itself at 90 %.
    """
    return Split(tuple(part.share_percent for part in _in_split_order(point)), _sharing(point))


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
    return _LEAST_USED <= used <= 1


def _by_itself(point: PairPoint) -> _SplitKind:
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


# Why a measurement whose best split would be no oracle is left out.
_NOT_FULL = "without 50/50, or with too few of the nine splits in one run"


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
    splits: Mapping[_SplitKind, ResultsBySplit]
    repeats: tuple[ResultsBySplit, ...]
    observed: bool = False

    @property
    def pair(self) -> tuple[str, str, str]:
        """Both jobs, and the GPU model: several measurements can be of one pair."""
        return (*self.jobs, self.gpu_model)

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


BASELINES: Mapping[str, Callable[[Measurement], SplitResult | None]] = {
    "equal": lambda m: m.nine[EQUAL],
    "uncapped": lambda m: next(iter(m.splits["uncapped"].values()), None),
    "time-sliced": lambda m: next(iter(m.splits["time-sliced"].values()), None),
    "exclusive": lambda m: m.exclusive,
}
"""What a split is compared with, by name; None: it was not measured."""


@dataclass(frozen=True, slots=True, order=True)
class LeftOut:
    """Points that the analysis does not use, and why."""

    reason: str
    points: int


def make_measurements(
    points: Iterable[PairPoint], solos: Iterable[SoloPoint], *, full: bool = True
) -> tuple[list[Measurement], list[LeftOut]]:
    """Measurements by pair, those with most points first, and what is left out.

    Jobs alone on the whole GPU are the references. `full` leaves out measurements whose best split
    would be no oracle (`Measurement.is_full`); each of their splits can be learned from all the
    same.
    """
    left_out: Counter[str] = Counter()
    references = grouped(whole_gpu(solos), lambda solo: solo.job)
    measurements: list[Measurement] = []
    readable: list[PairPoint] = []
    for point in points:
        faults = {
            "more than two jobs": len(point.parts) > 2,
            "no rates: a job of the pair failed": any(part.rate is None for part in point.parts),
            "no reading of power": not point.power_w,
        }
        if fault := next((text for text, is_so in faults.items() if is_so), None):
            left_out[fault] += 1
        else:
            readable.append(point)
    for group in grouped(readable, measurement_of).values():
        if isinstance(made := _measurement(group, references), str):
            left_out[made] += len(group)
        elif full and not made.is_full:
            left_out[_NOT_FULL] += len(group)
        else:
            measurements.append(made)
    return (
        sorted(measurements, key=lambda m: (m.pair, -m.points, m.run, m.gpu_uuid)),
        sorted(LeftOut(reason, count) for reason, count in left_out.items()),
    )


def _measurement(
    group: Sequence[PairPoint], references: Mapping[str, Sequence[SoloPoint]]
) -> Measurement | str:
    """The measurement that the points make, or why they make none."""
    point = group[0]
    job_a, job_b = point.jobs
    solos: list[SoloReference] = []
    for job, solo in zip(point.jobs, _references_of(point, references), strict=True):
        if solo is None:
            return f"no solo point of {job} on the whole {point.gpu_model}"
        if solo.slowdown > LARGEST_SLOWDOWN:
            return DISTURBED
        solos.append(solo)
    kinds = kinds_of(group)
    of_kinds: dict[_SplitKind, list[PairPoint]] = {
        k: [point for point, kind in zip(group, kinds, strict=True) if kind == k] for k in KINDS
    }
    repeats = grouped(of_kinds["nine"], lambda each: each.repeat)
    measurement = Measurement(
        jobs=(job_a, job_b),
        gpu_model=point.gpu_model,
        gpu_uuid=point.gpu_uuid,
        run=point.run,
        points=len(group),
        exclusive=SplitResult.exclusive([(solo.rate, solo.power_w) for solo in solos]),
        splits={kind: _medians(of_kind, solos) for kind, of_kind in of_kinds.items()},
        repeats=tuple(_medians(of_repeat, solos) for _, of_repeat in sorted(repeats.items())),
        observed=point.source == OBSERVED_SOURCE,
    )
    fastest = max(
        speed
        for results in measurement.splits.values()
        for result in results.values()
        for speed in result.speeds
    )
    return DISTURBED if fastest > FASTEST else measurement


def _medians(
    points: Iterable[PairPoint], solos: Sequence[SoloReference]
) -> dict[Split, SplitResult]:
    splits = sorted(grouped(points, split_of).items())
    return {split: _median(of_split, solos) for split, of_split in splits}


def _median(points: Sequence[PairPoint], solos: Sequence[SoloReference]) -> SplitResult:
    rates = zip(*([part.rate or 0.0 for part in _in_split_order(p)] for p in points), strict=True)
    readings = [(point.power_w or 0.0, point.memory_power_w or 0.0) for point in points]
    # The memory alone cannot draw as much as the GPU: that is no reading.
    memory_w = [memory_w for power_w, memory_w in readings if 0 < memory_w < power_w]
    return SplitResult(
        parts=tuple(
            PartResult(statistics.median(of_job), solo.rate, solo.power_w)
            for of_job, solo in zip(rates, solos, strict=True)
        ),
        power_w=statistics.median(power_w for power_w, _ in readings),
        memory_power_w=statistics.median(memory_w) if memory_w else None,
    )


Names: TypeAlias = npt.NDArray[np.str_]
Mask: TypeAlias = npt.NDArray[np.bool_]
Numbers: TypeAlias = npt.NDArray[np.int64]

# Kinds of split that are learned from; nine: in steps of 10 or at safe counts.
_LEARNED_KINDS: tuple[_SplitKind, ...] = ("nine", "uncapped")

SOME = "some"
"""Kind of rows at those of the nine splits of a measurement that are too few for an oracle: they
are learned from, and neither choices nor errors are scored on them."""


def flat(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """All of the first part, then all of the second: (n, parts, ...) to (parts x n, ...)."""
    return np.concatenate(list(np.moveaxis(values, 1, 0)))


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Pairs at splits: columns of n rows, and what each head takes of them.

    A column is an attribute of shape (n,), such as `rows.speed_a`; what belongs to one of the two
    jobs ends in `_a` or `_b`. It is no data frame, which makes an evaluation 1.3 to 2 times slower.

    - `job_a`, `gpu_model`, `card` (UUID of the GPU), `run`.
    - `measurement`: number of the measurement; splits are compared within one. `pair`: number of
      the pair; several measurements can be of one pair.
    - `kind`: "nine", "some" or "uncapped".
    - `situation`: what the jobs are beside each other, after the place of the split
      (`advisor.predict.profiles`); `situation_a` is that of the first job.
    - `share_a`: percent.
    - `all_served_a`: relative speed from which on the first job counts as serving all of its
      demand: more it would do with more to do. Infinite for a job without a fixed demand.
    - `speed_a`: measured relative speed. `power_w`, `memory_power_w`: measured, W; the latter NaN
      where its sensor was not read.
    - `solo_rate_a`, `solo_power_a_w`: rate, 1/s, and power of the GPU, W, of the job alone on the
      whole GPU, same card and run; `profile_power_a_w`: that power in the job's profile.
    - `power_limit_w`: limit of the card, W; infinite where it is not known.
    - `weight`: what the row counts in training: 1 if measured or of a launch.

    `heads` has for each head the prior, in the unit of the head, and then the features of each
    part; a part is a job of the pair, or the pair. Shape (n, parts, 1 + features).
    """

    columns: Mapping[str, npt.NDArray[Any]]
    heads: Mapping[str, Floats]

    def __len__(self) -> int:
        return len(self.columns["power_w"])

    def __getattr__(self, column: str) -> npt.NDArray[Any]:
        if column not in self.columns:
            raise AttributeError(column)
        return self.columns[column]

    @property
    def jobs(self) -> list[str]:
        """Names of all jobs, sorted."""
        return sorted({*self.job_a.tolist(), *self.job_b.tolist()})

    def of(self, job: str) -> Mask:
        """Which rows have that job; shape (n,)."""
        return (self.job_a == job) | (self.job_b == job)

    def splits(self, which: Numbers) -> list[Split]:
        """Of some rows by their numbers."""
        columns = self.share_a[which], self.share_b[which], self.kind[which]
        return [
            Split((a, b), "uncapped" if kind == "uncapped" else "limited")
            for a, b, kind in zip(*(column.tolist() for column in columns), strict=True)
        ]

    def take(self, which: Mask | Numbers) -> "Rows":
        """Some of the rows: by a mask of shape (n,), or by their numbers in any order."""
        heads = {name: values[which] for name, values in self.heads.items()}
        return Rows({name: values[which] for name, values in self.columns.items()}, heads)

    def assign(self, **columns: npt.NDArray[Any]) -> "Rows":
        """The rows with other values in some columns."""
        return Rows({**self.columns, **columns}, self.heads)


def make_rows(
    measurements: Iterable[Measurement],
    profiles: Mapping[tuple[str, str], Profile],
    heads: Sequence[Head] = HEADS,
) -> Rows:
    """Rows of all measurements whose jobs have profiles at these shares, as these heads see them.

    Raises:
        InputError: there is none.
    """
    tables: list[dict[str, npt.NDArray[Any]]] = []
    blocks: dict[str, list[Floats]] = {head.name: [] for head in heads}
    numbers: dict[tuple[str, str, str], int] = {}
    for m in measurements:
        if not _is_profiled(m, profiles):
            continue
        a, b = (profiles[job, m.gpu_model] for job in m.jobs)
        shares = np.array([split.shares for _, split in _splits(m)]).T
        sides = side(a, shares[0]), side(b, shares[1])
        for head in heads:
            features, priors = inputs_of(head, sides)
            parts = zip(priors, np.split(features, len(priors)), strict=True)
            blocks[head.name].append(np.stack([*map(np.column_stack, parts)], axis=1))
        values = _columns(m, (a, b)) | {
            "measurement": len(tables),
            "pair": numbers.setdefault(m.pair, len(numbers)),
            "power_limit_w": power_limit_w(sides),
        }
        tables.append({n: np.broadcast_to(v, shares.shape[1]) for n, v in values.items()})
    if not tables:
        raise InputError(
            "no measured pair has profiles of both its jobs",
            fix="profile the jobs of the pairs: advisor profile JOB",
        )
    return Rows(
        {name: np.concatenate([table[name] for table in tables]) for name in tables[0]},
        {name: np.concatenate(of_head) for name, of_head in blocks.items()},
    )


def _is_profiled(m: Measurement, profiles: Mapping[tuple[str, str], Profile]) -> bool:
    """Whether its splits lie within the profiles of both jobs."""
    a, b = (profiles.get((job, m.gpu_model)) for job in m.jobs)
    return a is not None and b is not None and all(is_within(s, (a, b)) for _, s in _splits(m))


def _splits(m: Measurement) -> list[tuple[_SplitKind, Split]]:
    return [(kind, split) for kind in _LEARNED_KINDS for split in m.splits[kind]]


def _columns(m: Measurement, profiles: tuple[Profile, Profile]) -> dict[str, Any]:
    """Columns of one measurement by name; a scalar is the same in all of its rows."""
    splits = _splits(m)
    results = [m.splits[kind][split] for kind, split in splits]
    places = [UNCAPPED if kind == UNCAPPED else SPLIT for kind, _ in splits]
    kinds = [kind_of(profile) for profile in profiles]
    columns: dict[str, Any] = {
        "gpu_model": m.gpu_model,
        "card": m.gpu_uuid,
        "run": m.run,
        "kind": [kind if m.is_full or kind != "nine" else SOME for kind, _ in splits],
        "situation": [of_pair(kinds, place) for place in places],
        "power_w": [result.power_w for result in results],
        "memory_power_w": np.array([result.memory_power_w for result in results], np.float64),
        # A launch counts as much: of pairs that were launched once, the other splits are predicted
        # best so (rates by 0.56 points better than without launches, power by 0.22), and for jobs
        # that are new no weight makes a difference (docs/measurements/model.md).
        "weight": 1.0,
    }
    for n, (side_name, profile) in enumerate(zip("ab", profiles, strict=True)):
        shares = [split.shares[n] for _, split in splits]
        serving = profile.serving
        columns |= {
            f"job_{side_name}": m.jobs[n],
            f"situation_{side_name}": [
                of_job(kinds[n], (kinds[1 - n],), share, place)
                for share, place in zip(shares, places, strict=True)
            ],
            f"share_{side_name}": shares,
            f"all_served_{side_name}": (
                np.inf if serving is None or serving.offered_rate is None else 1 - serving.tolerance
            ),
            f"speed_{side_name}": [result.speeds[n] for result in results],
            f"solo_rate_{side_name}": [result.parts[n].solo_rate for result in results],
            f"solo_power_{side_name}_w": [result.parts[n].solo_power_w for result in results],
            f"profile_power_{side_name}_w": profile.whole_gpu_power_w,
        }
    return columns


UNPROFILED = "a job of the pair has no profile that reaches down to its share"
"""Why a measurement is not learned from."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Data:
    """Pairs whose jobs have profiles.

    Attributes:
        measurements: In the order of their numbers in the rows; also those with too few splits for
            an oracle (`Measurement.is_full`), which are learned from only.
        profiles: By (job, GPU model).
        active_idle_fill: Of profiles that lack active idle power, as the pairs tell it; they
            have it now.
    """

    rows: Rows
    measurements: tuple[Measurement, ...]
    profiles: Mapping[tuple[str, str], Profile]
    active_idle_fill: Mapping[str, float]
    left_out: tuple[LeftOut, ...]

    def profiles_of(self, measurement: Measurement) -> tuple[Profile, Profile]:
        """Of both jobs on the GPU model of the measurement, in its order."""
        (first, second), model = measurement.jobs, measurement.gpu_model
        return self.profiles[first, model], self.profiles[second, model]

    def with_launch_bound(self) -> Mask:
        """Which measurements have a launch-bound job; shape (measurements,)."""
        return np.array([any(map(is_launch_bound, self.profiles_of(m))) for m in self.measurements])

    def at_power_limit(self) -> Mask:
        """Which rows were held back by the power limit, as measured; shape (rows,)."""
        return self.rows.power_w >= NEAR_LIMIT * self.rows.power_limit_w


def make_data(
    points: Sequence[PairPoint],
    profiled: Sequence[SoloPoint],
    references: Sequence[SoloPoint] = (),
    left_out: Sequence[LeftOut] = (),
) -> Data:
    """Pairs, rows and profiles of points, which have been chosen by their flags already.

    `profiled` are jobs alone at all shares; `references` on the whole GPU in the runs of the pairs,
    if those are others. `left_out` is what was left out before, for the report.

    Raises:
        InputError: no pair was measured well enough, or none has profiles of both its jobs.
    """
    profiles = make_profiles(profiled)
    # Pairs of a job that has changed since are left without a reference.
    alone = [
        point
        for point in (*references, *profiled)
        if (profile := profiles.get((point.job, point.gpu_model))) is None
        or profile.is_of(point.job_hash)
    ]
    made, unused = make_measurements(points, alone, full=False)
    if not made:
        raise InputError(
            f"none of {count_of(len(points), 'pair point')} can be learned from",
            why="; ".join(f"{item.points}: {item.reason}" for item in (*left_out, *unused)),
            fix="measure pairs at the nine splits, and their jobs alone: advisor colocate",
        )
    measurements = tuple(m for m in made if _is_profiled(m, profiles))
    above_w = active_idle_fill(measurements, profiles)
    profiles = {key: with_active_idle(profile, above_w) for key, profile in profiles.items()}
    missing = sum(m.points for m in made) - sum(m.points for m in measurements)
    return Data(
        rows=make_rows(measurements, profiles),
        measurements=measurements,
        profiles=profiles,
        active_idle_fill=above_w,
        left_out=(*left_out, *unused, *([LeftOut(UNPROFILED, missing)] if missing else [])),
    )


def active_idle_fill(
    measurements: Sequence[Measurement], profiles: Mapping[tuple[str, str], Profile]
) -> dict[str, float]:
    """What to add to idle power, as `with_active_idle` takes it: of all, and of each GPU model.

    Cards of one model are alike in it, those of two are not: 58 W on H100, 30 W on H200
    (docs/measurements/model.md). A GPU model of which no pair tells has that of all.
    """
    of_models = {
        active_idle_above_of(model): active_idle_above_w(of_model, profiles)
        for model, of_model in sorted(grouped(measurements, lambda m: m.gpu_model).items())
    }
    return {
        ACTIVE_IDLE_ABOVE: active_idle_above_w(measurements, profiles),
        **{name: above_w for name, above_w in of_models.items() if above_w > 0},
    }


def active_idle_above_w(
    measurements: Iterable[Measurement], profiles: Mapping[tuple[str, str], Profile]
) -> float:
    """What to add to idle power, so that added powers are off by least below the limit, W.

    The weighted median of what they are too high by makes the mean of |expected / measured - 1|
    least. 0 where no pair was measured below its limit.
    """
    gaps_weights = [
        gap
        for m in measurements
        for gap in _gaps(m, *(profiles[job, m.gpu_model] for job in m.jobs))
    ]
    if not gaps_weights:
        return 0.0
    gaps, weights = np.array(sorted(gaps_weights)).T
    reached = np.cumsum(weights)
    return max(float(gaps[np.searchsorted(reached, reached[-1] / 2)]), 0.0)


def _gaps(m: Measurement, a: Profile, b: Profile) -> Iterator[tuple[float, float]]:
    """By how much added powers are too high at limited splits, W, each with its weight.

    Where they are above the limit it hides that.
    """
    splits = m.splits["nine"]
    sides = [side(p, [split.shares[n] for split in splits]) for n, p in enumerate((a, b))]
    limit_w = NEAR_LIMIT * power_limit_w(sides)
    for result, demanded_w in zip(splits.values(), demanded_power_w(sides).tolist(), strict=True):
        if max(result.power_w, demanded_w) < limit_w:  # NaN is not
            yield demanded_w - result.power_w, 1 / result.power_w


_Kind = TypeVar("_Kind", SoloPoint, PairPoint)


@dataclass(frozen=True, slots=True)
class PointsSource:
    """Where points came from, and how many, before any is left out."""

    name: str
    pair_points: int
    solo_points: int

    def __str__(self) -> str:
        counts = {"pair point": self.pair_points, "solo point": self.solo_points}
        return f"{listed(count_of(n, what) for what, n in counts.items() if n)} {self.name}"


MEASURED_HERE = "that were measured here"
BUNDLED = "that come with advisor"
OF_LAUNCHES = "of launches"


@dataclass(frozen=True, slots=True, kw_only=True)
class PointSet:
    """Points of all kinds.

    Attributes:
        pairs: Two jobs together.
        profiled: Jobs alone at all shares. Of points that passed every cross-check doubtful ones
            are here, too, since `make_profiles` takes them where a share has no others; none of
            which the results are wrong.
        references: Jobs alone on the whole GPU in the runs of the pairs, where those are others.
        left_out: What else there was, and why it is not here.
    """

    pairs: tuple[PairPoint, ...] = ()
    profiled: tuple[SoloPoint, ...] = ()
    references: tuple[SoloPoint, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    sources: tuple[PointsSource, ...] = ()

    def __iter__(self) -> Iterator[PairPoint | SoloPoint]:
        return iter((*self.pairs, *self.profiled, *self.references))

    def __or__(self, more: "PointSet") -> "PointSet":
        """The points of both, each once."""
        return PointSet(
            pairs=tuple(dict.fromkeys((*self.pairs, *more.pairs))),
            profiled=tuple(dict.fromkeys((*self.profiled, *more.profiled))),
            references=tuple(dict.fromkeys((*self.references, *more.references))),
            left_out=(*self.left_out, *more.left_out),
        )

    def where(self, wanted: Callable[[PairPoint | SoloPoint], bool]) -> "PointSet":
        """Those points of each kind that are wanted."""
        return PointSet(
            pairs=tuple(filter(wanted, self.pairs)),
            profiled=tuple(filter(wanted, self.profiled)),
            references=tuple(filter(wanted, self.references)),
        )

    @property
    def ids(self) -> frozenset[str]:
        """`point_id` of every point of all kinds."""
        return frozenset(point.point_id for point in self)


def read_local(settings: Settings, *, with_bundled: bool = False) -> PointSet | None:
    """The checked points of this host's store; None where it has no pairs.

    Jobs that have no profile of their own get the bundled one of that GPU model.

    Raises:
        StoreError: the store cannot be read.
    """
    if not is_begun(settings.database_url, settings.home):
        return None
    with open_store(settings.database_url, settings.home) as store:
        pairs, solos = store.pair_points(), store.solo_points()
    if not pairs:
        return None
    source = PointsSource(MEASURED_HERE, len(pairs), len(solos))
    if with_bundled:
        return with_all_bundled(pairs, solos, source)
    borrowed = profiles_that_lack(pairs, solos, bundled_solo_points())
    sources = (source, PointsSource(BUNDLED, 0, len(borrowed))) if borrowed else (source,)
    return _checked(pairs, [*solos, *borrowed], (), sources)


def read_measured(pairs: Path | None, solo: Path | None, *, with_bundled: bool = False) -> PointSet:
    """Checked pair and solo points of files; of those not given, the bundled ones.

    Raises:
        InputError: a file cannot be read, or has points of the other kind.
    """
    of_pairs = _read_kind(pairs, PairPoint) if pairs else []
    of_jobs = _read_kind(solo, SoloPoint) if solo else []
    files = " and ".join(str(file) for file in (pairs, solo) if file)
    source = PointsSource(f"of {files}", len(of_pairs), len(of_jobs))
    if with_bundled or not (pairs or solo):
        return with_all_bundled(of_pairs, of_jobs, source)
    if pairs and solo:
        return _checked(of_pairs, of_jobs, (), (source,))
    more_pairs = [] if pairs else bundled_pair_points()
    more_jobs = [] if solo else bundled_solo_points()
    return _checked(
        [*of_pairs, *more_pairs],
        [*of_jobs, *more_jobs],
        () if solo else bundled_reference_points(),
        (source, PointsSource(BUNDLED, len(more_pairs), len(more_jobs))),
    )


def with_launches(measured: PointSet, settings: Settings) -> PointSet:
    """The same points, and those that launches in this host's store make, where there are any.

    Raises:
        StoreError: the store or a check of counts cannot be read.
    """
    if not is_begun(settings.database_url, settings.home):
        return measured
    with open_store(settings.database_url, settings.home) as store:
        observations = store.observations()
    if not observations:
        return measured
    borrowed = profiles_that_lack(observations, measured.profiled, bundled_solo_points())
    profiled = (*measured.profiled, *with_right_results(with_solo_flags(borrowed)))
    if not (taught := taught_here(observations, profiled, settings.home)).pairs:
        return replace(measured, left_out=(*measured.left_out, *taught.left_out))
    of_launches = _checked(taught.pairs, profiled, taught.references, ())
    counts = PointsSource(OF_LAUNCHES, len(taught.pairs), len(taught.references))
    return PointSet(
        pairs=(*measured.pairs, *of_launches.pairs),
        profiled=profiled,
        references=(*measured.references, *of_launches.references),
        left_out=(*measured.left_out, *taught.left_out, *of_launches.left_out),
        sources=(*measured.sources, counts),
    )


def with_all_bundled(
    pairs: Sequence[PairPoint], solos: Sequence[SoloPoint], source: PointsSource
) -> PointSet:
    """These points and all bundled ones, each once."""
    more_pairs, more_solos = bundled_pair_points(), bundled_solo_points()
    bundled = PointsSource(BUNDLED, len(more_pairs), len(more_solos))
    return _checked(
        list(dict.fromkeys([*pairs, *more_pairs])),
        list(dict.fromkeys([*solos, *more_solos])),
        bundled_reference_points(),
        (source, bundled) if pairs or solos else (bundled,),
    )


def _checked(
    pairs: Sequence[PairPoint],
    profiled: Sequence[SoloPoint],
    references: Sequence[SoloPoint],
    sources: tuple[PointsSource, ...],
) -> PointSet:
    solos, together = with_solo_flags(undisputed(profiled)), undisputed(pairs)
    disputed = len(profiled) - len(solos) + len(pairs) - len(together)
    usable, flagged = select(with_pair_flags(together, solos))
    return PointSet(
        pairs=tuple(usable),
        profiled=with_right_results(solos),
        references=with_right_results(references),
        left_out=(
            *([LeftOut("unlike copies of a window", disputed)] if disputed else ()),
            *(
                LeftOut(f"pair points flagged {flag}", count)
                for flag, count in sorted(flagged.items())
            ),
        ),
        sources=sources,
    )


def with_right_results(points: Iterable[SoloPoint]) -> tuple[SoloPoint, ...]:
    """Points without wrong results."""
    return tuple(point for point in points if WRONG.isdisjoint(point.flags))


def _read_kind(path: Path, kind: type[_Kind]) -> list[_Kind]:
    """The points of a file.

    Raises:
        InputError: it cannot be read, or has points of the other kind.
    """
    points = read_points(path)
    of_kind = [point for point in points if isinstance(point, kind)]
    if len(of_kind) < len(points):
        raise InputError(
            f"{path} has solo points where pair points are wanted, or the other way round",
            fix="give pair points with --pairs and solo points with --solo",
        )
    return of_kind


LEAST_S = 5.0
"""Shortest time that a mean of a launch teaches: as long as a window of the bundled pairs that
went on until its time was up (5.1 s), and so with no larger error. Of the time together the first
seconds (`SETTLE_S`) are in no mean, so jobs must have run together for 8 s."""

_LIMITED = ("mps", "cu_mask")


def teach(
    observations: Iterable[Observation],
    solo_points: Iterable[SoloPoint],
    checks: Mapping[str, CheckedCounts] | None = None,
) -> PointSet:
    """A pair point of each launch that teaches, and references of those that went on alone.

    The same launch given twice teaches once. The `source` of a point says that it is of a launch.

    What a job reported alone at a count goes before the checks of its GPU model, and a job that is
    not the one that was profiled teaches nothing.
    """
    in_time = sorted(solo_points, key=lambda point: point.started_at)
    solos = grouped(in_time, lambda point: (point.job, point.gpu_model))
    left_out: Counter[str] = Counter()
    taught: list[Observation] = []
    for given in {observation.point_id: observation for observation in observations}.values():
        check = (checks or {}).get(given.gpu_model)
        # Older versions did not keep the units of a GPU.
        observation = replace(given, units_total=given.units_total or (check and check.units_total))
        alone = [
            (part, solos.get((part.job, observation.gpu_model), ())) for part in observation.parts
        ]
        if reason := _fault(observation, alone, check):
            left_out[reason] += 1
        else:
            taught.append(observation)
    return PointSet(
        pairs=tuple(map(_point, taught)),
        references=tuple(point for observation in taught for point in _references(observation)),
        left_out=tuple(sorted(LeftOut(reason, count) for reason, count in left_out.items())),
    )


def taught_here(
    observations: Sequence[Observation], alone: Sequence[SoloPoint], home: Path
) -> PointSet:
    """What launches teach at the site that keeps its checks of counts in `home`.

    Raises:
        StoreError: a check of counts cannot be read.
    """
    checks = {model: checked_counts(home, model) for model in {o.gpu_model for o in observations}}
    return teach(observations, alone, {model: check for model, check in checks.items() if check})


def profiles_that_lack(
    pairs: Iterable[PairPoint | Observation],
    alone: Iterable[SoloPoint],
    others: Iterable[SoloPoint],
) -> list[SoloPoint]:
    """Those of other points, of the pairs' jobs, that make no profile of their own."""
    wanted = {(job, point.gpu_model) for point in pairs for job in point.jobs}
    lacking = wanted - make_profiles(alone).keys()
    return [point for point in others if (point.job, point.gpu_model) in lacking]


def _fault(
    observation: Observation,
    alone: Sequence[tuple[ObservedPart, Sequence[SoloPoint]]],
    check: CheckedCounts | None,
) -> str | None:
    """Why a launch whose jobs have these points alone teaches nothing; None where it does."""
    parts, is_limited, flags = (
        observation.parts,
        observation.mode in _LIMITED,
        DOUBTFUL.intersection(observation.flags),
    )
    faults = {
        "launches of more than two jobs": len(parts) > 2,
        f"launches flagged {', '.join(sorted(flags))}": bool(flags),
        "launches whose results were wrong": any(p.results in ("wrong", "differ") for p in parts),
        "launches that failed": observation.state == "failed",
        "launches without a rate or the power": not (
            observation.power_w and all(p.rate for p in parts)
        ),
        "launches with a job below normal priority": any(p.below_normal for p in parts),
        f"launches together for less than {SETTLE_S + LEAST_S:g} s": _settled_s(observation)
        < LEAST_S,
        "launches whose limits were not read back": is_limited and not all(p.units for p in parts),
    }
    if fault := next((text for text, is_so in faults.items() if is_so), None):
        return fault
    # Only of a launch without these faults can a point be made.
    is_used = observation.mode == "uncapped" or (is_limited and uses_the_gpu(_point(observation)))
    faults = {
        "launches time-sliced, over-subscribed, or on too little of the GPU": not is_used,
        "launches of a job that is not the one that was profiled": any(
            _has_changed(*of_part) for of_part in alone
        ),
        "launches at a count that is not safe, whose results were not read": any(
            _is_unread(part, observation, its, check) for part, its in alone
        ),
    }
    return next((text for text, is_so in faults.items() if is_so), None)


def _settled_s(observation: Observation) -> float:
    # Older versions did not keep it.
    return (
        observation.overlap_s - SETTLE_S if observation.settled_s is None else observation.settled_s
    )


def _has_changed(part: ObservedPart, alone: Iterable[SoloPoint]) -> bool:
    """Whether it is another job than its newest points alone are of."""
    hashes = [point.job_hash for point in alone if point.job_hash]
    return bool(hashes) and part.job_hash not in (None, hashes[-1])


def _is_unread(
    part: ObservedPart,
    observation: Observation,
    alone: Iterable[SoloPoint],
    check: CheckedCounts | None,
) -> bool:
    """Whether results that may be wrong at its count of units were not read."""
    if part.results == "right" or observation.mode not in _LIMITED or part.units is None:
        return False
    right, wrong = results_of_job(alone)
    total = check.units_total if check else observation.units_total or part.units
    return part.units in Safety(units_total=total, host=check, right=right, wrong=wrong).unsafe


def _origin(observation: Observation) -> dict[str, Any]:
    same = {
        name: getattr(observation, name)
        for name in (
            *("gpu_model", "gpu_uuid", "units_total", "mode", "power_limit_w", "started_at"),
            *("driver", "host", "tool_version", "written_by"),
        )
    }
    # Of the card: the same pair at the same split is one row, however often it is launched.
    return {**same, "run": f"launches on {observation.gpu_uuid}", "source": OBSERVED_SOURCE}


def _point(observation: Observation) -> PairPoint:
    return PairPoint(
        parts=tuple(
            PointPart(
                job=part.job,
                share_percent=part.share_percent,
                units=part.units,
                rate=part.rate,
                rate_unit=part.rate_unit,
                job_hash=part.job_hash,
                results=part.results,
            )
            for part in observation.parts
        ),
        power_w=observation.power_w,
        window_s=_settled_s(observation),
        flags=observation.flags,
        **_origin(observation),
    )


def _references(observation: Observation) -> Iterable[SoloPoint]:
    """The job that went on, where nothing limited it."""
    rest_s, rest_j = observation.rest_s or 0.0, observation.rest_energy_j
    left = [part for part in observation.parts if not part.ended_first]
    if (
        observation.mode != "uncapped"
        or len(left) != 1
        or rest_s < SETTLE_S + LEAST_S
        or not rest_j
    ):
        return
    (part,) = left
    if part.rest_rate:
        yield SoloPoint(
            job=part.job,
            share_percent=WHOLE,
            units_granted=observation.units_total,
            rate=part.rest_rate,
            rate_unit=part.rate_unit,
            job_hash=part.job_hash,
            results=part.results,
            power_w=rest_j / rest_s,
            window_s=rest_s,
            **_origin(observation),
        )


_NAMED: Mapping[str, Callable[[], Sequence[Record]]] = {
    "pairs": bundled_pair_points,
    "sets": bundled_set_points,
    "solo": bundled_solo_points,
    "references": bundled_reference_points,
}


def load_dataset(
    which: str | Path = "pairs", *, solo: str | Path | None = None, relative: bool = True
) -> "pd.DataFrame":
    """Measured points, one a row, with the flat columns of docs/schema.md.

    They are those that come with the package, `pairs`, `sets`, `solo` or `references`, or those of
    a .parquet, .csv or .jsonl file. What belongs to one of several jobs has its number: `job_1`,
    `share_1_percent`, `rate_1`. Flags are joined by ";"; a reading that was not available is
    missing (NaN or None).

    Args:
        which: Name or file.
        solo: A file with the jobs alone, for points of jobs together; else those of the package.
        relative: Whether points of jobs together have in further columns what each does alone on
            the whole GPU (`solo_rate_1`, `solo_power_1_w`), its relative speed (`speed_1`), and
            `energy_saved`. The nearest points alone count: of the same card and run, else of the
            card, else of the GPU model. Without these columns a frame can be written and imported.

    Raises:
        InputError: pandas is not installed, or the file cannot be read.
        StoreError: the installation lacks the file.
    """
    if isinstance(which, str) and which not in _NAMED and not Path(which).suffix:
        raise InputError(f"no data set {which}", fix=f"{', '.join(_NAMED)}, or a file of points")
    points = _NAMED[str(which)]() if str(which) in _NAMED else read_points(Path(which))
    are_together = relative and any(isinstance(point, PairPoint) for point in points)
    solos = grouped(whole_gpu(_alone_of(solo)), lambda point: point.job) if are_together else None
    return frame(_frame_row(point, solos) for point in points)


def _alone_of(file: str | Path | None) -> list[SoloPoint]:
    if file:
        return [point for point in read_points(Path(file)) if isinstance(point, SoloPoint)]
    return [*bundled_reference_points(), *bundled_solo_points(), *bundled_set_references()]


def _frame_row(point: Record, solos: Mapping[str, Sequence[SoloPoint]] | None) -> dict[str, Any]:
    row = {**flat_row(to_row(point)), "flags": ";".join(point.flags)}
    if solos is None or not isinstance(point, PairPoint):
        return row
    return row | dict(_relative(point, solos))


def _relative(
    point: PairPoint, solos: Mapping[str, Sequence[SoloPoint]]
) -> Iterator[tuple[str, Any]]:
    references = _references_of(point, solos)
    results = [
        PartResult(part.rate, solo.rate, solo.power_w) if solo and part.rate is not None else None
        for part, solo in zip(point.parts, references, strict=True)
    ]
    for number, (result, solo) in enumerate(zip(results, references, strict=True), start=1):
        yield flat_name("solo_rate", number), solo and solo.rate
        yield flat_name("solo_power_w", number), solo and solo.power_w
        yield flat_name("speed", number), result and result.speed
    known, power_w = tuple(filter(None, results)), point.power_w
    shared = SplitResult(known, power_w) if power_w and len(known) == len(results) else None
    yield "energy_saved", shared and shared.energy_saved
