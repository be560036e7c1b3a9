"""How good predictions are: the value of the split they choose, and their relative errors.

How sure figures over pairs are: another site has other jobs, so jobs are drawn again. A pair counts
as often as its first job was drawn, times the second ("The pigeonhole bootstrap", A. B. Owen,
Annals of Applied Statistics 1(2), 2007): all pairs of a job come and go together. It is
conservative: noise of single pairs counts up to three times.
"""

import itertools
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from advisor.core.interval import Interval
from advisor.core.objectives import Candidate, Objective, PartResult, SplitResult, best
from advisor.core.split import EQUAL, Split
from advisor.predict.profiles import Floats
from advisor_training.held_out import Answers, HeldOut, Mask
from advisor_training.learners import SEED, HeadLearner
from advisor_training.rows import Data, MeasuredPair, ResultsBySplit, Rows, flat, is_full

DRAWS = 1000

OUTSIDE = 0.025
"""Part of the draws below an interval, and above it."""


class Resamples:
    """Sets of pairs as they could have been, had other jobs been measured.

    Args:
        pairs: The two jobs of each value, at least one; one job twice where it is next to itself.
    """

    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        names, places = np.unique(np.array(pairs), return_inverse=True)
        first, second = places.reshape(-1, 2).T
        equal = np.full(len(names), 1 / len(names))
        times = np.random.default_rng(SEED).multinomial(len(names), equal, DRAWS)
        both = np.where(first == second, times[:, first], times[:, first] * times[:, second])
        self._weights: Floats = both[both.any(axis=1)].astype(np.float64)

    def mean(self, values: Sequence[float] | Floats) -> Interval:
        """Of values that are in the order of the pairs."""
        found = np.asarray(values, dtype=np.float64)
        return _estimate(float(found.mean()), self._weights @ found / self._weights.sum(axis=1))

    def median(self, values: Sequence[float] | Floats) -> Interval:
        """The same of the median."""
        found = np.asarray(values, dtype=np.float64)
        order = np.argsort(found, kind="stable")
        reached = np.cumsum(self._weights[:, order], axis=1)
        places = (reached >= reached[:, -1:] / 2).argmax(axis=1)
        return _estimate(float(np.median(found)), found[order][places])


def _estimate(value: float, drawn: npt.NDArray[np.float64]) -> Interval:
    low, high = np.quantile(drawn, (OUTSIDE, 1 - OUTSIDE))
    return Interval(value, float(low), float(high))


