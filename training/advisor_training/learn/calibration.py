"""What the intervals of a model are made of: errors on other jobs, in other runs, on other cards.

A user's profile is of one card and day, and the launch of another. So a job is left out together
with each run and every card of that run: between-card differences of power at the same rate, the
errors of profiles and of the days are all in what is left of the errors. Where all points are of
one run, only the job can be left out, and what other cards draw is put in from
`HeadLearner.card_spread`.

Energy for the same work is a ratio of powers of one card, which a card that draws more for
everything does not change. Its bounds are made of its own errors and get no such term.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.core.interval import NORMAL_90
from advisor.predict.profiles import COLUMNS, NEEDED, Profile
from advisor_models.intervals import SPLIT, LogBounds, Strata, place_of
from advisor_training.dataset.rows import Rows
from advisor_training.learn.conformal import (
    Coverage,
    bounds_of,
    intervals,
    measured_coverage,
    widening,
)
from advisor_training.learn.head_learners import HEAD_LEARNERS, HeadLearner
from advisor_training.learn.held_out import HeldOut, joined, predicted
from advisor_training.learn.learners import Learner
from advisor_training.learn.protocols import BY_RUN, BY_WORKLOAD, PROTOCOLS, has_other_runs
from advisor_training.learn.residuals import Residuals, efficiency_residuals, residuals_of


@dataclass(frozen=True, slots=True)
class Calibrated:
    """Intervals, and what they hold of jobs that took no part in making them.

    Attributes:
        intervals: By head.
        efficiency: Bounds of `energy-efficiency` at splits; empty: no split was measured.
        held: By head, and of "efficiency".
        no_counters: By head, how much wider they must be for profiles without counters; None: not
            tried.
    """

    intervals: dict[str, Strata]
    efficiency: Strata
    held: dict[str, Coverage]
    no_counters: dict[str, float] | None


def strictest(rows: Rows) -> str:
    """The protocol that the rows allow whose errors the intervals are made of."""
    return BY_RUN if has_other_runs(rows) else BY_WORKLOAD


def calibrate(
    rows: Rows,
    held_out: HeldOut,
    blind: HeldOut | None = None,
    learners: Sequence[HeadLearner] = HEAD_LEARNERS,
) -> Calibrated:
    """Intervals from the errors of what was left out under the `strictest` protocol.

    `blind` are predictions of the same rows for profiles without counters.

    Raises:
        InputError: no pair was measured uncapped, or there are too few jobs.
    """
    errors = {learner.head.name: residuals_of(rows, held_out, learner) for learner in learners}
    efficiency = efficiency_residuals(rows, held_out)
    return Calibrated(
        intervals={x.head.name: _intervals(rows, errors[x.head.name], x) for x in learners},
        efficiency={n: b for n, b in bounds_of(efficiency).items() if place_of(n) == SPLIT},
        held={n: measured_coverage(e) for n, e in {**errors, "efficiency": efficiency}.items()},
        no_counters=None
        if blind is None
        else {
            n: round(widening(residuals_of(rows, blind, x), bounds_of(errors[n])), 3)
            for n, x in ((x.head.name, x) for x in learners)
        },
    )


def with_card_term(found: Strata, card_spread: float) -> Strata:
    """Bounds below the power limit for a profile and a launch on two cards.

    The spread of a difference of two cards (`card_spread`: the standard deviation between cards of
    the logarithm), added to the errors as what does not hang on them. At the limit all cards draw
    the same.
    """
    if not card_spread:
        return found
    term = NORMAL_90 * math.sqrt(2) * card_spread
    return {
        name: _with_term(bounds, term) if place_of(name) == SPLIT else bounds
        for name, bounds in found.items()
    }


def left_out(rows: Rows, learner: Learner) -> HeldOut:
    """Predictions of all rows under the `strictest` protocol."""
    return PROTOCOLS[strictest(rows)].answer(rows, learner, lambda: None).held_out


def without_counters(profile: Profile) -> Profile:
    """The profile as a host without counters makes it: rates and power only."""
    values = {
        name: column if name in NEEDED else np.full_like(column, np.nan)
        for name, column in profile.values.items()
    }
    missing = tuple(name for name in COLUMNS if name not in NEEDED)
    return replace(profile, values=values, missing=missing)


def ask_blind(rows: Rows, blind: Rows, learner: Learner) -> HeldOut:
    """Each job left out, what is expected of its rows when no profile has counters."""
    return joined(
        [
            predicted(learner(rows.take(~rows.of(job))), blind, rows.of(job), job)
            for job in rows.jobs
        ]
    )


def _intervals(rows: Rows, errors: Residuals, learner: HeadLearner) -> Strata:
    found = intervals(errors, learner)
    return found if has_other_runs(rows) else with_card_term(found, learner.card_spread)


def _with_term(bounds: LogBounds, term: float) -> LogBounds:
    return LogBounds(-math.hypot(min(bounds.low, 0), term), math.hypot(max(bounds.high, 0), term))
