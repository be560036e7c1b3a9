"""Whose part of a GPU's energy is whose: a rule whose parts sum to the whole, and its bounds."""

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.core.interval import Interval
from advisor.core.records import JobLoad, Observation, ObservedPart, divide_energy, with_job_energy

LOADS = st.lists(
    st.builds(
        JobLoad,
        units=st.floats(1, 132),
        relative_speed=st.none() | st.floats(0, 2),
        solo_power_w=st.none() | st.floats(0, 1000),
    ),
    min_size=1,
    max_size=5,
)

STANDING = JobLoad(units=33, relative_speed=0.0, solo_power_w=480)
BUSY = JobLoad(units=99, relative_speed=0.5, solo_power_w=480)


@given(st.floats(0, 1e6), st.floats(0.1, 1e4), st.none() | st.floats(0, 500), LOADS)
def test_parts_of_the_energy_add_up(
    energy_j: float, duration_s: float, idle_w: float | None, loads: Sequence[JobLoad]
) -> None:
    """Nothing is lost or counted twice, nobody gives energy back, and bounds hold the values."""
    parts = divide_energy(energy_j, duration_s, idle_w, loads)
    assert math.isclose(sum(p.value for p in parts), energy_j, rel_tol=1e-9, abs_tol=1e-9)
    slack = 1e-9 * (1 + energy_j)
    for part in parts:
        assert 0 <= part.low <= part.value <= part.high <= energy_j + slack
    if len(parts) == 1:
        assert parts[0].high - parts[0].low <= slack


@given(st.floats(0.01, 2), st.floats(0.01, 2), st.floats(1, 132), st.floats(100, 2000))
def test_bounds_are_all_of_the_difference_or_none(
    a: float, b: float, units: float, power_w: float
) -> None:
    """What one job has least, the other one has most: together the whole."""
    loads = [
        JobLoad(units=units, relative_speed=a, solo_power_w=500),
        JobLoad(units=132, relative_speed=b, solo_power_w=300),
    ]
    one, other = divide_energy(10 * power_w, 10, 80, loads)
    if one.low > 800 * units / (units + 132) and other.low > 800 * 132 / (units + 132):
        assert one.low + other.high == pytest.approx(10 * power_w)
        assert one.high + other.low == pytest.approx(10 * power_w)


def values(*loads: JobLoad, idle_w: float | None = 80) -> list[float]:
    """Of 3000 J in 10 s."""
    return [part.value for part in divide_energy(3000, 10, idle_w, loads)]


def test_energy_is_divided_by_size_and_by_use() -> None:
    """80 W for 10 s by SMs, the rest by speed times power above idle."""
    assert values(STANDING, BUSY) == [200, 2800]
    assert values(STANDING, BUSY, idle_w=None) == [750, 2250]
    assert values(JobLoad(units=33), BUSY) == [750, 2250]
    assert values(BUSY) == [3000]
    assert values() == []


def test_bounds_say_how_far_the_jobs_are_from_what_they_draw_alone() -> None:
    """Alone they would draw 200 and 100 W above 80 W; together they draw 240 above, or 360."""
    loads = [
        JobLoad(units=66, relative_speed=0.5, solo_power_w=480),
        JobLoad(units=66, relative_speed=0.5, solo_power_w=280),
    ]
    assert divide_energy(3800, 10, 80, loads) == [
        Interval(2400, 2400, 2400),
        Interval(1400, 1400, 1400),
    ]
    saved, cost = divide_energy(3200, 10, 80, loads), divide_energy(4400, 10, 80, loads)
    assert saved == [Interval(2000, 1800, 2400), Interval(1200, 800, 1400)]
    assert cost == [Interval(2800, 2400, 3000), Interval(1600, 1400, 2000)]


def test_bounds_of_what_nobody_knows_are_wide() -> None:
    """Idle power by SMs is all that must be."""
    assert divide_energy(3000, 10, 80, [JobLoad(units=33), BUSY]) == [
        Interval(750, 200, 2400),
        Interval(2250, 600, 2800),
    ]
    assert divide_energy(3000, 10, None, [JobLoad(units=33), BUSY])[0] == Interval(750, 0, 3000)


def observation(energy_j: float | None) -> Observation:
    part = ObservedPart(job="a", share_percent=50, units=66, rate=5, solo_rate=10, solo_power_w=480)
    other = ObservedPart(job="b", share_percent=50, rate=1, solo_rate=2, solo_power_w=280)
    return Observation(
        launch_id="x", parts=(part, other), gpu_model="H", gpu_uuid="GPU-1", units_total=132,
        energy_j=energy_j, overlap_s=10, state="finished", started_at="2026-01-01T00:00:00Z",
    )  # fmt: skip


def test_observation_has_the_part_of_each_job() -> None:
    a, b = with_job_energy(observation(3200), 80).parts
    assert (a.energy_j, a.energy_low_j, a.energy_high_j) == (2000, 1800, 2400)
    assert (b.energy_j, b.energy_low_j, b.energy_high_j) == (1200, 800, 1400)
    assert with_job_energy(observation(None), 80) == observation(None)
