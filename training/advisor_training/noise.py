"""Figures over pairs and how sure they are: another site has other jobs, so jobs are drawn again.

A pair counts as often as its first job was drawn, times the second ("The pigeonhole bootstrap",
A. B. Owen, Annals of Applied Statistics 1(2), 2007): all pairs of a job come and go together. It
is conservative: noise of single pairs counts up to three times.
"""

import itertools
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from advisor.core.objectives import Candidate, Objective, best
from advisor.core.split import EQUAL, Split
from advisor.predict.profiles import Floats
from advisor_training.learners import SEED
from advisor_training.pairs import MeasuredPair, ResultsBySplit, is_full

DRAWS = 1000

OUTSIDE = 0.025
"""Part of the draws below an interval, and above it."""


@dataclass(frozen=True, slots=True)
class BootstrapEstimate:
    """A figure and its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} [{self.low:.2f} {self.high:.2f}]"


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

    def mean(self, values: Sequence[float] | Floats) -> BootstrapEstimate:
        """Of values that are in the order of the pairs."""
        found = np.asarray(values, dtype=np.float64)
        return _estimate(float(found.mean()), self._weights @ found / self._weights.sum(axis=1))

    def median(self, values: Sequence[float] | Floats) -> BootstrapEstimate:
        """The same of the median."""
        found = np.asarray(values, dtype=np.float64)
        order = np.argsort(found, kind="stable")
        reached = np.cumsum(self._weights[:, order], axis=1)
        places = (reached >= reached[:, -1:] / 2).argmax(axis=1)
        return _estimate(float(np.median(found)), found[order][places])


def _estimate(value: float, drawn: npt.NDArray[np.float64]) -> BootstrapEstimate:
    low, high = np.quantile(drawn, (OUTSIDE, 1 - OUTSIDE))
    return BootstrapEstimate(value, float(low), float(high))


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
