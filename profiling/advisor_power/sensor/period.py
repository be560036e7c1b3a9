"""How often a reading changes."""

from dataclasses import dataclass

import numpy as np

from advisor.predict.profiles import Floats

LEAST_CHANGES = 30
"""Fewer do not show a period."""

MOST_DRIFT = 0.05
"""Relative difference between two parts of a recording at which the period has changed."""

_LEAST_REGULAR = 0.8
_NEAR = 0.25
_MOST_MISSED = 3


@dataclass(frozen=True, slots=True)
class Period:
    """Time between two updates of a channel."""

    period_s: float
    regular_share: float
    """Part of all gaps that is near a whole number of periods."""

    @property
    def regular(self) -> bool:
        """Whether there is one period at all."""
        return self.regular_share >= _LEAST_REGULAR


def period_of(times_s: Floats) -> Period | None:
    """The period of a channel from the times (n,) of its changes; None where they are too few.

    An update to the same value shows no change, so that a gap may be two or three periods long; the
    median is one period as long as less than half of the updates show none.
    """
    gaps_s = np.diff(times_s)
    if len(gaps_s) < LEAST_CHANGES:
        return None
    first_s = float(np.median(gaps_s))
    steps = np.rint(gaps_s / first_s)
    near = np.abs(gaps_s - steps * first_s) < _NEAR * first_s
    used = near & (steps >= 1) & (steps <= _MOST_MISSED)
    # Longer gaps are stretches of the same value, which say nothing.
    judged = int(np.count_nonzero(gaps_s < (_MOST_MISSED + 0.5) * first_s))
    if not used.any():
        return Period(first_s, 0.0)
    return Period(
        float(gaps_s[used].sum() / steps[used].sum()), float(np.count_nonzero(used)) / judged
    )


def drift_of(first: Period, second: Period) -> float:
    """Relative difference of two periods."""
    return abs(second.period_s / first.period_s - 1)
