"""Moments as text."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.formats.moments import is_utc, now, to_exact_text, to_text

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
