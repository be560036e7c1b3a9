"""Measured pairs and profiles as the arrays that learners take.

Active idle power that was not measured is estimated from pairs below their power limit: two jobs
together draw both powers less what one GPU draws with jobs open and none at work. That is more than
it draws empty, since its clocks are up.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from advisor.core.records import PairPoint, SoloPoint
from advisor.core.split import Split
from advisor.core.telemetry import NEAR_LIMIT
from advisor.core.wording import count_of
from advisor.errors import InputError
from advisor.predict.features import Float32s, Side, demanded_power_w, power_limit_w, side
from advisor.predict.predictions import is_within
from advisor.predict.profiles import (
    ACTIVE_IDLE_ABOVE,
    Floats,
    Profile,
    active_idle_above_of,
    is_launch_bound,
    kind_of,
    make_profiles,
    of_job,
    of_pair,
    with_active_idle,
)
from advisor_models.heads import HEADS, Head, inputs_of
from advisor_models.intervals import SPLIT, UNCAPPED
from advisor_training.pairs import LeftOut, MeasuredPair, Measurement, SplitKind, make_pairs

Names = npt.NDArray[np.str_]

KINDS: tuple[SplitKind, ...] = ("nine", "uncapped")
"""Kinds of split that are learned from; nine: in steps of 10 or at safe counts."""

SOME = "some"
"""Kind of rows at those of the nine splits of a measurement that are too few for an oracle: they
are learned from, and neither choices nor errors are scored on them."""


OBSERVED_WEIGHT = 1.0
"""What a launch counts in training, against a measured split.

As much: of pairs that were launched once, the other splits are predicted best so (rates by 0.56
points better than without launches, power by 0.22), and for jobs that are new no weight makes a
difference. docs/measurements/model.md has the figures.
"""


@dataclass(frozen=True, slots=True, eq=False)
class HeadRows:
    """What a head takes of n rows; a part is a job of the pair, or the pair.

    Attributes:
        features: Shape (n, parts, features).
        prior: Shape (n, parts), in the unit of the head.
    """

    features: Float32s
    prior: Floats

    def take(self, which: npt.NDArray[np.bool_] | npt.NDArray[np.int64]) -> "HeadRows":
        """Some of the rows: by a mask of shape (n,), or by their numbers in any order."""
        return HeadRows(self.features[which], self.prior[which])


def _head_rows(head: Head, sides: Sequence[Side]) -> HeadRows:
    """What a head takes of jobs at their shares, one row for each."""
    found = inputs_of(head, sides)
    parts = np.split(found.features, len(found.priors))
    return HeadRows(np.stack(parts, axis=1), np.stack(found.priors, axis=1))


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
    - `weight`: what the row counts in training: 1 if measured, `OBSERVED_WEIGHT` if of a launch.
    """

    columns: Mapping[str, npt.NDArray[Any]]
    heads: Mapping[str, HeadRows]

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

    def of(self, job: str) -> npt.NDArray[np.bool_]:
        """Which rows have that job; shape (n,)."""
        return (self.job_a == job) | (self.job_b == job)

    def splits(self, which: npt.NDArray[np.int64]) -> list[Split]:
        """Of some rows by their numbers."""
        columns = self.share_a[which], self.share_b[which], self.kind[which]
        return [
            Split((a, b), "uncapped" if kind == "uncapped" else "limited")
            for a, b, kind in zip(*(column.tolist() for column in columns), strict=True)
        ]

    def take(self, which: npt.NDArray[np.bool_] | npt.NDArray[np.int64]) -> "Rows":
        """Some of the rows: by a mask of shape (n,), or by their numbers in any order."""
        heads = {name: seen.take(which) for name, seen in self.heads.items()}
        return Rows({name: values[which] for name, values in self.columns.items()}, heads)

    def assign(self, **columns: npt.NDArray[Any]) -> "Rows":
        """The rows with other values in some columns."""
        return Rows({**self.columns, **columns}, self.heads)


def make_rows(
    pairs: Iterable[MeasuredPair],
    profiles: Mapping[tuple[str, str], Profile],
    heads: Sequence[Head] = HEADS,
) -> Rows:
    """Rows of all measurements whose jobs have profiles at these shares, as these heads see them.

    Raises:
        InputError: there is none.
    """
    tables: list[dict[str, npt.NDArray[Any]]] = []
    blocks: dict[str, list[HeadRows]] = {head.name: [] for head in heads}
    for number, pair in enumerate(with_profiles(pairs, profiles)):
        a, b = (profiles[job, pair.gpu_model] for job in pair.jobs)
        for m in pair.measurements:
            shares = np.array([split.shares for _, split in _splits(m)]).T
            sides = side(a, shares[0]), side(b, shares[1])
            for head in heads:
                blocks[head.name].append(_head_rows(head, sides))
            values = _columns(m, (a, b)) | {
                "measurement": len(tables),
                "pair": number,
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
        {
            name: HeadRows(
                np.concatenate([block.features for block in found]),
                np.concatenate([block.prior for block in found]),
            )
            for name, found in blocks.items()
        },
    )


def with_profiles(
    pairs: Iterable[MeasuredPair], profiles: Mapping[tuple[str, str], Profile]
) -> Iterator[MeasuredPair]:
    """The pairs with those measurements only whose splits lie within the profiles of both jobs."""
    for pair in pairs:
        a, b = (profiles.get((job, pair.gpu_model)) for job in pair.jobs)
        if a is None or b is None:
            continue
        within = tuple(
            m for m in pair.measurements if all(is_within(split, (a, b)) for _, split in _splits(m))
        )
        if within:
            yield replace(pair, measurements=within)


