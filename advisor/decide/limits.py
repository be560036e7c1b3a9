"""What every answer must keep, and by how much a prediction misses it."""

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from advisor.core.gpu import (
    ISOLATING,
    MEMORY_MIB,
    MEMORY_PART,
    WHOLE,
    MemoryFit,
    check_card_memory,
    vendor_of,
)
from advisor.core.objectives import (
    COST,
    DEFAULT_OBJECTIVE,
    POLICY,
    Interval,
    Objective,
    Policy,
    Work,
)
from advisor.core.records import grouped
from advisor.core.wording import in_digits, listed
from advisor.errors import InputError
from advisor.predict.predictions import Predictions
from advisor.predict.profiles import Floats, Profile

TO_THE_END = (DEFAULT_OBJECTIVE, "throughput", COST)
"""Objectives that can be asked for a given work: energy, time or money until all jobs are done."""

CHANCES = (0.05, 0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995)
WEIGHTS = (-1.13, -0.79, -0.32, -0.11, 0.06, 0.18, 0.46, 0.71, 1.05, 1.42, 1.82)
"""A relative speed exceeds its expected value, lowered by this part of the way to its low end, with
these chances: 1,771 speeds in measured pairs, by trees without their jobs
(docs/measurements/policy.py)."""

P99_WEIGHTS = (-1.18, -0.8, -0.28, -0.03, 0.19, 0.4, 0.73, 1.0, 1.29, 1.5, 1.75)
"""A p99 stays below its expected value, raised by this part of the way to its high end, with these
chances: 810 windows of servers that the law was not fitted to (docs/measurements/sets/tails.py)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What an answer must keep, and how options compare.

    Attributes:
        policy: Objective, least gain, chance, prices, and what holds for jobs without a limit of
            their own.
        min_speed: Minimum relative speed by job, 0 to 1; a job next to itself keeps it twice.
        max_p99_ms: Longest 99th percentile of the time to answer a request, by name of job.
        default_max_p99_ms: The same of every other job that answers requests; None: as the policy
            says.
        max_power_w: Most power at any time; None: no ceiling.
        memory_mib: Memory of the card; None: what its model has, where that is known
            (`with_card_memory`).
        isolate: Whether a fault of one job must leave the others running.
        host_cores: Of the host, for all jobs; None: not looked at.
        fine: Every split of the GPU in steps of its quantum, such as two SMs; of two jobs.
        work: What is to be done until all have ended; None: they run on and on.
    """

    policy: Policy = POLICY
    min_speed: Mapping[str, float] = field(default_factory=dict[str, float])
    max_p99_ms: Mapping[str, float] = field(default_factory=dict[str, float])
    default_max_p99_ms: float | None = None
    max_power_w: float | None = None
    memory_mib: float | None = None
    isolate: bool = False
    host_cores: float | None = None
    fine: bool = False
    work: Work | None = None

    def __post_init__(self) -> None:
        for job, speed in self.min_speed.items():
            if not 0 <= speed <= 1:
                raise InputError(
                    f"a minimum speed of {speed:g} for {job} is not possible",
                    why="1 is as fast as alone on the whole GPU",
                    fix="give a number from 0 to 1, such as 0.5",
                )
        for name, value in {
            "max_power_w": self.max_power_w,
            "default_max_p99_ms": self.default_max_p99_ms,
            "host_cores": self.host_cores,
            **{f"max_p99_ms of {job}": most for job, most in self.max_p99_ms.items()},
        }.items():
            # "not above 0" is true of NaN as well.
            if value is not None and not value > 0:
                raise InputError(f"{name} is {value:g}", fix="give a number above 0")
        if self.memory_mib is not None:
            check_card_memory(self.memory_mib)
        if self.work and self.policy.deciding not in TO_THE_END:
            raise InputError(
                f"{self.policy.deciding} does not depend on how much work there is",
                fix=f"leave out the work, or take {' or '.join(TO_THE_END)}",
            )

    @property
    def objective(self) -> Objective:
        """The number that decides, by the prices of the policy."""
        return self.policy.prices.priced(Objective.find(self.policy.deciding))

    def of(self, profiles: Iterable[Profile]) -> "Request":
        """The request for some of the jobs: limits of other jobs and unmeasured latencies leave."""
        by_name = {profile.job: profile for profile in profiles}
        timed = any(p.serving and p.serving.latency_p99_ms for p in by_name.values())
        return replace(
            self,
            min_speed={job: v for job, v in self.min_speed.items() if job in by_name},
            max_p99_ms={job: v for job, v in self.max_p99_ms.items() if job in by_name},
            default_max_p99_ms=self.default_max_p99_ms if timed else None,
        )

    def min_speed_of(self, job: str) -> float:
        """The relative speed that a job without a fixed demand must keep; else see `floor`."""
        return self.min_speed.get(job, self.policy.min_speed)

    def longest_p99_ms(self, profile: Profile) -> float | None:
        """What the answers of a job may take; None: it answers none, or there is no limit."""
        if (limit_ms := self.max_p99_ms.get(profile.job)) is not None or profile.serving is None:
            return limit_ms
        if self.default_max_p99_ms is not None:
            return self.default_max_p99_ms
        return self.policy.p99_times_alone * (profile.whole_gpu_p99_ms or 0.0) or None

    def p99_chance(
        self, profile: Profile, profiles: Iterable[Profile], *, is_given: bool = False
    ) -> float:
        """With which its p99 is to keep the limit, so that those of all do with the policy's.

        Errors of different servers have nothing in common, those of copies all
        (docs/measurements/model.md). The policy's own limit is no promise of a user, so 7 chances
        of 10 are enough; `is_given` takes it for one.
        """
        is_given |= profile.job in self.max_p99_ms or self.default_max_p99_ms is not None
        servers = {p.job for p in profiles if p.serving and self.longest_p99_ms(p) is not None}
        chance = self.policy.chance if is_given else min(self.policy.chance, 0.7)
        return chance ** (1 / max(1, len(servers)))

    def floor(self, profile: Profile) -> float:
        """The relative speed that a job must keep: the larger of its minimum and a fixed demand.

        A minimum speed can only tighten a server's own limit; 0 for that job disables the limit.
        """
        least, serving = self.min_speed_of(profile.job), profile.serving
        if serving is None or not is_served(profile) or self.min_speed.get(profile.job) == 0:
            return least
        return max(least, 1 - serving.tolerance)

    def with_card_memory(self, gpu_model: str) -> "Request":
        """The same with the memory of a card of that model, where it has none and it is known."""
        return replace(self, memory_mib=self.memory_mib or MEMORY_MIB.get(gpu_model))

    def check_limits(self, profiles: Sequence[Profile]) -> None:
        """Refuse limits that are for none of these jobs, or for quantities that were not measured.

        Raises:
            InputError: a speed or a latency for a job that is not there or, the latter, has none;
                work of a server.
        """
        jobs = list(dict.fromkeys(profile.job for profile in profiles))
        if self.work:
            self.check_work_ends(profiles)
        for what, names in (("minimum speed", self.min_speed), ("latency", self.max_p99_ms)):
            if strangers := sorted(set(names) - set(jobs)):
                raise InputError(
                    f"a {what} was given for {', '.join(strangers)}",
                    why=f"the jobs are {' and '.join(jobs)}",
                )
        timed = {p.job for p in profiles if p.serving and p.serving.latency_p99_ms}
        is_for_all = self.default_max_p99_ms is not None and not timed
        if lacking := jobs if is_for_all else sorted(set(self.max_p99_ms) - timed):
            raise InputError(
                f"no latency of {' or '.join(lacking)} was measured",
                why="a limit cannot be held that nothing is known of",
                fix="let the job report latencies (docs/job-file.md, Servers) and profile it again",
            )

    def check_work_ends(self, profiles: Iterable[Profile]) -> None:
        """Refuse servers where all jobs have work that ends.

        Raises:
            InputError: one of them has a demand instead, which it is to keep.
        """
        served = dict.fromkeys(p.job for p in profiles if is_served(p) and self.floor(p) > 0)
        if served:
            raise InputError(
                f"no job can have work where {listed(served)} runs",
                why="a server has a demand, and no work that ends",
                fix="leave out all work, or give a plan a deadline (--deadline 8h, or `deadline_s` "
                "in a request): jobs then run from now on",
            )

    def violations(
        self, predictions: Predictions, profiles: Sequence[Profile]
    ) -> tuple[tuple["Violation", ...], ...]:
        """Of each option the limits that it breaks; floors and tails with the policy's chance."""
        violations: list[list[Violation]] = [[] for _ in predictions.splits]
        for rule in RULES.values():
            for places, violation in rule(predictions, profiles, self):
                for place in places:
                    violations[place].append(violation)
        return tuple(map(tuple, violations))

    def risks(self, p: Predictions, place: int) -> tuple["Violation", ...]:
        """Limits that are kept as expected, but not at the bad end of the interval."""
        if p.splits[place].sharing == "exclusive":
            return ()  # measured, not predicted
        return tuple(_over_power(_all(p), float(p.power_w[2, place]), self))

    def violations_alone(self, profile: Profile) -> tuple["Violation", ...]:
        """The limits that a job does not keep on a GPU of its own."""
        return (
            *_over_power(f"{profile.job} alone", profile.whole_gpu_power_w, self),
            *_late_alone(profile, WHOLE, self),
        )


