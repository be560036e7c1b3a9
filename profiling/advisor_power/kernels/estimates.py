"""Values with the interval that they are in with 95 %."""

import math
from collections.abc import Sequence

import numpy as np

from advisor.wire.kernel_power import Estimate

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


def minus(one: Estimate, other: Estimate) -> Estimate:
    """The difference of two independent values."""
    return _combined(one.value - other.value, [(one, 1.0), (other, 1.0)])


def ratio(one: Estimate, other: Estimate) -> Estimate:
    """One of two independent values over the other.

    Raises:
        ZeroDivisionError: the other is 0.
    """
    value = one.value / other.value
    return _combined(value, [(one, 1 / other.value), (other, value / other.value)])


def _combined(value: float, parts: Sequence[tuple[Estimate, float]]) -> Estimate:
    """Half widths add up as squares, each times how much it counts."""
    halves = [None if e.low is None or e.high is None else (e.high - e.low) / 2 for e, _ in parts]
    if None in halves:
        return Estimate(value, None, None)
    squares = [(half * by) ** 2 for half, (_, by) in zip(halves, parts, strict=True) if half]
    return around(value, math.sqrt(sum(squares)))


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
