"""Jobs that answer requests: the demand that arrives, and how long answers take. Pure.

Such a job makes as much progress as is asked of it, so its relative speed is the part of its
demand that it serves: rates are divided by the one measured alone on the whole GPU, as for every
other job. That is the offered rate where the GPU keeps up, but for the chance of arrivals; where it
does not, no share can serve more than the whole GPU does.
"""

import math
import statistics
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

from advisor.core.interval import Interval
from advisor.core.records import SoloPoint
from advisor.core.split import Split

LEAST_TOLERANCE, MOST_TOLERANCE = 0.02, 0.1
"""Bounds of `Serving.tolerance`: clocks and schedules alone make 2 % between two windows, and a
server that loses more than a tenth is short of something other than luck."""


P99_BESIDE = Interval(1.4, 0.9, 3.0)
"""p99 beside another job under limits for each 1 ms alone at the same share, where all of the
demand is met: 5th, 50th and 95th percentile of 229 windows of four servers. What the other three
say holds 51, 92, 95 and 100 % of one's (docs/measurements/model/p99.py)."""

P99_WITHOUT_LIMITS = Interval(4.0, 0.9, 8.0)
"""The same without limits: of 14 windows, 0.9 to 2.4 beside small jobs and 4.4 to 7.8 beside those
that fill the card."""

P99_MEASURED = Interval(1.0, 0.64, 1.55)
"""p99 beside another job for each 1 ms that other windows of the same jobs at the same split had:
5th, 50th and 95th percentile of 166 windows (docs/measurements/model/p99.py)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What is known of a job that answers requests.

    Attributes:
        offered_rate: Requests per second that arrive; None: it has no fixed demand.
        rate_noise: Relative standard error of its measured rates; None: not known.
        latency_p99_ms: 99th percentile of the time to answer, alone at a share: (share in percent,
            ms), by share; empty: never measured.
    """

    offered_rate: float | None
    rate_noise: float | None
    latency_p99_ms: tuple[tuple[float, float], ...]

    @property
    def tolerance(self) -> float:
        """Part of the demand that may be missing by chance.

        A relative speed is the ratio of two measured rates, so its standard error is the square
        root of 2 times theirs; twice that holds for 95 % of those that serve everything.
        """
        noise = 2 * math.sqrt(2) * (self.rate_noise or 0.0)
        return min(max(noise, LEAST_TOLERANCE), MOST_TOLERANCE)

    def served(self, speed: Interval) -> Interval:
        """What is served of the demand by a job that could reach a relative speed, if it has one.

        All of it, 1, where the job could do more. Its bounds are then those of chance: a measured
        value lies `tolerance` below or above it.
        """
        if self.offered_rate is None:
            return speed
        value, chance = min(speed.value, 1.0), self.tolerance
        low, high = min(speed.low, 1 - chance), min(speed.high, 1 + chance)
        return Interval(value, low, max(high, value))

    def rate_alone(self, measured: float) -> float:
        """What its rates beside others are divided by: what arrives, where all of that was served.

        What arrived in one window differs from that by chance, and the other rates would have that
        difference in them.
        """
        offered = self.offered_rate
        if offered is None or abs(measured / offered - 1) > self.tolerance:
            return measured
        return offered

    def is_behind(self, whole_gpu_rate: float) -> bool:
        """Whether even the whole GPU serves less than what arrives."""
        offered = self.offered_rate
        return offered is not None and whole_gpu_rate < (1 - self.tolerance) * offered

    def p99_beside_ms(self, split: Split, share_percent: float) -> Interval | None:
        """Beside another job, while all of the demand is met; None: not known alone.

        By class, not by job: four servers are too few to learn more from.
        """
        alone_ms = self.p99_alone_ms(share_percent)
        if alone_ms is None:
            return None
        if split.sharing == "exclusive":
            return Interval(alone_ms, alone_ms, alone_ms)
        return (P99_BESIDE if split.is_limited else P99_WITHOUT_LIMITS).times(alone_ms)

    def p99_alone_ms(self, share_percent: float) -> float | None:
        """Alone at that share, linear between measured shares; None outside of them."""
        shares = [share for share, _ in self.latency_p99_ms]
        place = bisect_left(shares, share_percent)
        if place == len(shares) or share_percent < shares[0]:
            return None
        above, above_ms = self.latency_p99_ms[place]
        if above == share_percent:
            return above_ms
        below, below_ms = self.latency_p99_ms[place - 1]
        return below_ms + (above_ms - below_ms) * (share_percent - below) / (above - below)


def serving_of(points: Iterable[SoloPoint]) -> Serving | None:
    """What points of one job on one GPU model tell; None: it answers no requests."""
    points = sorted(points, key=lambda point: point.started_at)
    offered = [p.offered_rate for p in points if p.offered_rate is not None]
    latencies: dict[float, list[float]] = {}
    for point in points:
        if point.latency_p99_ms is not None:
            latencies.setdefault(point.share_percent, []).append(point.latency_p99_ms)
    if not (offered or latencies):
        return None
    noises = [p.rate_stderr / p.rate for p in points if p.rate_stderr is not None and p.rate > 0]
    return Serving(
        offered_rate=offered[-1] if offered else None,
        rate_noise=statistics.median(noises) if noises else None,
        latency_p99_ms=tuple((s, statistics.median(ms)) for s, ms in sorted(latencies.items())),
    )
