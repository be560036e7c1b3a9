"""Measured inputs that are made up: a card whose power follows a law of the fingerprint."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from advisor.wire.power import FEATURES, InputPoint
from advisor_power.data.predictor import InputManifest
from advisor_power.data.training import (
    TrainedInputs,
    fit_inputs,
    write_input_model,
)
from advisor_training import learners

IDLE_W = 110.0
CLOCK_MHZ = 1900.0
WORK_PER_CYCLE = 3000.0
GROUPS = 14
LEVELS = 8

_NONE = ("a_zeros", "b_zeros", "zero_products", "sum_non_finite")

USUAL: dict[str, float] = {name: 0.0 if name in _NONE else 0.4 for name in FEATURES}
"""Of what is taken to be normal random numbers."""

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
    rate, ghz = units * clock_mhz * 1e6 * WORK_PER_CYCLE / 1e12, clock_mhz / 1000
    return IDLE_W + 15 + 0.02 * units * ghz**2.5 + 0.43 * law(features) * ghz**1.5 * rate


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
    clocks = np.linspace(0.2, 1, 4001)[::-1] * CLOCK_MHZ
    clock_mhz = float(next(c for c in clocks if power_w(law, features, units, c) <= limit_w))
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
        power_w=IDLE_W + (power_w(law, features, units, clock_mhz) - IDLE_W) * scale,
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
        # None of them near 1, so that there is something that was never measured.
        begin, end = 0.9 * random.random((2, len(FEATURES)))
        for number, level in enumerate(np.linspace(0, 1, LEVELS)):
            values = begin + level * (end - begin)
            features: dict[str, float] = dict(zip(FEATURES, map(float, values), strict=True))
            scale = float(np.exp(noise * random.standard_normal()))
            units = all_units[(group + number) % len(all_units)]
            name = f"g{seed}-{group}"
            found.append(point(features, law, group=name, units=units, scale=scale, **of))
    return found


def references(law: Law = switching, **of: Any) -> list[InputPoint]:
    """The reference, twice on all SMs and twice on half of them."""
    return [
        point(USUAL, law, group="normal", units=units, is_reference=True, **of)
        for units in (66, 66, 132, 132)
    ]


def trained_on(measured: list[InputPoint], trees: int = 4) -> TrainedInputs:
    """Quickly: with few trees."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learners, "TREES", trees)
        return fit_inputs(measured)


def made_up_model(
    folder: Path, law: Law = switching, *, groups: int = GROUPS, **of: Any
) -> InputManifest:
    """A model in a folder, of products of bf16 of 4096x4096x4096 on 66 and 132 SMs."""
    trained = trained_on([*points(law, groups=groups, **of), *references(law, **of)])
    return write_input_model(folder, trained)
