"""Figures over pairs and how sure they are: another site has other jobs, so jobs are drawn again.

A pair counts as often as its first job was drawn, times the second ("The pigeonhole bootstrap",
A. B. Owen, Annals of Applied Statistics 1(2), 2007): all pairs of a job come and go together. It
is conservative: noise of single pairs counts up to three times.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from advisor.predict.profiles import Floats
from advisor_training.learn.estimator import SEED

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
        drawn = self._weights @ found / self._weights.sum(axis=1)
        return _estimate(float(found.mean()), drawn)

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
