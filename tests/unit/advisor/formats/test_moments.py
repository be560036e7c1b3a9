"""Moments and spans of time as text."""

import math
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InputError
from advisor.formats.moments import (
    duration_text,
    is_utc,
    now,
    read_duration,
    to_exact_text,
    to_text,
)

zones = st.integers(-12 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
moments = st.datetimes(datetime(1970, 1, 2), datetime(2100, 1, 1), timezones=zones)


@given(moments)
def test_a_moment_reads_back(moment: datetime) -> None:
    """To the microsecond, or cut to the millisecond, and in UTC whatever the zone was."""
    assert datetime.fromisoformat(to_exact_text(moment)) == moment
    assert (
        timedelta() <= moment - datetime.fromisoformat(to_text(moment)) < timedelta(milliseconds=1)
    )
    assert is_utc(to_exact_text(moment))
    assert is_utc(to_text(moment))


def test_both_forms_stay_as_they_are_stored() -> None:
    """Databases compare these texts."""
    moment = datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)
    assert to_text(moment) == "2026-01-31T12:00:00.123+00:00"
    assert to_exact_text(moment) == "2026-01-31T12:00:00.123456Z"
    assert abs(datetime.now(UTC) - datetime.fromisoformat(now())) < timedelta(minutes=1)


@pytest.mark.parametrize("text", ["", "yesterday", "2026-01-31", "2026-01-31T12:00:00+01:00"])
def test_what_is_no_moment_in_utc(text: str) -> None:
    assert not is_utc(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("45s", 45), ("90min", 5400), ("90 m", 5400), ("3h", 10_800), ("1.5d", 129_600)],
)
def test_spans_are_read(text: str, seconds: float) -> None:
    assert read_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "3", "h", "-3h", "0h", "3 hours", "1e3s", "inf h"])
def test_what_is_no_span_is_refused(text: str) -> None:
    """A bare number could mean anything."""
    with pytest.raises(InputError, match="is not a time"):
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
    assert duration_text(seconds) == text


@given(st.floats(1, 1e7))
def test_a_text_is_near_what_it_says(seconds: float) -> None:
    parts = duration_text(seconds).split()
    read = sum(read_duration(f"{n}{unit}") for n, unit in zip(parts[::2], parts[1::2], strict=True))
    assert read == pytest.approx(seconds, rel=0.03, abs=30)