NOISE_QUANTILE = 0.95
"""Part of the differences between two takes that is smaller than what is called the noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """What the best possible predictor would reach, since the truth itself is noisy.

    A take is one repeat of the nine splits of a pair. Each choice takes the best split of one take
    and scores it on another one, as a part of that one's best. Takes in steps of 10
    and takes at safe counts are not compared: they have too few splits in common.

    Attributes:
        pairs: Pairs that were taken twice or more.
        other_card_pairs: Of them, those whose takes come from several cards.
        choices: Ordered couples of takes.
        mean_percent: Mean score; `median_percent`, `p10_percent` (a tenth of the choices score
            less) and `worst_percent` likewise.
        noise_percent: How much an uneven split over 50/50 differs between two takes; 95 % of the
            differences are smaller. A smaller gain is a tie.
    """

    pairs: int
    other_card_pairs: int
    choices: int
    mean_percent: float
    median_percent: float
    p10_percent: float
    worst_percent: float
    noise_percent: float


_Take: TypeAlias = tuple[str, ResultsBySplit]
"""UUID of the GPU, and the results of one take."""


def noise_ceiling(pairs: Iterable[MeasuredPair], objective: Objective) -> Ceiling | None:
    """The ceiling over all pairs with two takes or more; None where there are none."""
    by_pair = [
        _alike(
            [(m.gpu_uuid, results) for m in pair.measurements for results in m.repeats],
            pair.beside_itself,
        )
        for pair in pairs
    ]
    takes = [found for groups in by_pair for found in groups]
    scores = [score for found in takes for score in _scores(found, objective)]
    changes = [change for found in takes for change in _changes(found, objective)]
    if not scores or not changes:
        return None
    return Ceiling(
        pairs=sum(map(bool, by_pair)),
        other_card_pairs=sum(
            any(len({gpu_uuid for gpu_uuid, _ in takes}) > 1 for takes in groups)
            for groups in by_pair
        ),
        choices=len(scores),
        mean_percent=100 * statistics.mean(scores),
        median_percent=100 * statistics.median(scores),
        p10_percent=100 * float(np.quantile(scores, 0.1)),
        worst_percent=100 * min(scores),
        noise_percent=100 * float(np.quantile(changes, NOISE_QUANTILE)),
    )


def _alike(takes: Sequence[_Take], beside_itself: bool) -> list[list[_Take]]:
    """Takes in groups, two or more in each, that have enough of the nine splits in common."""
    groups: list[list[_Take]] = []
    for take in takes:
        for group in groups:
            common = set(take[1]).intersection(*(other for _, other in group))
            if is_full(common, beside_itself=beside_itself):
                group.append(take)
                break
        else:
            groups.append([take])
    return [group for group in groups if len(group) > 1]


def _scores(takes: Sequence[_Take], objective: Objective) -> Iterator[float]:
    for (_, one), (_, other) in itertools.permutations(takes, 2):
        common = one.keys() & other.keys()
        chosen = best([Candidate(split, one[split]) for split in common], objective, 0.0).split
        most = max(objective.value(other[split]) for split in common)
        if most > 0:
            yield objective.value(other[chosen]) / most


def _changes(takes: Sequence[_Take], objective: Objective) -> Iterator[float]:
    """Relative differences of (an uneven split over 50/50) between each two takes."""
    for (_, one), (_, other) in itertools.combinations(takes, 2):
        for split in sorted(one.keys() & other.keys() - {EQUAL}):
            ratios = sorted(_over_equal(take, split, objective) for take in (one, other))
            if ratios[1] > 0:
                yield 1 - ratios[0] / ratios[1]


def _over_equal(results: ResultsBySplit, split: Split, objective: Objective) -> float:
    """Value at the split for each one at 50/50; 0 where 50/50 is worth nothing."""
    equal = objective.value(results[EQUAL])
    return objective.value(results[split]) / equal if equal > 0 else 0.0


def fractions(rows: Rows, predicted: HeldOut, objective: Objective, tie: float) -> Floats:
    """Fraction of the oracle at the split that predictions choose among the nine.

    The value measured at the chosen split for each one of the best measured value, both of one
    measurement; `tie` is that of `advisor.core.objectives.best`. There is one for each (left out,
    measurement), in their order, so a measurement that was left out for two jobs counts twice;
    those in which no split is worth anything are not among them.
    """
    found: list[float] = []
    for _, places in predicted.by_measurement(rows, rows.kind == "nine"):
        row = predicted.row[places]
        measured = np.column_stack([rows.speed_a, rows.speed_b])[row]
        values = [objective.value(x) for x in _results(rows, row, measured, rows.power_w[row])]
        expected = _results(rows, row, predicted.speed[places], predicted.power_w[places])
        candidates = [Candidate(*each) for each in zip(rows.splits(row), expected, strict=True)]
        chosen = best(candidates, objective, tie)
        if max(values) > 0:
            place = next(n for n, candidate in enumerate(candidates) if candidate is chosen)
            found.append(values[place] / max(values))
    return np.array(found)


def speed_errors(rows: Rows, predicted: HeldOut, kind: str = "nine") -> Floats:
    """|predicted / measured - 1| of first jobs, then of second ones, at one kind of split.

    A relative speed is a rate over a constant, so this is the relative error of the rates, too.
    Rates measured as 0 have no relative error and are left out.
    """
    tests = rows.kind[predicted.row] == kind
    row = predicted.row[tests]
    measured = np.concatenate([rows.speed_a[row], rows.speed_b[row]])
    known = measured > 0
    return np.abs(flat(predicted.speed[tests])[known] / measured[known] - 1)


def head_errors(rows: Rows, predicted: HeldOut, learner: HeadLearner, kind: str = "nine") -> Floats:
    """|predicted / measured - 1| of a head at one kind of split, part by part, where known."""
    tests = rows.kind[predicted.row] == kind
    measured = flat(learner.measured(rows)[predicted.row[tests]])
    errors = np.abs(flat(predicted.heads[learner.head.name][tests]) / measured - 1)
    return errors[~np.isnan(errors)]


def _results(
    rows: Rows, row: npt.NDArray[np.int64], speeds: Floats, power_w: Floats
) -> list[SplitResult]:
    """Results at rows with speeds, shape (n, 2), and powers, W, shape (n,)."""
    rates = np.column_stack([rows.solo_rate_a, rows.solo_rate_b])[row]
    watts = np.column_stack([rows.solo_power_a_w, rows.solo_power_b_w])[row]
    parts = np.stack([speeds * rates, rates, watts], axis=2).tolist()
    return [
        SplitResult(parts=tuple(PartResult(*part) for part in both), power_w=power)
        for both, power in zip(parts, power_w.tolist(), strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Error:
    """Relative errors |predicted / measured - 1| in short, in percent."""

    mean_percent: float
    median_percent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Errors of one learner, each over all tested rows; None of no values.

    Attributes:
        rate: Rate of each job as it is served: the predicted relative speed times the rate of its
            profile, against the rate measured next to the other job. It includes how far the
            profile's day was from the pair's.
        speed: Relative speed of each job, against the reference of the pair's own card and run.
        rates_sum: X1 + X2, what the paper predicts.
    """

    rows: int
    rate: Error | None
    speed: Error | None
    power: Error | None
    rates_sum: Error | None
    speeds_sum: Error | None


