"""Why a recommendation is what it is, and why jobs are not to share. Pure."""

import math
from collections.abc import Iterator

import numpy as np

from advisor.core.gpu import ISOLATING, NINE, WHOLE, Share, read_bound
from advisor.core.objectives import Interval
from advisor.core.records import DOUBTFUL, FLAGS, PRIOR, SINGLE_WINDOW, SLOW_ALONE, UNCOUNTED_UNIT
from advisor.core.wording import in_digits, listed
from advisor.decide.decision import (
    SLICING_MARGIN,
    Decision,
    most_valuable,
    nearest,
)
from advisor.decide.limits import Request, is_served, memory_unknown
from advisor.predict.features import FULL_BANDWIDTH_PERCENT, MEASURED_ON, speed_left
from advisor.predict.profiles import Profile, Serving
from advisor.predict.sets import alone_at
from advisor.validity.safe_counts import CheckedCounts, unchecked_texts


def reasons(decision: Decision) -> tuple[str, ...]:
    """Why this way, what each job keeps at its share, and what both want together."""
    texts = (
        *_why_not_more(decision),
        *_why_this_option(decision),
        *_shares(decision),
        *_supply(decision),
    )
    return tuple(dict.fromkeys(texts))


def warnings(decision: Decision) -> tuple[str, ...]:
    """What a reader should know before doing it."""
    of_profiles = (line for profile in decision.profiles for line in _of_profile(profile))
    at_risk = decision.request.risks(decision.chosen.predictions, decision.chosen.place)
    # Of a job beside itself everything is said once.
    texts = (
        *_starved(decision),
        *_served(decision),
        *_unlimited(decision),
        *(f"at the bad end of its interval {risk.text}" for risk in at_risk),
        *_crowds(decision),
        *of_profiles,
        *memory_unknown(decision.profiles, decision.request.memory_mib),
    )
    return tuple(dict.fromkeys(texts))


def why_unsure(decision: Decision, checked: CheckedCounts | None) -> tuple[str, ...]:
    """Unchecked counts of the chosen split, on a GPU model that was checked."""
    split, profiles = decision.chosen.prediction.split, decision.profiles
    safeties = [profile.safety(checked) for profile in profiles]
    texts = unchecked_texts(split, [p.job for p in profiles], safeties)
    return tuple(dict.fromkeys(texts)) if split.is_limited else ()


def percent(part: float, digits: int = 0) -> str:
    """A part of 1 as people write it."""
    return f"{100 * part:.{digits}f} %"


def _why_not_more(decision: Decision) -> Iterator[str]:
    """Better options, and why they lose: too little gain, a tie, or a broken limit."""
    chosen, policy = decision.chosen, decision.request.policy
    if kept := [o for o in decision.options[:-1] if not o.violations]:
        possible = most_valuable(kept)
        gain = possible.gain_over(chosen)
        if possible.sharing == "time-sliced" and gain > 0:
            least = 0.0 if decision.choice else policy.min_gain
            needed = percent((1 + SLICING_MARGIN) * (1 + least) - 1, 1)
            yield (
                f"{possible.name} is {percent(gain, 2)} better, and has to be {needed} better: its "
                "prediction is uncertain"
            )
        elif decision.choice is None and 0 < gain < policy.min_gain:
            yield (
                f"{possible.name} would gain {percent(gain, 1)}, below the minimum gain of "
                f"{percent(policy.min_gain)}: --min-gain 0 accepts it"
            )
        elif gain > 0:
            yield (
                f"{possible.name} is {percent(gain, 2)} better, which is a tie: the fewest and the "
                "loosest limits win"
            )
    barred = most_valuable(decision.options)
    if barred.violations and barred.gain_over(chosen) > policy.tie and barred is not decision.apart:
        more = percent(barred.gain_over(chosen), 1)
        yield f"{barred.name} would be {more} better, but {barred.worst_violation.text}"


def _why_this_option(decision: Decision) -> Iterator[str]:
    """For no sharing, or no limits: how the best of the other options compares."""
    chosen = decision.chosen
    if chosen.sharing == "limited":
        return
    others = [o for o in decision.options if o.sharing not in (chosen.sharing, "exclusive")]
    what = "sharing" if chosen.sharing == "exclusive" else "a split"
    if possible := [o for o in others if not o.violations]:
        other = most_valuable(possible)
        if other.gain_over(chosen) <= 0:
            less = -other.gain_over(chosen)
            worse = f"{percent(less, 1)} worse" if less >= 0.0005 else "no better"
            yield f"{what} does not pay: the best one, {other.name}, is {worse}"
    elif others:
        near = nearest(others)
        yield f"{what} breaks a limit: {near.name} is nearest, but {near.worst_violation.text}"


def _shares(decision: Decision) -> Iterator[str]:
    """Speed of each job alone at its share, and beside the others."""
    p = decision.chosen.prediction
    if not p.split.is_limited:
        return
    for profile, share, part in zip(decision.profiles, p.split.shares, p.parts, strict=True):
        alone = profile.at([share])["rate"][0] / profile.whole_gpu_rate
        yield (
            f"{profile.job} alone at {share:g} % runs at {percent(alone)} of its full speed, "
            f"beside the others at {percent(part.speed.value)}"
        )


