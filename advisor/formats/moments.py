"""Time as text: moments in ISO 8601 and UTC, spans as people write them: 90min, 3h, 1.5d."""

import math
import re
from datetime import UTC, datetime, timedelta

from advisor.errors import InputError

# Other forms of ISO 8601, such as weeks, sort elsewhere as text.
_DAY = re.compile(r"20[0-9]{2}-[0-9]{2}-[0-9]{2}[T ]")

_SECONDS = {"s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_WRITTEN = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(s|min|m|h|d)")


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


def moment_fault(text: str, now: datetime) -> str | None:
    """Why nothing can have been measured at that moment; None: it can."""
    if not (_DAY.match(text) and is_utc(text)):
        return f"started_at is {text!r}, not a moment in UTC of this century"
    if datetime.fromisoformat(text) > now + timedelta(days=1):  # clocks of hosts may be wrong
        return f"it was measured at {text}, after {now:%Y-%m-%d %H:%M}, which is now"
    return None


def read_duration(text: str) -> float:
    """Seconds of a number with its unit; above 0.

    Raises:
        InputError: no number with a unit, or no time at all.
    """
    match = _WRITTEN.fullmatch(text.strip())
    seconds = float(match[1]) * _SECONDS[match[2]] if match else 0.0
    if not 0 < seconds < math.inf:
        raise InputError(f"{text} is not a time", fix="write 90min, 3h or 2d")
    return seconds


def duration_text(seconds: float) -> str:
    """Two units at most: 45 s, 12 min, 1 h 40 min, 3 d 4 h."""
    if seconds == math.inf:
        return "forever"
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes = int(seconds / 60 + 0.5)  # as JavaScript rounds, for the pages: see numbers.js
    if minutes < 60:
        return f"{minutes} min"
    return (
        _two(minutes, 60, "h", "min")
        if minutes < 48 * 60
        else _two(int(seconds / 3600 + 0.5), 24, "d", "h")
    )


def _two(count: int, each: int, large: str, small: str) -> str:
    whole, rest = divmod(count, each)
    return f"{whole} {large} {rest} {small}" if rest else f"{whole} {large}"
