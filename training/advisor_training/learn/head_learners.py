"""How each head of a model is learned: the second half of its declaration.

How: `advisor_training.learn.estimator`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from advisor.predict.card_factor import CARD_SPREAD
from advisor.predict.profiles import Floats
from advisor_models.heads import MEMORY_POWER, POWER, SPEED, Head
from advisor_models.intervals import UNCAPPED
from advisor_training.dataset.rows import Rows, flat

LEAST_SPEED = 1e-4
"""Relative speeds below are taken as this, so that a starved job has a logarithm."""


FEWEST_JOBS = 20
"""A head that not every window tells is learned from so many jobs at least, with limits of SMs and
without. Of n jobs left out, the error of a new one is above all of theirs once in n + 1: an
interval that is to miss 5 % on each side needs 19."""


def _never(rows: Rows) -> Floats:
    return np.full((len(rows), 1), np.inf)


def _all_served(rows: Rows) -> Floats:
    return np.column_stack([rows.all_served_a, rows.all_served_b])


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class HeadLearner:
    """What a head is learned from, and how sure it is where the rows do not tell.

    Attributes:
        measured: What was measured of it in rows; shape (n, parts).
        all_served: From which value on a measured one only says that it could be no less: such rows
            are not learned from, and have no error where so much was expected; shape (n, parts).
        least: Measured values below are taken as this.
        most: Measured and expected values above are taken as this; shape (n, parts).
        card_spread: Standard deviation between cards of the logarithm, below the power limit, where
            the rows have no other card to show it; 0: cards do not differ.
        one_gpu_widening: How much wider intervals are taken to be for other GPU models where the
            rows are of one. Leaving out a run of the H200 with all its cards, and the job as well,
            the worst of the runs takes intervals 1.61 times as wide for speeds and 1.32 times for
            power, and 20 of its pairs until none need be wider. Rounded up to halves: a card of
            another model differs from these more than they do from each other.
            docs/measurements/model.md has the figures.
    """

    head: Head
    measured: Callable[[Rows], Floats]
    all_served: Callable[[Rows], Floats] = _never
    least: float = 0.0
    most: Callable[[Rows], Floats] = _never
    card_spread: float = 0.0
    one_gpu_widening: float = 2.0

    def is_known(self, rows: Rows) -> npt.NDArray[np.bool_]:
        """In which rows it was measured; shape (n,)."""
        known: npt.NDArray[np.bool_] = np.isfinite(self.measured(rows))
        return np.logical_and.reduce(known, axis=1)

    def possible(self, rows: Rows, values: Floats) -> Floats:
        """Values of rows between `least` and `most`, part by part; shape (parts x n,)."""
        return flat(np.clip(values, self.least, self.most(rows)))

    def is_told(self, rows: Rows) -> npt.NDArray[np.bool_]:
        """Which of the targets are known, part by part; shape (parts x n,)."""
        return flat(self.measured(rows) < self.all_served(rows))


SPEED_LEARNER = HeadLearner(
    head=SPEED,
    measured=lambda rows: np.column_stack([rows.speed_a, rows.speed_b]),
    all_served=_all_served,
    least=LEAST_SPEED,
    most=lambda rows: np.where(np.isfinite(_all_served(rows)), np.inf, 1.0),
)

POWER_LEARNER = HeadLearner(
    head=POWER,
    measured=lambda rows: rows.power_w[:, None],
    card_spread=CARD_SPREAD,
    one_gpu_widening=1.5,
)

MEMORY_POWER_LEARNER = HeadLearner(
    head=MEMORY_POWER,
    measured=lambda rows: rows.memory_power_w[:, None],
    card_spread=CARD_SPREAD,
)

HEAD_LEARNERS = (SPEED_LEARNER, POWER_LEARNER)
"""Of the heads that every model has."""

OPTIONAL_LEARNERS = (MEMORY_POWER_LEARNER,)
"""Of heads that not every window tells."""


def learners_for(rows: Rows) -> tuple[HeadLearner, ...]:
    """Of all heads that can be learned from rows: the optional ones, where there are enough."""
    return (*HEAD_LEARNERS, *(x for x in OPTIONAL_LEARNERS if is_enough(rows, x)))


def is_enough(rows: Rows, learner: HeadLearner) -> bool:
    """Whether an optional head was measured of enough jobs.

    And in two runs, since intervals are made of errors in another run.
    """
    known = learner.is_known(rows)
    kinds = (known & (rows.kind == UNCAPPED), known & (rows.kind != UNCAPPED))
    jobs = min(len(rows.take(kind).jobs) for kind in kinds)
    return jobs >= FEWEST_JOBS and len(np.unique(rows.run[known])) > 1
