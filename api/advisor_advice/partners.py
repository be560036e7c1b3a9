"""The best partners of one job among all that have a profile on its GPU model."""

from collections.abc import Iterator

from advisor.core.gpu import MEMORY_PART
from advisor.decide.decision import Decision, Outlook, decide, worth_of
from advisor.decide.limits import Request, with_card_memory
from advisor.errors import InputError, NoSplitError
from advisor.predict.profiles import Profile
from advisor.predict.sets import AnyWay
from advisor.settings import Settings
from advisor.wire.answers import JobCurve, Partner, Partners, Size
from advisor_advice.answers import verdict_of, with_known_idle
from advisor_advice.conditions import read_known
from advisor_advice.profiles import ProfileSet, all_profiles, find_profiles

MOST_PARTNERS = 10

DIGITS = 4
"""Of a part of 1 that is told of hundreds of pairs; none is known better."""

ENOUGH_SPEED = 0.95
"""Of the whole GPU: a size that keeps it costs a job alone next to nothing."""


def best_partners(
    job: str, settings: Settings, request: Request, gpu_model: str | None = None
) -> Partners:
    """The ten partners with which most GPU time is saved, where the jobs are to share.

    Raises:
        InputError: the job has no profile, or there is not just one GPU model that it could be on.
        ModelError: there is no model, or it is damaged.
        StoreError: the store cannot be read.
    """
    own = find_profiles([job, job], settings, gpu_model)
    others = all_profiles(settings, own.a.gpu_model)
    every = (own.a, *(p for name, p in sorted(others.items()) if name != job))
    known = read_known(ProfileSet(every, ()), settings, any_of=True)
    filled, _ = with_known_idle(known.found, known.model.manifest.fill)
    there, profiles = known.conditions.applied(AnyWay(known.model), filled.profiles)
    request = with_card_memory(request, own.a.gpu_model)
    found: list[Partner] = []
    for other in profiles:
        pair = (profiles[0], other)
        outlook = Outlook(pair, there, known.checked, known.conditions.splits_of(pair))
        try:
            decision = decide(outlook, request)
        except (InputError, NoSplitError):
            continue
        found += partner_of(decision)
    found.sort(key=lambda p: (p.verdict != "share", -p.gpu_time_saved.value))
    used_mib, card_mib = own.a.memory_used_mib, request.memory_mib
    fit = int(MEMORY_PART * card_mib / used_mib) if used_mib and card_mib is not None else None
    return Partners(
        job=job,
        gpu_model=own.a.gpu_model,
        looked_at=len(profiles),
        partners=tuple(found[:MOST_PARTNERS]),
        size=best_size(own.a),
        copies_by_memory=fit,
    )


def best_size(profile: Profile) -> Size | None:
    """The smallest measured share that keeps `ENOUGH_SPEED`; None: only the whole GPU does."""
    speeds = profile.values["rate"] / profile.whole_gpu_rate
    for share, speed in zip(profile.shares.tolist(), speeds.tolist(), strict=True):
        if speed >= ENOUGH_SPEED and share < profile.shares[-1]:
            p99_ms = profile.serving and profile.serving.p99_alone_ms(share)
            return Size(share_percent=share, speed=speed, latency_p99_ms=p99_ms)
    return None


def curve_of(profile: Profile, *, bundled: bool) -> JobCurve:
    """What a job does alone at its measured shares."""
    speeds = profile.values["rate"] / profile.whole_gpu_rate
    return JobCurve(
        job=profile.job,
        rate_unit=profile.rate_unit,
        rate=profile.whole_gpu_rate,
        power_w=profile.whole_gpu_power_w,
        shares=tuple(profile.shares.tolist()),
        speeds=tuple(round(speed, DIGITS) for speed in speeds.tolist()),
        size=best_size(profile),
        bundled=bundled,
    )


def partner_of(decision: Decision) -> Iterator[Partner]:
    """The second job as the first one's partner; nothing where they are not to share."""
    if (way := decision.way) is None:
        return
    prices = decision.request.policy.prices
    worth, (own, other) = worth_of(way.prediction, prices), way.prediction.parts
    yield Partner(
        partner=decision.profiles[1].job,
        verdict=verdict_of(decision),
        split=way.name,
        speed=own.speed,
        partner_speed=other.speed,
        gpu_time_saved=worth.gpu_time,
        energy_saved=worth.energy,
        cost_saved=worth.cost,
    )