def is_served(profile: Profile) -> bool:
    """Whether a job has a fixed demand: requests that arrive whether it runs or not."""
    return profile.serving is not None and profile.serving.offered_rate is not None


@functools.cache
def weights_of(chance: float) -> tuple[float, float]:
    """How far to the low end of a speed, of logarithms, lies what it exceeds with a chance.

    And how far to the high end of a p99 what it stays below.
    """
    low, high = (max(float(np.interp(chance, CHANCES, of)), 0.0) for of in (WEIGHTS, P99_WEIGHTS))
    return low, high


def sure_speeds(speeds: Floats, low: Floats, chance: float) -> Floats:
    """Relative speeds that jobs keep with a chance, of expected ones and their low ends."""
    with np.errstate(divide="ignore", invalid="ignore"):
        bounds = speeds * (low / speeds) ** weights_of(chance)[0]
    return np.where(speeds > 0, bounds, np.minimum(speeds, low))


def sure_p99_ms(beside: Interval, chance: float) -> float:
    """What a p99 stays below with a chance."""
    return beside.value * (beside.high / beside.value) ** weights_of(chance)[1]


def _too_unsure(expected: float, worst: float, limit: float, chance: float) -> str:
    """With what chance a limit between what is expected and its bad end holds, in words."""
    part = math.log(limit / expected) / math.log(max(worst, 1e-9) / expected)
    held = np.interp(part, WEIGHTS if worst < expected else P99_WEIGHTS, CHANCES)
    return f"with a probability of {100 * held:.3g} %, below {100 * chance:.3g} %"