@dataclass(frozen=True, slots=True, eq=False)
class ExpectedAndMeasured:
    """Expected and measured values of tested rows, each shape (n,)."""

    speeds: tuple[Floats, Floats]
    measured_speeds: tuple[Floats, Floats]
    rates: tuple[Floats, Floats]
    measured_rates: tuple[Floats, Floats]
    power_w: Floats
    measured_power_w: Floats


def compare(data: Data, held_out: HeldOut, which: Mask) -> ExpectedAndMeasured:
    """Expected and measured values of some of the predictions; `which` is a mask of these."""
    rows = data.rows.take(held_out.row[which])
    speeds = held_out.speed[which, 0], held_out.speed[which, 1]
    models = rows.gpu_model.tolist()
    whole = [
        np.array([data.profiles[key].whole_gpu_rate for key in zip(jobs, models, strict=True)])
        for jobs in (rows.job_a.tolist(), rows.job_b.tolist())
    ]
    return ExpectedAndMeasured(
        speeds,
        (rows.speed_a, rows.speed_b),
        (speeds[0] * whole[0], speeds[1] * whole[1]),
        (rows.speed_a * rows.solo_rate_a, rows.speed_b * rows.solo_rate_b),
        held_out.power_w[which],
        rows.power_w,
    )


def errors_of(data: Data, answers: Answers, which: Mask) -> Errors:
    """Errors over the tested ones of the rows of a mask."""
    asked = answers.tested & which[answers.held_out.row]
    found = compare(data, answers.held_out, asked)
    return Errors(
        rows=int(asked.sum()),
        rate=error(np.concatenate(found.rates), np.concatenate(found.measured_rates)),
        speed=error(np.concatenate(found.speeds), np.concatenate(found.measured_speeds)),
        power=error(found.power_w, found.measured_power_w),
        rates_sum=error(np.add(*found.rates), np.add(*found.measured_rates)),
        speeds_sum=error(np.add(*found.speeds), np.add(*found.measured_speeds)),
    )


def error(expected: Floats, measured: Floats) -> Error | None:
    """The relative errors in short; values measured as 0 have none. None of no values."""
    known = measured > 0
    if not known.any():
        return None
    errors = 100 * np.abs(expected[known] / measured[known] - 1)
    return Error(float(errors.mean()), float(np.median(errors)))
