"""What the intervals of a model are made of: errors on other jobs, in other runs, on other cards.

A user's profile is of one card and day, and the launch of another. So a job is left out together
with each run and every card of that run: between-card differences of power at the same rate, the
errors of profiles and of the days are all in what is left of the errors. Where all points are of
one run, only the job can be left out, and what other cards draw is put in from `CARD_SPREAD`.

Energy for the same work is a ratio of powers of one card, which a card that draws more for
everything does not change. Its bounds are made of its own errors and get no such term.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from advisor.predict.profiles import COLUMNS, NEEDED, Profile
from advisor_models.intervals import Bounds, Intervals, Widening
from advisor_training.dataset.rows import Rows
from advisor_training.learn.conformal import (
    COVERAGE,
    Coverage,
    bounds_of,
    efficiency_residuals,
    intervals,
    measured_coverage,
    power_residuals,
    speed_residuals,
    widening,
)
from advisor_training.learn.learners import Learner
from advisor_training.learn.protocols import BY_RUN, BY_WORKLOAD, PROTOCOLS, has_other_runs
from advisor_training.learn.unseen import Unseen, joined, predicted

CARD_SPREAD = 0.035
"""Standard deviation between cards of the log power of one job alone at the same rate, below the
power limit: inference and benchmarks on 11 cards of H200, 1.4 % between jobs of one card taken off
(docs/measurements/model/card_spread.py)."""

_NORMAL_90 = 1.645


@dataclass(frozen=True, slots=True)
class Calibrated:
    """Intervals, and what they hold of jobs that took no part in making them.

    Attributes:
        held: Of "speed", "power" and "efficiency".
        no_counters: How much wider they must be for profiles without counters; None: not tried.
    """

    intervals: Intervals
    held: dict[str, Coverage]
    no_counters: Widening | None


def strictest(rows: Rows) -> str:
    """The protocol that the rows allow whose errors the intervals are made of."""
    return BY_RUN if has_other_runs(rows) else BY_WORKLOAD


def calibrate(rows: Rows, unseen: Unseen, blind: Unseen | None = None) -> Calibrated:
    """Intervals from the errors of what was left out.

    Args:
        rows: All rows.
        unseen: Predictions under the `strictest` protocol.
        blind: Predictions of the same rows for profiles without counters.

    Raises:
        InputError: no pair was measured uncapped, or there are too few jobs.
    """
    residuals = {
        "speed": speed_residuals(rows, unseen),
        "power": power_residuals(rows, unseen),
        "efficiency": efficiency_residuals(rows, unseen),
    }
    found = intervals(residuals["speed"], residuals["power"], residuals["efficiency"])
    return Calibrated(
        intervals=found if has_other_runs(rows) else with_card_term(found),
        held={name: measured_coverage(found) for name, found in residuals.items()},
        no_counters=_blind_widening(rows, unseen, blind) if blind is not None else None,
    )


def with_card_term(found: Intervals) -> Intervals:
    """Bounds of power below the limit for a profile and a launch on two cards.

    The spread of a difference of two cards, added to the errors as what does not hang on them. At
    the limit all cards draw the same.
    """
    term = _NORMAL_90 * math.sqrt(2) * CARD_SPREAD
    split = found.power.split
    wide = Bounds(-math.hypot(min(split.low, 0), term), math.hypot(max(split.high, 0), term))
    return replace(found, power=replace(found.power, split=wide))


def left_out(rows: Rows, learner: Learner) -> Unseen:
    """Predictions of all rows under the `strictest` protocol."""
    return PROTOCOLS[strictest(rows)].answer(rows, learner, lambda: None).unseen


def without_counters(profile: Profile) -> Profile:
    """The profile as a host without counters makes it: rates and power only."""
    values = {
        name: column if name in NEEDED else np.full_like(column, np.nan)
        for name, column in profile.values.items()
    }
    missing = tuple(name for name in COLUMNS if name not in NEEDED)
    return replace(profile, values=values, missing=missing)


def ask_blind(rows: Rows, blind: Rows, learner: Learner) -> Unseen:
    """Each job left out, what is expected of its rows when no profile has counters.

    Args:
        rows: What is learned from.
        blind: The same rows, of profiles without counters.
        learner: What is fitted, once for each job.
    """
    return joined(
        [
            predicted(learner(rows.take(~rows.of(job))), blind, rows.of(job), job)
            for job in rows.jobs
        ]
    )


def _blind_widening(rows: Rows, unseen: Unseen, blind: Unseen) -> Widening:
    speed = bounds_of(speed_residuals(rows, unseen), COVERAGE)
    power = bounds_of(power_residuals(rows, unseen), COVERAGE)
    return Widening(
        speed=round(widening(speed_residuals(rows, blind), speed), 3),
        power=round(widening(power_residuals(rows, blind), power), 3),
    )
