"""Results that a job reports: judged against the full GPU's, and kept in a line."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.core.job import TOLERANCE, Reported, judge, read_first, relative_gap, write_first

FINITE = st.floats(allow_nan=False, allow_infinity=False, width=32)
FIRST = st.lists(st.tuples(st.integers(0, 10**9), FINITE), min_size=1, max_size=8).map(tuple)


def reported(*values: float, counts: range | None = None) -> Reported:
    """Values after 1, 2, .. steps."""
    counts = counts or range(1, len(values) + 1)
    wrong = sum(not math.isfinite(value) for value in values)
    first = tuple(zip(counts, values, strict=True))
    return Reported(first, len(values), wrong, values[-1] if values else None)


def test_values_within_the_tolerance_are_right() -> None:
    assert judge(reported(10.0, 9.0), reported(10.05, 8.95), TOLERANCE) == "right"


def test_one_value_beyond_the_tolerance_differs() -> None:
    assert judge(reported(10.0, 9.0, 8.0), reported(10.0, 9.2, 8.0), TOLERANCE) == "differ"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_is_wrong_whatever_else_holds(value: float) -> None:
    assert judge(reported(10.0, value, 9.0), None, TOLERANCE) == "wrong"
    assert judge(reported(10.0, value), reported(10.0, 9.0), TOLERANCE) == "wrong"


def test_nothing_is_said_without_anything_to_compare() -> None:
    assert judge(Reported(), reported(1.0), TOLERANCE) is None
    assert judge(reported(1.0), None, TOLERANCE) is None
    assert judge(reported(1.0), reported(1.0, math.nan), TOLERANCE) is None
    assert judge(reported(1.0), reported(1.0, counts=range(7, 8)), TOLERANCE) is None


@given(FINITE, FINITE)
def test_a_gap_is_finite_or_infinite_and_never_nan(value: float, reference: float) -> None:
    assert relative_gap(value, reference) >= 0


@given(FIRST)
def test_first_values_survive_their_line(first: tuple[tuple[int, float], ...]) -> None:
    seen = read_first(write_first(Reported(first, len(first), 0, first[-1][1])))
    assert seen is not None
    assert [at for at, _ in seen.first] == [at for at, _ in first]
    assert [v for _, v in seen.first] == pytest.approx([v for _, v in first], rel=1e-8)


def test_values_that_are_not_finite_leave_no_line() -> None:
    assert write_first(reported(math.nan)) is None


@pytest.mark.parametrize("text", [None, "", "loss", "1=", "=3", "1=2=3", "a=b"])
def test_what_is_no_line_of_values_is_none(text: str | None) -> None:
    assert read_first(text) is None
