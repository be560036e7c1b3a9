"""What is expected of measured pairs by models that have not seen them.

Ways that were not measured are left out, since nobody knows what they would do.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from advisor.core.interval import Interval
from advisor.core.split import UNCAPPED, Split
from advisor.predict.predictions import Prediction, predicted_part
from advisor.predict.profiles import Profile
from advisor_training.choices import SpeedBounds, bounds_without
from advisor_training.held_out import FOLDS, HeldOut, leave_out
from advisor_training.held_out import folds as draws_of
from advisor_training.learners import LEARNERS
from advisor_training.rows import Data, Rows

Expected = Mapping[int, tuple[Prediction, ...]]
"""Predictions of all ways of a measurement, by its number; without exclusive."""

FindBounds = Callable[[str, tuple[str, str]], SpeedBounds]


def pair_unseen(data: Data) -> Expected:
    """Predictions of learners that never saw the pair; a tenth of the pairs is left out at a time.

    A pair that was measured on both GPU models is left out on both.
    """
    return _expected(
        data, leave_out(data.rows, LEARNERS["extra-trees"], draws_of(folds(data.rows)))
    )


def folds(rows: Rows) -> np.ndarray:
    """The fold of each row: all rows of two jobs are in the same one, whatever the GPU model."""
    names = np.array([f"{a} {b}" for a, b in zip(rows.job_a, rows.job_b, strict=True)])
    pairs, numbers = np.unique(names, return_inverse=True)
    order = np.random.default_rng(0).permutation(len(pairs))
    return np.array([f"fold {place % FOLDS}" for place in order[numbers].tolist()])


def _expected(data: Data, held_out: HeldOut) -> Expected:
    find_bounds = functools.cache(functools.partial(bounds_without, data.rows, held_out))
    tests = _tests(data, held_out)
    return {number: tuple(_of(data, held_out, its, find_bounds)) for number, its in tests}


def _tests(data: Data, held_out: HeldOut) -> Iterator[tuple[int, list[int]]]:
    """The predictions of each measurement; one fit has made all of a measurement."""
    found: dict[int, list[int]] = {}
    for test, number in enumerate(data.rows.measurement[held_out.row].tolist()):
        found.setdefault(number, []).append(test)
    yield from sorted(found.items())


def _of(
    data: Data, held_out: HeldOut, tests: Iterable[int], find_bounds: FindBounds
) -> Iterator[Prediction]:
    for test in tests:
        row = held_out.row[test]
        profiles = data.profiles_of(data.measurements[int(data.rows.measurement[row])])
        name = str(held_out.left_out[test])
        bounds = find_bounds(name, (profiles[0].job, profiles[1].job))
        shares = float(data.rows.share_a[row]), float(data.rows.share_b[row])
        capacities = held_out.heads["speed"][test].tolist()
        split = UNCAPPED if shares == UNCAPPED.shares else Split(shares)
        speeds = [bounds.around(c, split, n, profiles) for n, c in enumerate(capacities)]
        yield _prediction(profiles, split, speeds, float(held_out.power_w[test]))


def _prediction(
    profiles: tuple[Profile, Profile], split: Split, speeds: Sequence[Interval], power_w: float
) -> Prediction:
    return Prediction(
        split=split,
        parts=tuple(map(predicted_part, profiles, speeds)),
        power_w=_exact(power_w),
    )


def _exact(value: float) -> Interval:
    return Interval(value, value, value)
