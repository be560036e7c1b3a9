"""By how much a prediction misses what must hold."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from advisor.core.gpu import MEMORY_PART, WHOLE, MemoryFit
from advisor.core.split import ISOLATING
from advisor.core.units import vendor_of
from advisor.decide.limits import (
    Limits,
    cores_wanted,
    decisive_speed,
    floor,
    is_served,
    low_end_decides,
)
from advisor.predict.predictions import Prediction
from advisor.predict.profiles import Profile


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
    """The limits that are not kept: speeds as expected or, as `low_end_decides`, at low ends."""
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
            sure = low_end_decides(part.speed, profile, limits)
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
    """Requests do not wait until another job has ended."""
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
