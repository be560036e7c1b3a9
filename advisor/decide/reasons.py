"""Why a recommendation is what it is, and why jobs are not to share. Pure."""

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence

from advisor.core.interval import Interval
from advisor.core.objectives import DEFAULT_OBJECTIVE
from advisor.core.records import DOUBTFUL, FLAGS, ONE_WINDOW, SLOW_ALONE
from advisor.core.split import ISOLATING, NINE
from advisor.core.wording import counted
from advisor.decide.limits import (
    Limits,
    decisive_speed,
    floor,
    is_served,
    memory_unknown,
    most_power_w,
    risks,
    violations,
    violations_alone,
)
from advisor.decide.recommendation import (
    MARGINS,
    Decision,
    RatedSplit,
    Request,
    best,
    nearest,
    worst_violation,
)
from advisor.errors import NoSplitError
from advisor.predict.features import FULL_BANDWIDTH_PERCENT, demanded_power_w, power_limit_w, side
from advisor.predict.predictions import are_mirrored
from advisor.predict.profiles import Profile
from advisor.validity.safe_counts import CheckedCounts, unchecked_texts

STARVED = 0.3
"""Relative speed below which a job is said to starve."""


def reasons(answer: Decision) -> tuple[str, ...]:
    """Why this way, what each job keeps at its share, and what both want together."""
    found = (*_why_not_more(answer), *_why_this_way(answer), *_shares(answer), *_supply(answer))
    return tuple(dict.fromkeys(found))


def warnings(answer: Decision) -> tuple[str, ...]:
    """What a reader should know before doing it."""
    of_profiles = (line for profile in answer.profiles for line in of_profile(profile))
    at_risk = risks(answer.choice.prediction, answer.request)
    # Of a job beside itself everything is said once.
    found = (
        *_starved(answer),
        *_served(answer),
        *_unlimited(answer),
        *(f"at the bad end of its interval {risk.text}" for risk in at_risk),
        *of_profiles,
        *memory_unknown(answer.profiles, answer.request.memory_mib),
    )
    return tuple(dict.fromkeys(found))


def why_unsure(answer: Decision, checked: CheckedCounts | None) -> tuple[str, ...]:
    """Which counts of the chosen split nobody has checked, on a GPU model that was checked."""
    split, profiles = answer.choice.prediction.split, answer.profiles
    safeties = [profile.safety(checked) for profile in profiles]
    found = unchecked_texts(split, [p.job for p in profiles], safeties)
    return tuple(dict.fromkeys(found)) if split.is_limited else ()


def near_miss(answer: Decision) -> str | None:
    """The way that fails by the low end of one speed alone, and what would accept it; None: none.

    Only where that way gains what is asked for, and is not the answer already.
    """
    misses = [
        (option, miss)
        for option in answer.candidates
        if option.gain_over(answer.choice) > max(answer.request.min_gain, answer.request.tie)
        if (miss := _missed_by_low_end(option, answer))
    ]
    if not misses:
        return None
    option, (job, expected, low) = max(misses, key=lambda found: found[0].objective_value.value)
    accepted = math.floor(100 * low) / 100
    gain = percent(option.gain_over(answer.choice))
    return (
        f"{option.name} would gain {gain}: {job} is expected at {percent(expected)}, at worst "
        f"{100 * low:.1f}; accept it with --min-speed {job}={accepted:g}"
    )


def _missed_by_low_end(option: RatedSplit, answer: Decision) -> tuple[str, float, float] | None:
    """The job whose low end alone breaks a limit, its expected speed and that low end."""
    if option.sharing != "limited" or len(option.violations) != 1:
        return None
    for profile, part in zip(answer.profiles, option.prediction.parts, strict=True):
        least = floor(profile, answer.request)
        if part.speed.low < least <= part.speed.value and not is_served(profile):
            return profile.job, part.speed.value, part.speed.low
    return None


