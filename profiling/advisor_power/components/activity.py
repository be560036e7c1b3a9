"""What a window showed of the GPU's parts, as the terms that component weights multiply."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias

import numpy as np

from advisor.core.gpu import WHOLE
from advisor.core.records import Measured, PairPoint, SoloPoint
from advisor.predict.profiles import Floats

Component: TypeAlias = Literal["floor", "tensor", "fp32", "integer", "warps", "fabric", "memory"]

PARTS: Mapping[Component, str] = MappingProxyType(
    {
        "floor": "a context on an idle GPU at full clock, and leakage, which grows with heat",
        "tensor": "tensor cores",
        "fp32": "FP32 pipe",
        "integer": "integer pipe",
        "warps": "SMs that hold warps: scheduling, registers, shared memory and all other pipes",
        "fabric": "what is awake while kernels run, such as L2 and crossbar; where the memory was "
        "measured, moving its bytes through them, too",
        "memory": "moving bytes to and from HBM: HBM, L2 and crossbar; HBM alone where its sensor "
        "was read",
    }
)
"""Every part of the power, and what it stands for."""

SM_CLASSES: Mapping[Component, str] = MappingProxyType(
    {
        "tensor": "tensor_active_percent",
        "fp32": "fp32_active_percent",
        "integer": "integer_active_percent",
        "warps": "sm_active_percent",
    }
)
"""Classes of SM work, and the counter of each.

No FP16 and FP64: no job that was measured uses these pipes in earnest, so nothing says what they
draw. They are looked at when it is asked whether a job is like those that were measured.
"""

_SM_TERMS: Mapping[str, Component] = {part: part for part in SM_CLASSES}

TERMS: Mapping[str, Component] = MappingProxyType(
    {"floor": "floor", "temperature": "floor", **_SM_TERMS, "fabric": "fabric", "memory": "memory"}
)
"""Terms in the order of their columns, and the part that each one is of."""

SM_POWER_EXPONENT = 2.5
"""Power of SM work grows with this power of the clock: with the clock and the square of the
voltage, which follows the clock, but less than in proportion (3 if it did, 1 if it stayed). Chosen
of 2, 2.5 and 3, which docs/measurements/power/component_fit.py compares."""

COOL_C = 30.0
"""Temperature from which leakage is counted: what an idle card has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """Readings of one window that power is explained by."""

    counters: Mapping[str, float]
    """Percent by column: those of `SM_CLASSES`, `dram_active_percent`, and what has no weight,
    `fp16_active_percent` and `fp64_active_percent`."""
    units_part: float
    """Part of the SMs that jobs may use, at most 1."""
    clock_mhz: float
    temperature_c: float

    def terms(self, highest_clock_mhz: float) -> Floats:
        """What weights are multiplied with, in the order of `TERMS`.

        SM work costs about the clock times the square of the voltage, which changes with the clock
        as well: `SM_POWER_EXPONENT`. Memory has a clock of its own that does not move.
        """
        slower = (self.clock_mhz / highest_clock_mhz) ** SM_POWER_EXPONENT
        parts = {name: value / WHOLE for name, value in self.counters.items()}
        awake = min(1.0, parts["sm_active_percent"] / self.units_part)
        leakage = max(0.0, self.temperature_c - COOL_C) / 100
        classes = [parts[column] * slower for column in SM_CLASSES.values()]
        return np.array([1.0, leakage, *classes, awake, parts["dram_active_percent"]])


COLUMNS = (
    *SM_CLASSES.values(),
    "dram_active_percent",
    "fp16_active_percent",
    "fp64_active_percent",
)


def activity_of(point: SoloPoint | PairPoint) -> Activity | None:
    """The activity of a window; None where a reading is missing."""
    found: dict[str, float | None] = {name: getattr(point, name) for name in COLUMNS}
    counters = {n: float(v) for n, v in found.items() if v is not None and math.isfinite(v)}
    if len(counters) < len(COLUMNS) or not point.sm_clock_mhz or point.temperature_c is None:
        return None
    return Activity(
        counters=counters,
        units_part=_units_part(point),
        clock_mhz=point.sm_clock_mhz,
        temperature_c=point.temperature_c,
    )


def _units_part(point: Measured) -> float:
    """SMs that the jobs may use, of all: the awake part of the time follows from it."""
    if isinstance(point, SoloPoint):
        given = [point.units_granted]
    else:
        given = [part.units for part in point.parts] if isinstance(point, PairPoint) else [None]
    if None in given or not point.units_total or getattr(point, "mode", "") == "uncapped":
        return 1.0
    return min(1.0, max(1, sum(units or 0 for units in given)) / point.units_total)
