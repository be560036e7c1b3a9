"""A recommendation as command line, service and client tell it."""

import math
from collections.abc import Iterable, Mapping, Sequence

from advisor.core.finish import Finish
from advisor.core.flags import ONE_WINDOW
from advisor.core.interval import Interval
from advisor.core.objectives import ADVISED, priced
from advisor.core.units import units_for_share, vendor_of
from advisor.decide.recommend import Decision, RatedSplit
from advisor.decide.same_work import same_work
from advisor.decide.worth import worth_of
from advisor.predict.predictions import Prediction
from advisor.predict.profiles import Profile
from advisor.predict.rules import MEANINGS
from advisor.wire import recommendation as wire
from advisor_advice.answer import ModelAdvice


def to_wire(given: ModelAdvice) -> wire.Recommendation:
    """The answer; docs/recommend.md explains each key."""
    r, model = given.recommendation, given.manifest
    # What a rule chooses is nearly always a candidate too, and writing options is what takes long.
    shown = {id(o): _option(o, r) for o in (*r.candidates, *filter(None, r.rules.values()))}
    return wire.Recommendation(
        jobs=tuple(map(asked_job, r.profiles)),
        gpu_model=r.profiles[0].gpu_model,
        objective=r.objective.name,
        choice=shown[id(r.choice)],
        candidates=tuple(shown[id(option)] for option in r.candidates),
        baselines=tuple(
            wire.Baseline(name=name, meaning=MEANINGS[name], option=option and shown[id(option)])
            for name, option in r.rules.items()
        ),
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


def verdict_of(r: Decision) -> wire.Verdict:
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
        jobs=job_shares(
            r.profiles,
            p,
            r.environments(option),
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


def job_shares(
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


def asked_job(profile: Profile) -> wire.AskedJob:
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
        baselines={name: _ending(finish) for name, finish in found.rules.items()},
    )


def _ending(finish: Finish | None) -> Finish | None:
    # Infinity is not JSON: what never ends has no end.
    return finish if finish and math.isfinite(finish.time_s) else None
