"""Power of jobs with other data than they were profiled with."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_profiles import Physics, profile

from advisor.core.interval import Interval
from advisor.core.split import Split
from advisor.predict.inputs.other_data import (
    LEAST_PART,
    MOST_PART,
    DataChange,
    DataPredictor,
    moved_power,
    operations_per_s,
    unknown_change,
    with_data,
)

A, B = profile("a"), profile("b")
SPLIT = Split((30, 70))


def change(job: str, watts: float, off: float = 0.0) -> DataChange:
    return DataChange(job=job, whole_gpu_w=Interval(watts, watts - off, watts + off))


def predicted(*changes: DataChange, limit_w: float = 700.0) -> tuple[float, float, float]:
    profiles = [replace(p, power_limit_w=limit_w) for p in (A, B)]
    there = DataPredictor(Physics(), profiles, {c.job: c for c in changes})
    (found,) = there.predict(there.changed(profiles), [SPLIT])
    return found.power_w.low, found.power_w.value, found.power_w.high


def test_tensor_cores_compute_what_their_activity_says() -> None:
    """A tenth of 132 SMs at 1.5 GHz, 4096 operations in a cycle of each."""
    columns = {"tensor_active_percent": [10.0] * 10, "sm_clock_mhz": [1500.0] * 10}
    busy = profile("a", columns=columns)
    assert operations_per_s(busy, "bf16") == pytest.approx(0.1 * 132 * 1.5e9 * 4096)
    assert operations_per_s(busy, "fp8") == pytest.approx(0.1 * 132 * 1.5e9 * 8192)
    assert operations_per_s(busy, "fp32") is None
    assert operations_per_s(replace(busy, units_total=None), "bf16") is None
    blind = profile("a", columns={"tensor_active_percent": [math.nan] * 10})
    assert operations_per_s(blind, "bf16") is None


def test_power_of_a_pair_moves_by_the_sum_of_what_each_does() -> None:
    """Of a job that runs at 30 % of its speed, 30 % of its change; speeds stay."""
    _, before, _ = predicted()
    _, after, _ = predicted(change("a", -50.0), change("b", +20.0))
    (usual,) = Physics().predict([A, B], [SPLIT])
    speeds = [part.speed.value for part in usual.parts]
    assert after - before == pytest.approx(-50 * speeds[0] + 20 * speeds[1])
    there = DataPredictor(Physics(), [A, B], {"a": change("a", -50.0)})
    (found,) = there.predict(there.changed([A, B]), [SPLIT])
    assert [p.speed for p in found.parts] == [p.speed for p in usual.parts]
    assert found.efficiency_factors is None


def test_power_alone_moves_with_it() -> None:
    """Or sharing would seem to save what other data save."""
    moved = with_data(A, change("a", -50.0))
    assert moved.whole_gpu_power_w == pytest.approx(A.whole_gpu_power_w - 50)
    assert moved.values["power_w"][0] == pytest.approx(A.values["power_w"][0] - 5)
    there = DataPredictor(Physics(), [A, B], {"a": change("a", -50.0)})
    (found,) = there.predict(there.changed([A, B]), [SPLIT])
    assert found.parts[0].solo_power_w == pytest.approx(A.whole_gpu_power_w - 50)
    assert found.parts[1].solo_power_w == B.whole_gpu_power_w


def test_unknown_change_widens_and_moves_nothing() -> None:
    unknown = unknown_change(A, "nobody measured it")
    above_w = A.whole_gpu_power_w - A.idle_power_w
    assert unknown.whole_gpu_w == Interval(0.0, LEAST_PART * above_w, MOST_PART * above_w)
    assert with_data(A, unknown) is A
    before, after = predicted(), predicted(unknown)
    assert after[1] == before[1]
    assert after[0] < before[0]
    assert after[2] > before[2]


def test_no_more_than_the_idle_card_can_be_saved() -> None:
    """However wrong a fingerprint is."""
    moved = with_data(A, change("a", -10_000.0))
    assert moved.values["power_w"].min() == A.idle_power_w


def test_job_next_to_itself_changes_twice() -> None:
    there = DataPredictor(Physics(), [A], {"a": change("a", -40.0)})
    (changed,) = there.changed([A])
    (found,) = there.predict([changed, changed], [Split((50, 50))])
    (usual,) = Physics().predict([A, A], [Split((50, 50))])
    speeds = sum(part.speed.value for part in usual.parts)
    assert usual.power_w.value - found.power_w.value == pytest.approx(40 * speeds)


watts = st.floats(100, 700)
bounds = st.floats(0, 300)


@given(watts, bounds, bounds, st.floats(-400, 400), bounds, bounds)
def test_moved_power_is_in_order_and_within_the_limit(
    power: float, below: float, above: float, by: float, less: float, more: float
) -> None:
    before = Interval(power, power - below, min(power + above, 700.0))
    found = moved_power(before, Interval(by, by - less, by + more), 700.0)
    assert found.low <= found.value <= found.high <= 700.0
    if by <= 0:
        assert power + by - 1e-9 <= found.value <= power + 1e-9


@given(watts, bounds)
def test_no_change_is_no_change(power: float, off: float) -> None:
    before = Interval(power, power - off, min(power + off, 700.0))
    found = moved_power(before, Interval(0.0, 0.0, 0.0), 700.0)
    assert (found.value, found.low, found.high) == pytest.approx(
        (before.value, before.low, before.high)
    )


def test_at_the_limit_half_of_a_saving_is_expected_and_all_of_it_possible() -> None:
    found = moved_power(Interval(695.0, 695.0, 700.0), Interval(-100.0, -100.0, -100.0), 700.0)
    assert (found.value, found.low) == (645.0, 595.0)
    assert found.high > 690
