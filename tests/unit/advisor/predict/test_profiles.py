"""Profiles: solo points as arrays over shares, and gaps in them."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import small_model
from hypothesis import given
from hypothesis import strategies as st
from simple_pairs import solo

from advisor.core.records import SoloPoint
from advisor.errors import InputError
from advisor.predict.profiles import COLUMNS, NEEDED, Profile, filled, make_profile, make_profiles


def points(**fields: Any) -> list[SoloPoint]:
    """A job at 10, 50 and 100 %."""
    return [
        solo(share_percent=share, rate=share, started_at=f"2026-01-31T12:00:0{n}Z", **fields)
        for n, share in enumerate((50.0, 10.0, 100.0))
    ]


def test_shares_ascend_whatever_the_order() -> None:
    made = make_profile(points(dram_active_percent=5.0))
    assert made.shares.tolist() == [10, 50, 100]
    assert made.values["rate"].tolist() == [10, 50, 100]
    assert (made.whole_gpu_rate, made.whole_gpu_power_w) == (100, 100)
    assert made.values["dram_active_percent"].tolist() == [5, 5, 5]
    assert set(made.values) == set(COLUMNS)


def test_repeated_shares_take_the_median() -> None:
    more = [
        solo(share_percent=10.0, rate=rate, dram_active_percent=dram, run=f"r{rate}")
        for rate, dram in ((20.0, 7.0), (90.0, None))
    ]
    made = make_profile([*points(), *more])
    assert made.values["rate"][0] == 20
    assert made.values["dram_active_percent"][0] == 7
    assert np.isnan(made.values["dram_active_percent"][1])


def test_missing_columns_are_those_that_nothing_tells() -> None:
    """A column that is there at one share is a gap, not missing."""
    first, *rest = points()
    made = make_profile([dataclasses.replace(first, sm_clock_mhz=1500), *rest])
    assert "sm_clock_mhz" not in made.missing
    assert "dram_active_percent" in made.missing
    assert not set(NEEDED) & set(made.missing)


def test_what_belongs_to_the_job() -> None:
    """The most memory of any share, every flag once, the newest description."""
    first, second, third = points()
    made = make_profile(
        [
            dataclasses.replace(first, memory_used_mib=100, flags=("throttled",)),
            dataclasses.replace(second, memory_used_mib=300, flags=("throttled", "cpu-bound")),
            dataclasses.replace(third, power_limit_w=600.0, rate_unit="image"),
        ]
    )
    assert made.memory_used_mib == 300
    assert made.flags == ("cpu-bound", "throttled")
    assert (made.rate_unit, made.power_limit_w) == ("image", 600)


@pytest.mark.parametrize(
    ("made_of", "why"),
    [
        ([], "shares none make no profile"),
        (points()[:2], "shares 10, 50 make no profile"),
        (points()[2:], "shares 100 make no profile"),
        ([*points(), solo(job="b")], "not of"),
        ([dataclasses.replace(p, power_w=None) for p in points()], "shares none"),
    ],
)
def test_no_profile(made_of: list[SoloPoint], why: str) -> None:
    """The whole GPU and one smaller share at least, of one job, with power."""
    with pytest.raises(InputError, match=why):
        make_profile(made_of)


def test_between_shares_it_is_linear() -> None:
    made = make_profile(points())
    assert made.at([100, 10, 50])["rate"].tolist() == [100, 10, 50]
    assert made.at([30, 75])["rate"].tolist() == [30, 75]
    assert made.at([30])["power_w"].tolist() == [100]
    assert made.at([])["rate"].tolist() == []


@pytest.mark.parametrize("share", [9.99, 100.01, 0.0])
def test_beyond_the_shares_there_is_nothing(share: float) -> None:
    with pytest.raises(InputError, match="was not measured at"):
        make_profile(points()).at([50, share])


@given(seed=st.integers(0, 20), shares=st.lists(st.floats(10, 100), min_size=1))
def test_readings_lie_between_their_neighbours(seed: int, shares: list[float]) -> None:
    made = small_model.make_profile(seed=seed)
    for name, values in made.at(shares).items():
        assert values.min() >= made.values[name].min()
        assert values.max() <= made.values[name].max()


def gappy() -> Profile:
    """A column with gaps at its start, in its middle and at its end; another one without values."""
    made = small_model.make_profile()
    values = np.full_like(made.shares, np.nan)
    values[[1, 3, 4]] = 20.0, 40.0, 30.0
    nothing = np.full_like(made.shares, np.nan)
    return dataclasses.replace(
        made,
        values={**made.values, "dram_active_percent": values, "sm_clock_mhz": nothing},
        missing=("sm_clock_mhz",),
    )


def test_gaps_are_filled_from_their_neighbours() -> None:
    """A share without a reading is like its own neighbours; a column without any, as usual."""
    found = filled(gappy(), {"sm_clock_mhz": 1500.0})
    expected = [20, 20, 30, 40, 30, 30, 30, 30, 30, 30]
    assert found.values["dram_active_percent"].tolist() == expected
    assert found.values["sm_clock_mhz"].tolist() == [1500] * 10
    assert found.missing == ("sm_clock_mhz",)
    assert list(found.values) == list(gappy().values)
    whole = gappy().values["rate"]
    assert found.values["rate"].tolist() == whole.tolist()


def test_a_whole_profile_is_left_as_it_is() -> None:
    made = small_model.make_profile()
    assert filled(made, {}) is made


def test_nothing_is_made_up_for_an_unknown_column() -> None:
    """Without a usual value a missing column is an error, not a NaN that goes on."""
    with pytest.raises(InputError, match="lacks sm_clock_mhz"):
        filled(gappy(), {})


def test_profiles_have_no_dips() -> None:
    """A lower rate at a larger share is noise: both get what lies between, the others stay."""
    rates = {10.0: 40.0, 50.0: 100.0, 100.0: 98.0}
    dipped = [dataclasses.replace(p, rate=rates[p.share_percent]) for p in points()]
    (profile,) = make_profiles(dipped).values()
    assert profile.values["rate"].tolist() == pytest.approx([40, 98.995, 98.995], abs=1e-3)
    assert make_profile(dipped).values["rate"].tolist() == [40, 100, 98]
