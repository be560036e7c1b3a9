"""What every answer must keep, and by how much a prediction misses it."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias, TypeVar

from advisor.core.gpu import MEMORY_MIB, MEMORY_PART, WHOLE, MemoryFit, check_card_memory, vendor_of
from advisor.core.interval import Interval
from advisor.core.split import ISOLATING
from advisor.errors import InputError
from advisor.predict.predictions import Prediction
from advisor.predict.profiles import Profile
from advisor.settings import MIN_SPEED


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What every answer must keep.

    Attributes:
        min_speed: Minimum relative speed by job, 0 to 1; a job next to itself keeps it twice.
        default_min_speed: The same of jobs without a number of their own; 0: no limit.
        max_p99_ms: Longest 99th percentile of the time to answer a request, by name of job.
        default_max_p99_ms: The same of every other job that answers requests; None: no limit.
        max_power_w: Most power at any time; None: no ceiling.
        memory_mib: Memory of the card; None: what its model has, where that is known
            (`with_card_memory`).
        isolate: Whether a fault of one job must leave the others running.
        host_cores: Of the host, for all jobs; None: not looked at.
        unsure_below: The low end of a speed is to keep the floor, too, where it is below this part
            of what is expected: of such a job nobody knows what it does. 0: nowhere.
    """

    min_speed: Mapping[str, float] = field(default_factory=dict[str, float])
    default_min_speed: float = MIN_SPEED
    max_p99_ms: Mapping[str, float] = field(default_factory=dict[str, float])
    default_max_p99_ms: float | None = None
    max_power_w: float | None = None
    memory_mib: float | None = None
    isolate: bool = False
    host_cores: float | None = None
    unsure_below: float = 0.0

    def __post_init__(self) -> None:
        for job, speed in (*self.min_speed.items(), ("all jobs", self.default_min_speed)):
            if not 0 <= speed <= 1:
                raise InputError(
                    f"a minimum speed of {speed:g} for {job} is not possible",
                    why="1 is as fast as alone on the whole GPU",
                    fix="give a number from 0 to 1, such as 0.5",
                )
        above_0 = {"max_power_w": self.max_power_w, "default_max_p99_ms": self.default_max_p99_ms}
        above_0["host_cores"] = self.host_cores
        above_0 |= {f"max_p99_ms of {job}": most for job, most in self.max_p99_ms.items()}
        for name, value in above_0.items():
            # "not above 0" is true of NaN as well.
            if value is not None and not value > 0:
                raise InputError(f"{name} is {value:g}", fix="give a number above 0")
        if self.memory_mib is not None:
            check_card_memory(self.memory_mib)

    def min_speed_of(self, job: str) -> float:
        """The relative speed that a job without a fixed demand must keep; else see `floor`."""
        return self.min_speed.get(job, self.default_min_speed)

    def longest_p99_ms(self, profile: Profile) -> float | None:
        """What the answers of a job may take; None: it answers none, or nothing was asked for."""
        default_ms = self.default_max_p99_ms if profile.serving else None
        return self.max_p99_ms.get(profile.job, default_ms)


L = TypeVar("L", bound=Limits)


def floor(profile: Profile, limits: Limits) -> float:
    """The relative speed that a job must keep: the larger of what is asked for and a fixed demand.

    A minimum speed can only tighten a server's own limit; 0 for that job disables the limit.
    """
    told = limits.min_speed_of(profile.job)
    if not is_served(profile) or limits.min_speed.get(profile.job) == 0:
        return told
    assert profile.serving is not None
    return max(told, 1 - profile.serving.tolerance)


def is_served(profile: Profile) -> bool:
    """Whether a job has a fixed demand: requests that arrive whether it runs or not."""
    return profile.serving is not None and profile.serving.offered_rate is not None


def must_be_sure(profile: Profile, limits: Limits) -> bool:
    """Whether the low end of a job's interval is to keep its floor, as 95 % of measured ones do.

    Requests that are not answered are lost, and who names a speed means it. The floor of all others
    only tells a job that shares from one that starves: there the expected speed decides.
    """
    return is_served(profile) or profile.job in limits.min_speed


UNSURE_BELOW = 0.6
"""Of sets: small jobs beside one that fills the GPU without a limit, and jobs in turns. Of 16 sets
that have one limit and are expected to keep 0.4 two missed it, of 12 without three
(docs/measurements/sets.md)."""


