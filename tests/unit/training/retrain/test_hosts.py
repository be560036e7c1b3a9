"""Stretches in which a host is off, on made-up series."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor_training.retrain.hosts import MOST, SLACK, Seen, stretches

NIGHT = datetime(2026, 1, 1, tzinfo=UTC)


def series(rates: Sequence[float], power: float = 0.0) -> list[Seen]:
    """A measurement every night."""
    return [
        Seen(
            host="node-1", begin=NIGHT + timedelta(days=day), end=NIGHT + timedelta(days=day),
            off={"rates": off, "power": power},
        )
        for day, off in enumerate(rates)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("rates", "days"),
    [
        pytest.param([0, 0, -0.35, -0.35, 0, 0], [2, 3], id="two nights far below"),
        pytest.param([0, 0.2, 0.2, 0.2, 0], [1, 2, 3], id="three nights above"),
        pytest.param([0, 9.0, 0, 0], [], id="one night, however far"),
        pytest.param([0.09] * 40, [], id="as much as cards may differ"),
        pytest.param([0.3, -0.3] * 10, [], id="to both sides"),
    ],
)
def test_stretches(rates: Sequence[float], days: Sequence[int]) -> None:
    """Where the sum rose, and no longer."""
    found = list(stretches(series(rates)))
    assert [one.begin for stretch in found for one in stretch.seen] == [
        NIGHT + timedelta(days=day) for day in days
    ]


def test_the_reason_says_how_far() -> None:
    """In percent, with its sign."""
    [found] = stretches(series([math.log(0.7)] * 3))
    assert found.why == "rates of host node-1 -30 % against all others of this site"
    [found] = stretches(series([0.0] * 3, power=math.log(1.3)))
    assert found.why == "power of host node-1 +30 % against all others of this site"


@given(st.lists(st.floats(-2, 2), max_size=20))
def test_the_stretch_is_the_largest_of_all(rates: Sequence[float]) -> None:
    """No other one has a larger sum, whichever way it is looked for."""
    for found in stretches(series(rates)):
        values = [min(found.side * off, MOST) - SLACK for off in rates]
        sums = [sum(values[a:b]) for a in range(len(rates)) for b in range(a + 1, len(rates) + 1)]
        mine = sum(min(found.side * one.off["rates"], MOST) - SLACK for one in found.seen)
        assert mine == pytest.approx(max(sums))
