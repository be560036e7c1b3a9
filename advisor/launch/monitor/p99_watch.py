"""Whether a server keeps the p99 that is promised of it, window by window."""

import math
from contextlib import suppress

from advisor.core.observations import SETTLE_S
from advisor.progress import LATENCY_STEP
from advisor.runtime.jobs.reports import percentile_ms, range_ms
from advisor.runtime.jobs.running_job import RunningJob

WINDOW_S, LEAST_REQUESTS = 5.0, 200
"""The least of a window: of fewer requests the 99th percentile is that of one or two."""

WINDOWS = 3
"""One window that is late may be chance, or somebody who starts; so many in a row are not."""


class P99Watch:
    """The promise of one job.

    Attributes:
        p99_ms: Of the last whole window; None before there is one.
        between_ms: Bounds of the bucket that it fell into: it may be anywhere between.
        late: How many windows in a row have been above what is promised.
    """

    def __init__(self, job: RunningJob, promised_ms: float, now_s: float) -> None:
        self._job, self.promised_ms = job, promised_ms
        self.p99_ms: float | None = None
        self.between_ms = (0.0, math.inf)
        self._is_told = False
        self.begin(now_s)

    def begin(self, now_s: float) -> None:
        """Begin anew, as when somebody has come or gone: the first seconds are in no window."""
        self.late = 0
        self._begun_s = now_s + SETTLE_S
        self._before: tuple[int, ...] = ()

    def look(self, now_s: float) -> bool:
        """Whether the promise has been broken for some windows by now; told again after as many."""
        if now_s < self._begun_s:
            return False
        answered: tuple[int, ...] = ()
        # A file that cannot be read is found when the job is counted next.
        with suppress(OSError):
            answered = self._job.latencies()
        if not self._before or not answered:
            self._before = self._before or answered
            return False
        if now_s - self._begun_s < WINDOW_S or sum(answered) - sum(self._before) < LEAST_REQUESTS:
            return False
        self.p99_ms = p99_ms = percentile_ms(self._before, answered, 99)
        self._begun_s, self._before = now_s, answered
        with suppress(OSError):
            self.between_ms = range_ms(p99_ms or 0.0, self._job.latency_bounds_ms())
        # Latencies are known by buckets: late is one of which even the lower end is above.
        self.late = self.late + 1 if self.between_ms[0] >= self.promised_ms else 0
        return self.late > 0 and self.late % WINDOWS == 0

    def text(self, name: str) -> str:
        """What is wrong."""
        return (
            f"the p99 of {name} is {self._said()}, above the {self.promised_ms:g} ms "
            f"that are promised, in {self.late} windows in a row ({WINDOW_S:g} s or more, "
            f"{LEAST_REQUESTS} requests or more)"
        )

    def unsure(self, name: str) -> str:
        """Says once that a promise lies within a wide bucket: it may be kept or not."""
        low, high = self.between_ms
        if self._is_told or not (self.is_coarse and low < self.promised_ms < high):
            return ""
        self._is_told = True
        return (
            f"the p99 of {name} is {self._said()}, as one bucket of its histogram has it, so "
            f"nobody can say whether it keeps the {self.promised_ms:g} ms that are promised"
        )

    @property
    def is_coarse(self) -> bool:
        """Whether its server tells latencies apart less well than they are kept here."""
        low, high = self.between_ms
        return self.p99_ms is not None and high > low * LATENCY_STEP**2

    def _said(self) -> str:
        low, high = self.between_ms
        if not self.is_coarse:
            return f"{self.p99_ms or 0:.3g} ms"
        return f"above {low:.3g} ms" if high == math.inf else f"between {low:.3g} and {high:.3g} ms"