def _splits(m: Measurement) -> list[tuple[SplitKind, Split]]:
    return [(kind, split) for kind in KINDS for split in m.splits[kind]]


def _columns(m: Measurement, profiles: tuple[Profile, Profile]) -> dict[str, Any]:
    """Columns of one measurement by name; a scalar is the same in all of its rows."""
    splits = _splits(m)
    results = [m.splits[kind][split] for kind, split in splits]
    places = [UNCAPPED if kind == UNCAPPED else SPLIT for kind, _ in splits]
    kinds = [kind_of(profile) for profile in profiles]
    found: dict[str, Any] = {
        "gpu_model": m.gpu_model,
        "card": m.gpu_uuid,
        "run": m.run,
        "kind": [kind if m.is_full or kind != "nine" else SOME for kind, _ in splits],
        "situation": [of_pair(kinds, place) for place in places],
        "power_w": [result.power_w for result in results],
        "memory_power_w": np.array([result.memory_power_w for result in results], np.float64),
        "weight": OBSERVED_WEIGHT if m.observed else 1.0,
    }
    for n, (side_name, profile) in enumerate(zip("ab", profiles, strict=True)):
        shares = [split.shares[n] for _, split in splits]
        found |= {
            f"job_{side_name}": m.jobs[n],
            f"situation_{side_name}": [
                of_job(kinds[n], (kinds[1 - n],), share, place)
                for share, place in zip(shares, places, strict=True)
            ],
            f"share_{side_name}": shares,
            f"all_served_{side_name}": _all_served(profile),
            f"speed_{side_name}": [result.speeds[n] for result in results],
            f"solo_rate_{side_name}": [result.parts[n].solo_rate for result in results],
            f"solo_power_{side_name}_w": [result.parts[n].solo_power_w for result in results],
            f"profile_power_{side_name}_w": profile.whole_gpu_power_w,
        }
    return found


def _all_served(profile: Profile) -> float:
    serving = profile.serving
    if serving is None or serving.offered_rate is None:
        return np.inf
    return 1 - serving.tolerance


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

    pairs: tuple[MeasuredPair, ...]
    rows: Rows
    measurements: tuple[Measurement, ...]
    profiles: Mapping[tuple[str, str], Profile]
    active_idle_fill: Mapping[str, float]
    left_out: tuple[LeftOut, ...]

    def profiles_of(self, measurement: Measurement) -> tuple[Profile, Profile]:
        """Of both jobs on the GPU model of the measurement, in its order."""
        model = measurement.gpu_model
        first, second = measurement.jobs
        return self.profiles[first, model], self.profiles[second, model]

    def with_launch_bound(self) -> npt.NDArray[np.bool_]:
        """Which measurements have a launch-bound job; shape (measurements,)."""
        return np.array([any(map(is_launch_bound, self.profiles_of(m))) for m in self.measurements])

    def at_power_limit(self) -> npt.NDArray[np.bool_]:
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
    found, unused = make_pairs(points, [*references, *profiled], full=False)
    if not found:
        raise InputError(
            f"none of {count_of(len(points), 'pair point')} can be learned from",
            why="; ".join(f"{item.points}: {item.reason}" for item in (*left_out, *unused)),
            fix="measure pairs at the nine splits, and their jobs alone: advisor colocate",
        )
    profiles = make_profiles(profiled)
    pairs = tuple(with_profiles(found, profiles))
    above_w = active_idle_fill(pairs, profiles)
    profiles = {key: with_active_idle(profile, above_w) for key, profile in profiles.items()}
    rows = make_rows(pairs, profiles)
    missing = _points(found) - _points(pairs)
    without = [LeftOut(UNPROFILED, missing)] if missing else []
    return Data(
        pairs=pairs,
        rows=rows,
        measurements=tuple(m for pair in pairs for m in pair.measurements),
        profiles=profiles,
        active_idle_fill=above_w,
        left_out=(*left_out, *unused, *without),
    )


def _points(pairs: Iterable[MeasuredPair]) -> int:
    return sum(m.points for pair in pairs for m in pair.measurements)


def active_idle_fill(
    pairs: Sequence[MeasuredPair], profiles: Mapping[tuple[str, str], Profile]
) -> dict[str, float]:
    """What to add to idle power, as `with_active_idle` takes it: of all, and of each GPU model.

    Cards of one model are alike in it, those of two are not: 58 W on H100, 30 W on H200
    (docs/measurements/model.md). A GPU model of which no pair tells has that of all.
    """
    models = sorted({pair.gpu_model for pair in pairs})
    of_models = {
        active_idle_above_of(model): active_idle_above_w(
            [pair for pair in pairs if pair.gpu_model == model], profiles
        )
        for model in models
    }
    known = {name: above_w for name, above_w in of_models.items() if above_w > 0}
    return {ACTIVE_IDLE_ABOVE: active_idle_above_w(pairs, profiles)} | known


def active_idle_above_w(
    pairs: Iterable[MeasuredPair], profiles: Mapping[tuple[str, str], Profile]
) -> float:
    """What to add to idle power, so that added powers are off by least below the limit, W.

    The weighted median of what they are too high by makes the mean of |expected / measured - 1|
    least. 0 where no pair was measured below its limit.
    """
    found = [
        gap
        for pair in pairs
        for m in pair.measurements
        for gap in _gaps(m, *(profiles[job, pair.gpu_model] for job in pair.jobs))
    ]
    if not found:
        return 0.0
    gaps, weights = np.array(sorted(found)).T
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
