"""Power and speed of jobs with other data than they were profiled with."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from made_up_profiles import Physics, Scripted, profile

from advisor.core.interval import Interval
from advisor.core.split import Split
from advisor.predict.predictions import Prediction
from advisor.predict.profiles import Profile
from advisor.validity.slow_alone import FASTEST
from advisor_power.model.data_predictor import DataPredictor
from advisor_power.model.other_data import (
    LEAST_PART,
    MOST_PART,
    CardBounds,
    DataChange,
    data_change,
    most_operations_per_s,
    operations_per_s,
    unknown_change,
    with_data,
)

A, B = profile("a"), profile("b")
SPLIT, HALVES = Split((30, 70)), Split((50, 50))

SHARES = (25, 50, 100)
HELD = profile(
    "held",
    shares=SHARES,
    rates=[25.0, 50.0, 90.0],
    power_limit_w=600.0,
    columns={"power_w": [300.0, 500.0, 600.0], "sm_clock_mhz": [2000.0, 2000.0, 1800.0]},
)
"""Computes, and the limit takes a tenth of its clock on the whole GPU."""


def change(job: str, watts: float, off: float = 0.0) -> DataChange:
    work_w = Interval(watts, watts - off, watts + off)
    return replace(data_change({"a": A, "b": B, "held": HELD}[job], work_w), job=job)


def predicted(*changes: DataChange, limit_w: float = 700.0) -> tuple[float, float, float]:
    profiles = [replace(p, power_limit_w=limit_w) for p in (A, B)]
    there = DataPredictor(Physics(), profiles, {c.job: c for c in changes})
    (found,) = there.predict(there.changed(profiles), [SPLIT])
    return found.power_w.low, found.power_w.value, found.power_w.high


def together(
    by: Interval, seen_w: float, off: float = 0.02, other: Profile = B
) -> tuple[Prediction, Prediction]:
    """Two jobs that the limit of 600 W may hold back, before and after."""
    profiles = [HELD, replace(other, power_limit_w=600.0)]
    predictor = Scripted({HALVES: (0.6, 0.5, seen_w)}, off)
    there = DataPredictor(predictor, profiles, {"held": data_change(HELD, by)})
    (before,) = predictor.predict(profiles, [HALVES])
    (after,) = there.predict(there.changed(profiles), [HALVES])
    return before, after


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


def test_operations_draw_no_more_than_the_job() -> None:
    """600 W at 0.9 of the clock, less 120 W of a card with a context, at the highest clock."""
    found = most_operations_per_s(HELD, 2e-12, 120.0)
    assert found * 2e-12 == pytest.approx(480 / 0.9**1.5)
    assert most_operations_per_s(HELD, 2e-12, 700.0) == 0


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
    assert unknown.work_w == Interval(0.0, LEAST_PART * above_w, MOST_PART * above_w)
    assert unknown.whole_gpu_w.low == pytest.approx(LEAST_PART * above_w)
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


def test_at_the_limit_less_work_raises_the_clock_before_power_falls() -> None:
    """A rate that follows the clock follows it up, to the highest clock; then power falls."""
    some, much = change("held", -50.0), change("held", -300.0)
    assert some.whole_gpu_w.value == pytest.approx(0.0, abs=1e-9)
    # 520 W above idle at 0.9 of the clock, less 50 W at the energy of that clock.
    faster = (520 / (520 - 50 * 0.9**1.5)) ** (1 / 2.5)
    assert some.whole_gpu_speed.value == pytest.approx(faster)
    assert much.whole_gpu_speed.value == pytest.approx(1 / 0.9)
    assert much.whole_gpu_w.value == pytest.approx((520 - 300 * 0.9**1.5) / 0.9**2.5 - 520)
    moved = with_data(HELD, some)
    assert moved.whole_gpu_rate == pytest.approx(90 * faster)
    assert moved.values["power_w"].tolist() == pytest.approx(
        [300 - 50 * 25 / 90, 500 - 50 * 50 / 90, 600]
    )
    assert moved.values["rate"][:2].tolist() == [25, 50]


def test_clock_rises_to_no_more_than_what_tensor_cores_as_busy_ever_had() -> None:
    """Then power falls: it is found with zeros on the whole GPU."""
    much, tops = Interval(-300.0, -300.0, -300.0), (1.0, 1.0, 0.95)
    found = data_change(HELD, much, CardBounds(tops))
    assert found.whole_gpu_speed.value == pytest.approx(0.95 / 0.9)
    left_w = (520 - 300 * 0.9**1.5) * (0.95 / 0.9) ** 2.5
    assert found.whole_gpu_w.value == pytest.approx(left_w - 520)
    assert with_data(HELD, found).whole_gpu_rate == pytest.approx(90 * 0.95 / 0.9)
    assert found.card.top(HELD, 75) == pytest.approx(0.975)
    lower = data_change(HELD, much, CardBounds((1.0, 1.0, 0.8)))
    assert lower.whole_gpu_speed.value == pytest.approx(1.0)


def test_what_no_work_draws_does_not_grow_with_the_clock() -> None:
    much = Interval(-300.0, -300.0, -300.0)
    found = data_change(HELD, much, CardBounds(rest_w=40.0))
    left_w = 40 + (520 - 40 - 300 * 0.9**1.5) / 0.9**2.5
    assert found.whole_gpu_w.value == pytest.approx(left_w - 520)
    nothing = data_change(HELD, Interval(-9e9, -9e9, -9e9), CardBounds(rest_w=40.0))
    assert with_data(HELD, nothing).whole_gpu_power_w == HELD.idle_power_w + 40


def test_pair_of_a_job_with_zeros_has_that_clock_too() -> None:
    """Where the pair is at the limit, the clock of the other data ends where it does alone."""
    profiles = [HELD, replace(B, power_limit_w=600.0)]
    predictor = Scripted({HALVES: (0.6, 0.5, 600.0)}, 0.02)
    work_w = Interval(-400.0, -400.0, -400.0)
    powers_w: list[float] = []
    for tops in ((), (0.95, 0.95, 0.95)):
        there = DataPredictor(
            predictor, profiles, {"held": data_change(HELD, work_w, CardBounds(tops))}
        )
        (found,) = there.predict(there.changed(profiles), [HALVES])
        powers_w.append(found.power_w.value)
    assert powers_w[1] < powers_w[0] < 600


def test_data_that_draw_more_slow_a_job_at_the_limit() -> None:
    more = change("held", +60.0)
    assert more.whole_gpu_w.value == pytest.approx(0.0, abs=1e-9)
    assert more.whole_gpu_speed.value < 0.97


def test_a_clock_that_heat_holds_back_is_no_room_for_power() -> None:
    """At 500 W of 600, below its clock: what is saved raises the clock, and power stays."""
    hot = replace(HELD, values={**HELD.values, "power_w": np.array([300.0, 420.0, 500.0])})
    assert with_data(hot, data_change(hot, Interval(-50.0, -50.0, -50.0))).whole_gpu_power_w == 500


def test_job_that_does_not_follow_the_clock_gets_no_faster() -> None:
    bound = replace(HELD, values={**HELD.values, "rate": np.array([80.0, 90.0, 90.0])})
    found = data_change(bound, Interval(-50.0, -60.0, -40.0))
    assert found.whole_gpu_speed == Interval(1.0, 1.0, 1.0)


def test_pair_at_the_limit_keeps_its_power_and_may_be_faster() -> None:
    """By nothing to all of what its jobs follow of the clock; relative to a faster job alone."""
    before, after = together(Interval(-60.0, -70.0, -50.0), 600.0)
    assert after.power_w.value == 600
    assert after.power_w.low < before.power_w.low
    alone = after.parts[0].solo_rate / before.parts[0].solo_rate
    assert alone > 1.01
    gained = after.parts[0].rate.value / before.parts[0].rate.value
    assert 1 < gained < after.parts[0].rate.high / before.parts[0].rate.high
    assert after.parts[0].rate.low == pytest.approx(before.parts[0].rate.low)


def test_pair_just_at_the_limit_draws_less() -> None:
    """Jobs that would draw little more if they could leave no room for a higher clock."""
    _, after = together(Interval(-300.0, -300.0, -300.0), 590.0)
    assert after.power_w.value < 550


bounds = st.floats(0, 300)


@given(st.floats(100, 600), st.floats(0, 0.3), st.floats(-400, 400), bounds, bounds)
def test_what_is_expected_of_a_pair_is_in_order_and_within_the_limit(
    power: float, off: float, by: float, less: float, more: float
) -> None:
    before, found = together(Interval(by, by - less, by + more), power, off)
    watts = found.power_w
    assert watts.low <= watts.value + 1e-9
    assert watts.value <= watts.high + 1e-9
    assert watts.high <= 600 + 1e-9
    for part, usual in zip(found.parts, before.parts, strict=True):
        assert 0 < part.speed.low <= part.speed.value + 1e-9
        assert part.speed.value <= part.speed.high + 1e-9
        if by <= 0:
            assert part.rate.value >= usual.rate.value - 1e-9
    if by <= 0:
        assert watts.value <= power + 1e-9


def test_no_bound_is_faster_than_alone_repeats() -> None:
    """A clock that data leave is left to the job alone as well."""
    predictor = Scripted({HALVES: (0.95, 0.5, 600.0)}, 0.15)
    changes = {"held": data_change(HELD, Interval(-20.0, -300.0, 0.0))}
    there = DataPredictor(predictor, [HELD], changes)
    (found,) = there.predict([*there.changed([HELD])] * 2, [HALVES])
    (before,) = predictor.predict([HELD, HELD], [HALVES])
    assert before.parts[0].speed.high < FASTEST
    assert found.parts[0].speed.high == FASTEST


@given(st.floats(540, 600), st.floats(0.05, 0.3), st.floats(-300, -50))
@example(0.97 * 600, 0.05, -150.0)
def test_a_watt_more_of_a_pair_near_the_limit_changes_little(
    power: float, off: float, by: float
) -> None:
    """Whether the limit is reached is not known to a watt: no step where it is said to be."""
    work_w = Interval(by, by - 20, by + 20)
    found = [together(work_w, power + more, off, other=HELD)[1] for more in (-0.5, 0.5)]
    for name in ("value", "low", "high"):
        less, more = (getattr(one.power_w, name) for one in found)
        assert abs(more - less) < 60, name
        for parts in zip(*(one.parts for one in found), strict=True):
            less, more = (getattr(part.speed, name) for part in parts)
            assert abs(more - less) < 0.1, name


@given(st.floats(100, 600), st.floats(0, 0.3))
def test_no_change_is_no_change(power: float, off: float) -> None:
    before, found = together(Interval(0.0, 0.0, 0.0), power, off)
    assert found.power_w.value == pytest.approx(before.power_w.value)
    assert found.power_w.low == pytest.approx(before.power_w.low)
    assert found.power_w.high == pytest.approx(min(before.power_w.high, 600.0))
    for part, usual in zip(found.parts, before.parts, strict=True):
        for name in ("value", "low", "high"):
            assert getattr(part.speed, name) == pytest.approx(getattr(usual.speed, name))


@given(
    st.lists(st.floats(100, 600), min_size=3, max_size=3),
    st.lists(st.floats(0.4, 1), min_size=3, max_size=3),
    st.floats(-500, 500),
)
def test_profile_with_other_data_is_a_profile(
    watts: list[float], clocks: list[float], by: float
) -> None:
    """Rates do not fall with the share, and nothing draws less than the idle card."""
    columns = {"power_w": watts, "sm_clock_mhz": [2000 * clock for clock in clocks]}
    found = with_data_of(profile("x", [10.0, 20.0, 40.0], SHARES, columns=columns), by)
    assert (np.diff(found.values["rate"]) >= 0).all()
    assert found.values["power_w"].min() >= min(found.idle_power_w, *watts) - 1e-9


def with_data_of(one: Profile, watts: float) -> Profile:
    return with_data(one, data_change(one, Interval(watts, watts, watts)))
