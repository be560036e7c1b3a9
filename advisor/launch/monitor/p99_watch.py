"""Whether a server keeps the p99 that is promised of it, window by window."""

from contextlib import suppress

from advisor.core.observations import SETTLE_S
from advisor.progress import LATENCY_STEP
from advisor.runtime.jobs.reports import percentile_ms
from advisor.runtime.jobs.running_job import RunningJob

WINDOW_S, LEAST_REQUESTS = 5.0, 200
"""The least of a window: of fewer requests the 99th percentile is that of one or two."""

WINDOWS = 3
"""One window that is late may be chance, or somebody who starts; so many in a row are not."""


class P99Watch:
    """The promise of one job.

    Attributes:
        p99_ms: Of the last whole window; None before there is one.
        late: How many windows in a row have been above what is promised.
    """

    def __init__(self, job: RunningJob, promised_ms: float, now_s: float) -> None:
        self._job, self.promised_ms = job, promised_ms
        self.p99_ms: float | None = None
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
        self.p99_ms = percentile_ms(self._before, answered, 99)
        self._begun_s, self._before = now_s, answered
        # Latencies are known by buckets: late is one of which even the lower end is above.
        least_ms = (self.p99_ms or 0.0) / LATENCY_STEP**0.5
        self.late = self.late + 1 if least_ms > self.promised_ms else 0
        return self.late > 0 and self.late % WINDOWS == 0

    def text(self, name: str) -> str:
        """What is wrong."""
        return (
            f"the p99 of {name} is {self.p99_ms or 0:.3g} ms, above the {self.promised_ms:g} ms "
            f"that are promised, in {self.late} windows in a row ({WINDOW_S:g} s or more, "
            f"{LEAST_REQUESTS} requests or more)"
        )
