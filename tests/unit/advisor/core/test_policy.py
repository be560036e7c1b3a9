"""The policy, and what an interval says with a chance."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from advisor.core.objectives import POLICY, Interval, Policy, Prices
from advisor.decide.limits import sure_p99_ms, sure_speeds
from advisor.errors import InputError


def test_prices_decide_where_they_are_set() -> None:
    priced = Policy(prices=Prices(gpu_hour=2.0))
    assert (POLICY.deciding, priced.deciding) == ("energy-efficiency", "cost")
    assert priced.with_("throughput", None).deciding == "throughput"


def test_a_request_replaces_what_it_names() -> None:
    own = Policy(objective="max-min", min_gain=0.2, chance=0.8)
    assert own.with_(None, None) == own
    assert own.with_("throughput", 0.0) == Policy(objective="throughput", min_gain=0, chance=0.8)


@pytest.mark.parametrize(
    ("name", "value", "limits"),
    [
        ("min_speed", -0.01, "0 to 1"),
        ("min_speed", 1.01, "0 to 1"),
        ("p99_times_alone", -1.0, "0 to inf"),
        ("min_gain", -0.01, "0 to 10"),
        ("chance", 0.49, "0.5 to 0.999"),
        ("chance", 1.0, "0.5 to 0.999"),
        ("tie", 1.0, "0 to 0.999"),
        ("tie", math.nan, "0 to 0.999"),
    ],
)
def test_numbers_out_of_range_are_refused(name: str, value: float, limits: str) -> None:
    with pytest.raises(InputError) as refused:
        Policy(**{name: value})  # type: ignore[arg-type]
    assert str(refused.value) == f"{name} is {value:g}. give a number from {limits}."


@given(some.floats(0.5, 0.94))
def test_more_is_sure_of_with_a_lower_chance(chance: float) -> None:
    """Nineteen of twenty p99s stay below the high end."""
    found = Interval(0.8, 0.4, 1.6)
    assert sure_p99_ms(found, 0.95) == pytest.approx(found.high)
    assert found.value <= sure_p99_ms(found, chance) <= sure_p99_ms(found, chance + 0.01) <= 1.6001


def test_nine_chances_of_ten_by_hand() -> None:
    """What is sure stays."""
    assert sure_p99_ms(Interval(0.8, 0.4, 1.6), 0.9) == pytest.approx(0.8 * 2**0.72)
    speeds, low = np.array([[0.8, 0.0], [0.4, 0.0]])
    assert sure_speeds(speeds, low, 0.9).tolist() == pytest.approx([0.8 * 0.5**0.4, 0.0])
    assert sure_p99_ms(Interval.sure(0.7), 0.9) == 0.7
