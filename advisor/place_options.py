"""What there is to choose from when many jobs are placed: types of jobs, and pairs of them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from advisor.errors import InputError
from advisor.predictions import NINE, UNCAPPED, Predictor, Split, safe_pair_splits
from advisor.profiles import Floats, Profile
from advisor.safe_counts import CheckedCounts

Ints: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobType:
    """Equal jobs.

    Attributes:
        count: How many of them there are, at least 1.
        power_w: Power of a GPU that runs one of them alone.
        memory_mib: GPU memory that one of them needs; None if not known.
    """

    name: str
    count: int
    power_w: float
    memory_mib: float | None = None

    def __post_init__(self) -> None:
        if self.count < 1:
            raise InputError(f"{self.count} jobs of {self.name} cannot be placed")
        check_power(f"the power of {self.name} alone", self.power_w)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PairOptions:
    """What pairs of types do at splits; NaN where nothing is known of a pair at a split.

    Attributes:
        first: Index of the first job's type, shape (pairs,).
        second: Index of the second job's type; the same one for a job beside its like.
        splits: The splits that were wanted, in the order of the columns.
        used: For each pair the splits that stand for them, where counts were checked; None where
            no safe one is left.
        speed_a: Relative speed of the first job, shape (pairs, splits); `speed_b` likewise.
        power_w: Power of the GPU, shape (pairs, splits).
    """

    first: Ints
    second: Ints
    splits: tuple[Split, ...]
    speed_a: Floats
    speed_b: Floats
    power_w: Floats
    used: Sequence[Sequence[Split | None]] = ()

    def split(self, row: int, column: int) -> Split | None:
        """What a pair is limited to in a column."""
        return self.used[row][column] if self.used else self.splits[column]


def job_type(profile: Profile, count: int) -> JobType:
    """So many jobs with that profile."""
    return JobType(
        name=profile.job,
        count=count,
        power_w=profile.whole_gpu_power_w,
        memory_mib=profile.memory_used_mib,
    )


def predict_options(
    profiles: Sequence[Profile],
    predictor: Predictor,
    splits: Sequence[Split] = (*NINE, UNCAPPED),
    checked: CheckedCounts | None = None,
    told: Callable[[int, int], None] = lambda done, pairs: None,
) -> PairOptions:
    """What a predictor expects of every pair of profiles, each beside its like too.

    Args:
        profiles: One of each type, all of one GPU model.
        predictor: Anything that predicts pairs.
        splits: What is asked of it, where both profiles have the shares; in the place of one with
            an unsafe count the nearest safe one.
        checked: What the check of the GPU model found.
        told: Called after each pair with the pairs done and all pairs.

    Raises:
        InputError: profiles of several GPU models, or one that lacks the idle power.
    """
    if len(models := sorted({profile.gpu_model for profile in profiles})) > 1:
        raise InputError(
            f"the profiles are of {', '.join(models)}",
            why="a placement is on GPUs of one model",
            fix="place the jobs of each model by themselves",
        )
    for profile in profiles:
        check_power(f"the idle power in the profile of {profile.job}", profile.idle_power_w)
    first, second = np.triu_indices(len(profiles))
    expected = np.full((3, len(first), len(splits)), np.nan)
    pairs = combinations_with_replacement(profiles, 2)  # in the order of triu_indices
    used: list[tuple[Split | None, ...]] = []
    for row, (a, b) in enumerate(pairs):
        safe = _safe(a, b, splits, checked)
        # Most pairs have the same ones, and there can be a hundred thousand pairs.
        used.append(used[-1] if used and used[-1] == safe else safe)
        _fill(expected[:, row], predictor, a, b, safe)
        told(row + 1, len(first))
    return PairOptions(
        first=first,
        second=second,
        splits=tuple(splits),
        speed_a=expected[0],
        speed_b=expected[1],
        power_w=expected[2],
        used=tuple(used),
    )


def mean_idle_power_w(profiles: Sequence[Profile]) -> float:
    """Power of a GPU that runs nothing, as the profiles found it before their jobs started."""
    return float(np.mean([profile.idle_power_w for profile in profiles]))


def check_power(what: str, power_w: float) -> None:
    """Refuse a power that work cannot be divided by.

    Raises:
        InputError: 0, less, or no number.
    """
    if not 0 < power_w < math.inf:
        raise InputError(f"{what} is {power_w} W", why="work per joule divides by power")


def _safe(
    a: Profile, b: Profile, splits: Sequence[Split], checked: CheckedCounts | None
) -> tuple[Split | None, ...]:
    """The nearest safe splits; none is needed where there are no limits."""
    found = zip(splits, safe_pair_splits(a, b, splits, checked), strict=True)
    return tuple(UNCAPPED if wanted == UNCAPPED else split for wanted, split in found)


def _fill(
    expected: Floats, predictor: Predictor, a: Profile, b: Profile, splits: Sequence[Split | None]
) -> None:
    """Write speeds and power of a pair; shape (3, splits)."""
    known = {
        column: split
        for column, split in enumerate(splits)
        if split and split[0] >= a.shares[0] and split[1] >= b.shares[0]
    }
    found = predictor.predict(a, b, list(known.values())) if known else []
    for column, p in zip(known, found, strict=True):
        expected[:, column] = p.speed_a.value, p.speed_b.value, p.power_w.value