def check_jobs_fit(profiles: Iterable[Profile], memory_mib: float | None) -> None:
    """Refuse a card on which one of the jobs does not even run alone, where its memory is known.

    Raises:
        InputError: a job needs more memory than the card has.
    """
    if memory_mib is None:
        return
    for profile in profiles:
        if (needed_mib := profile.memory_used_mib or 0) > memory_mib:
            raise InputError(
                f"{profile.job} needs {needed_mib:.0f} MiB of memory, the card has "
                f"{memory_mib:.0f} MiB",
                why=f"so it does not even run alone; it was measured on {profile.gpu_model}",
                fix="give the memory of the card that the jobs will run on: --memory 80GiB, or "
                "`memory_mib` in a request",
            )


def memory_unknown(profiles: Iterable[Profile], memory_mib: float | None) -> tuple[str, ...]:
    """Why it is unknown whether jobs fit, a sentence for each reason; empty: it is known."""
    profiles = tuple(profiles)
    if memory_mib is None:
        model = profiles[0].gpu_model
        return (f"the memory of the {model} is not known: whether the jobs fit was not checked",)
    lacking = dict.fromkeys(p.job for p in profiles if p.memory_used_mib is None)
    return tuple(f"the memory of {job} is not known, and taken as none" for job in lacking)


