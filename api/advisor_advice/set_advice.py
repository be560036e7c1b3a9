"""How a set of jobs is to run on one GPU, or that each gets a card."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from advisor.core.flags import ONE_WINDOW
from advisor.core.gpu import MPS_CLIENTS
from advisor.core.interval import Interval
from advisor.core.objectives import DEFAULT_OBJECTIVE, find_objective
from advisor.core.split import ISOLATING, MOST_JOBS, without_limits
from advisor.core.wording import less_or_more, limits_text
from advisor.decide.candidates import Running
from advisor.decide.constraints import RULES
from advisor.decide.limits import (
    cores_wanted,
    decisive_speed,
    floor,
    is_served,
    memory_unknown,
    with_card_memory,
)
from advisor.decide.reasons import of_profile
from advisor.decide.recommendation import RatedSplit, Request
from advisor.decide.replicas import replicas
from advisor.decide.same_work import gain_to_the_end
from advisor.decide.ways import SetDecision, recommend_set, without_one, worth
from advisor.decide.worth import worth_of
from advisor.predict.gaps import IDLE
from advisor.predict.predictions import Predictor
from advisor.predict.profiles import Profile
from advisor.predict.set_law import MEASURED_ON
from advisor.predict.sets import SetPredictor, active_idle_w, fills
from advisor.settings import Settings
from advisor.validity.safe_counts import CheckedCounts
from advisor.wire.observed import MeasuredTogether
from advisor.wire.requests import ReplicasRequest
from advisor.wire.sets import Copies, Fewer, LookedAt, Needs, Replicas, SetAdvice, Way
from advisor_advice.answer import of_check, of_input, set_request_of
from advisor_advice.idle_power import with_idle_power
from advisor_advice.recommendation_wire import asked_job, job_shares
from advisor_advice.site.conditions import NOTHING, Conditions, read_conditions
from advisor_advice.site.known_profiles import ProfileSet, checked_on
from advisor_models.registry import Registry

DIGITS = 4
"""Of what is told in short; nothing is known better."""


def advise_set(
    profile_set: ProfileSet,
    request: Request,
    settings: Settings,
    gpu_uuid: str | None = None,
    running: Running | None = None,
) -> SetAdvice:
    """The best way to run these jobs, by physics and by what was measured of them together.

    Those that are `running`, all but the last, keep their shares.

    Raises:
        InputError: the request does not fit the jobs.
        ModelError: there is no model, or it is damaged.
        NoSplitError: nothing keeps every limit, not even a card each.
        StoreError: observations, or what the check of this GPU model found, cannot be read.
    """
    model = Registry(settings.home / "models").open_champion()
    conditions = read_conditions(settings, model, profile_set.profiles, gpu_uuid)
    checked = checked_on(profile_set, settings)
    return advise_set_by(model.manifest.fill, profile_set, request, checked, conditions, running)


def advise_set_by(
    fill: Mapping[str, float],
    profile_set: ProfileSet,
    request: Request,
    checked: CheckedCounts | None,
    conditions: Conditions = NOTHING,
    running: Running | None = None,
    *,
    every: bool = False,
) -> SetAdvice:
    """The same with what a check of the GPU model found.

    `fill` is what a model takes for idle power that no profile has; `every` tells all ways in
    short.

    Raises:
        InputError: the request does not fit the jobs.
        NoSplitError: nothing keeps every limit, not even a card each.
    """
    asked = profile_set.profiles
    profile_set, assumed = with_set_idle_power(profile_set, fill)
    there, profiles = conditions.applied(SetPredictor(), profile_set.profiles)
    splits = conditions.splits_of(profiles)
    found = recommend_set(profiles, there, request, checked, splits, running=running)
    way = found.choice or found.call
    measured = conditions.measured_of(profiles, way and way.prediction.split)
    of_counts = of_check(profile_set, checked) if way and way.sharing == "limited" else ()
    more = (*_of_law(profiles, measured), *_warnings(profile_set, request), *assumed)
    card = conditions.card_of(asked)
    return replace(
        to_wire(found, (*of_counts, *more, *conditions.warnings(asked))),
        card=card and card.told,
        drifts=conditions.drifts_of(asked),
        measured=measured,
        fewer=None if way or running else _fewer(found, there, request, checked),
        looked_at=tuple(_in_short(option, found) for option in found.looked_at) if every else (),
    )


def _fewer(
    found: SetDecision, there: Predictor, request: Request, checked: CheckedCounts | None
) -> Fewer | None:
    if (left := without_one(found, there, checked)) is None:
        return None
    job, way = left
    energy = worth_of(way.prediction, request.prices).energy
    return Fewer(without=job, way=way.name, energy_saved=energy)


def advise_replicas(
    profile_set: ProfileSet, asked: ReplicasRequest, settings: Settings
) -> Replicas:
    """How many copies of a job one GPU holds.

    Raises:
        InputError: the request does not fit the job.
        ModelError: there is no model, or it is damaged.
        NoSplitError: not even one copy keeps its limits.
        StoreError: observations cannot be read.
    """
    model, request = (
        Registry(settings.home / "models").open_champion(),
        set_request_of(asked, settings),
    )
    conditions = read_conditions(settings, model, profile_set.profiles, asked.gpu_uuid, any_of=True)
    return advise_replicas_by(model.manifest.fill, profile_set, request, asked.most, conditions)


def advise_replicas_by(
    fill: Mapping[str, float],
    profile_set: ProfileSet,
    request: Request,
    most: int,
    conditions: Conditions = NOTHING,
) -> Replicas:
    """The same with what is known beside profiles; `fill` is as in `advise_set_by`.

    Raises:
        InputError: the request does not fit the job.
        NoSplitError: not even one copy keeps its limits.
    """
    profile_set, assumed = with_set_idle_power(profile_set, fill)
    asked = profile_set.profiles
    there, (profile, *_) = conditions.applied(SetPredictor(), asked)
    found = replicas(profile, request, most=most, predictor=there)

    def with_measured(copies: Copies) -> Copies:
        if (number := copies.number) == 1:
            return copies
        split = without_limits(found.sharing, number)
        return replace(copies, measured=conditions.measured_of([profile] * number, split))

    copies = tuple(map(with_measured, found.copies))
    of_law = _of_law(asked, copies[-1].measured)
    warnings = (*of_law, *_warnings(profile_set, request), *assumed, *conditions.warnings(asked))
    if found.best > MOST_JOBS:
        warnings = (*warnings, f"no set of more than {MOST_JOBS} jobs was measured")
    card = conditions.card_of(asked)
    return replace(
        found,
        copies=copies,
        beyond=found.beyond and with_measured(found.beyond),
        warnings=tuple(dict.fromkeys(warnings)),
        card=card and card.told,
        drifts=conditions.drifts_of(asked),
        one_window=ONE_WINDOW in profile.flags,
    )


def to_wire(found: SetDecision, warnings: Sequence[str]) -> SetAdvice:
    """The answer as command line, service and client tell it."""
    return SetAdvice(
        jobs=tuple(map(asked_job, found.profiles)),
        gpu_model=found.profiles[0].gpu_model,
        objective=found.objective.name,
        verdict="share" if found.choice else "your call" if found.call else "a card each",
        choice=found.choice and found.choice.name,
        call=found.call and found.call.name,
        ways=tuple(_way(way, found) for way in found.ways),
        needs=_needs(found),
        near=_near(found),
        searched=found.searched,
        warnings=tuple(dict.fromkeys(warnings)),
    )


def with_set_idle_power(
    profile_set: ProfileSet, fill: Mapping[str, float]
) -> tuple[ProfileSet, tuple[str, ...]]:
    """That of the empty card alone: the law of sets has its own number for open jobs."""
    return with_idle_power(profile_set, {name: w for name, w in fill.items() if name == IDLE})


def _warnings(profile_set: ProfileSet, request: Request) -> Iterator[str]:
    profiles = profile_set.profiles
    for profile in profiles:
        yield from of_profile(profile)
    memory_mib = with_card_memory(request, profiles[0].gpu_model).memory_mib
    yield from memory_unknown(profiles, memory_mib)
    yield from of_input(profile_set)


def _of_law(profiles: Sequence[Profile], measured: MeasuredTogether | None) -> Iterator[str]:
    told = f"{measured.text}; else it is" if measured else "nothing was measured of these: all is"
    yield f"{told} by physics fitted to measured sets (how far off: docs/measurements/sets.md)"
    if (model := profiles[0].gpu_model) not in MEASURED_ON:
        yield f"no set was measured on {model}"
    for profile in profiles:
        if fills(profile) and "sm_active_percent" in profile.missing:
            yield f"{profile.job} has no counters, and is taken to fill the GPU"
    if all(math.isnan(profile.active_idle_power_w) for profile in profiles):
        assumed_w = statistics.fmean(map(active_idle_w, profiles))
        yield (
            "active idle power was not measured with these jobs, and is taken as "
            f"{assumed_w:.0f} W: advisor colocate measures it"
        )


def _near(found: SetDecision) -> str | None:
    """The best way that fails by low ends of speeds alone, and what accepts it; None: none is."""
    least = worth(found.choice) if found.choice else 1 + found.request.min_gain
    accepted = {id(way): _accepted(way, found) for way in found.ways if worth(way) > least}
    ways = [way for way in found.ways if accepted.get(id(way))]
    if not ways:
        return None
    way = max(ways, key=worth)
    saved = less_or_more(way.prediction.energy_saved.value, 0)
    limits = limits_text((p.job for p in found.profiles), way.prediction.split.shares)
    return f"{limits or way.name} would take {saved} energy; accept it with {accepted[id(way)]}"


def _accepted(way: RatedSplit, found: SetDecision) -> str:
    """The options that accept a way that misses no more than speeds of jobs without a demand."""
    p, limits = way.prediction, found.request
    missed = {
        profile.job: part.speed
        for profile, part in zip(found.profiles, p.parts, strict=True)
        if decisive_speed(part.speed, profile, limits) < floor(profile, limits)
    }
    speeds = [*RULES["speed"](p, found.profiles, limits)]
    served = {profile.job for profile in found.profiles if is_served(profile)}
    expected = all(s.value >= limits.min_speed_of(job) for job, s in missed.items())
    if len(speeds) < len(way.violations) or served & missed.keys() or not expected:
        return ""
    return " ".join(
        f"--min-speed {job}={math.floor(100 * speed.low) / 100:g}" for job, speed in missed.items()
    )


def _way(way: RatedSplit, found: SetDecision) -> Way:
    p, request = way.prediction, found.request
    idle_w = sum(profile.idle_power_w for profile in found.profiles) / len(found.profiles)
    worth = worth_of(p, request.prices, idle_w)
    return Way(
        name=way.name,
        sharing=way.sharing,
        isolates=way.sharing in ISOLATING,
        jobs=job_shares(
            found.profiles,
            way.prediction,
            found.environments(way),
            [part.latency_p99_ms for part in way.prediction.parts],
        ),
        power_w=p.power_w,
        energy_saved=_saved_to_the_end(way, found) or worth.energy,
        energy_saved_idle=worth.energy_idle,
        gpu_time_saved=worth.gpu_time,
        cost_saved=worth.cost,
        violations=tuple(violation.text for violation in way.violations),
    )


def _in_short(way: RatedSplit, found: SetDecision) -> LookedAt:
    told = _way(way, found)
    p99s = (share.latency_p99_ms for share in told.jobs)
    return LookedAt(
        name=told.name,
        sharing=told.sharing,
        shares=tuple(share.share_percent for share in told.jobs),
        speeds=tuple(round(share.speed.value, DIGITS) for share in told.jobs),
        p99_ms=tuple(p99 and float(f"{p99.value:.{DIGITS}g}") for p99 in p99s),
        power_w=round(told.power_w.value, 1),
        energy_saved=round(told.energy_saved.value, DIGITS),
        energy_saved_idle=round(told.energy_saved_idle.value, DIGITS),
        gpu_time_saved=round(told.gpu_time_saved.value, DIGITS),
        keeps=not told.violations,
    )


def _saved_to_the_end(way: RatedSplit, found: SetDecision) -> Interval | None:
    """Of the work of two jobs, until both have ended; None: nothing is said of it."""
    if found.request.work is None:
        return None
    p, by = way.prediction, find_objective(DEFAULT_OBJECTIVE)
    gain = gain_to_the_end(p, found.profiles, found.request.work, by)
    return p.range_of(lambda result: 1 - 1 / gain(result))


def _needs(found: SetDecision) -> Needs:
    memory = [profile.memory_used_mib for profile in found.profiles]
    return Needs(
        memory_mib=sum(m for m in memory if m) if all(memory) else None,
        memory_of_mib=found.request.memory_mib,
        host_cores=cores_wanted(found.profiles),
        mps_clients=len(found.profiles),
        mps_clients_most=MPS_CLIENTS,
    )
