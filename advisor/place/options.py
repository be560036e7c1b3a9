"""What every pair of many jobs does at splits, and each job of it once the other has ended."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from advisor.core.split import NINE, Split
from advisor.errors import InputError
from advisor.predict.predictions import Predictor, is_within, safe_splits_of
from advisor.predict.profiles import Floats, Profile
from advisor.validity.safe_counts import CheckedCounts

Ints: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PairOptions:
    """What pairs of types do at splits; NaN where nothing is known of a pair at a split.

    Attributes:
        types: Index of the type of each job, shape (2, pairs); twice the same for a job next to its
            like.
        splits: The splits that were wanted, in the order of the columns.
        used: For each pair the splits that stand for them, where counts were checked; None where
            no safe one is left.
        speed: Relative speed of each job, shape (2, pairs, splits).
        low_speed: The low end of its interval, shape (2, pairs, splits).
        power_w: Power of the GPU, shape (pairs, splits).
        left_speed: Relative speed of each job under its limit once the other has ended, shape
            (2, pairs, splits).
        left_power_w: Power of the GPU then, shape (2, pairs, splits).
    """

    types: Ints
    splits: tuple[Split, ...]
    speed: Floats
    low_speed: Floats
    power_w: Floats
    left_speed: Floats
    left_power_w: Floats
    used: Sequence[Sequence[Split | None]] = ()

    def split(self, row: int, column: int) -> Split | None:
        """What a pair is limited to in a column."""
        return self.used[row][column] if self.used else self.splits[column]

    @property
    def most_power_w(self) -> Floats:
        """The most that a pair draws until both have ended, shape (pairs, splits)."""
        return np.maximum(self.power_w, self.left_power_w.max(axis=0))


def predict_options(
    profiles: Sequence[Profile],
    predictor: Predictor,
    checked: CheckedCounts | None = None,
    on_progress: Callable[[int, int], None] = lambda done, pairs: None,
) -> PairOptions:
    """What a predictor expects of every pair of profiles, each next to another of its kind too.

    Args:
        profiles: One of each type, all of one GPU model.
        predictor: Of pairs.
        checked: What the check of the GPU model found: in the place of a split with an unsafe count
            the nearest safe one is asked for.
        on_progress: Called after each pair with the pairs done and all pairs.

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
    types = np.array(np.triu_indices(len(profiles)))
    shape = types.shape[1], len(NINE)
    options = PairOptions(
        types=types,
        splits=NINE,
        speed=np.full((2, *shape), np.nan),
        low_speed=np.full((2, *shape), np.nan),
        power_w=np.full(shape, np.nan),
        left_speed=np.full((2, *shape), np.nan),
        left_power_w=np.full((2, *shape), np.nan),
    )
    used: list[tuple[Split | None, ...]] = []
    pairs = combinations_with_replacement(profiles, 2)  # in the order of triu_indices
    for row, pair in enumerate(pairs):
        safe = safe_splits_of(pair, NINE, checked)
        # Most pairs have the same ones, and there can be tens of thousands of pairs.
        used.append(used[-1] if used and used[-1] == safe else safe)
        _fill(options, row, predictor, pair, safe)
        on_progress(row + 1, types.shape[1])
    return replace(options, used=tuple(used))


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
    options: PairOptions,
    row: int,
    predictor: Predictor,
    pair: Sequence[Profile],
    splits: Sequence[Split | None],
) -> None:
    """Write what a pair does, and each job when the other has ended."""
    known = {n: split for n, split in enumerate(splits) if split and is_within(split, pair)}
    if not known:
        return
    found = predictor.predict(pair, list(known.values()))
    for column, p in zip(known, found, strict=True):
        options.speed[:, row, column] = [part.speed.value for part in p.parts]
        options.low_speed[:, row, column] = [part.speed.low for part in p.parts]
        options.power_w[row, column] = p.power_w.value
    for n, profile in enumerate(pair):
        alone = profile.at([split.shares[n] for split in known.values()])
        options.left_speed[n, row, list(known)] = alone["rate"] / profile.whole_gpu_rate
        options.left_power_w[n, row, list(known)] = alone["power_w"]
