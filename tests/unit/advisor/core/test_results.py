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


@pytest.mark.parametrize(
    ("seen", "reference", "verdict"),
    [
        (reported(10.0, 9.0), reported(10.05, 8.95), "right"),
        # The largest of all differences counts, not the mean or the last.
        (reported(10.0, 9.0, 8.0), reported(10.0, 9.2, 8.0), "differ"),
        *((reported(10.0, value, 9.0), None, "wrong") for value in (math.nan, math.inf, -math.inf)),
        (reported(10.0, math.nan), reported(10.0, 9.0), "wrong"),
        (Reported(), reported(1.0), None),
        (reported(1.0), None, None),
        (reported(1.0), reported(1.0, math.nan), None),
        (reported(1.0), reported(1.0, counts=range(7, 8)), None),
    ],
)
def test_results_are_judged_by_those_of_the_whole_gpu(
    seen: Reported, reference: Reported | None, verdict: str | None
) -> None:
    assert judge(seen, reference, TOLERANCE) == verdict


@given(FINITE, FINITE)
def test_a_gap_is_finite_or_infinite_and_never_nan(value: float, reference: float) -> None:
    assert relative_gap(value, reference) >= 0


@given(FIRST)
def test_first_values_survive_their_line(first: tuple[tuple[int, float], ...]) -> None:
    seen = read_first(write_first(Reported(first, len(first), 0, first[-1][1])))
    assert seen is not None
    assert [at for at, _ in seen.first] == [at for at, _ in first]
    assert [v for _, v in seen.first] == pytest.approx([v for _, v in first], rel=1e-8)


@pytest.mark.parametrize(
    "text", [write_first(reported(math.nan)), None, "", "loss", "1=", "=3", "1=2=3", "a=b"]
)
def test_what_is_no_line_of_values_is_none(text: str | None) -> None:
    assert read_first(text) is None
