"""How far a model carries to a GPU model that it has not learned from.

A GPU model is left out of training, with all its pairs, and so is the tested job, on every GPU
model: what is asked is what somebody with a new job on a new GPU asks. Intervals are those of the
other GPU models, made without the one left out as in `conformal`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from advisor.errors import InputError
from advisor_models.intervals import Bounds
from advisor_models.other_gpu import MOST_PAIRS, ONE_GPU_MODEL, OtherGpu
from advisor_training.dataset.rows import Rows
from advisor_training.learn.conformal import (
    COVERAGE,
    LIMITED,
    SPLIT,
    Residuals,
    bounds_of,
    held,
    power_residuals,
    speed_residuals,
    widening,
)
from advisor_training.learn.learners import SEED, Learner
from advisor_training.learn.unseen import Mask, Progress, Unseen, joined, predicted

ADDED = (0, 2, 5, 10, MOST_PAIRS)
"""Pairs of the new GPU model that are learned from beside the others."""

DRAWS = 5
"""How often each number of pairs is drawn."""


def gpu_models(rows: Rows) -> list[str]:
    """GPU models that can be left out; none where there is one only."""
    names = [str(name) for name in np.unique(rows.gpu_model)]
    return [name for name in names if _is_enough(rows, rows.gpu_model == name)]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Carried:
    """Predictions of a GPU model that was left out.

    Attributes:
        left_out: Its name.
        unseen: Predictions of its rows, each row tested once for each of its jobs.
        bounds: Of speeds, by share, and of power, by way, from the other GPU models.
        learned_pairs: Pairs of the other GPU models.
    """

    left_out: str
    unseen: Unseen
    bounds: tuple[Mapping[str, Bounds], Mapping[str, Bounds]]
    learned_pairs: int


def carry_over(
    rows: Rows, mask: Mask, name: str, learner: Learner, progress: Progress | None = None
) -> Carried:
    """Leave rows out, and each job as well.

    Args:
        rows: All rows.
        mask: Those that are left out, such as all of one GPU model; shape (n,).
        name: What they are.
        learner: What is fitted: once for each job of the other rows, and once more where the rows
            left out have jobs of their own.
        progress: Called after each fit.

    Raises:
        InputError: nothing is left to learn from.
    """
    if not _is_enough(rows, mask):
        raise InputError(
            f"{name} cannot be left out",
            why=f"it has {mask.sum()} of {len(rows)} rows, and each job of the others is left out "
            "as well, which must leave some",
            fix="measure more pairs: advisor colocate",
        )
    jobs = rows.take(~mask).jobs
    own = sorted(set(rows.take(mask).jobs) - set(jobs))
    tested: list[Unseen] = []
    rest: list[Unseen] = []
    for count, job in enumerate(jobs, 1):
        fitted = learner(rows.take(~mask & ~rows.of(job)))
        if (mask & rows.of(job)).any():
            tested.append(predicted(fitted, rows, mask & rows.of(job), job))
        rest.append(predicted(fitted, rows, ~mask & rows.of(job), job))
        if progress:
            progress(name, count, len(jobs))
    if own:
        fitted = learner(rows.take(~mask))
        tested += [predicted(fitted, rows, mask & rows.of(job), job) for job in own]
    known = joined(rest)
    power = bounds_of(power_residuals(rows, known))
    if limited := power.pop(LIMITED, None):
        power.setdefault(SPLIT, limited)
    bounds = bounds_of(speed_residuals(rows, known)), power
    pairs = len(np.unique(rows.pair[~mask]))
    return Carried(left_out=name, unseen=joined(tested), bounds=bounds, learned_pairs=pairs)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Added:
    """Predictions of a GPU model of which some pairs were learned from.

    Attributes:
        pairs: How many.
        unseen: Predictions of its other pairs, by number of the draw.
    """

    pairs: int
    unseen: tuple[Unseen, ...]


def add_pairs(
    rows: Rows, mask: Mask, learner: Learner, progress: Progress | None = None, draws: int = DRAWS
) -> Iterator[Added]:
    """Learn from the other GPU models and from ever more pairs of one of them.

    Each draw puts the pairs into an order; the first ones are learned from and all others tested,
    so a larger number has the pairs of every smaller one. Numbers that leave nothing to test are
    left out.

    Args:
        rows: All rows.
        mask: Rows of the new GPU model; shape (n,).
        learner: What is fitted, once for each number and draw.
        progress: Called after each fit.
        draws: How many.
    """
    pairs = np.unique(rows.pair[mask])
    random = np.random.default_rng(SEED)
    orders = [random.permutation(pairs) for _ in range(draws)]
    for count in (n for n in ADDED if n < len(pairs)):
        found: list[Unseen] = []
        for number, order in enumerate(orders[:1] if count == 0 else orders, 1):
            tested = mask & ~np.isin(rows.pair, order[:count])
            found.append(predicted(learner(rows.take(~tested)), rows, tested, f"draw {number}"))
            if progress:
                progress(f"{count} pairs", number, draws)
        yield Added(pairs=count, unseen=tuple(found))


def fits(rows: Rows) -> int:
    """How many fits it takes to leave each GPU model out, and to add pairs of it."""
    count = 0
    for name in gpu_models(rows):
        mask = rows.gpu_model == name
        added = [n for n in ADDED if 0 < n < len(np.unique(rows.pair[mask]))]
        count += len(rows.take(~mask).jobs) + 1 + len(added) * DRAWS
    return count


def residuals_of(rows: Rows, unseen: Unseen) -> tuple[Residuals, Residuals]:
    """Of speeds, and of power; of that all splits alike, as `Intervals.without_limit` has it."""
    power = power_residuals(rows, unseen)
    splits = np.where(power.stratum == LIMITED, SPLIT, power.stratum)
    return speed_residuals(rows, unseen), replace(power, stratum=splits)


def parts_held(carried: Carried, rows: Rows, unseen: Unseen) -> tuple[float, float]:
    """Parts of speeds and of power within the intervals of the other GPU models."""
    speed, power = residuals_of(rows, unseen)
    return held(speed, carried.bounds[0]), held(power, carried.bounds[1])


def widenings(carried: Carried, rows: Rows) -> tuple[float, float]:
    """How much wider the intervals of speeds and of power must be to hold what they promise."""
    speed, power = residuals_of(rows, carried.unseen)
    return widening(speed, carried.bounds[0]), widening(power, carried.bounds[1])


def learn_other_gpu(rows: Rows, learner: Learner, progress: Progress | None = None) -> OtherGpu:
    """What the rows tell of GPU models that are not among them.

    Those are left out in turn that have at most half of the pairs: the model learns from more than
    the others, and what learns from little would tell of that, not of another GPU.

    Args:
        rows: All rows.
        learner: The model's.
        progress: Called after each fit.
    """
    names = [name for name in gpu_models(rows) if _is_small(rows, name)]
    if not names:
        return ONE_GPU_MODEL
    found = [carry_over(rows, rows.gpu_model == n, n, learner, progress) for n in names]
    wider = [widenings(carried, rows) for carried in found]
    par = [_pairs_to_par(rows, carried, learner, progress) for carried in found]
    return OtherGpu(
        speed_widening=round(max(speed for speed, _ in wider), 3),
        power_widening=round(max(power for _, power in wider), 3),
        left_out=tuple(names),
        pairs_to_par=None if None in par else max(n for n in par if n is not None),
    )


def _pairs_to_par(
    rows: Rows, carried: Carried, learner: Learner, progress: Progress | None
) -> int | None:
    """The smallest number of pairs with which the intervals hold what they promise."""
    mask = rows.gpu_model == carried.left_out
    for added in add_pairs(rows, mask, learner, progress):
        parts = np.mean([parts_held(carried, rows, unseen) for unseen in added.unseen], axis=0)
        if min(parts) >= COVERAGE:
            return added.pairs
    return None


def _is_small(rows: Rows, gpu_model: str) -> bool:
    of_it = len(np.unique(rows.pair[rows.gpu_model == gpu_model]))
    return of_it <= len(np.unique(rows.pair)) / 2


def _is_enough(rows: Rows, mask: Mask) -> bool:
    """Whether the rows of a mask can be left out, and each job of the rest after that."""
    rest = rows.take(~mask)
    return bool(mask.any() and len(rest) and all((~rest.of(job)).any() for job in rest.jobs))
