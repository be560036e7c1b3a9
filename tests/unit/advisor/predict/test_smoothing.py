"""Rates over shares without dips."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.predict.profiles import non_decreasing_rates

RATES = st.lists(st.tuples(st.floats(0.1, 1e6), st.floats(0, 0.1)), min_size=1, max_size=12)


@given(RATES)
def test_no_rate_falls_and_none_leaves_the_measured_ones(found: list[tuple[float, float]]) -> None:
    rates = [rate for rate, _ in found]
    made = non_decreasing_rates(rates, [part * rate for rate, part in found])
    assert len(made) == len(rates)
    assert all(one <= other * (1 + 1e-12) for one, other in itertools.pairwise(made))
    assert min(rates) * (1 - 1e-9) <= min(made)
    assert max(made) <= max(rates) * (1 + 1e-9)
    if rates == sorted(rates):
        assert made == rates
    again = non_decreasing_rates(made, [0.0] * len(made))
    assert again == pytest.approx(made)


def test_a_dip_goes_to_what_is_known_better() -> None:
    """Equally sure: the geometric mean. The second one unsure: near the first one."""
    equal = math.sqrt(100 * 90)
    assert non_decreasing_rates([50, 100, 90, 120], [0, 0, 0, 0]) == pytest.approx(
        [50, equal, equal, 120]
    )
    unsure = non_decreasing_rates([50, 100, 90, 120], [0, 0, 9, math.nan])
    assert unsure[1] == unsure[2] == pytest.approx(100, rel=0.001)
