"""What a split is worth, what a given amount of work takes in it, and the policy. Pure arithmetic.

To compare splits, the work of different jobs must be added up. `energy-efficiency` counts it in
the joules that it takes alone, `throughput-per-watt` in the seconds that it takes alone, and
`raw-throughput-per-watt`, the objective of "Energy-efficient GPU SM allocation" (section 4), in
steps of whatever the job counts. docs/objectives.md derives them and says which question each
answers.

When the first of two jobs has ended the other goes on alone: under its limit, which MPS cannot lift
from a running client, or on the whole GPU, when it is restarted without one. Of more jobs those
that are left go on one after the other.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from types import MappingProxyType
from typing import Literal, TypeAlias, get_args

from advisor.core.gpu import Split, best_within_tie
from advisor.core.wording import less_or_more
from advisor.errors import InputError

HOUR_S = 3600.0

NORMAL_90 = 1.645
"""Standard deviations that hold 90 % of a normal distribution, as the intervals of models do."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An expected value, and the bounds that hold it with the predictor's coverage."""

    value: float
    low: float
    high: float

    @classmethod
    def sure(cls, value: float) -> "Interval":
        """Of what was measured, not predicted."""
        return cls(value, value, value)

    def times(self, factor: float) -> "Interval":
        """The interval of a positive multiple of the value."""
        return Interval(self.value * factor, self.low * factor, self.high * factor)

    def spread_by(self, variance: float) -> "Interval":
        """The interval with bounds further out, by a variance of the value's logarithm.

        Below 0 that much is taken out of them again.
        """
        more = math.copysign(NORMAL_90**2, variance) * abs(variance)
        low, high = (
            math.sqrt(max(0.0, math.log(bound / self.value) ** 2 + more)) if bound else math.inf
            for bound in (self.low, self.high)
        )
        return Interval(self.value, self.value * math.exp(-low), self.value * math.exp(high))


def shrunk(measured: Iterable[tuple[float, float]], spread: float) -> tuple[float, float]:
    """A logarithm and its standard deviation, from values that were seen of it.

    The normal-normal empirical Bayes estimate (Efron and Morris, "Stein's estimation rule and its
    competitors", 1973): shrunk towards 0 by how much it differs.

    Args:
        measured: Each value and its variance.
        spread: Standard deviation of what is usual.
    """
    estimates = [(0.0, spread**2), *measured]
    precision = sum(1 / variance for _, variance in estimates)
    return sum(value / variance for value, variance in estimates) / precision, 1 / math.sqrt(
        precision
    )


@dataclass(frozen=True, slots=True)
class PartResult:
    """What one of the jobs does.

    Attributes:
        rate: Progress per second, in its own unit.
        solo_rate: Rate alone on the whole GPU, above 0.
        solo_power_w: Power of the GPU while it runs alone on all of it, above 0; of a job that
            holds several, of all of them.
        gpus: How many it holds.
    """

    rate: float
    solo_rate: float
    solo_power_w: float
    gpus: int = 1

    def __post_init__(self) -> None:
        # "not above 0" is true of NaN as well.
        if not (self.solo_rate > 0 and self.solo_power_w > 0):
            name = "solo_power_w" if self.solo_rate > 0 else "solo_rate"
            raise InputError(f"{name} is {getattr(self, name)}", why="objectives divide by it")

    @property
    def speed(self) -> float:
        """Relative speed: 1 is as fast as alone on the whole GPU."""
        return self.rate / self.solo_rate


