"""What splits finer than the nine add: exact counts of compute units."""

import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from advisor.core.objectives import Objective
from advisor_training.analysis.gains import oracle_value
from advisor_training.dataset.noise import worse
from advisor_training.dataset.pairs import MeasuredPair


@dataclass(frozen=True, slots=True, kw_only=True)
class GridGain:
    """What splits by exact counts of units add to the nine.

    Attributes:
        pairs: Pairs with such splits.
        above_noise_pairs: Of them, those whose gain is above the noise.
        mean_percent: Mean gain of the best of all over the best of the nine; `median_percent` and
            `most_percent` likewise.
    """

    pairs: int
    above_noise_pairs: int
    mean_percent: float
    median_percent: float
    most_percent: float


def grid_gain(pairs: Iterable[MeasuredPair], objective: Objective, tie: float) -> GridGain | None:
    """What exact counts of units add; None where no pair has them."""
    gains = [g for pair in pairs for g in _grid_gains(pair, objective)]
    if not gains:
        return None
    return GridGain(
        pairs=len(gains),
        above_noise_pairs=sum(worse(100, 100 + g, tie) for g in gains),
        mean_percent=statistics.mean(gains),
        median_percent=statistics.median(gains),
        most_percent=max(gains),
    )


def _grid_gains(pair: MeasuredPair, objective: Objective) -> Iterator[float]:
    """The gain of the fullest measurement that has exact counts, if there is one."""
    for measurement in pair.measurements:
        if grid := measurement.splits["grid"]:
            coarse = oracle_value(measurement.nine, objective)
            finest = max(coarse, oracle_value(grid, objective))
            if coarse > 0:
                yield 100 * (finest / coarse - 1)
            return
