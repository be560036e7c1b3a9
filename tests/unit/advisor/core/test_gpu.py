"""The arithmetic between percent and SMs."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.core.gpu import SM_FLOOR, Share, percent_for_units, units_for_percent
from advisor.errors import InputError

TOTALS = range(80, 201)


@pytest.mark.parametrize(
    ("percent", "units"),
    [
        *zip(range(10, 101, 10), (12, 26, 38, 52, 66, 78, 92, 104, 118, 132), strict=True),
        *((1, 8), (2, 8), (5, 8), (9, 10), (12.5, 16), (33.3, 42), (50.5, 66), (91, 120)),
        (99, 130),
    ],
)
def test_h200_grants_what_was_read_back(percent: float, units: int) -> None:
    assert units_for_percent(percent, 132) == units


@pytest.mark.parametrize(("percent", "units"), [(25, 46), (50, 94), (75, 140)])
def test_rtx_pro_6000_grants_what_was_read_back(percent: float, units: int) -> None:
    assert units_for_percent(percent, 188) == units


@pytest.mark.parametrize("total", TOTALS)
def test_every_even_count_round_trips(total: int) -> None:
    """Any count that can be granted has a whole percentage that grants exactly it."""
    for units in range(SM_FLOOR, total + 1, 2):
        percent = percent_for_units(units, total)
        assert 0 < percent <= 100
        assert units_for_percent(percent, total) == units


@given(st.sampled_from(TOTALS), st.floats(0, 100, exclude_min=True))
def test_grant_is_possible_and_never_more_than_asked(total: int, percent: float) -> None:
    """A grant is between the floor and the GPU, even, and above the floor within what was asked."""
    units = units_for_percent(percent, total)
    assert SM_FLOOR <= units <= total
    assert units % 2 == 0 or units == total
    assert units == SM_FLOOR or units <= percent * total / 100 + 1e-6


@given(st.sampled_from(TOTALS), st.floats(0.1, 100), st.floats(0.1, 100))
def test_more_percent_is_never_fewer_units(total: int, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert units_for_percent(low, total) <= units_for_percent(high, total)


@pytest.mark.parametrize("percent", [0, -1, 100.0001, 101, math.nan, math.inf, -math.inf])
def test_percent_that_means_no_limit_is_refused(percent: float) -> None:
    with pytest.raises(InputError) as refused:
        Share(percent)
    assert str(refused.value) == (
        f"a share of {percent} % is not possible. the driver takes 0, negative numbers and "
        "numbers above 100 as no limit at all. give a percentage above 0 and at most 100."
    )
    with pytest.raises(InputError, match="not possible"):
        units_for_percent(percent, 132)


@pytest.mark.parametrize(
    ("units", "near"),
    [(9, "8 or 10"), (1, "8"), (0, "8"), (-4, "8"), (131, "130 or 132"), (134, "132")],
)
def test_count_that_cannot_be_granted_is_refused(units: int, near: str) -> None:
    with pytest.raises(InputError) as refused:
        percent_for_units(units, 132)
    assert str(refused.value) == (
        f"{units} of 132 SMs cannot be granted. "
        f"MPS grants even counts from 8 to 132 SMs. ask for {near}."
    )


@pytest.mark.parametrize("total", [2, 4, 6, 8])
def test_a_gpu_of_no_more_than_the_floor_is_granted_whole(total: int) -> None:
    """A slice of a GPU may have so few; a grant is never more than there is."""
    assert {units_for_percent(percent, total) for percent in (1, 50, 100)} == {total}


@given(st.sampled_from(TOTALS), st.data())
def test_the_percentage_of_a_count_is_the_smallest(total: int, data: st.DataObject) -> None:
    """One less grants less, unless the floor holds."""
    units = 2 * data.draw(st.integers(SM_FLOOR // 2 + 1, total // 2))
    percent = percent_for_units(units, total)
    assert percent == 1 or units_for_percent(percent - 1, total) < units


@pytest.mark.parametrize("percent", ["50", None, [50]])
def test_a_share_that_is_no_number_is_refused_in_words(percent: Any) -> None:
    with pytest.raises(InputError, match=r"is not possible.*give a percentage"):
        Share(percent)


def test_share_prints_as_the_driver_reads_it() -> None:
    """A share is written without a trailing zero, as text that is a number."""
    written = [str(Share(percent)) for percent in (10, 12.5, 33.3, 100.0)]
    assert written == ["10", "12.5", "33.3", "100"]