def cores_wanted(profiles: Iterable[Profile]) -> float | None:
    """Host cores that jobs keep busy alone, added up; None: not known of all."""
    cores = sum(float(profile.values["job_cpu_percent"][-1]) / 100 for profile in profiles)
    return None if math.isnan(cores) else cores


@dataclass(frozen=True, slots=True)
class Violation:
    """A limit that is not kept.

    Attributes:
        text: What is predicted and what was asked for.
        by: Relative distance to the limit, above 0.
    """

    text: str
    by: float


# Violations, each with the places of the options that have it.
_PlacedViolations: TypeAlias = Iterator[tuple[Iterable[int], Violation]]


def _below_min_speed(
    p: Predictions, profiles: Sequence[Profile], request: Request
) -> _PlacedViolations:
    """One after the other, each job runs at its full speed, only later."""
    chance = request.policy.chance
    sure = sure_speeds(p.speeds[0], p.speeds[1], chance)
    for job, (profile, speeds) in enumerate(zip(profiles, sure.tolist(), strict=True)):
        least, served = request.floor(profile), is_served(profile)
        verb, keeps, whole = (
            ("serve", "serves", "its demand") if served else ("run at", "keeps", "its speed alone")
        )
        for place in p.together:
            if (speed := speeds[place]) < least:
                expected, low = p.speeds[:2, job, place].tolist()
                least_text, worst = f"{100 * least:.3g} %", f"{100 * low:.0f} % at worst"
                text = (
                    f"would {verb} {100 * expected:.3g} % of {whole} ({worst}), below {least_text}"
                    if expected < least
                    else f"{keeps} {least_text} of {whole} "
                    f"{_too_unsure(expected, low, least, chance)} "
                    f"({100 * expected:.0f} % expected, {worst})"
                )
                yield [place], Violation(f"{profile.job} {text}", 1 - speed / least)


def _off(p: Predictions, profiles: Sequence[Profile], request: Request) -> _PlacedViolations:
    """A server cannot be scheduled exclusively: its requests would block."""
    for profile in profiles:
        if is_served(profile) and request.floor(profile) > 0:
            text = f"{profile.job} answers no requests while another job runs"
            yield {*range(len(p.splits))}.difference(p.together), Violation(text, 1.0)


def _late(p: Predictions, profiles: Sequence[Profile], request: Request) -> _PlacedViolations:
    """As `Request.p99_chance` has it."""
    for job, profile in enumerate(profiles):
        if (most_ms := request.longest_p99_ms(profile)) is None:
            continue
        for place, split in enumerate(p.splits):
            share = split.shares[job]
            beside = p.part(place, job).latency_p99_ms
            if beside is None or split.sharing == "exclusive":
                yield from (([place], late) for late in _late_alone(profile, share, request))
            elif (
                sure_ms := sure_p99_ms(beside, chance := request.p99_chance(profile, profiles))
            ) > most_ms:
                worst = f"{in_digits(beside.high)} at worst"
                text = (
                    f"would have a p99 latency of {in_digits(beside.value)} ms ({worst}), "
                    f"above {most_ms:.4g} ms"
                    if beside.value > most_ms
                    else f"keeps a p99 latency of {most_ms:.4g} ms "
                    f"{_too_unsure(beside.value, beside.high, most_ms, chance)} "
                    f"({in_digits(beside.value)} ms expected, {worst})"
                )
                late = Violation(f"{profile.job} at {share:g} % {text}", sure_ms / most_ms - 1)
                yield [place], late