def _low_end_decides(speed: Interval, profile: Profile, limits: Limits) -> bool:
    """Whether the low end of a predicted speed is to keep the floor of its job."""
    return must_be_sure(profile, limits) or speed.low < limits.unsure_below * speed.value


def decisive_speed(speed: Interval, profile: Profile, limits: Limits) -> float:
    """The value of a predicted speed that is to keep the floor of its job."""
    return speed.low if _low_end_decides(speed, profile, limits) else speed.value


def with_card_memory(limits: L, gpu_model: str) -> L:
    """The limits with the memory of a card of that model, where none is given and it is known."""
    if limits.memory_mib is not None:
        return limits
    return replace(limits, memory_mib=MEMORY_MIB.get(gpu_model))


def check_limits(limits: Limits, profiles: Sequence[Profile]) -> None:
    """Refuse limits that are for none of these jobs, or for what nobody has measured of them.

    Raises:
        InputError: a speed or a latency for a job that is not there or, the latter, has none.
    """
    jobs = list(dict.fromkeys(profile.job for profile in profiles))
    for what, names in (("minimum speed", limits.min_speed), ("latency", limits.max_p99_ms)):
        if strangers := sorted(set(names) - set(jobs)):
            why = f"the jobs are {' and '.join(jobs)}"
            raise InputError(f"a {what} was given for {', '.join(strangers)}", why=why)
    timed = {p.job for p in profiles if p.serving and p.serving.latency_p99_ms}
    lacking = sorted(set(limits.max_p99_ms) - timed)
    if limits.default_max_p99_ms is not None and not timed:
        lacking = jobs
    if lacking:
        raise InputError(
            f"no latency of {' or '.join(lacking)} was measured",
            why="a limit cannot be held that nothing is known of",
            fix="let the job report latencies (docs/job-file.md, Servers) and profile it again",
        )


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
                fix="give the memory of the card that the jobs will run on: --memory 80GiB",
            )


def memory_unknown(profiles: Iterable[Profile], memory_mib: float | None) -> tuple[str, ...]:
    """Why nobody knows whether jobs fit, a sentence for each reason; empty: it is known."""
    profiles = tuple(profiles)
    if memory_mib is None:
        model = profiles[0].gpu_model
        return (f"the memory of the {model} is not known, so nobody checked whether the jobs fit",)
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


def violations(
    prediction: Prediction, profiles: Sequence[Profile], limits: Limits
) -> tuple[Violation, ...]:
    """The limits that are not kept: speeds as expected or, as `_low_end_decides`, at low ends."""
    rules = RULES.values()
    return tuple(violation for rule in rules for violation in rule(prediction, profiles, limits))


def risks(prediction: Prediction, limits: Limits) -> tuple[Violation, ...]:
    """The limits that `violations` takes as expected, and the bad end of the interval does not."""
    if prediction.split.sharing == "exclusive":
        return ()  # measured, not predicted
    return tuple(_over_power(_all(prediction), prediction.power_w.high, limits))


def violations_alone(profile: Profile, limits: Limits) -> tuple[Violation, ...]:
    """The limits that a job does not keep on a GPU of its own."""
    alone = _over_power(f"{profile.job} alone", profile.whole_gpu_power_w, limits)
    return (*alone, *_late_alone(profile, WHOLE, limits))


def _below_min_speed(
    p: Prediction, profiles: Sequence[Profile], limits: Limits
) -> Iterator[Violation]:
    if p.split.sharing == "exclusive":
        return  # one after the other, each job runs at its full speed, only later
    for profile, part in zip(profiles, p.parts, strict=True):
        least = floor(profile, limits)
        if (speed := decisive_speed(part.speed, profile, limits)) < least:
            sure = _low_end_decides(part.speed, profile, limits)
            served = is_served(profile)
            verb = ("may serve" if served else "may run at") if sure else "runs at"
            as_little = "as little as " if sure else ""
            whole = "its demand" if served else "its speed alone"
            text = (
                f"{profile.job} {verb} {as_little}{100 * speed:.3g} % of {whole}, "
                f"below {100 * least:.3g} %"
            )
            yield Violation(text, 1 - speed / least)


def _off(p: Prediction, profiles: Sequence[Profile], limits: Limits) -> Iterator[Violation]:
    """A server cannot be scheduled exclusively: its requests would block."""
    for profile in profiles if p.split.sharing == "exclusive" else ():
        if is_served(profile) and floor(profile, limits) > 0:
            yield Violation(f"{profile.job} answers no requests while another job runs", 1.0)


