"""Two jobs until both are done: how long that takes and what energy. Pure arithmetic.

When the first job has ended the other goes on alone: under its limit, which MPS cannot lift from a
running client, or on the whole GPU, when it is restarted without one.
"""

import math
from dataclasses import dataclass

from advisor.core.objectives import SplitResult
from advisor.errors import InputError


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be done, in seconds that it takes each job alone on the whole GPU."""

    a_s: float
    b_s: float

    def __post_init__(self) -> None:
        # "not at least 0" is true of NaN as well.
        if not (self.a_s >= 0 and self.b_s >= 0 and 0 < self.a_s + self.b_s < math.inf):
            raise InputError(
                f"{self.a_s:g} s and {self.b_s:g} s are no work",
                fix="give the time that each job takes alone, such as 3h or 90min",
            )


@dataclass(frozen=True, slots=True)
class Rest:
    """What a job does once the other has ended: relative speed, and power of the GPU."""

    speed: float
    power_w: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """Both jobs from start to end.

    Attributes:
        time_s: Until both are done; infinite where one never is.
        energy_j: Of the GPU in that time.
        shared_s: Until the first one is done.
    """

    time_s: float
    energy_j: float
    shared_s: float


def finish(result: SplitResult, work: Work, rests: tuple[Rest, Rest] | None = None) -> Finish:
    """The work done together, and what is then left of one job done alone.

    Args:
        result: What the jobs do together.
        work: What is to be done.
        rests: What each does once the other has ended; None: alone on the whole GPU.
    """
    rests = rests or _on_whole_gpu(result)
    # A job without work is over before it begins.
    needed_s = (_seconds(work.a_s, result.speed_a), _seconds(work.b_s, result.speed_b))
    shared_s = min(needed_s)
    if shared_s == math.inf:
        return Finish(time_s=math.inf, energy_j=math.inf, shared_s=math.inf)
    left_s = (work.a_s - shared_s * result.speed_a, work.b_s - shared_s * result.speed_b)
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
    return Finish(
        time_s=work.a_s + work.b_s,
        energy_j=work.a_s * result.solo_power_a_w + work.b_s * result.solo_power_b_w,
        shared_s=0.0,
    )


def work_of(result: SplitResult, span_s: float) -> Work:
    """What two jobs do in a span of time together."""
    return Work(result.speed_a * span_s, result.speed_b * span_s)


def _on_whole_gpu(result: SplitResult) -> tuple[Rest, Rest]:
    return Rest(1.0, result.solo_power_a_w), Rest(1.0, result.solo_power_b_w)


def _seconds(work_s: float, speed: float) -> float:
    if work_s == 0:
        return 0.0
    return work_s / speed if speed > 0 else math.inf
