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
        return time.perf_counter()

    def sleep(self, duration_s: float) -> None:
        time.sleep(duration_s)

    def utc(self) -> str:
        return to_exact_text(datetime.now(UTC))


class VirtualClock:
    """A clock that moves only when something sleeps; `utc` counts on from `start`."""

    def __init__(self, start: datetime | None = None) -> None:
        self._start = start or datetime.now(UTC)
        self._now_s = 0.0

    def now_s(self) -> float:
        return self._now_s

    def sleep(self, duration_s: float) -> None:
        self._now_s += duration_s

    def utc(self) -> str:
        return to_exact_text(self._start + timedelta(seconds=self._now_s))
