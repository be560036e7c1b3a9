"""What every pair of many jobs does at splits, and each job of it once the other has ended."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from advisor.errors import InputError
from advisor.predict.predictions import NINE, Predictor, Split, safe_pair_splits
from advisor.predict.profiles import Floats, Profile
from advisor.validity.safe_counts import CheckedCounts

Ints: TypeAlias = npt.NDArray[np.int64]


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
        low_speed_a: The low end of its interval, shape (pairs, splits); `low_speed_b` likewise.
        power_w: Power of the GPU, shape (pairs, splits).
        left_speed_a: Relative speed of the first job under its limit once the second has ended,
            shape (pairs, splits); `left_speed_b` likewise.
        left_power_a_w: Power of the GPU then; `left_power_b_w` likewise.
    """

    first: Ints
    second: Ints
    splits: tuple[Split, ...]
    speed_a: Floats
    speed_b: Floats
    low_speed_a: Floats
    low_speed_b: Floats
    power_w: Floats
    left_speed_a: Floats
    left_speed_b: Floats
    left_power_a_w: Floats
    left_power_b_w: Floats
    used: Sequence[Sequence[Split | None]] = ()

    def split(self, row: int, column: int) -> Split | None:
        """What a pair is limited to in a column."""
        return self.used[row][column] if self.used else self.splits[column]

    @property
    def most_power_w(self) -> Floats:
        """The most that a pair draws until both have ended, shape (pairs, splits)."""
        return np.maximum(self.power_w, np.maximum(self.left_power_a_w, self.left_power_b_w))


def predict_options(
    profiles: Sequence[Profile],
    predictor: Predictor,
    splits: Sequence[Split] = NINE,
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
    expected = np.full((9, len(first), len(splits)), np.nan)
    pairs = combinations_with_replacement(profiles, 2)  # in the order of triu_indices
    used: list[tuple[Split | None, ...]] = []
    for row, (a, b) in enumerate(pairs):
        safe = safe_pair_splits(a, b, splits, checked)
        # Most pairs have the same ones, and there can be tens of thousands of pairs.
        used.append(used[-1] if used and used[-1] == safe else safe)
        _fill(expected[:, row], predictor, a, b, safe)
        told(row + 1, len(first))
    return PairOptions(
        first=first,
        second=second,
        splits=tuple(splits),
        used=tuple(used),
        speed_a=expected[0],
        speed_b=expected[1],
        power_w=expected[2],
        low_speed_a=expected[3],
        low_speed_b=expected[4],
        left_speed_a=expected[5],
        left_power_a_w=expected[6],
        left_speed_b=expected[7],
        left_power_b_w=expected[8],
    )


def mean_idle_power_w(profiles: Sequence[Profile]) -> float:
    """Power of a GPU that runs nothing, as the profiles found it before their jobs started."""
    return float(np.mean([profile.idle_power_w for profile in profiles]))


def check_power(what: str, power_w: float) -> None:
    """Refuse a power that no GPU draws.

    Raises:
        InputError: 0, less, or no number.
    """
    if not 0 < power_w < math.inf:
        raise InputError(f"{what} is {power_w} W", why="energy is power times time")


def _fill(
    expected: Floats, predictor: Predictor, a: Profile, b: Profile, splits: Sequence[Split | None]
) -> None:
    """Write what a pair does, and each job when the other has ended; shape (9, splits)."""
    known = {
        column: split
        for column, split in enumerate(splits)
        if split and split[0] >= a.shares[0] and split[1] >= b.shares[0]
    }
    if not known:
        return
    found = predictor.predict(a, b, list(known.values()))
    for column, p in zip(known, found, strict=True):
        expected[:3, column] = p.speed_a.value, p.speed_b.value, p.power_w.value
        expected[3:5, column] = p.speed_a.low, p.speed_b.low
    for profile, at, rows in ((a, 0, (5, 6)), (b, 1, (7, 8))):
        alone = profile.at([split[at] for split in known.values()])
        expected[rows[0], list(known)] = alone["rate"] / profile.whole_gpu_rate
        expected[rows[1], list(known)] = alone["power_w"]
