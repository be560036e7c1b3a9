"""What must hold whatever the objective says, and by how much a prediction misses it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from advisor.cards import card_memory_mib, check_card_memory
from advisor.errors import InputError
from advisor.gpu import MEMORY_PART
from advisor.predictions import Prediction
from advisor.profiles import Profile
from advisor.settings import MIN_SPEED


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What every answer must keep.

    Attributes:
        min_speed: Least relative speed by name of job, 0 to 1; a job beside itself keeps it twice.
        default_min_speed: The same of jobs without a number of their own; 0: no limit.
        max_power_w: Most power at any time; None: no ceiling.
        memory_mib: Memory of the card; None: what its model has, where that is known
            (`with_card_memory`).
    """

    min_speed: Mapping[str, float] = field(default_factory=dict[str, float])
    default_min_speed: float = MIN_SPEED
    max_power_w: float | None = None
    memory_mib: float | None = None

    def __post_init__(self) -> None:
        for job, speed in (*self.min_speed.items(), ("all jobs", self.default_min_speed)):
            if not 0 <= speed <= 1:
                raise InputError(
                    f"a minimum speed of {speed:g} for {job} is not possible",
                    why="1 is as fast as alone on the whole GPU",
                    fix="give a number from 0 to 1, such as 0.5",
                )
        # "not above 0" is true of NaN as well.
        if self.max_power_w is not None and not self.max_power_w > 0:
            raise InputError(f"max_power_w is {self.max_power_w:g}", fix="give a number above 0")
        if self.memory_mib is not None:
            check_card_memory(self.memory_mib)

    def least_speed(self, job: str) -> float:
        """The relative speed that a job must keep."""
        return self.min_speed.get(job, self.default_min_speed)


L = TypeVar("L", bound=Limits)


def with_card_memory(limits: L, gpu_model: str) -> L:
    """The limits with the memory of a card of that model, where none is given and it is known."""
    if limits.memory_mib is not None:
        return limits
    return replace(limits, memory_mib=card_memory_mib(gpu_model))


@dataclass(frozen=True, slots=True)
class Miss:
    """A limit that is not kept.

    Attributes:
        text: What is predicted and what was asked for.
        by: Relative distance to the limit, above 0.
    """

    text: str
    by: float


def misses(prediction: Prediction, a: Profile, b: Profile, limits: Limits) -> tuple[Miss, ...]:
    """The limits that the expected values do not keep."""
    p = prediction
    speeds = p.speed_a.value, p.speed_b.value
    return (
        *_slow(p, a, b, speeds, limits),
        *_hot(_most_power_w(p, a, b, p.power_w.value), limits),
        *_crowded(p, a, b, limits),
    )


def risks(prediction: Prediction, a: Profile, b: Profile, limits: Limits) -> tuple[Miss, ...]:
    """The limits that the bad ends of the intervals do not keep."""
    p = prediction
    speeds = p.speed_a.low, p.speed_b.low
    return (
        *_slow(p, a, b, speeds, limits),
        *_hot(_most_power_w(p, a, b, p.power_w.high), limits),
    )


def _slow(
    p: Prediction, a: Profile, b: Profile, speeds: tuple[float, float], limits: Limits
) -> Iterator[Miss]:
    if p.way == "exclusive":
        return  # one after the other, each job runs at its full speed, only later
    for job, speed in zip((a.job, b.job), speeds, strict=True):
        least = limits.least_speed(job)
        if speed < least:
            text = f"{job} runs at {100 * speed:.3g} % of its speed alone, below {100 * least:g} %"
            yield Miss(text, 1 - speed / least)


def _hot(power_w: float, limits: Limits) -> Iterator[Miss]:
    most_w = limits.max_power_w
    if most_w is not None and power_w > most_w:
        yield Miss(
            f"{power_w:.4g} W are drawn, at most {most_w:g} W are allowed", power_w / most_w - 1
        )


def _most_power_w(prediction: Prediction, a: Profile, b: Profile, together_w: float) -> float:
    """One after the other, the mean of both powers is never drawn, but each of them is."""
    if prediction.way == "exclusive":
        return max(a.whole_gpu_power_w, b.whole_gpu_power_w)
    return together_w


def _crowded(prediction: Prediction, a: Profile, b: Profile, limits: Limits) -> Iterator[Miss]:
    if prediction.way == "exclusive" or limits.memory_mib is None:
        return
    needed_mib = (a.memory_used_mib or 0) + (b.memory_used_mib or 0)
    most_mib = MEMORY_PART * limits.memory_mib
    if needed_mib > most_mib:
        text = (
            f"both need {needed_mib:.0f} MiB of memory, {most_mib:.0f} MiB are there "
            f"({100 * MEMORY_PART:g} % of the card)"
        )
        yield Miss(text, needed_mib / most_mib - 1)
