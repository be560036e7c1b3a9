"""Jobs until all are done: how long that takes and what energy. Pure arithmetic.

When the first of two jobs has ended the other goes on alone: under its limit, which MPS cannot lift
from a running client, or on the whole GPU, when it is restarted without one. Of more jobs those
that are left go on one after the other.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from advisor.core.objectives import SplitResult
from advisor.errors import InputError


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be done, in seconds that it takes each job alone on the whole GPU."""

    alone_s: tuple[float, ...]

    def __post_init__(self) -> None:
        # "not at least 0" is true of NaN as well.
        if not (all(s >= 0 for s in self.alone_s) and 0 < sum(self.alone_s) < math.inf):
            raise InputError(
                f"{' and '.join(f'{s:g} s' for s in self.alone_s)} are not amounts of work",
                fix="give the time that each job takes alone, such as 3h or 90min",
            )


@dataclass(frozen=True, slots=True)
class Rest:
    """What a job does once the others have ended: relative speed, and power of the GPU."""

    speed: float
    power_w: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """All jobs from start to end.

    Attributes:
        time_s: Until all are done; infinite where one never is.
        energy_j: Of the GPU in that time.
        shared_s: Until the first one is done.
    """

    time_s: float
    energy_j: float
    shared_s: float


def finish(result: SplitResult, work: Work, rests: Sequence[Rest] | None = None) -> Finish:
    """The work done together, and what is then left done alone; without rests on the whole GPU."""
    rests = rests or [Rest(1.0, part.solo_power_w) for part in result.parts]
    both = list(zip(work.alone_s, result.speeds, strict=True))
    # A job without work is over before it begins.
    shared_s = min(_seconds(alone_s, speed) for alone_s, speed in both)
    if shared_s == math.inf:
        return Finish(time_s=math.inf, energy_j=math.inf, shared_s=math.inf)
    left_s = [alone_s - shared_s * speed for alone_s, speed in both]
    tails_s = [
        _seconds(max(left, 0.0), rest.speed) for left, rest in zip(left_s, rests, strict=True)
    ]
    tails_j = [s * rest.power_w for s, rest in zip(tails_s, rests, strict=True) if s]
    return Finish(
        time_s=shared_s + sum(tails_s),
        energy_j=shared_s * result.power_w + sum(tails_j),
        shared_s=shared_s,
    )


def one_after_the_other(result: SplitResult, work: Work) -> Finish:
    """The same work, each job alone on the whole GPU."""
    both = zip(work.alone_s, result.parts, strict=True)
    return Finish(
        time_s=sum(work.alone_s),
        energy_j=sum(alone_s * part.solo_power_w for alone_s, part in both),
        shared_s=0.0,
    )


def work_of(result: SplitResult, span_s: float) -> Work:
    """What jobs do in a span of time together."""
    return Work(tuple(speed * span_s for speed in result.speeds))


def _seconds(work_s: float, speed: float) -> float:
    if work_s == 0:
        return 0.0
    return work_s / speed if speed > 0 else math.inf
