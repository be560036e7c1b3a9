"""The power of one window in parts that sum to it."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from advisor.core.interval import Interval
from advisor.predict.profiles import Floats
from advisor.wire.answers import Basis
from advisor_power.components.activity import PARTS, TERMS, Activity, Component
from advisor_power.components.weights import ComponentWeights

PERCENTILES = (5.0, 95.0)
"""Of the draws: the bounds of a part."""

_FABRIC, _MEMORY = list(PARTS).index("fabric"), list(PARTS).index("memory")

UNREAD_MEMORY = 2.0
"""How much wider the interval of memory is where its sensor was not read."""


@dataclass(frozen=True, slots=True)
class Components:
    """Power in parts."""

    total_w: float
    """Measured or predicted; the values of the parts sum to it."""
    parts_w: Mapping[Component, Interval]
    """Every part of `PARTS`."""
    memory: Basis
    """How the memory's is known."""
    others: Basis
    """How all others' are known; never measured."""
    unlike: tuple[str, ...] = ()
    """What is outside of all that the weights were fitted to."""

    def share(self, part: Component) -> float:
        """Part of the total."""
        return self.parts_w[part].value / self.total_w


def components(
    weights: ComponentWeights,
    activity: Activity,
    total_w: float,
    memory_power_w: float | None = None,
) -> Components:
    """Splits a total: in proportion to what the weights expect, the memory as measured if it was.

    Args:
        weights: Of the GPU model.
        activity: Of the window.
        total_w: Its power, above 0.
        memory_power_w: From the sensor of the memory, over the same window; None, or a reading that
            cannot be (not between 0 and the total): estimated.
    """
    terms = activity.terms(weights.highest_clock_mhz)
    by_part = _by_part(np.vstack([weights.values, weights.draws]) * terms)
    unlike = weights.outside(activity)
    others: Basis = "extrapolated" if unlike else "estimated"
    found = _scaled(by_part, total_w)
    # "not between" is true of NaN as well.
    if memory_power_w is None or not 0 < memory_power_w < total_w:
        parts = _intervals(found)
        parts["memory"] = _widened(parts["memory"], total_w)
        memory = others
    else:
        parts = _intervals(_beside(found, memory_power_w, total_w))
        memory = "measured"
    return Components(total_w, parts, memory, others, unlike)


def _beside(watts: Floats, memory_w: float, total_w: float) -> Floats:
    """All parts beside a memory that was measured.

    The weight of memory has L2 and crossbar in it: what it says above the sensor is fabric's.
    """
    core = watts.copy()
    core[:, _FABRIC] += np.maximum(0.0, watts[:, _MEMORY] - memory_w)
    core[:, _MEMORY] = 0.0
    core = _scaled(core, total_w - memory_w)
    core[:, _MEMORY] = memory_w
    return core


def _by_part(watts: Floats) -> Floats:
    """Sums of the terms of each part; (draws, terms) to (draws, parts)."""
    belongs = np.array([[of == part for part in PARTS] for of in TERMS.values()], dtype=np.float64)
    return watts @ belongs


def _scaled(watts: Floats, total_w: float) -> Floats:
    """Each row as parts of the total; what draws nothing at all is floor."""
    sums = watts.sum(axis=1, keepdims=True)
    floor = np.zeros_like(watts)
    floor[:, 0] = 1.0
    return total_w * np.where(sums > 0, watts / np.maximum(sums, 1e-300), floor)


def _intervals(watts: Floats) -> dict[Component, Interval]:
    """Of the first row, with bounds from the others."""
    low, high = np.percentile(watts[1:], PERCENTILES, axis=0)
    value = watts[0]
    low, high = np.minimum(low, value), np.maximum(high, value)
    return {
        part: Interval(float(value[n]), float(low[n]), float(high[n]))
        for n, part in enumerate(PARTS)
    }


def _widened(memory: Interval, total_w: float) -> Interval:
    low = memory.value - UNREAD_MEMORY * (memory.value - memory.low)
    high = memory.value + UNREAD_MEMORY * (memory.high - memory.value)
    return Interval(memory.value, max(0.0, low), min(total_w, high))