@dataclass(frozen=True, slots=True)
class SplitResult:
    """What jobs do on one GPU, or on those that one of them holds, measured or predicted.

    Attributes:
        power_w: Power of the GPUs while all run, above 0.
        memory_power_w: The part of it that its memory draws; None: not known.
    """

    parts: tuple[PartResult, ...]
    power_w: float
    memory_power_w: float | None = None

    def __post_init__(self) -> None:
        if not self.power_w > 0:
            raise InputError(f"power_w is {self.power_w}", why="objectives divide by it")

    @property
    def speeds(self) -> tuple[float, ...]:
        """Relative speed of each job."""
        return tuple(part.speed for part in self.parts)

    @property
    def slowest(self) -> float:
        """Relative speed of the slowest job."""
        return min(self.speeds)

    @property
    def stp(self) -> float:
        """Sum of relative speeds (system throughput, STP): 1 is what one job at a time gives.

        Of several GPUs the mean of each one's, so GPU hours of work in each hour of a GPU.
        """
        return sum(part.speed * part.gpus for part in self.parts) / self.gpus

    @property
    def gpus(self) -> int:
        """On how many they run."""
        return max(part.gpus for part in self.parts)

    @property
    def same_work_w(self) -> float:
        """Joules that the work of one second of sharing takes one after the other."""
        return sum(part.speed * part.solo_power_w for part in self.parts)

    @property
    def energy_saved(self) -> float:
        """Part of the energy saved for the same work, against one after the other.

        0.1 is a tenth less energy; below 0 sharing costs more. Minus infinity without any work.
        """
        return 1 - self.power_w / self.same_work_w if self.same_work_w > 0 else -math.inf

    def energy_saved_beside(self, idle_w: float) -> float:
        """The same against a GPU for each job, where those that become free draw idle power."""
        freed_w = (len(self.parts) - 1) * idle_w
        return 1 - (self.power_w + freed_w) / self.same_work_w if self.same_work_w else -math.inf

    def sequential(self, work: "Work") -> "Finish":
        """The same work, each job alone on the whole GPU."""
        return Finish(
            time_s=sum(work.alone_s),
            energy_j=sum(
                alone_s * part.solo_power_w
                for alone_s, part in zip(work.alone_s, self.parts, strict=True)
            ),
            shared_s=0.0,
        )

    def finish(self, work: "Work", rests: Sequence["Rest"] | None = None) -> "Finish":
        """The work done together, then what is left done alone; without rests on the whole GPU."""
        rests = rests or [Rest(1.0, part.solo_power_w) for part in self.parts]
        both = list(zip(work.alone_s, self.speeds, strict=True))
        # A job without work is over before it begins.
        shared_s = min(_seconds(alone_s, speed) for alone_s, speed in both)
        if shared_s == math.inf:
            return Finish(time_s=math.inf, energy_j=math.inf, shared_s=math.inf)
        tails_s = [
            _seconds(max(alone_s - shared_s * speed, 0.0), rest.speed)
            for (alone_s, speed), rest in zip(both, rests, strict=True)
        ]
        return Finish(
            time_s=shared_s + sum(tails_s),
            energy_j=shared_s * self.power_w
            + sum(s * rest.power_w for s, rest in zip(tails_s, rests, strict=True) if s),
            shared_s=shared_s,
        )

    def work_in(self, span_s: float) -> "Work":
        """What jobs do in a span of time together."""
        return Work(tuple(speed * span_s for speed in self.speeds))

    @classmethod
    def exclusive(cls, alone: Sequence[tuple[float, float]]) -> "SplitResult":
        """Jobs one after the other, each alone on the whole GPU for the same part of the time.

        Of n jobs each then does 1/n of what it would do alone, and the power is the mean of all.
        Equal parts are what an even-handed queue gives; with any others the relative speeds still
        add up to 1, and the energy saved is still 0. Of each job it takes the rate and the power
        alone.
        """
        n = len(alone)
        return cls(
            parts=tuple(PartResult(rate / n, rate, power_w) for rate, power_w in alone),
            power_w=sum(power_w for _, power_w in alone) / n,
        )


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

    @classmethod
    def find(cls, name: str) -> "Objective":
        """The objective of that name.

        Raises:
            InputError: there is none.
        """
        if name not in ADVISED:
            near = [n for n in ADVISED if name and name in n] or get_close_matches(name, ADVISED)
            hint = f"did you mean {' or '.join(near)}? Else " if near else ""
            raise InputError(
                f"there is no objective {name}",
                why="advisor place and POST /v1/placements have it" if name in AIMS else "",
                fix=f"{hint}give one of {', '.join(ADVISED)}",
            )
        return ADVISED[name]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One split that could be chosen, and what comes of it."""

    split: Split
    result: SplitResult


def best(candidates: Iterable[Candidate], objective: Objective, tie: float = 0.0) -> Candidate:
    """The candidate with the largest value; among nearly equal ones the most even.

    The tie is the relative distance from the largest value within which a candidate counts as equal
    to it, such as the noise of the measurement; 0 up to, but not including, 1.

    Raises:
        InputError: no candidate, or a tie out of range.
    """

    def rank(candidate: Candidate, value: float) -> tuple[float, float, tuple[float, ...]]:
        # Of equally even ones the larger value, of equal values the smaller first share: the
        # answer does not depend on the order in which the candidates come.
        return candidate.split.gap_percent, -value, candidate.split.shares

    return best_within_tie(candidates, lambda c: objective.value(c.result), tie, rank)


DEFAULT_OBJECTIVE, COST, FEWEST_CARDS = "energy-efficiency", "cost", "fewest-cards"
PER_WATT_OBJECTIVE, RAW_OBJECTIVE = "throughput-per-watt", "raw-throughput-per-watt"

OBJECTIVES: Mapping[str, Objective] = MappingProxyType(
    {
        objective.name: objective
        for objective in (
            Objective(
                DEFAULT_OBJECTIVE,
                "energy that the same work takes one after the other, per energy that it takes "
                "shared",
                "1",
                # The inverse of 1 - energy_saved, so both put the same split first; never below 0.
                lambda result: result.same_work_w / result.power_w,
            ),
            Objective(
                PER_WATT_OBJECTIVE,
                "sum of relative speeds per watt",
                "1/W",
                lambda result: result.stp / result.power_w,
            ),
            Objective(
                RAW_OBJECTIVE,
                "sum of rates per watt, X1 + X2 of whatever units",
                "steps/J",
                lambda result: sum(part.rate for part in result.parts) / result.power_w,
            ),
            Objective("throughput", "sum of relative speeds", "1", lambda result: result.stp),
            Objective(
                "energy-delay",
                "inverse energy-delay product of one unit of work: squared sum of relative "
                "speeds per watt",
                "1/W",
                # Energy for one unit of work is power / S and its time is 1 / S.
                lambda result: result.stp**2 / result.power_w,
            ),
            Objective("max-min", "relative speed of the slower job", "1", lambda r: r.slowest),
        )
    }
)
"""Every objective by name; all of them are maximised."""

ADVISED: Mapping[str, Objective] = MappingProxyType(
    {
        **OBJECTIVES,
        COST: Objective(
            COST,
            "what the same work costs one after the other, per cost shared",
            "1",
            lambda result: result.stp,
        ),
    }
)
"""What advice can be asked for. Cost needs prices; without one of energy it is that of GPU time."""

Aim: TypeAlias = Literal["energy-efficiency", "throughput", "cost", "fewest-cards"]
AIMS: tuple[Aim, ...] = get_args(Aim)
"""What a placement can be asked for: objectives that add up over GPUs, and how many GPUs it uses.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices in any one currency; 0: not set.

    Attributes:
        gpu_hour: Of holding a GPU for an hour.
        kwh: Of a kilowatt hour.
        host_w: Watts that the server draws beside its GPUs, for each GPU that is held. Of a DGX
            H100 of 10.2 kW eight GPUs of 700 W leave 575 W at most (NVIDIA, DGX H100 user guide,
            "Power specifications").
    """

    gpu_hour: float = 0.0
    kwh: float = 0.0
    host_w: float = 0.0

    def __post_init__(self) -> None:
        for name in ("gpu_hour", "kwh", "host_w"):
            if not 0 <= (value := getattr(self, name)) < math.inf:
                raise InputError(
                    f"{name} is {value:g}",
                    fix="give a number of 0 or more, such as 2.50 for a GPU hour",
                )

    @property
    def are_set(self) -> bool:
        """Whether anything has a price."""
        return self.gpu_hour > 0 or self.kwh > 0

    def of_hour(self, power_w: float, gpus: int = 1) -> float:
        """What an hour of so many GPUs costs at that power of all."""
        return gpus * self.gpu_hour + self.kwh * (power_w + gpus * self.host_w) / 1000

    def of(self, held_s: float, energy_j: float) -> float:
        """What it costs to hold a GPU for a time in which it takes an energy."""
        return held_s / 3600 * self.of_hour(0.0) + self.kwh * energy_j / 3.6e6

    def text(self, this: tuple[float, float], apart: tuple[float, float]) -> str:
        """Cost of a way and of one after the other, each from its seconds and joules."""
        shared, other = (self.of(held_s, energy_j) for held_s, energy_j in (this, apart))
        each = [f"{self.gpu_hour:.2f} per GPU hour"] if self.gpu_hour else []
        each += [f"{self.kwh:.2f} per kWh"] if self.kwh else []
        costs = " instead of ".join(f"{c:.2f}" if c >= 1 else f"{c:.2g}" for c in (shared, other))
        return f"{less_or_more(1 - shared / other, 0)}: {costs} ({', '.join(each)})"

    def with_host(self, result: SplitResult) -> SplitResult:
        """The same with the watts of the server."""
        if not self.host_w:
            return result
        return replace(
            result,
            parts=tuple(
                replace(p, solo_power_w=p.solo_power_w + p.gpus * self.host_w) for p in result.parts
            ),
            power_w=result.power_w + result.gpus * self.host_w,
        )

    def cost_ratio(self, result: SplitResult) -> float:
        """What the work of an hour of sharing costs one job after the other, for each 1 shared."""
        return sum(
            p.speed * self.of_hour(p.solo_power_w, p.gpus) for p in result.parts
        ) / self.of_hour(result.power_w, result.gpus)

    def priced(self, objective: Objective) -> Objective:
        """The objective with these prices and watts of the server, where they change it.

        Raises:
            InputError: cost without any price.
        """
        if objective.name == COST:
            if not self.are_set:
                raise InputError(
                    "the objective cost has no prices",
                    fix="set ADVISOR_GPU_HOUR, such as 2.50, and ADVISOR_KWH, such as 0.15",
                )
            return replace(objective, value=self.cost_ratio)
        if objective.name == DEFAULT_OBJECTIVE and self.host_w:
            named = objective.name, objective.meaning, objective.unit
            return Objective(*named, lambda result: objective.value(self.with_host(result)))
        return objective


NO_PRICES = Prices()


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


def _seconds(work_s: float, speed: float) -> float:
    if work_s == 0:
        return 0.0
    return work_s / speed if speed > 0 else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The defaults of every answer; settings and requests replace single fields.

    Attributes:
        objective: Name of the number that decides; None: cost where prices are set, else energy.
        min_speed: Relative speed that each job keeps, 0 to 1. Without one, the split that saves
            most of a measured pair leaves the slower job a third of its speed on average.
        p99_times_alone: Longest p99 latency of a server, in times of its own alone; 0: no limit.
        min_gain: Least gain over a GPU for each job for which jobs share: a fault of one can end
            all of them.
        chance: An option is offered where it keeps each floor with this chance, 0.5 to below 1.
        tie: Relative difference that is none: a measured value repeats to half a percent.
    """

    objective: str | None = None
    min_speed: float = 0.4
    p99_times_alone: float = 5.0
    min_gain: float = 0.01
    chance: float = 0.9
    tie: float = 0.005
    prices: Prices = NO_PRICES

    def __post_init__(self) -> None:
        for name, least, most in (
            ("min_speed", 0.0, 1.0),
            ("p99_times_alone", 0.0, math.inf),
            ("min_gain", 0.0, 10.0),
            ("chance", 0.5, 0.999),
            ("tie", 0.0, 0.999),
        ):
            # "not within" is true of NaN as well.
            if not least <= (value := getattr(self, name)) <= most:
                raise InputError(
                    f"{name} is {value:g}", fix=f"give a number from {least:g} to {most:g}"
                )

    @property
    def deciding(self) -> str:
        """Name of the objective that decides."""
        return self.objective or (COST if self.prices.are_set else DEFAULT_OBJECTIVE)

    def with_(self, objective: str | None, min_gain: float | None) -> "Policy":
        """The same with what a request says of two of its fields; None: nothing."""
        gain = self.min_gain if min_gain is None else min_gain
        return replace(self, objective=objective or self.objective, min_gain=gain)


POLICY = Policy()


def read_gain(value: str | float) -> float:
    """A least gain: `0.03`, or `3%`; typer hands its default in as it is.

    Raises:
        InputError: it is neither, or cannot be meant.
    """
    text = str(value)
    percent = text.removesuffix("%")
    with InputError.instead_of(
        ValueError, f"{text!r} is not a gain", why="", fix="write 0.03, or 3%"
    ):
        gain = float(percent) / (100 if percent != text else 1)
    if not 0 <= gain < 1:
        hint = f"did you mean {text}%? " if 1 <= gain <= 50 else ""
        raise InputError(
            f"a least gain of {text} is not possible",
            why="1 is all of the energy or time that the jobs take",
            fix=f"{hint}write a part such as 0.03, or 3%",
        )
    return gain