def percent(part: float, digits: int = 0) -> str:
    """A part of 1 as people write it."""
    return f"{100 * part:.{digits}f} %"


def _why_not_more(answer: Decision) -> Iterator[str]:
    """The options that are worth more: a tie, or out of limits."""
    choice, mirrored = answer.choice, are_mirrored(answer.profiles)
    possible = best((o for o in answer.candidates if not o.violations), mirrored=mirrored)
    if choice.sharing == "exclusive" and 0 < possible.gain_over(choice) < answer.request.min_gain:
        yield (
            f"{possible.name} would gain {percent(possible.gain_over(choice), 1)}, less than "
            f"the {percent(answer.request.min_gain)} for which jobs share a fate: --min-gain 0 "
            "shares them"
        )
    elif possible.objective_value.value > choice.objective_value.value:
        more, margin = percent(possible.gain_over(choice), 2), MARGINS[possible.sharing]
        if margin:
            needed = percent((1 + margin) / (1 - answer.request.tie) - 1, 1)
            rule = f"less than the {needed} that it must be ahead: its prediction is less certain"
        elif "exclusive" in (possible.sharing, choice.sharing):
            alone = choice.sharing == "exclusive"
            why = "sharing would not be done sooner" if alone else "sharing is done sooner"
            rule = f"which is a tie: {why}"
        else:
            rule = "which is a tie: the more even split is taken"
        yield f"{possible.name} is worth {more} more, {rule}"
    barred = best(answer.candidates, mirrored=mirrored)
    if barred.violations and barred.gain_over(choice) > answer.request.tie:
        more = percent(barred.gain_over(choice), 1)
        yield f"{barred.name} would be worth {more} more, but {worst_violation(barred).text}"


def _why_this_way(answer: Decision) -> Iterator[str]:
    """Not to share, or not to limit, is said with what the others are worth."""
    sharing, mirrored = answer.choice.sharing, are_mirrored(answer.profiles)
    if sharing == "limited":
        return
    others = [o for o in answer.candidates if o.sharing not in (sharing, "exclusive")]
    what = "sharing" if sharing == "exclusive" else "a split"
    if possible := [o for o in others if not o.violations]:
        other = best(possible, mirrored=mirrored)
        if other.gain_over(answer.choice) > 0:
            return
        less = percent(-other.gain_over(answer.choice), 1)
        yield f"{what} does not pay: at best, with {other.name}, it is worth {less} less"
    elif others:
        near = nearest(others, mirrored=mirrored)
        yield f"{what} breaks a limit: {near.name} is nearest, but {worst_violation(near).text}"


def _shares(answer: Decision) -> Iterator[str]:
    """What a smaller GPU alone costs each job, and what its neighbour costs it beside that."""
    p = answer.choice.prediction
    if not p.split.is_limited:
        return
    for profile, share, part in zip(answer.profiles, p.split.shares, p.parts, strict=True):
        alone = profile.at([share])["rate"][0] / profile.whole_gpu_rate
        yield (
            f"{profile.job} alone at {share:g} % runs at {percent(alone)} of its full speed, "
            f"in this pair at {percent(part.speed.value)}"
        )


def _supply(answer: Decision) -> Iterator[str]:
    """What both want together and the GPU does not have."""
    p = answer.choice.prediction
    if p.split.sharing in ISOLATING:
        return
    demanded_w, limit_w, dram = _demand(answer.profiles, p.split.shares)
    if demanded_w > limit_w:
        yield f"both would draw {demanded_w:.0f} W: the limit of {limit_w:.0f} W slows them"
    if dram > FULL_BANDWIDTH_PERCENT:
        yield (
            f"together they want {dram:.0f} % of the memory bandwidth, of which "
            f"{FULL_BANDWIDTH_PERCENT:.0f} % can be had"
        )


