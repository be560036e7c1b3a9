"""What the service knows of a job alone, by which the agent judges it beside another one."""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from advisor.client import ClientError, ProfilePoints
from advisor.core.gpu import WHOLE
from advisor.core.records import DOUBTFUL, SoloPoint
from advisor.validity.points import is_usable

_Profiles = Callable[[str, str], ProfilePoints]
"""Asks the service for the points of a job on a GPU model; raises a `ClientError`."""

ASK_AGAIN_S = 60.0
"""A profile that was not to be had, or was, is asked for again after this time: it may change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A job alone on the whole GPU, medians of its points; None of what is not known.

    Attributes:
        rate: Steps per second.
        power_w: Of the GPU while it runs.
        idle_power_w: Of the GPU before it started.
        rates: Its rates at the shares that were measured, ascending by share, percent.
    """

    rate: float | None = None
    rate_unit: str = "steps"
    power_w: float | None = None
    idle_power_w: float | None = None
    rates: tuple[tuple[float, float], ...] = ()

    def rate_at(self, percent: float) -> float | None:
        """Its rate alone at a share, linear between measured ones; None outside of them."""
        for (low, slow), (high, fast) in pairwise(self.rates):
            if low <= percent <= high:
                return slow + (fast - slow) * (percent - low) / (high - low)
        return None


class ReferenceCache:
    """Asked of the service once a minute at most for each job; what was known stays known."""

    def __init__(self, profiles: _Profiles) -> None:
        self._profiles = profiles
        self._known: dict[tuple[str, str], tuple[float, Reference]] = {}

    def of(self, job: str, gpu_model: str) -> Reference:
        """The job on this GPU model; nothing but None where the service knows or says nothing."""
        asked_s, known = self._known.get((job, gpu_model), (None, Reference()))
        now_s = time.monotonic()
        if asked_s is None or now_s - asked_s > ASK_AGAIN_S:
            # Metrics without relative speeds are better than an agent that stops.
            with suppress(ClientError):
                known = reference_of(self._profiles(job, gpu_model).points)
            self._known[job, gpu_model] = now_s, known
        return known


def reference_of(points: Iterable[SoloPoint]) -> Reference:
    """The reference in the points of one job on one GPU model."""
    good = [p for p in points if is_usable(p) and not DOUBTFUL & set(p.flags)]
    whole = [point for point in good if point.share_percent == WHOLE]
    if not whole:
        return Reference()
    return Reference(
        rate=_median(point.rate for point in whole),
        rate_unit=whole[0].rate_unit,
        power_w=_median(point.power_w for point in whole),
        idle_power_w=_median(point.idle_power_w for point in whole),
        rates=tuple(
            (share, median(point.rate for point in good if point.share_percent == share))
            for share in sorted({point.share_percent for point in good})
        ),
    )


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
