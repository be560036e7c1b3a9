"""Measured inputs that are made up: a card whose power follows a law of the fingerprint."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from advisor.wire.input_power import FEATURES, InputPoint

IDLE_W = 110.0
CLOCK_MHZ = 1900.0
WORK_PER_CYCLE = 3000.0
GROUPS = 14
LEVELS = 8

Law = Callable[[dict[str, float]], float]
"""Features to pJ per operation at 1 GHz."""


def switching(f: dict[str, float]) -> float:
    """What the physics can say and no baseline: products and sums that switch."""
    zeros = f["zero_products"]
    return 0.15 + 0.5 * f["product_switching"] + 0.4 * f["sum_switching"] + 0.1 * (1 - zeros)


def bent(f: dict[str, float]) -> float:
    """Not linear: what the physics leaves to the trees."""
    return switching(f) * (1 + 0.5 * (f["product_switching"] > 0.5))


def zeros_alone(f: dict[str, float]) -> float:
    return 0.3 + 0.7 * (1 - f["zero_products"])


def power_w(law: Law, features: dict[str, float], units: int, clock_mhz: float) -> float:
    rate = units * clock_mhz * 1e6 * WORK_PER_CYCLE / 1e12
    return IDLE_W + 15 + 0.1 * units + law(features) * (0.4 + 0.2 * (clock_mhz / 1000) ** 2) * rate


def point(
    features: dict[str, float],
    law: Law,
    *,
    group: str,
    units: int = 66,
    limit_w: float = 1e6,
    scale: float = 1.0,
    **of: Any,
) -> InputPoint:
    """At the highest clock up to `CLOCK_MHZ` at which it stays within the limit."""
    clocks = np.linspace(0.2, 1, 4001) * CLOCK_MHZ
    clock_mhz = float(max(c for c in clocks if power_w(law, features, units, c) <= limit_w))
    above_w = power_w(law, features, units, clock_mhz) - IDLE_W
    made = InputPoint(
        gpu_model="H",
        gpu_uuid="GPU-1",
        measured_at="2026-11-23T10:00:00Z",
        dtype="bf16",
        shape=(4096, 4096, 4096),
        units=units,
        expression="normal(0,1)",
        group=group,
        features=features,
        power_w=IDLE_W + above_w * scale,
        idle_w=IDLE_W,
        flop_per_s=units * clock_mhz * 1e6 * WORK_PER_CYCLE,
        clock_mhz=clock_mhz,
        reference_w=400.0,
        power_limit_w=None if limit_w == 1e6 else limit_w,
        at_limit=clock_mhz < CLOCK_MHZ,
    )
    return dataclasses.replace(made, **of)


def points(
    law: Law = switching,
    *,
    seed: int = 0,
    groups: int = GROUPS,
    noise: float = 0.0,
    all_units: tuple[int, ...] = (66, 132),
    **of: Any,
) -> list[InputPoint]:
    """Sweeps: on each, features go from one place to another."""
    random = np.random.default_rng(seed)
    found: list[InputPoint] = []
    for group in range(groups):
        begin, end = random.random((2, len(FEATURES)))
        for number, level in enumerate(np.linspace(0, 1, LEVELS)):
            values = begin + level * (end - begin)
            features: dict[str, float] = dict(zip(FEATURES, map(float, values), strict=True))
            scale = float(np.exp(noise * random.standard_normal()))
            units = all_units[(group + number) % len(all_units)]
            name = f"g{seed}-{group}"
            found.append(point(features, law, group=name, units=units, scale=scale, **of))
    return found
