"""Features: symmetry, physics that can be worked out by hand, names and order."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, strategies as st
from small_model import LIMIT_W, SHARES, make_profile

from advisor.predict.profiles import (
    COLUMNS,
    Floats,
    Profile,
    Side,
    beside,
    demanded_power_w,
    feature_names_of,
    full_power_w,
    matrix,
    physical_power_w,
    power_features,
    prior_kept,
    side,
    speed_features,
)


def flat(job: str = "a", **columns: float) -> Profile:
    """A job whose columns are the same at every share, but for the rate, which is the share."""
    made = make_profile(job)
    values = {name: np.full(len(SHARES), columns.get(name, 10.0)) for name in COLUMNS}
    values["rate"] = np.array(SHARES)
    return dataclasses.replace(made, values=values, idle_power_w=75.0)


shares = st.lists(st.tuples(st.floats(10, 100), st.floats(10, 100)), min_size=1, max_size=30)
seeds = st.integers(0, 30)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Side, Side]:
    splits = draw(shares)
    a, b = ([split[n] for split in splits] for n in (0, 1))
    return side(make_profile("a", draw(seeds)), a), side(make_profile("b", draw(seeds)), b)


@given(pairs())
def test_power_features_do_not_know_an_order(pair: tuple[Side, Side]) -> None:
    a, b = pair
    assert matrix(power_features([a, b])).tobytes() == matrix(power_features([b, a])).tobytes()
    for shared in (prior_kept, physical_power_w):
        assert shared([a, b]).tobytes() == shared([b, a]).tobytes()


@given(pairs())
def test_own_and_other_change_places(pair: tuple[Side, Side]) -> None:
    a, b = pair
    forth, back = speed_features(a, [b]), speed_features(b, [a])
    both = {name[4:] for name in forth if f"other_{name[4:]}" in forth}
    assert "relative_rate" in both
    for name in both:
        assert forth[f"own_{name}"].tobytes() == back[f"other_{name}"].tobytes()
    for name in ("bandwidth_factor", "power_factor", "relative_demanded_power"):
        assert forth[name].tobytes() == back[name].tobytes()


@given(pairs())
def test_features_are_finite_and_priors_are_parts(pair: tuple[Side, Side]) -> None:
    a, b = pair
    assert np.isfinite(matrix(speed_features(a, [b]))).all()
    assert np.isfinite(matrix(power_features([a, b]))).all()
    kept = prior_kept([a, b])
    assert ((kept > 0) & (kept <= 1)).all()
    assert (physical_power_w([a, b]) <= LIMIT_W).all()


def test_a_split_does_not_depend_on_the_others() -> None:
    """A row is the same alone and among others, so serving sees what training saw."""
    a, b = make_profile("a", 1), make_profile("b", 2)
    many = matrix(speed_features(side(a, [10, 35, 90]), [side(b, [90, 65, 10])]))
    for number, (x, y) in enumerate([(10, 90), (35, 65), (90, 10)]):
        one = matrix(speed_features(side(a, [x]), [side(b, [y])]))
        assert one.tobytes() == many[number].tobytes()


def of_first(sides: Sequence[Side]) -> dict[str, Floats]:
    return speed_features(sides[0], sides[1:])


def test_matrix_columns_stand_in_order() -> None:
    made = matrix({"x": np.array([1.0, 2.0]), "y": np.array([3.0, np.nan])})
    assert made.dtype == np.float32
    assert made.flags.c_contiguous
    np.testing.assert_array_equal(made, np.array([[1, 3], [2, np.nan]], np.float32))


def test_power_by_hand() -> None:
    a, b = (side(flat(job, power_w=300.0), [50.0]) for job in "ab")
    assert demanded_power_w([a, b]).tolist() == physical_power_w([a, b]).tolist() == [525.0]
    capped = [
        side(dataclasses.replace(x.profile, power_limit_w=limit_w), [50.0])
        for x, limit_w in {a: 400.0, b: 600.0}.items()
    ]
    assert physical_power_w(capped).tolist() == [400.0]
    # 325 of 450 W of dynamic power are left; the clock falls with the root.
    found = speed_features(capped[0], capped[1:])["power_factor"]
    assert found.tolist() == pytest.approx([math.sqrt(325 / 450)])


def test_unknown_limit_is_the_most_that_was_drawn() -> None:
    free = [
        side(dataclasses.replace(flat(job, power_w=power_w), power_limit_w=None), [50.0])
        for job, power_w in (("a", 300.0), ("b", 500.0))
    ]
    assert full_power_w(free) == 500
    assert speed_features(free[0], free[1:])["relative_demanded_power"].tolist() == [725 / 500]
    known = side(dataclasses.replace(free[0].profile, power_limit_w=400.0), [50.0])
    assert full_power_w([known, free[1]]) == 400


@given(
    splits=shares,
    seed_a=seeds,
    seed_b=seeds,
    watts=st.floats(0.01, 100),
    clock=st.floats(0.01, 100),
    limited=st.booleans(),
)
def test_features_are_relative_to_the_card(
    splits: list[tuple[float, float]],
    seed_a: int,
    seed_b: int,
    watts: float,
    clock: float,
    limited: bool,
) -> None:
    plain, scaled = (
        [
            side(
                on_card(make_profile(job, seed), *factors, limited), [split[n] for split in splits]
            )
            for n, (job, seed) in enumerate((("a", seed_a), ("b", seed_b)))
        ]
        for factors in ((1.0, 1.0), (watts, clock))
    )
    before = speed_features(plain[0], plain[1:]) | power_features(plain)
    after = speed_features(scaled[0], scaled[1:]) | power_features(scaled)
    for name, values in before.items():
        np.testing.assert_allclose(after[name], values, 1e-9, 1e-9, err_msg=name)
    np.testing.assert_allclose(physical_power_w(scaled), watts * physical_power_w(plain))


def on_card(profile: Profile, watts: float, clock: float, limited: bool) -> Profile:
    values = {
        **profile.values,
        "power_w": watts * profile.values["power_w"],
        "sm_clock_mhz": 100 * clock * profile.values["sm_clock_mhz"],
    }
    return dataclasses.replace(
        profile,
        values=values,
        idle_power_w=watts * profile.idle_power_w,
        power_limit_w=watts * LIMIT_W if limited else None,
    )


def test_speed_features_by_hand() -> None:
    a = side(flat("a", sm_active_percent=40.0, dram_active_percent=30.0), [50.0, 100.0])
    b = side(flat("b", sm_active_percent=80.0, sm_occupancy_percent=50.0), [50.0, 100.0])
    found = {name: values.tolist() for name, values in speed_features(a, [b]).items()}
    assert (found["own_relative_rate"], found["own_sm_filled"]) == ([0.5, 1.0], [0.8, 0.4])
    assert found["shares_sum_percent"] == [100.0, 200.0]
    assert found["own_sensitivity"] == pytest.approx([1.0, 1.0])
    assert found["own_local_sensitivity"] == pytest.approx([1.0, 1.0])
    assert found["own_bandwidth_saturation"] == [1.0, 1.0]
    assert found["own_part_of_dram"] == [0.75, 0.75]
    assert found["other_resident_warps_percent"] == [40.0, 40.0]
    assert found["own_log_pcie_tx"] == [math.log1p(10.0)] * 2
    assert found["sum_sm_active_percent"] == [120.0, 120.0]
    assert power_features([a, b])["gap_sm_active_percent"].tolist() == [40.0, 40.0]


@given(seeds=st.lists(seeds, min_size=3, max_size=4), split=shares)
def test_of_several_neighbours_the_largest_and_the_sum_count(
    seeds: list[int], split: list[tuple[float, float]]
) -> None:
    sides = [side(make_profile("job", seed), [x for x, _ in split]) for seed in seeds]
    own, others = sides[0], sides[1:]
    found = speed_features(own, others)
    assert tuple(found) == feature_names_of(of_first)
    largest = np.maximum.reduce([s.readings["dram_active_percent"] for s in others])
    np.testing.assert_array_equal(found["other_dram_active_percent"], largest)
    np.testing.assert_allclose(found["shares_sum_percent"], sum(s.shares for s in sides))
    np.testing.assert_allclose(matrix(speed_features(own, others[::-1])), matrix(found), rtol=1e-5)
    assert tuple(power_features(sides)) == feature_names_of(power_features)
    assert beside(sides, 1) == (sides[0], *sides[2:])
