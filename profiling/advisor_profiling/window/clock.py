"""Time, live or replayed, so that a replay takes seconds and its arithmetic stays the same."""

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

from advisor.formats.moments import to_exact_text


class Clock(Protocol):
    """Where a measurement gets its time from."""

    def now_s(self) -> float:
        """Seconds since any fixed moment; never goes back."""
        ...

    def sleep(self, duration_s: float) -> None:
        """Let `duration_s` pass."""
        ...

    def utc(self) -> str:
        """Date and time, ISO 8601 with microseconds, UTC."""
        ...


class LiveClock:
    """The clock of this host."""

    def now_s(self) -> float:
        """Goes on evenly when the date of the host is set."""
        return time.perf_counter()

    def sleep(self, duration_s: float) -> None:
        """At least so long, as the host gives the core back."""
        time.sleep(duration_s)

    def utc(self) -> str:
        """The date of the host, which somebody may set."""
        return to_exact_text(datetime.now(UTC))


class VirtualClock:
    """A clock that moves only when something sleeps; `utc` counts on from `start`."""

    def __init__(self, start: datetime | None = None) -> None:
        self._start = start or datetime.now(UTC)
        self._now_s = 0.0

    def now_s(self) -> float:
        """All that was slept, added up."""
        return self._now_s

    def sleep(self, duration_s: float) -> None:
        """Returns at once, with the clock moved on."""
        self._now_s += duration_s

    def utc(self) -> str:
        """`start` and all that was slept since."""
        return to_exact_text(self._start + timedelta(seconds=self._now_s))
