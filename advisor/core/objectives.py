"""What a split is worth: objectives over the rates and the power of two jobs. Pure arithmetic.

To compare splits, the work of two different jobs must be added up. `energy-efficiency` counts it in
the joules that it takes alone, `throughput-per-watt` in the seconds that it takes alone, and
`raw-throughput-per-watt`, the objective of "Energy-efficient GPU SM allocation" (section 4), in
steps of whatever the job counts. docs/objectives.md derives them and says which question each
answers.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType

from advisor.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitResult:
    """What two jobs do on one GPU at one split, measured or predicted.

    Attributes:
        rate_a: Progress of the first job per second, in its own unit.
        rate_b: Progress of the second job per second, in its own unit.
        solo_rate_a: Rate of the first job alone on the whole GPU, above 0.
        solo_rate_b: Rate of the second job alone on the whole GPU, above 0.
        solo_power_a_w: Power of the GPU while the first job runs alone on all of it, above 0.
        solo_power_b_w: The same of the second job.
        power_w: Power of the GPU while both run, above 0.
    """

    rate_a: float
    rate_b: float
    solo_rate_a: float
    solo_rate_b: float
    solo_power_a_w: float
    solo_power_b_w: float
    power_w: float

    def __post_init__(self) -> None:
        # "not above 0" is true of NaN as well.
        for name in _DIVISORS:
            if not (value := getattr(self, name)) > 0:
                raise InputError(f"{name} is {value}", why="objectives divide by it")

    @property
    def speed_a(self) -> float:
        """Relative speed of the first job: 1 is as fast as alone on the whole GPU."""
        return self.rate_a / self.solo_rate_a

    @property
    def speed_b(self) -> float:
        """Relative speed of the second job."""
        return self.rate_b / self.solo_rate_b

    @property
    def stp(self) -> float:
        """Sum of relative speeds (system throughput, STP): 1 is what one job at a time gives."""
        return self.speed_a + self.speed_b

    @property
    def same_work_w(self) -> float:
        """Joules that the work of one second of sharing takes one after the other."""
        return self.speed_a * self.solo_power_a_w + self.speed_b * self.solo_power_b_w

    @property
    def energy_saved(self) -> float:
        """Part of the energy saved for the same work, against one after the other.

        0.1 is a tenth less energy; below 0 sharing costs more. Minus infinity without any work.
        """
        return 1 - self.power_w / self.same_work_w if self.same_work_w > 0 else -math.inf


_DIVISORS = ("solo_rate_a", "solo_rate_b", "solo_power_a_w", "solo_power_b_w", "power_w")


@dataclass(frozen=True, slots=True)
class Objective:
    """A number that a split should make large.

    Attributes:
        meaning: What it is, in words.
        unit: Unit of its values; "1" where they have none.
        value: The number for one result; at least 0.
    """

    name: str
    meaning: str
    unit: str
    value: Callable[[SplitResult], float]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One split that could be chosen, and what comes of it."""

    share_a_percent: float
    share_b_percent: float
    result: SplitResult

    @property
    def unevenness_percent(self) -> float:
        """How far apart the two shares are."""
        return abs(self.share_a_percent - self.share_b_percent)


def best(candidates: Iterable[Candidate], objective: Objective, tie: float = 0.0) -> Candidate:
    """The candidate with the largest value; among nearly equal ones the most even.

    Args:
        candidates: At least one.
        objective: What is maximised.
        tie: Relative distance from the largest value within which a candidate counts as equal to
            it, such as the noise of the measurement; 0 up to, but not including, 1.

    Raises:
        InputError: no candidate, or a tie out of range.
    """
    if not 0 <= tie < 1:
        raise InputError(f"a tie of {tie} is not possible", fix="give 0 up to below 1")
    valued = [(objective.value(candidate.result), candidate) for candidate in candidates]
    if not valued:
        raise InputError("there is no split to choose from")
    least = max(value for value, _ in valued) * (1 - tie)
    tied = [(value, candidate) for value, candidate in valued if value >= least]
    # Of equally even ones the larger value, of equal values the smaller first share: the answer
    # does not depend on the order in which the candidates come.
    return min(
        tied, key=lambda pair: (pair[1].unevenness_percent, -pair[0], pair[1].share_a_percent)
    )[1]


def exclusive(
    *, solo_rate_a: float, solo_rate_b: float, solo_power_a_w: float, solo_power_b_w: float
) -> SplitResult:
    """The two jobs one after the other, each alone on the whole GPU for half of the time.

    Each then does half of what it would do alone, so the relative speeds are 1/2 and 1/2, and the
    energy of a second is half a second at one power and half a second at the other: the power is
    the mean of the two. Half of the time for each is what an even-handed queue gives; with any
    other part the relative speeds still add up to 1, and the energy saved is still 0.
    """
    return SplitResult(
        rate_a=solo_rate_a / 2,
        rate_b=solo_rate_b / 2,
        solo_rate_a=solo_rate_a,
        solo_rate_b=solo_rate_b,
        solo_power_a_w=solo_power_a_w,
        solo_power_b_w=solo_power_b_w,
        power_w=(solo_power_a_w + solo_power_b_w) / 2,
    )


def _energy_efficiency(result: SplitResult) -> float:
    # The inverse of 1 - energy_saved, so both put the same split first; never below 0.
    return result.same_work_w / result.power_w


def _throughput_per_watt(result: SplitResult) -> float:
    return result.stp / result.power_w


def _raw_throughput_per_watt(result: SplitResult) -> float:
    return (result.rate_a + result.rate_b) / result.power_w


def _energy_delay(result: SplitResult) -> float:
    # Energy for one unit of work is power / S and its time is 1 / S; this is 1 / (energy x time).
    return result.stp**2 / result.power_w


def _max_min(result: SplitResult) -> float:
    return min(result.speed_a, result.speed_b)


DEFAULT_OBJECTIVE = "energy-efficiency"

PER_WATT_OBJECTIVE = "throughput-per-watt"
RAW_OBJECTIVE = "raw-throughput-per-watt"

OBJECTIVES: Mapping[str, Objective] = MappingProxyType(
    {
        objective.name: objective
        for objective in (
            Objective(
                DEFAULT_OBJECTIVE,
                "energy that the same work takes one after the other, per energy that it takes "
                "shared",
                "1",
                _energy_efficiency,
            ),
            Objective(
                PER_WATT_OBJECTIVE,
                "sum of relative speeds per watt",
                "1/W",
                _throughput_per_watt,
            ),
            Objective(
                "raw-throughput-per-watt",
                "sum of rates per watt, X1 + X2 of whatever units",
                "steps/J",
                _raw_throughput_per_watt,
            ),
            Objective("throughput", "sum of relative speeds", "1", lambda result: result.stp),
            Objective(
                "energy-delay",
                "inverse of energy times time for one unit of work: squared sum of relative "
                "speeds per watt",
                "1/W",
                _energy_delay,
            ),
            Objective("max-min", "relative speed of the slower job", "1", _max_min),
        )
    }
)
"""Every objective by name; all of them are maximised."""


def find_objective(name: str) -> Objective:
    """The objective of that name.

    Raises:
        InputError: there is none.
    """
    if name not in OBJECTIVES:
        near = [n for n in OBJECTIVES if name and name in n] or get_close_matches(name, OBJECTIVES)
        asked = f"did you mean {' or '.join(near)}? Else " if near else ""
        raise InputError(
            f"there is no objective {name}", fix=f"{asked}give one of {', '.join(OBJECTIVES)}"
        )
    return OBJECTIVES[name]