@functools.lru_cache(maxsize=1024)
def _demand(profiles: tuple[Profile, ...], shares: tuple[float, ...]) -> tuple[float, float, float]:
    """Power that all would draw, the limit of the GPU, and memory bandwidth that they want."""
    sides = [side(profile, [share]) for profile, share in zip(profiles, shares, strict=True)]
    dram = sum(one.readings["dram_active_percent"][0] for one in sides)
    return float(demanded_power_w(sides)[0]), power_limit_w(sides), float(dram)


def _starved(answer: Decision) -> Iterator[str]:
    p = answer.choice.prediction
    for profile, part in zip(answer.profiles, p.parts, strict=True):
        if (speed := part.speed.value) < STARVED:
            yield (
                f"{profile.job} runs at {percent(speed)} of its speed only; "
                "if that is too slow, ask for a minimum speed"
            )


def _served(answer: Decision) -> Iterator[str]:
    """What users of a job that answers requests would notice, and what nobody can say before."""
    p = answer.choice.prediction
    if p.split.sharing == "exclusive":
        return
    for profile, part, share in zip(answer.profiles, p.parts, p.split.shares, strict=True):
        if profile.serving is None:
            continue
        if profile.serving.is_behind(profile.whole_gpu_rate):
            served = profile.whole_gpu_rate / (profile.serving.offered_rate or 1)
            yield f"{profile.job} serves {percent(served)} of its demand alone on the whole GPU"
        beside_ms = part.p99_ms(profile, p.split, share)
        is_measured = part.latency_p99_ms is not None and p.split.sharing != "time-sliced"
        yield _latency(profile, share, beside_ms, answer.request, is_measured)
    if any(map(is_served, answer.profiles)) and p.result.energy_saved < 0:
        more = percent(-p.result.energy_saved, 1)
        yield f"this takes {more} more energy than the same work with a GPU for each job"


def _latency(
    profile: Profile, share: float, beside: Interval | None, limits: Limits, is_measured: bool
) -> str:
    if beside is None:
        return f"the latency of {profile.job} was not measured at {share:g} %"
    most_ms, alone_ms = limits.longest_p99_ms(profile), None
    if profile.serving:
        alone_ms = profile.serving.p99_alone_ms(share)
    limit = "" if most_ms is None else f" of {most_ms:g} ms allowed"
    why = "as it was measured there" if is_measured else "by what four servers had beside others"
    alone = "" if alone_ms is None else f": alone at {share:g} % it is {alone_ms:.3g} ms"
    return (
        f"the p99 latency of {profile.job} is expected at {beside.value:.3g} ms ({beside.low:.3g} "
        f"to {beside.high:.3g}){limit}, {why}{alone}"
    )


def _unlimited(answer: Decision) -> Iterator[str]:
    if answer.choice.sharing == "uncapped":
        yield "without limits either job can take what the other needs: speeds are hard to predict"
    elif answer.choice.sharing == "time-sliced":
        yield (
            "turns are predicted by physics fitted to measured sets and pairs "
            "(how far off: docs/measurements/sets.md)"
        )


def of_profile(profile: Profile) -> Iterator[str]:
    """What a profile lacks, or may have wrong."""
    if profile.missing:
        yield f"the profile of {profile.job} lacks {', '.join(profile.missing)}"
    if doubtful := sorted(DOUBTFUL & set(profile.flags)):
        meanings = "; ".join(f"{flag}: {FLAGS[flag]}" for flag in doubtful)
        yield f"the profile of {profile.job} has doubtful points ({meanings})"
    if ONE_WINDOW in profile.flags:
        yield (
            f"{profile.job} was seen on the whole GPU alone, so its other shares are estimated; "
            f"measure them: advisor profile {profile.job}"
        )
    if SLOW_ALONE in profile.flags:
        yield (
            f"{profile.job} was slower on the whole GPU than at a smaller share, held up by its "
            f"host: its speeds are uncertain; measure it again: advisor profile {profile.job}"
        )
    if profile.shares[0] > NINE[0].shares[0]:
        yield (
            f"{profile.job} was not measured below {profile.shares[0]:g} %: "
            "splits that give it less are left out"
        )


