"""Values with the interval that they are in with 95 %."""

import math
from collections.abc import Sequence

import numpy as np

from advisor.wire.power import Estimate

_T_95 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)
"""Student's t for 95 %, by degrees of freedom from 1 on."""

_T_MANY = 2.0

STANDARD_ERRORS_95 = 1.96
"""In half an interval of 95 % of a normal value."""


def around(value: float, half: float) -> Estimate:
    """A value with an interval of half this width."""
    return Estimate(value, value - half, value + half)


def standard_error(found: Estimate) -> float:
    """By its interval; 0 where it has none."""
    return 0.0 if found.high is None else (found.high - found.value) / STANDARD_ERRORS_95


def mean_of(values: Sequence[float]) -> Estimate:
    """Mean of independent values, with an interval by Student's t.

    Raises:
        ValueError: there are none.
    """
    if not values:
        raise ValueError("no values have no mean")
    mean, freedom = float(np.mean(values)), len(values) - 1
    if not freedom:
        return Estimate(mean, None, None)
    t = _T_95[freedom - 1] if freedom <= len(_T_95) else _T_MANY
    return around(mean, t * float(np.std(values, ddof=1)) / math.sqrt(len(values)))