def _late(p: Prediction, profiles: Sequence[Profile], limits: Limits) -> Iterator[Violation]:
    """At the high end of what a neighbour makes of it; without limits at least what it is alone."""
    for profile, part, share in zip(profiles, p.parts, p.split.shares, strict=True):
        beside = part.p99_ms(profile, p.split, share)
        most_ms = limits.longest_p99_ms(profile)
        if beside is None or most_ms is None or p.split.sharing == "exclusive":
            yield from _late_alone(profile, share, limits)
        elif beside.high > most_ms:
            text = (
                f"{profile.job} at {share:g} % may have a p99 latency of {beside.high:.3g} ms "
                f"({beside.value:.3g} expected), above {most_ms:g} ms"
            )
            yield Violation(text, beside.high / most_ms - 1)


def _late_alone(profile: Profile, share_percent: float, limits: Limits) -> Iterator[Violation]:
    """On a GPU of its own, or one after the other."""
    most_ms = limits.longest_p99_ms(profile)
    alone_ms = profile.serving and profile.serving.p99_alone_ms(share_percent)
    if most_ms is not None and alone_ms is not None and alone_ms > most_ms:
        text = (
            f"{profile.job} alone at {share_percent:g} % has a p99 latency of {alone_ms:.3g} ms, "
            f"above {most_ms:g} ms"
        )
        yield Violation(text, alone_ms / most_ms - 1)


def _exceeds_power(
    p: Prediction, profiles: Sequence[Profile], limits: Limits
) -> Iterator[Violation]:
    hottest = max(profiles, key=lambda profile: profile.whole_gpu_power_w)
    who = f"{hottest.job} alone" if p.split.sharing == "exclusive" else _all(p)
    yield from _over_power(who, most_power_w(p, profiles), limits)


def most_power_w(p: Prediction, profiles: Sequence[Profile]) -> float:
    """One after the other, the mean of all powers is never drawn, but each of them is."""
    if p.split.sharing == "exclusive":
        return max(profile.whole_gpu_power_w for profile in profiles)
    return p.power_w.value


def _over_power(who: str, power_w: float, limits: Limits) -> Iterator[Violation]:
    most_w = limits.max_power_w
    if most_w is not None and power_w > most_w:
        verb = "draws" if who.endswith(" alone") else "draw"
        text = f"{who} {verb} {power_w:.4g} W, at most {most_w:g} W are allowed"
        yield Violation(text, power_w / most_w - 1)


def _exceeds_memory(
    p: Prediction, profiles: Sequence[Profile], limits: Limits
) -> Iterator[Violation]:
    memory = MemoryFit(tuple(profile.memory_used_mib for profile in profiles), limits.memory_mib)
    if p.split.sharing != "exclusive" and memory.most_mib is not None and memory.is_too_much:
        text = (
            f"{_all(p)} need {memory.needed_mib:.0f} MiB of memory, {memory.most_mib:.0f} MiB are "
            f"there ({100 * MEMORY_PART:g} % of the card)"
        )
        yield Violation(text, memory.needed_mib / memory.most_mib - 1)


def _lacks_cores(p: Prediction, profiles: Sequence[Profile], limits: Limits) -> Iterator[Violation]:
    most, wanted = limits.host_cores, cores_wanted(profiles)
    if p.split.sharing != "exclusive" and most is not None and wanted and wanted > most:
        text = f"{wanted:.1f} host cores are wanted, {most:g} are there"
        yield Violation(text, wanted / most - 1)


def _shares_fate(p: Prediction, profiles: Sequence[Profile], limits: Limits) -> Iterator[Violation]:
    if limits.isolate and p.split.sharing not in ISOLATING:
        text = "a fault of one job ends the others: MPS does not keep them apart"
        if vendor_of(profiles[0].gpu_model) == "amd":
            text = "nobody has tried on AMD whether a fault of one job leaves the others running"
        yield Violation(text, 1.0)


Rule: TypeAlias = Callable[[Prediction, Sequence[Profile], Limits], Iterator[Violation]]

RULES: Mapping[str, Rule] = {
    "speed": _below_min_speed,
    "requests": _off,
    "tail": _late,
    "power": _exceeds_power,
    "memory": _exceeds_memory,
    "host cores": _lacks_cores,
    "faults": _shares_fate,
}


def _all(p: Prediction) -> str:
    """All jobs that share, in messages."""
    return "both" if len(p.parts) == 2 else f"all {len(p.parts)}"