def _late_alone(profile: Profile, share_percent: float, request: Request) -> Iterator[Violation]:
    """On a GPU of its own, or one after the other."""
    most_ms = request.longest_p99_ms(profile)
    alone_ms = profile.serving and profile.serving.p99_alone_ms(share_percent)
    if most_ms is not None and alone_ms is not None and alone_ms > most_ms:
        yield Violation(
            f"{profile.job} alone at {share_percent:g} % has a p99 latency of "
            f"{in_digits(alone_ms)} ms, above {most_ms:g} ms",
            alone_ms / most_ms - 1,
        )


def _exceeds_power(
    p: Predictions, profiles: Sequence[Profile], request: Request
) -> _PlacedViolations:
    if request.max_power_w is None:
        return
    hottest = max(profiles, key=lambda profile: profile.whole_gpu_power_w)
    for place, split in enumerate(p.splits):
        who = f"{hottest.job} alone" if split.sharing == "exclusive" else _all(p)
        power_w = most_power_w(p, place, profiles)
        yield from (([place], over) for over in _over_power(who, power_w, request))


def most_power_w(p: Predictions, place: int, profiles: Sequence[Profile]) -> float:
    """One after the other, the mean of all powers is never drawn, but each of them is."""
    return (
        max(profile.whole_gpu_power_w for profile in profiles)
        if p.splits[place].sharing == "exclusive"
        else float(p.power_w[0, place])
    )


def _over_power(who: str, power_w: float, request: Request) -> Iterator[Violation]:
    most_w = request.max_power_w
    if most_w is not None and power_w > most_w:
        verb = "draws" if who.endswith(" alone") else "draw"
        yield Violation(
            f"{who} {verb} {power_w:.4g} W, at most {most_w:g} W are allowed", power_w / most_w - 1
        )


def _exceeds_memory(
    p: Predictions, profiles: Sequence[Profile], request: Request
) -> _PlacedViolations:
    needs_mib = [profile.memory_used_mib for profile in profiles]
    for seats, places in grouped(p.together, lambda n: p.splits[n].each_gpu).items():
        each = (MemoryFit(tuple(needs_mib[n] for n in on), request.memory_mib) for on in seats)
        memory = max(each, key=lambda fit: fit.needed_mib)
        if memory.most_mib is not None and memory.is_too_much:
            who = _all(p) if len(seats) == 1 else "jobs on one GPU"
            text = (
                f"{who} need {memory.needed_mib:.0f} MiB of memory, {memory.most_mib:.0f} MiB are "
                f"there ({100 * MEMORY_PART:g} % of the card)"
            )
            if held := memory.held_ahead():
                text = f"{text}; {held}"
            yield places, Violation(text, memory.needed_mib / memory.most_mib - 1)


def _lacks_cores(
    p: Predictions, profiles: Sequence[Profile], request: Request
) -> _PlacedViolations:
    most = request.host_cores
    if most is not None and (wanted := cores_wanted(profiles)) and wanted > most:
        yield (
            p.together,
            Violation(f"{wanted:.1f} host cores are wanted, {most:g} are there", wanted / most - 1),
        )


def _shares_fate(
    p: Predictions, profiles: Sequence[Profile], request: Request
) -> _PlacedViolations:
    if request.isolate:
        text = (
            "fault isolation between jobs was not tested on AMD"
            if vendor_of(profiles[0].gpu_model) == "amd"
            else "a fault of one job ends the others: MPS does not keep them apart"
        )
        places = [n for n, split in enumerate(p.splits) if split.sharing not in ISOLATING]
        yield places, Violation(text, 1.0)


RULES: Mapping[str, Callable[[Predictions, Sequence[Profile], Request], _PlacedViolations]] = {
    "speed": _below_min_speed,
    "requests": _off,
    "tail": _late,
    "power": _exceeds_power,
    "memory": _exceeds_memory,
    "host cores": _lacks_cores,
    "faults": _shares_fate,
}


def _all(p: Predictions) -> str:
    """All jobs that share, in messages."""
    return "both" if len(p.solo) == 2 else f"all {len(p.solo)}"
