"""What is expected of measured pairs by models that have not seen them, and by others.

Ways that were not measured are left out, since nobody knows what they would do.
"""

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from truth import Shares, Site

from advisor.core.interval import Interval
from advisor.core.split import UNCAPPED, Split
from advisor.predict.predictions import Prediction, predicted_part
from advisor.predict.profiles import Profile
from advisor_training.dataset.data import Data
from advisor_training.dataset.rows import Rows
from advisor_training.evaluation.bounds import SpeedBounds, bounds_without
from advisor_training.learn.held_out import HeldOut, fold_by
from advisor_training.learn.learners import LEARNERS, Learner
from advisor_training.learn.protocols import BOTH_UNSEEN, FOLDS, PROTOCOLS

Expected = Mapping[int, tuple[Prediction, ...]]
"""Predictions of all ways of a measurement, by its number; without exclusive."""

FindBounds = Callable[[str, tuple[str, str]], SpeedBounds]


def pair_unseen(data: Data, learner: str = "extra-trees") -> Expected:
    """Predictions of learners that never saw the pair; a tenth of the pairs is left out at a time.

    A pair that was measured on both GPU models is left out on both.
    """
    return _expected(data, fold_by(data.rows, folds(data.rows), LEARNERS[learner]))


def jobs_unseen(data: Data) -> Expected:
    """Predictions of learners that never saw either of the two jobs in any pair."""
    learner: Learner = LEARNERS["extra-trees"]
    answers = PROTOCOLS[BOTH_UNSEEN].answer(data.rows, learner, lambda: None)
    return _expected(data, answers.held_out)


def known(data: Data, sites: Mapping[str, Site]) -> Expected:
    """The truth itself: what an advisor that is never wrong would expect."""
    found: dict[int, tuple[Prediction, ...]] = {}
    for site in sites.values():
        for pair, number in site.measured_as.items():
            profiles = data.profiles_of(data.measurements[number])
            found[number] = tuple(
                _prediction(profiles, _split(shares), [*map(_exact, way.speeds)], way.power_w)
                for shares, way in site.ways[pair].items()
            )
    return found


def with_errors(expected: Expected, sigma: float, seed: int) -> Expected:
    """The same, each speed and power of a pair off by a factor of its own, for all its ways."""
    rng = np.random.default_rng(seed)

    def off(predictions: Iterable[Prediction]) -> tuple[Prediction, ...]:
        one, other, power = np.exp(rng.normal(0, sigma, 3)).tolist()
        return tuple(_scaled(prediction, (one, other), power) for prediction in predictions)

    return {number: off(expected[number]) for number in sorted(expected)}


def after_drift(data: Data, expected: Expected, kinds: Collection[str], factor: float) -> Expected:
    """What is expected once a drift is known: some kinds of jobs are slower beside others."""

    def changed(number: int) -> tuple[Prediction, ...]:
        a, b = (factor if job in kinds else 1.0 for job in data.measurements[number].jobs)
        return tuple(_scaled(prediction, (a, b), 1.0) for prediction in expected[number])

    return {number: changed(number) for number in expected}


def without_uncapped(expected: Expected) -> Expected:
    """Physics does not know that a job without limits starves another one, and is not asked."""
    return {n: tuple(p for p in of if p.split.is_limited) for n, of in expected.items()}


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
        split = _split(shares)
        speeds = [bounds.around(c, split, n, profiles) for n, c in enumerate(capacities)]
        yield _prediction(profiles, split, speeds, float(held_out.power_w[test]))


def _split(shares: Shares) -> Split:
    return UNCAPPED if shares == UNCAPPED.shares else Split(shares)


def _prediction(
    profiles: tuple[Profile, Profile], split: Split, speeds: Sequence[Interval], power_w: float
) -> Prediction:
    return Prediction(
        split=split,
        parts=tuple(map(predicted_part, profiles, speeds)),
        power_w=_exact(power_w),
    )


def _scaled(
    prediction: Prediction, factors: tuple[float, float], power_factor: float
) -> Prediction:
    parts = tuple(
        replace(part, speed=part.speed.times(factor))
        for part, factor in zip(prediction.parts, factors, strict=True)
    )
    return replace(prediction, parts=parts, power_w=prediction.power_w.times(power_factor))


def _exact(value: float) -> Interval:
    return Interval(value, value, value)
