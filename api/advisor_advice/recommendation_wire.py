"""A recommendation as command line, service and client tell it."""

import math
from collections.abc import Iterable, Mapping, Sequence

from advisor.core.finish import Finish
from advisor.core.flags import ONE_WINDOW
from advisor.core.gpu import MPS_CLIENTS
from advisor.core.interval import Interval
from advisor.core.objectives import ADVISED, DEFAULT_OBJECTIVE, find_objective, priced
from advisor.core.split import ISOLATING
from advisor.core.units import units_for_share, vendor_of
from advisor.core.wording import less_or_more, limits_text
from advisor.decide.constraints import RULES
from advisor.decide.limits import cores_wanted, decisive_speed, floor, is_served
from advisor.decide.recommend import Decision, RatedSplit
from advisor.decide.recommendation import environments
from advisor.decide.same_work import gain_to_the_end, same_work
from advisor.decide.ways import SetDecision, worth
from advisor.decide.worth import worth_of
from advisor.predict.predictions import Prediction
from advisor.predict.profiles import Profile
from advisor.wire import recommendation as wire
from advisor.wire.sets import LookedAt, Needs, SetAdvice, Way
from advisor_advice.answer import ModelAdvice

DIGITS = 4
"""Of what is told in short; nothing is known better."""


def to_wire(given: ModelAdvice) -> wire.Recommendation:
    """The answer; docs/recommend.md explains each key."""
    r, model = given.recommendation, given.manifest
    options = tuple(_option(option, r) for option in r.candidates)
    return wire.Recommendation(
        jobs=tuple(map(_asked_job, r.profiles)),
        gpu_model=r.profiles[0].gpu_model,
        objective=r.objective.name,
        choice=options[r.candidates.index(r.choice)],
        candidates=options,
        same_work=_same_work(r),
        picks={name: option.name for name, option in r.picks.items()},
        reasons=r.reasons,
        warnings=r.warnings,
        model=wire.ModelName(version=model.version, gpu_models=model.gpu_models),
        coverage=model.coverage,
        verdict=verdict_of(r),
        call=r.call and r.call.name,
        card=given.card and given.card.told,
        drifts=given.drifts,
        measured=given.measured,
    )


def verdict_of(r: Decision) -> wire.SharingVerdict:
    """Whether to share."""
    if r.choice.sharing != "exclusive":
        return "share"
    return "your call" if r.call else "do not share"


def _option(option: RatedSplit, r: Decision) -> wire.Option:
    p = option.prediction
    worth = worth_of(p, r.request.prices)
    return wire.Option(
        split=option.name,
        sharing=p.split.sharing,
        jobs=_job_shares(
            r.profiles,
            p,
            environments(r.profiles, option),
            [
                part.p99_ms(profile, p.split, share)
                for profile, share, part in zip(r.profiles, p.split.shares, p.parts, strict=True)
            ],
        ),
        power_w=p.power_w,
        memory_power_w=p.memory_power_w,
        energy_saved=worth.energy,
        stp=p.stp,
        objectives={n: p.objective_value(priced(ADVISED[n], r.request.prices)) for n in r.picks},
        violations=tuple(violation.text for violation in option.violations),
        gpu_time_saved=worth.gpu_time,
        cost_saved=worth.cost,
    )


def _job_shares(
    profiles: Sequence[Profile],
    p: Prediction,
    environments: Iterable[Mapping[str, str]],
    p99s_ms: Iterable[Interval | None],
) -> tuple[wire.JobShare, ...]:
    """What each job gets and does, with its environment and its p99 latency."""
    vendor = vendor_of(profiles[0].gpu_model)
    total = next((profile.units_total for profile in profiles if profile.units_total), None)
    return tuple(
        wire.JobShare(
            job=profile.job,
            share_percent=share,
            units=total and units_for_share(share, total, vendor),
            rate=part.rate,
            speed=part.speed,
            environment=environment,
            latency_p99_ms=p99_ms,
        )
        for profile, share, part, environment, p99_ms in zip(
            profiles, p.split.shares, p.parts, environments, p99s_ms, strict=True
        )
    )


def _asked_job(profile: Profile) -> wire.AskedJob:
    """A job alone."""
    alone = wire.Alone(
        rate=profile.whole_gpu_rate,
        power_w=profile.whole_gpu_power_w,
        memory_used_mib=profile.memory_used_mib,
    )
    return wire.AskedJob(
        job=profile.job,
        rate_unit=profile.rate_unit,
        alone=alone,
        one_window=ONE_WINDOW in profile.flags,
    )


def _same_work(r: Decision) -> wire.SameWork:
    found = same_work(r)
    return wire.SameWork(
        work_s=found.work.alone_s,
        choice=_ending(found.choice),
        restarted=_ending(found.restarted),
        baselines={"exclusive": _ending(found.exclusive)},
    )


def _ending(finish: Finish | None) -> Finish | None:
    # Infinity is not JSON: what never ends has no end.
    return finish if finish and math.isfinite(finish.time_s) else None


def set_to_wire(found: SetDecision, warnings: Sequence[str]) -> SetAdvice:
    """The answer as command line, service and client tell it."""
    return SetAdvice(
        jobs=tuple(map(_asked_job, found.profiles)),
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
        jobs=_job_shares(
            found.profiles,
            way.prediction,
            environments(found.profiles, way),
            [part.latency_p99_ms for part in way.prediction.parts],
        ),
        power_w=p.power_w,
        energy_saved=_saved_to_the_end(way, found) or worth.energy,
        energy_saved_idle=worth.energy_idle,
        gpu_time_saved=worth.gpu_time,
        cost_saved=worth.cost,
        violations=tuple(violation.text for violation in way.violations),
    )


def in_short(way: RatedSplit, found: SetDecision) -> LookedAt:
    """A way without ranges."""
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
