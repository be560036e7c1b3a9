"""Jobs that run together from one moment on, until one of them has ended."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime

from advisor.core.flags import UNCOUNTED
from advisor.core.observations import SETTLE_S
from advisor.formats.moments import to_exact_text
from advisor.launch.monitor.energy import Metered
from advisor.launch.monitor.job_monitor import JobMonitor
from advisor.launch.monitor.rate_meter import RateMeter
from advisor.launch.monitor.timed import Moment
from advisor.runtime.jobs.reports import percentile_ms


class Stretch:
    """What they did; means leave out the first seconds.

    Attributes:
        numbers: Which jobs of the launch, counted from 0.
        started_at: When it began, ISO 8601, UTC.
        seen_s: When it was looked at last.
        overlap_s: How long it has lasted.
        ended: Who of them was over by itself at its end.
        flags: What was wrong in it, of `advisor.core.flags`, as far as that was seen meanwhile.
    """

    def __init__(
        self,
        jobs: Sequence[JobMonitor],
        numbers: Sequence[int],
        now_s: float,
        metered: Metered | None,
    ) -> None:
        self.numbers = tuple(numbers)
        self.started_at = to_exact_text(datetime.now(UTC))
        self.seen_s, self.overlap_s = now_s, 0.0
        self.ended: tuple[int, ...] = ()
        self.flags = set[str]()
        self._paces = {n: _Pace(jobs[n]) for n in self.numbers}
        self._begun_s, self._first, self._last = now_s, metered, metered
        self._joules = RateMeter()

    @property
    def energy_j(self) -> float | None:
        """Of the GPU in that time; None: not all of it was read."""
        if self._first is None or self._last is None:
            return None
        return self._last.since(self._first).whole_j(self.overlap_s)

    def add(self, now: Moment, passed_s: float, metered: Metered | None) -> None:
        """Count the time since the last look; `metered` is the energy of the GPU so far."""
        self.seen_s = now.at_s
        self.overlap_s += passed_s
        self._first, self._last = self._first or metered, metered
        self.ended = tuple(n for n, pace in self._paces.items() if pace.job.over)
        unread = [pace for pace in self._paces.values() if pace.job.unread]
        if unread:
            self.flags.add(UNCOUNTED)
        # The look that finds a job at its end is in no mean: it ended at some time before.
        if now.at_s - self._begun_s < SETTLE_S or self.ended or unread:
            return
        for pace in self._paces.values():
            pace.note(now)
        if metered is not None:
            self._joules.add(*metered.of_rate)

    def power_w(self) -> float | None:
        """Of the GPU, mean of the time in which it was read."""
        return self._joules.rate()

    def rates(self) -> tuple[float | None, ...]:
        """Of these jobs, in the order of the launch."""
        return tuple(pace.steps.rate() for pace in self._paces.values())

    def settled_s(self) -> float:
        """How long the time is that means are of."""
        return max(pace.steps.span_s for pace in self._paces.values())

    def latency_ms(self, number: int, percent: float) -> float | None:
        """That so many of the requests of a job did not exceed; None where none is told."""
        return percentile_ms(*self._paces[number].answered, percent)


class _Pace:
    """Progress and answers of one job."""

    def __init__(self, job: JobMonitor) -> None:
        self.job, self.steps = job, RateMeter()
        self.answered: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())

    def note(self, now: Moment) -> None:
        self.steps.add(now, self.job.steps)
        # A file that cannot be read is found when the job is counted next.
        with suppress(OSError):
            answered = self.job.job.latencies()
            self.answered = (self.answered[0] or answered, answered)
