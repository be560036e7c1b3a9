"""Moments as text: ISO 8601 in UTC."""

from datetime import UTC, datetime, timedelta


def now() -> str:
    """This moment."""
    return to_text(datetime.now(UTC))


def to_text(moment: datetime) -> str:
    """A moment to the millisecond; any zone becomes UTC."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds")


def to_exact_text(moment: datetime) -> str:
    """A moment to the microsecond, as points and observations have it."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def is_utc(text: str) -> bool:
    """Whether a text is a moment in UTC."""
    try:
        return datetime.fromisoformat(text).utcoffset() == timedelta(0)
    except ValueError:
        return False
