"""How far a model carries to a GPU model that it has not learned from.

A GPU model is left out of training, with all its pairs, and so is the tested job, on every GPU
model: what is asked is what somebody with a new job on a new GPU asks. Intervals are those of the
other GPU models, made without the one left out as in `conformal`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.errors import InputError
from advisor_models.intervals import LIMITED, SPLIT, Strata, place_of
from advisor_models.manifest import MOST_PAIRS, OtherGpu
from advisor_training.held_out import HeldOut, Mask, OnFold, joined, predicted
from advisor_training.intervals import COVERAGE, Residuals, bounds_of, held, residuals_of, widening
from advisor_training.learners import HEAD_LEARNERS, SEED, HeadLearner, Learner
from advisor_training.rows import Rows

ADDED = (0, 2, 5, 10, MOST_PAIRS)
"""Pairs of the new GPU model that are learned from next to the others."""

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
        held_out: Predictions of its rows, each row tested once for each of its jobs.
        bounds: By head, from the other GPU models.
        learned_pairs: Pairs of the other GPU models.
    """

    left_out: str
    held_out: HeldOut
    bounds: Mapping[str, Strata]
    learned_pairs: int
    learners: Sequence[HeadLearner]


def carry_over(
    rows: Rows,
    mask: Mask,
    name: str,
    learner: Learner,
    progress: OnFold | None = None,
    learners: Sequence[HeadLearner] = HEAD_LEARNERS,
) -> Carried:
    """Leave the rows of a mask out, such as all of one GPU model, and each job as well.

    It takes a fit for each job of the other rows, and one more where the rows left out have jobs of
    their own; `progress` hears of each.

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
    tested: list[HeldOut] = []
    rest: list[HeldOut] = []
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
    return Carried(
        left_out=name,
        held_out=joined(tested),
        bounds={x.head.name: _without_limit(residuals_of(rows, known, x)) for x in learners},
        learned_pairs=len(np.unique(rows.pair[~mask])),
        learners=learners,
    )


def add_pairs(
    rows: Rows, mask: Mask, learner: Learner, progress: OnFold | None = None
) -> Iterator[tuple[int, list[HeldOut]]]:
    """Learn from the other GPU models and from ever more pairs of the one that a mask has.

    Each draw puts the pairs into an order; the first ones are learned from and all others tested,
    so a larger number has the pairs of every smaller one. Numbers that leave nothing to test are
    left out.

    Yields:
        The number of pairs, and predictions of the others by draw.
    """
    pairs = np.unique(rows.pair[mask])
    random = np.random.default_rng(SEED)
    orders = [random.permutation(pairs) for _ in range(DRAWS)]
    for count in (n for n in ADDED if n < len(pairs)):
        found: list[HeldOut] = []
        for number, order in enumerate(orders[:1] if count == 0 else orders, 1):
            tested = mask & ~np.isin(rows.pair, order[:count])
            found.append(predicted(learner(rows.take(~tested)), rows, tested, f"draw {number}"))
            if progress:
                progress(f"{count} pairs", number, DRAWS)
        yield count, found


def fits(rows: Rows) -> int:
    """How many fits it takes to leave each GPU model out, and to add pairs of it."""
    count = 0
    for name in gpu_models(rows):
        mask = rows.gpu_model == name
        added = [n for n in ADDED if 0 < n < len(np.unique(rows.pair[mask]))]
        count += len(rows.take(~mask).jobs) + 1 + len(added) * DRAWS
    return count


def parts_held(carried: Carried, rows: Rows, held_out: HeldOut) -> dict[str, float]:
    """By head, the part within the intervals of the other GPU models."""
    return {
        name: held(found, carried.bounds[name])
        for name, found in _residuals(carried, rows, held_out).items()
    }


def mean_held(carried: Carried, rows: Rows, draws: Sequence[HeldOut]) -> dict[str, float]:
    """The same, the mean over draws."""
    parts = [parts_held(carried, rows, held_out) for held_out in draws]
    return {name: float(np.mean([part[name] for part in parts])) for name in carried.bounds}


def widenings(carried: Carried, rows: Rows) -> dict[str, float]:
    """By head, how much wider the intervals must be to hold what they promise."""
    return {
        name: widening(found, carried.bounds[name])
        for name, found in _residuals(carried, rows, carried.held_out).items()
    }


def learn_other_gpu(
    rows: Rows,
    learner: Learner,
    progress: OnFold | None = None,
    learners: Sequence[HeadLearner] = HEAD_LEARNERS,
) -> OtherGpu:
    """What the rows tell of GPU models that are not among them.

    Those are left out in turn that have at most half of the pairs: the model learns from more than
    the others, and what learns from little would tell of that, not of another GPU.
    """
    names = [
        name
        for name in gpu_models(rows)
        if len(np.unique(rows.pair[rows.gpu_model == name])) <= len(np.unique(rows.pair)) / 2
    ]
    assumed = {x.head.name: x.one_gpu_widening for x in learners}
    if not names:
        return OtherGpu(assumed, (), MOST_PAIRS)
    # A head that not every row tells may be known of one GPU model only.
    every = [x for x in learners if x.is_known(rows).all()]
    found = [carry_over(rows, rows.gpu_model == n, n, learner, progress, every) for n in names]
    wider = [widenings(carried, rows) for carried in found]
    par = [_pairs_to_par(rows, carried, learner, progress) for carried in found]
    return OtherGpu(
        widening=assumed
        | {x.head.name: round(max(w[x.head.name] for w in wider), 3) for x in every},
        left_out=tuple(names),
        pairs_to_par=None if None in par else max(n for n in par if n is not None),
    )


def _pairs_to_par(
    rows: Rows, carried: Carried, learner: Learner, progress: OnFold | None
) -> int | None:
    """The smallest number of pairs with which the intervals hold what they promise."""
    mask = rows.gpu_model == carried.left_out
    enough = (
        count
        for count, held_out in add_pairs(rows, mask, learner, progress)
        if min(mean_held(carried, rows, held_out).values()) >= COVERAGE
    )
    return next(enough, None)


def _residuals(carried: Carried, rows: Rows, held_out: HeldOut) -> dict[str, Residuals]:
    """By head; all splits alike, since whether another GPU model is at its limit is not known."""
    found = {x.head.name: residuals_of(rows, held_out, x) for x in carried.learners}
    return {
        name: replace(each, stratum=np.char.replace(each.stratum, LIMITED, SPLIT), gpu_model=None)
        for name, each in found.items()
    }


def _without_limit(residuals: Residuals) -> Strata:
    """Of all GPU models together: another one is like none of them more than like the others."""
    bounds = bounds_of(replace(residuals, gpu_model=None))
    of_limit = {n: b for n, b in bounds.items() if place_of(n) == LIMITED}
    rest = {name: b for name, b in bounds.items() if name not in of_limit}
    return {n.replace(LIMITED, SPLIT, 1): b for n, b in of_limit.items()} | rest


def _is_enough(rows: Rows, mask: Mask) -> bool:
    """Whether the rows of a mask can be left out, and each job of the rest after that."""
    rest = rows.take(~mask)
    return bool(mask.any() and len(rest) and all((~rest.of(job)).any() for job in rest.jobs))
