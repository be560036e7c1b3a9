"""Copies a server's counter and latencies into the progress file of its job."""

import math
from itertools import pairwise

from advisor.errors import JobError
from advisor.progress import LATENCY_STEP, Progress
from advisor.scrape.page import Reading

_GOLDEN = (math.sqrt(5) - 1) / 2
"""Its multiples, without the whole part, lie evenly however few or many of them are taken in a row
(Knuth, The Art of Computer Programming, volume 3, section 6.4)."""

_PLACES = 1000
"""So many different latencies are taken from one bucket in one reading."""


class PageMirror:
    """What was read so far.

    Buckets of servers are wide and those of a progress file 5 % apart, so requests of one bucket
    are spread evenly over it: percentiles are then linear within a bucket, as those of Prometheus.
    Of requests beyond the last bound nothing else is known: they count as 5 % above it.

    Args:
        promised_ms: The p99 that is promised of the job.
    """

    def __init__(self, progress: Progress, promised_ms: float | None = None) -> None:
        self._progress, self._promised_ms = progress, promised_ms
        self._last = Reading(0.0)
        self._told = 0
        self._bounds_s: list[float] = []

    def take(self, reading: Reading) -> None:
        """Take a reading over.

        Raises:
            JobError: something went back, or a promise cannot be watched by these buckets.
        """
        if reading.total < self._last.total:
            raise _back(self._last.total, reading.total)
        self._take_latencies(reading)
        self._last = Reading(reading.total, reading.buckets or self._last.buckets)
        steps, self._told = int(reading.total) - self._told, int(reading.total)
        self._progress.add(steps)

    def _take_latencies(self, reading: Reading) -> None:
        if not reading.buckets:
            return
        self._check_promise(reading.buckets)
        bounds_s = [bound_s for bound_s, _ in reading.buckets]
        if bounds_s != self._bounds_s:
            self._bounds_s = bounds_s
            self._progress.bounded(bounds_s)
        before = dict(self._last.buckets)
        low_s, under, known_under = 0.0, 0, 0
        for bound_s, count in reading.buckets:
            known = round(before.get(bound_s, 0.0))
            # What one bucket has is the difference to the one below it.
            self._spread((low_s, bound_s), known - known_under, round(count) - under)
            low_s, under, known_under = max(bound_s, 0.0), round(count), known

    def _spread(self, bounds_s: tuple[float, float], known: int, now: int) -> None:
        low_s, high_s = bounds_s
        if now < known:
            raise _back(known, now)
        if high_s == math.inf:
            low_s = high_s = low_s * LATENCY_STEP
        for first, after in pairwise([*range(known, now, 1 + (now - known) // _PLACES), now]):
            place_s = low_s + (high_s - low_s) * (first * _GOLDEN % 1)
            self._progress.took(place_s, after - first)

    def _check_promise(self, buckets: tuple[tuple[float, float], ...]) -> None:
        last_ms = 1000 * max((bound for bound, _ in buckets if bound < math.inf), default=0.0)
        if self._promised_ms is not None and self._promised_ms > last_ms:
            raise JobError(
                f"a p99 of {self._promised_ms:g} ms is promised, and the last bucket of the "
                f"histogram ends at {last_ms:g} ms",
                why="beyond it nothing is known",
                fix="give the server larger buckets, or promise less",
            )


def _back(before: float, now: float) -> JobError:
    return JobError(
        f"the server's count went back from {before:g} to {now:g}",
        why="it has started again, or another server answers at this address",
    )