def _supply(decision: Decision) -> Iterator[str]:
    """Power and memory bandwidth that all need together and the GPU lacks."""
    p = decision.chosen.prediction
    if p.split.sharing in ISOLATING or p.split.gpus:
        return
    jobs = alone_at([q.measured or q for q in decision.profiles], np.array([p.split.shares]).T)
    wanted_w, dram = float(jobs.together_w(jobs.could)[0]), WHOLE * float(jobs.dram.sum())
    limit_w = min(q.power_limit_w or math.inf for q in decision.profiles)
    if wanted_w > limit_w:
        left = float(speed_left(limit_w, wanted_w, limit_w))
        yield (
            f"all would draw {wanted_w:.0f} W: at the limit of {limit_w:.0f} W the clock falls by "
            f"{percent(1 - left)}"
        )
    if dram > FULL_BANDWIDTH_PERCENT:
        yield (
            f"together they need {dram:.0f} % of the memory bandwidth; "
            f"{FULL_BANDWIDTH_PERCENT:.0f} % is the most that jobs reach"
        )


def _starved(decision: Decision) -> Iterator[str]:
    p = decision.chosen.prediction
    for profile, part in zip(decision.profiles, p.parts, strict=True):
        if p.split.sharing != "exclusive" and (speed := part.speed.value) < 0.3:
            yield (
                f"{profile.job} runs at {percent(speed)} of its speed only; "
                "if that is too slow, ask for a minimum speed"
            )


def _served(decision: Decision) -> Iterator[str]:
    """Demand, latency and energy of servers under the chosen split."""
    p = decision.chosen.prediction
    if p.split.sharing == "exclusive":
        return
    for profile, part, share in zip(decision.profiles, p.parts, p.split.shares, strict=True):
        if profile.serving is None:
            continue
        if profile.serving.is_behind(profile.whole_gpu_rate):
            served = profile.whole_gpu_rate / (profile.serving.offered_rate or 1)
            yield f"{profile.job} serves {percent(served)} of its demand alone on the whole GPU"
        elif profile.serving.offered_rate is None:
            yield _undeclared(profile, profile.serving)
        yield _latency(profile, share, part.latency_p99_ms, decision.request)
    if any(map(is_served, decision.profiles)) and p.result.energy_saved < 0:
        more = percent(-p.result.energy_saved, 1)
        yield f"this takes {more} more energy than the same work with a GPU for each job"


def _undeclared(profile: Profile, serving: Serving) -> str:
    """What is known of the demand of a server that declares none.

    Clients that wait for answers are as many at half of the GPU, so by Little's law it answers less
    there as it answers later; one that falls behind what arrives answers far later than that.
    """
    whole, share = profile.whole_gpu_rate, max(WHOLE / 2, float(profile.shares[0]))
    rate = f"{in_digits(whole)} {profile.rate_unit}/s"
    gain = whole / float(profile.at([share], "rate")["rate"][0])
    later = (serving.p99_alone_ms(share) or 0.0) / (serving.p99_alone_ms(WHOLE) or math.inf)
    if gain > 1.1 and later < 1.5 * gain:
        return f"{profile.job} answers as fast as it can: {rate} alone"
    return (
        f"{rate} arrived at {profile.job} while it ran alone: not declared; to have them served "
        "whatever else runs, set `offered_rate` in its job file"
    )


def _latency(profile: Profile, share: float, beside: Interval | None, request: Request) -> str:
    if beside is None:
        return f"the latency of {profile.job} was not measured at {share:g} %"
    most_ms = request.longest_p99_ms(profile)
    alone_ms = profile.serving and profile.serving.p99_alone_ms(share)
    limit = "" if most_ms is None else f" of {most_ms:.4g} ms allowed"
    alone = "" if alone_ms is None else f": alone at {share:g} % it is {alone_ms:.3g} ms"
    return (
        f"the p99 latency of {profile.job} is expected at {in_digits(beside.value)} ms "
        f"({in_digits(beside.low)} to {in_digits(beside.high)}){limit}{alone}"
    )


def _unlimited(decision: Decision) -> Iterator[str]:
    if low := decision.chosen.split.below_normal:
        names = listed(decision.profiles[n].job for n in low)
        yield (
            f"{names} runs below normal priority: that is in its environment, and the driver does "
            "not tell whether it is taken"
        )
    elif decision.chosen.sharing == "uncapped":
        yield "without limits a job can take what another needs: speeds are hard to predict"
    elif decision.chosen.sharing == "time-sliced":
        model = decision.profiles[0].gpu_model
        elsewhere = f"; none was measured on {model}, so ranges are wide"
        yield (
            "time slicing is predicted by physics fitted to measured sets and pairs "
            f"(how far off: docs/measurements/sets.md){'' if model in MEASURED_ON else elsewhere}"
        )


def _crowds(decision: Decision) -> Iterator[str]:
    """Jobs that MPS gives more than their limit."""
    for profile, share in zip(decision.profiles, decision.chosen.split.shares, strict=True):
        if (clients := profile.mps_clients) > 1 and share < WHOLE:
            yield f"{profile.job} {Share(share).most_of(clients, None, None)}"


def _of_profile(profile: Profile) -> Iterator[str]:
    """What a profile lacks, or may have wrong."""
    if profile.missing:
        yield f"the profile of {profile.job} lacks {', '.join(profile.missing)}"
    if doubtful := sorted(DOUBTFUL & set(profile.flags)):
        meanings = "; ".join(f"{flag}: {FLAGS[flag]}" for flag in doubtful)
        yield f"the profile of {profile.job} has doubtful points ({meanings})"
    if options := read_bound(profile.memory_bound)[1]:
        yield f"{profile.job} {options}"
    if SINGLE_WINDOW in profile.flags:
        prior = f" by a prior with wide ranges (no job was learned from on {profile.gpu_model})"
        yield (
            f"{profile.job} was seen on the whole GPU alone, so its other shares are estimated"
            f"{prior if PRIOR in profile.flags else ''}; "
            f"measure them: advisor profile {profile.job}"
        )
    if profile.rate_unit == UNCOUNTED_UNIT:
        yield (
            f"the progress of {profile.job} was not counted while it was watched: its speeds are "
            "relative, and a launch of it has no forecast (docs/progress.md)"
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