def no_way(
    candidates: Sequence[RatedSplit], profiles: Sequence[Profile], limits: Limits
) -> NoSplitError:
    """The error of candidates that all break limits: what comes nearest, and what would help."""
    ceiling_w, gpu_model = limits.max_power_w, profiles[0].gpu_model
    enough = _enough(candidates, profiles, limits)
    if ceiling_w is not None and ceiling_w < profiles[0].idle_power_w:
        return NoSplitError(
            f"nothing runs within {ceiling_w:g} W",
            why=f"the {gpu_model} draws {profiles[0].idle_power_w:.4g} W without any job",
            fix=enough or "allow more",
        )
    near = nearest(candidates, mirrored=are_mirrored(profiles))
    return NoSplitError(
        f"{_names(profiles)} cannot run on one {gpu_model} within these limits",
        why=f"nearest is {near.name}: {'; '.join(dict.fromkeys(v.text for v in near.violations))}",
        fix=f"{enough or allowing(near, profiles, limits)}{_alone(profiles, limits)}",
    )


def allowing(option: RatedSplit, profiles: Sequence[Profile], limits: Limits) -> str:
    """The options with which it would keep the limits, where speeds are all that it misses."""
    speeds = [
        f"--min-speed {profile.job}={math.floor(100 * part.speed.low) / 100:g}"
        for profile, part in zip(profiles, option.prediction.parts, strict=True)
        # A server's demand is no limit that a lower number loosens.
        if not is_served(profile)
        and decisive_speed(part.speed, profile, limits) < floor(profile, limits)
    ]
    if len(speeds) < len(option.violations):
        return "loosen that limit"
    return f"allow it: {' '.join(dict.fromkeys(speeds))}"


def saves_nothing(choice: RatedSplit, profiles: Sequence[Profile], request: Request) -> bool:
    """Whether sharing takes more energy for the same work than a GPU for each job.

    Jobs that can wait run one after the other then; one that answers requests cannot.
    """
    if request.objective != DEFAULT_OBJECTIVE or not any(map(is_served, profiles)):
        return False
    return choice.prediction.result.energy_saved < 0


def no_gain(choice: RatedSplit, profiles: Sequence[Profile]) -> NoSplitError:
    """The error where the best way of sharing takes more energy than a GPU for each job."""
    more = f"{-100 * choice.prediction.result.energy_saved:.2g} % more energy"
    return NoSplitError(
        f"{_names(profiles)} are better off apart than on one {profiles[0].gpu_model}",
        why=f"{choice.name} takes {more} for the same work than a GPU for each",
        fix="give each job a GPU of its own, or ask for time: --objective throughput",
    )


def _enough(
    candidates: Sequence[RatedSplit], profiles: Sequence[Profile], limits: Limits
) -> str | None:
    """The lowest ceiling of power at which something keeps all other limits; None: it is not it."""
    if limits.max_power_w is None:
        return None
    free = dataclasses.replace(limits, max_power_w=None)
    kept = [o for o in candidates if not violations(o.prediction, profiles, free)]
    if not kept:
        return None
    least = min(kept, key=lambda option: most_power_w(option.prediction, profiles))
    what = "one after the other" if least.prediction.split.sharing == "exclusive" else least.name
    # Rounded up, so that it is enough.
    return f"allow {math.ceil(most_power_w(least.prediction, profiles))} W, which {what} needs"


def _alone(profiles: Sequence[Profile], limits: Limits) -> str:
    alone = [violation for profile in profiles for violation in violations_alone(profile, limits)]
    if not alone:
        return ", or give each job a GPU of its own"
    return f"; a GPU for each does not help: {max(alone, key=lambda violation: violation.by).text}"


def _names(profiles: Sequence[Profile]) -> str:
    return counted(profile.job for profile in profiles)
