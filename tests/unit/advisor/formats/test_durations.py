"""Spans of time as people write and read them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InputError
from advisor.formats.durations import duration_text, read_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("45s", 45), ("90min", 5400), ("90 m", 5400), ("3h", 10_800), ("1.5d", 129_600)],
)
def test_spans_are_read(text: str, seconds: float) -> None:
    """A number and its unit."""
    assert read_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "3", "h", "-3h", "0h", "3 hours", "1e3s", "inf h"])
def test_what_is_no_span_is_refused(text: str) -> None:
    """A bare number could mean anything."""
    with pytest.raises(InputError, match="is no time"):
        read_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.5, "0.5 s"),
        (45, "45 s"),
        (59 * 60, "59 min"),
        (3600, "1 h"),
        (6000, "1 h 40 min"),
        (3 * 86_400, "3 d"),
        (3 * 86_400 + 4 * 3600, "3 d 4 h"),
        (math.inf, "for ever"),
    ],
)
def test_spans_are_written(seconds: float, text: str) -> None:
    """Two units at most."""
    assert duration_text(seconds) == text


@given(st.floats(1, 1e7))
def test_a_text_is_near_what_it_says(seconds: float) -> None:
    """Nothing is off by more than half of its last unit."""
    parts = duration_text(seconds).split()
    read = sum(read_duration(f"{n}{unit}") for n, unit in zip(parts[::2], parts[1::2], strict=True))
    assert read == pytest.approx(seconds, rel=0.03, abs=30)
