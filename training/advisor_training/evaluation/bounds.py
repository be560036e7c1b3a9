"""How sure predictions are in an evaluation: intervals that know nothing of the pair asked for."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from advisor.core.interval import Interval
from advisor.core.split import Split
from advisor.predict.predictions import possible_speed
from advisor.predict.profiles import Profile, kind_of, of_job
from advisor_models.intervals import SPLIT, UNCAPPED, LogBounds, Strata, bounds_of_stratum
from advisor_training.dataset.rows import Rows
from advisor_training.learn.conformal import bounds_of
from advisor_training.learn.head_learners import SPEED_LEARNER
from advisor_training.learn.held_out import HeldOut
from advisor_training.learn.residuals import residuals_of

_UNKNOWN = LogBounds(-math.inf, math.inf)


@dataclass(frozen=True, slots=True)
class SpeedBounds:
    """Bounds of speeds by stratum (`advisor_models.intervals`); empty: nothing is known."""

    known: Strata

    def around(
        self, capacity: float, split: Split, part: int, profiles: Sequence[Profile]
    ) -> Interval:
        """What is expected of a job of a split that could reach a speed."""
        kinds = [kind_of(profile) for profile in profiles]
        place = SPLIT if split.is_limited else UNCAPPED
        others = (*kinds[:part], *kinds[part + 1 :])
        name = of_job(kinds[part], others, split.shares[part], place)
        low, high = (bounds_of_stratum(self.known, name) if self.known else _UNKNOWN).factors
        found = Interval(capacity, capacity * low, capacity * high)
        return possible_speed(profiles[part], found)


NO_BOUNDS = SpeedBounds({SPLIT: LogBounds(0.0, 0.0), UNCAPPED: LogBounds(0.0, 0.0)})
"""Every speed is what is expected."""


def bounds_without(rows: Rows, held_out: HeldOut, name: str, jobs: tuple[str, str]) -> SpeedBounds:
    """Bounds of the errors of all pairs that have neither of two jobs.

    Errors of the fit without `name`, what was left out for the choice that they are for, are not
    used.
    """
    a, b = rows.job_a[held_out.row], rows.job_b[held_out.row]
    others = held_out.take((held_out.left_out != name) & ~np.isin(a, jobs) & ~np.isin(b, jobs))
    # Jobs count the same. Where pairs or runs were left out, an error is of the first job.
    is_job = np.isin(others.left_out, rows.jobs)
    of_job = np.where(is_job, others.left_out, rows.job_a[others.row])
    residuals = residuals_of(rows, dataclasses.replace(others, left_out=of_job), SPEED_LEARNER)
    return SpeedBounds(bounds_of(residuals))
