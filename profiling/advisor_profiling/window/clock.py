"""Time, live or replayed, so that a replay takes seconds and its arithmetic stays the same."""

import time
from datetime import UTC, datetime, timedelta

from advisor.formats.moments import to_exact_text


class Clock:
    """The clock of this host."""

    def now_s(self) -> float:
        """Seconds since a fixed moment; goes on evenly when the date of the host is set."""
        return time.perf_counter()

    def sleep(self, duration_s: float) -> None:
        """Wait at least so long, until the host gives the core back."""
        time.sleep(duration_s)

    def utc(self) -> str:
        """Date and time of the host: ISO 8601 with microseconds, UTC."""
        return to_exact_text(datetime.now(UTC))


class VirtualClock(Clock):
    """A clock that moves only when something sleeps; `utc` counts on from `start`."""

    def __init__(self, start: datetime | None = None) -> None:
        self._start, self._now_s = start or datetime.now(UTC), 0.0

    def now_s(self) -> float:
        """The sum of all sleeps."""
        return self._now_s

    def sleep(self, duration_s: float) -> None:
        """Return at once, with the clock moved on."""
        self._now_s += duration_s

    def utc(self) -> str:
        """`start` and the sum of all sleeps."""
        return to_exact_text(self._start + timedelta(seconds=self._now_s))
