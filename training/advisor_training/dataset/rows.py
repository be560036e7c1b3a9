"""Measured pairs and profiles as the arrays that learners take."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from advisor.core.split import Split
from advisor.errors import InputError
from advisor.predict.features import Float32s, Side, power_limit_w, side
from advisor.predict.predictions import is_within
from advisor.predict.profiles import Floats, Profile, kind_of, of_job, of_pair
from advisor_models.heads import HEADS, Head, inputs_of
from advisor_models.intervals import SPLIT, UNCAPPED
from advisor_training.dataset.pairs import MeasuredPair, Measurement
from advisor_training.dataset.split_kinds import SplitKind

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

    @staticmethod
    def joined(blocks: "Sequence[HeadRows]") -> "HeadRows":
        """The rows of all blocks of one head, one block behind the other."""
        return HeadRows(
            np.concatenate([block.features for block in blocks]),
            np.concatenate([block.prior for block in blocks]),
        )


def _head_rows(head: Head, sides: Sequence[Side]) -> HeadRows:
    """What a head takes of jobs at their shares, one row for each."""
    found = inputs_of(head, sides)
    parts = np.split(found.features, len(found.priors))
    return HeadRows(np.stack(parts, axis=1), np.stack(found.priors, axis=1))


def flat(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """All of the first part, then all of the second: (n, parts, ...) to (parts x n, ...)."""
    return np.concatenate(list(np.moveaxis(values, 1, 0)))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Rows:
    """Pairs at splits; every array has one entry for each row, shape (n,) unless said otherwise.

    Attributes:
        measurement: Number of the measurement that the row is of; splits are compared within one.
        pair: Number of the pair; several measurements can be of one pair.
        card: UUID of the GPU that it was measured on.
        kind: "nine", "some" or "uncapped".
        situation: What the jobs are beside each other, after the place of the split
            (`advisor.predict.profiles`); `situation_a` is that of the first job.
        all_served_a: Relative speed from which on the first job counts as serving all of its
            demand: more it would do with more to do. Infinite for a job without a fixed demand.
        speed_a: Measured relative speed of the first job.
        power_w: Measured power, W.
        memory_power_w: Measured power of the memory, W; NaN where its sensor was not read.
        solo_rate_a: Rate of the first job alone on the whole GPU, same card and run, per second.
        solo_power_a_w: Power of the GPU meanwhile, W.
        profile_power_a_w: The same in the job's profile, on whatever card that was measured.
        power_limit_w: Limit of the card, W; infinite where it is not known.
        weight: What the row counts in training: 1 if measured, `OBSERVED_WEIGHT` if of a launch.
    """

    job_a: Names
    job_b: Names
    gpu_model: Names
    card: Names
    run: Names
    measurement: npt.NDArray[np.int64]
    pair: npt.NDArray[np.int64]
    kind: Names
    situation: Names
    situation_a: Names
    situation_b: Names
    share_a: Floats
    share_b: Floats
    heads: Mapping[str, HeadRows]
    all_served_a: Floats
    all_served_b: Floats
    speed_a: Floats
    speed_b: Floats
    power_w: Floats
    memory_power_w: Floats
    solo_rate_a: Floats
    solo_rate_b: Floats
    solo_power_a_w: Floats
    solo_power_b_w: Floats
    profile_power_a_w: Floats
    profile_power_b_w: Floats
    power_limit_w: Floats
    weight: Floats

    def __len__(self) -> int:
        return len(self.power_w)

    @property
    def jobs(self) -> list[str]:
        """Names of all jobs, sorted."""
        return sorted(set(self.job_a.tolist()) | set(self.job_b.tolist()))

    def of(self, job: str) -> npt.NDArray[np.bool_]:
        """Which rows have that job; shape (n,)."""
        return (self.job_a == job) | (self.job_b == job)

    def split(self, row: int) -> Split:
        """Of one row."""
        shares = float(self.share_a[row]), float(self.share_b[row])
        return Split(shares, "uncapped" if self.kind[row] == "uncapped" else "limited")

    def take(self, which: npt.NDArray[np.bool_] | npt.NDArray[np.int64]) -> "Rows":
        """Some of the rows: by a mask of shape (n,), or by their numbers in any order."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        heads = {name: seen.take(which) for name, seen in fields.pop("heads").items()}
        return Rows(heads=heads, **{name: values[which] for name, values in fields.items()})


