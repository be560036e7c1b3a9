"""How sure predictions are in an evaluation: intervals that know nothing of the pair asked for."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from advisor.core.interval import Interval
from advisor.predict.predictions import possible_speed
from advisor.predict.profiles import Profile
from advisor_models.intervals import UNCAPPED, LogBounds
from advisor_training.dataset.rows import Rows
from advisor_training.learn.conformal import bounds_of
from advisor_training.learn.head_learners import SPEED_LEARNER
from advisor_training.learn.held_out import HeldOut
from advisor_training.learn.residuals import residuals_of, share_names

_UNKNOWN = LogBounds(-math.inf, math.inf)


@dataclass(frozen=True, slots=True)
class SpeedBounds:
    """Bounds of speeds by share.

    Attributes:
        known: By name of the share as in `advisor_training.learn.conformal`; the widest of them
            hold for a share that is not among them.
    """

    known: Mapping[str, LogBounds]

    def around(self, capacity: float, share_percent: float, profile: Profile) -> Interval:
        """What is expected of a job that could reach a speed; a share of 100 is without limits."""
        low, high = self._at(share_percent).factors
        return possible_speed(profile, Interval(capacity, capacity * low, capacity * high))

    def _at(self, share_percent: float) -> LogBounds:
        (name,) = share_names(np.array([share_percent])) if share_percent < 100 else (UNCAPPED,)
        every = self.known.values()
        widest = (
            LogBounds(min(b.low for b in every), max(b.high for b in every)) if every else _UNKNOWN
        )
        return self.known.get(str(name), widest)


NO_BOUNDS = SpeedBounds({UNCAPPED: LogBounds(0.0, 0.0), "": LogBounds(0.0, 0.0)})
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
