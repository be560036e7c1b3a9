"""Copies a server's counter and latencies into the progress file of its job."""

import math
from itertools import pairwise

from advisor.errors import JobError
from advisor.progress import LATENCY_STEP, Progress
from advisor.scrape.page import Reading, SeriesTotal

_GOLDEN = (math.sqrt(5) - 1) / 2
"""Its multiples, without the whole part, lie evenly however few or many of them are taken in a row
(Knuth, The Art of Computer Programming, volume 3, section 6.4)."""

_PLACES = 1000
"""So many different latencies are taken from one bucket in one reading."""


class PageMirror:
    """Writes readings into a progress file; counters that went back started again.

    Buckets of servers are wide and those of a progress file 5 % apart, so requests of one bucket
    are spread evenly over it: percentiles are then linear within a bucket, as those of Prometheus.
    Of requests beyond the last bound nothing else is known: they count as 5 % above it.

    Args:
        promised_ms: The p99 that is promised of the job.
    """

    def __init__(self, progress: Progress, promised_ms: float | None = None) -> None:
        self._progress, self._promised_ms = progress, promised_ms
        self._total, self._told = SeriesTotal(), 0
        self._buckets: tuple[tuple[float, float], ...] = ()

    def take(self, reading: Reading) -> None:
        """Take a reading over.

        Raises:
            JobError: the buckets do not reach a promised latency.
        """
        before, self._told = self._told, int(self._total.add(reading.counts))
        self._progress.add(self._told - before)
        if reading.buckets:
            self._take_latencies(reading.buckets)

    def _take_latencies(self, buckets: tuple[tuple[float, float], ...]) -> None:
        self._check_promise(buckets)
        before, bounds_s = dict(self._buckets), [bound_s for bound_s, _ in buckets]
        if bounds_s != [*before]:
            self._progress.bounded(bounds_s)
        counts = [round(count) for _, count in buckets]
        known = [round(before.get(bound_s, 0.0)) for bound_s in bounds_s]
        # What one bucket has is the difference to the one below it.
        new, old = _differences(counts), _differences(known)
        if any(now < then for now, then in zip(new, old, strict=True)):
            old = [0] * len(new)  # the server started again
        for bounds, then, now in zip(pairwise([0.0, *bounds_s]), old, new, strict=True):
            self._spread(bounds, then, now)
        self._buckets = buckets

    def _spread(self, bounds_s: tuple[float, float], known: int, now: int) -> None:
        low_s, high_s = max(bounds_s[0], 0.0), bounds_s[1]
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


def _differences(counts: list[int]) -> list[int]:
    return [after - before for before, after in pairwise([0, *counts])]