def make_rows(
    pairs: Iterable[MeasuredPair],
    profiles: Mapping[tuple[str, str], Profile],
    heads: Sequence[Head] = HEADS,
) -> Rows:
    """Rows of all measurements whose jobs have profiles at these shares, as these heads see them.

    Raises:
        InputError: there is none.
    """
    blocks = list(_blocks(pairs, profiles, heads))
    if not blocks:
        raise InputError(
            "no measured pair has profiles of both its jobs",
            fix="profile the jobs of the pairs: advisor profile JOB",
        )
    seen = [block.pop("heads") for block in blocks]
    return Rows(
        heads={h.name: HeadRows.joined([each[h.name] for each in seen]) for h in heads},
        **{name: np.concatenate([b[name] for b in blocks]) for name in blocks[0]},
    )


def profiled(
    pairs: Iterable[MeasuredPair], profiles: Mapping[tuple[str, str], Profile]
) -> Iterator[MeasuredPair]:
    """The pairs with those measurements only whose splits lie within the profiles of both jobs."""
    for pair in pairs:
        a, b = (profiles.get((job, pair.gpu_model)) for job in pair.jobs)
        if a is None or b is None:
            continue
        within = tuple(m for m in pair.measurements if _is_within(m, a, b))
        if within:
            yield dataclasses.replace(pair, measurements=within)


def _is_within(m: Measurement, a: Profile, b: Profile) -> bool:
    return all(is_within(split, (a, b)) for _, split in _splits(m))


def _splits(m: Measurement) -> list[tuple[SplitKind, Split]]:
    return [(kind, split) for kind in KINDS for split in m.splits[kind]]


def _blocks(
    pairs: Iterable[MeasuredPair],
    profiles: Mapping[tuple[str, str], Profile],
    heads: Sequence[Head],
) -> Iterator[dict[str, Any]]:
    count = 0
    for number, pair in enumerate(profiled(pairs, profiles)):
        a, b = (profiles[job, pair.gpu_model] for job in pair.jobs)
        for measurement in pair.measurements:
            numbers = {"measurement": count, "pair": number}
            yield _block(measurement, (a, b), numbers, heads)
            count += 1


def _block(
    m: Measurement,
    profiles: tuple[Profile, Profile],
    numbers: Mapping[str, int],
    heads: Sequence[Head],
) -> dict[str, Any]:
    a, b = profiles
    splits = _splits(m)
    results = [m.splits[kind][split] for kind, split in splits]
    share_a = np.array([split.shares[0] for _, split in splits])
    share_b = np.array([split.shares[1] for _, split in splits])
    own, other = side(a, share_a), side(b, share_b)
    n = len(splits)
    return {
        "job_a": np.full(n, m.jobs[0]),
        "job_b": np.full(n, m.jobs[1]),
        "gpu_model": np.full(n, m.gpu_model),
        "card": np.full(n, m.gpu_uuid),
        "run": np.full(n, m.run),
        **{name: np.full(n, number) for name, number in numbers.items()},
        "kind": np.array([kind if m.is_full or kind != "nine" else SOME for kind, _ in splits]),
        **_situations(splits, kind_of(a), kind_of(b)),
        "share_a": share_a,
        "share_b": share_b,
        "heads": {head.name: _head_rows(head, (own, other)) for head in heads},
        "all_served_a": np.full(n, _all_served(a)),
        "all_served_b": np.full(n, _all_served(b)),
        "speed_a": np.array([result.speeds[0] for result in results]),
        "speed_b": np.array([result.speeds[1] for result in results]),
        "power_w": np.array([result.power_w for result in results]),
        "memory_power_w": np.array([result.memory_power_w for result in results], np.float64),
        "solo_rate_a": np.array([result.parts[0].solo_rate for result in results]),
        "solo_rate_b": np.array([result.parts[1].solo_rate for result in results]),
        "solo_power_a_w": np.array([result.parts[0].solo_power_w for result in results]),
        "solo_power_b_w": np.array([result.parts[1].solo_power_w for result in results]),
        "profile_power_a_w": np.full(n, a.whole_gpu_power_w),
        "profile_power_b_w": np.full(n, b.whole_gpu_power_w),
        "power_limit_w": np.full(n, power_limit_w([own, other])),
        "weight": np.full(n, OBSERVED_WEIGHT if m.observed else 1.0),
    }


def _situations(splits: Sequence[tuple[SplitKind, Split]], a: str, b: str) -> dict[str, Names]:
    places = [UNCAPPED if kind == UNCAPPED else SPLIT for kind, _ in splits]
    of = list(zip(places, (split.shares for _, split in splits), strict=True))
    return {
        "situation": np.array([of_pair([a, b], place) for place in places]),
        "situation_a": np.array([of_job(a, [b], shares[0], place) for place, shares in of]),
        "situation_b": np.array([of_job(b, [a], shares[1], place) for place, shares in of]),
    }


def _all_served(profile: Profile) -> float:
    serving = profile.serving
    if serving is None or serving.offered_rate is None:
        return np.inf
    return 1 - serving.tolerance
