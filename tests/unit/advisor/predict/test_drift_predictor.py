"""Predictions of jobs that drift."""

import pytest
from made_up_profiles import Physics, profile

from advisor.core.split import EQUAL
from advisor.wire.observed import DriftedJob, DriftQuantity
from advisor_advice.conditions import DriftPredictor


def drift(quantity: DriftQuantity, ratio: float) -> DriftedJob:
    return DriftedJob(
        job="a", gpu_model="NVIDIA H200", gpu_uuid="GPU-1", quantity=quantity, ratio=ratio,
        since="2026-11-22", observations=8,
    )  # fmt: skip


def test_only_the_bounds_of_the_drifted_job_move() -> None:
    """Expected values stay, so does the other job, and saved energy has no own bounds."""
    profiles = (profile("a"), profile("b"))
    (before,) = Physics().predict(profiles, [EQUAL])
    known = {("a", "rate"): drift("rate", 0.8), ("a", "power"): drift("power", 1.1)}
    (after,) = DriftPredictor(Physics(), known).predict(profiles, [EQUAL])
    a, b = after.parts
    assert a.speed.value == before.parts[0].speed.value
    assert a.speed.low == pytest.approx(0.8 * before.parts[0].speed.low)
    assert a.speed.high == before.parts[0].speed.high
    assert b == before.parts[1]
    assert after.power_w.high == pytest.approx(1.1 * before.power_w.high)
    assert after.efficiency_factors is None


def test_other_jobs_are_as_they_were() -> None:
    profiles = (profile("b"), profile("c"))
    known = {("a", "rate"): drift("rate", 0.8)}
    assert DriftPredictor(Physics(), known).predict(profiles, [EQUAL]) == Physics().predict(
        profiles, [EQUAL]
    )
