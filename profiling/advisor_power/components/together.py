"""What jobs do to the GPU together, and which of them lowers the clock at the power limit."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from advisor.core.gpu import WHOLE
from advisor.core.interval import Interval
from advisor.predict.features import FULL_BANDWIDTH_PERCENT
from advisor_power.components.activity import SM_CLASSES, SM_POWER_EXPONENT, TERMS, Activity
from advisor_power.components.parts import PERCENTILES
from advisor_power.components.weights import ComponentWeights

_SLOWEST = 0.1
"""Least part of the highest clock that is considered."""

_OF_CLOCK = np.array([part in SM_CLASSES for part in TERMS.values()])
"""Which terms follow the clock of the SMs."""

_OF_JOBS = np.array([part != "floor" for part in TERMS.values()], dtype=np.float64)
"""1 for terms that jobs add to, 0 for those of the floor."""


def at_once(activities: Sequence[Activity]) -> Activity:
    """Jobs side by side, each at the same clock: counters and SMs add up, as far as there are any.

    The memory is busy with data for `FULL_BANDWIDTH_PERCENT` of the time at most.
    """
    counters = {
        name: min(WHOLE, sum(a.counters[name] for a in activities))
        for name in activities[0].counters
    }
    dram = min(counters["dram_active_percent"], FULL_BANDWIDTH_PERCENT)
    return Activity(
        counters={**counters, "dram_active_percent": dram},
        units_part=min(1.0, sum(a.units_part for a in activities)),
        clock_mhz=max(a.clock_mhz for a in activities),
        temperature_c=max(a.temperature_c for a in activities),
    )


def at_work(activity: Activity, kept: float, clock_mhz: float) -> Activity:
    """The job at a part of its rate and at another clock: the same work takes as many cycles.

    Args:
        activity: What it does at its full rate.
        kept: Its rate for each one of that.
        clock_mhz: The other clock; of fewer cycles in a second the work takes a larger part.
    """
    cycles = kept * activity.clock_mhz / clock_mhz
    counters = {
        name: min(WHOLE, value * (cycles if name in SM_CLASSES.values() else kept))
        for name, value in activity.counters.items()
    }
    return replace(activity, counters=counters, clock_mhz=clock_mhz)


def at_power(activity: Activity, weights: ComponentWeights, power_w: float) -> Activity:
    """The same work in a second, at the clock at which the GPU draws this power.

    A larger part of fewer cycles: SM work follows the clock with one power less than
    `SM_POWER_EXPONENT`.
    """
    top = weights.highest_clock_mhz
    at_top = at_work(activity, 1.0, top)
    watts = at_top.terms(top) * weights.values
    left = (power_w - watts[~_OF_CLOCK].sum()) / max(float(watts[_OF_CLOCK].sum()), 1e-9)
    slower = float(np.clip(left, _SLOWEST, 1.0)) ** (1 / (SM_POWER_EXPONENT - 1))
    return at_work(at_top, 1.0, top * max(slower, _SLOWEST))


def causes(weights: ComponentWeights, activities: Sequence[Activity]) -> tuple[Interval, ...]:
    """Which part of the fall of the clock each job causes: the expected values sum to 1.

    As its part of the watts that all ask for above the floor, each alone at its share and at the
    highest clock: at the limit these have to share what there is.
    """
    rows = np.vstack([weights.values, weights.draws])
    top = weights.highest_clock_mhz
    of_jobs = (_OF_JOBS * at_work(a, 1.0, top).terms(top) for a in activities)
    asked = np.maximum(np.array([rows @ terms for terms in of_jobs]), 1e-9)
    parts = asked / asked.sum(axis=0)
    low, high = np.percentile(parts[:, 1:], PERCENTILES, axis=1)
    return tuple(
        Interval(float(v), float(min(lo, v)), float(max(hi, v)))
        for v, lo, hi in zip(parts[:, 0], low, high, strict=True)
    )
