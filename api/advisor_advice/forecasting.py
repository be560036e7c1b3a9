"""What the model in use says of jobs that are to be launched: their split, or what to expect."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from advisor.core.gpu import WHOLE, Gpu, Sharing, Split, units_for_share
from advisor.core.job import Job
from advisor.core.objectives import (
    DEFAULT_OBJECTIVE,
    OBJECTIVES,
    PER_WATT_OBJECTIVE,
    Interval,
)
from advisor.core.records import UNCOUNTED_UNIT, Observation
from advisor.core.wording import counted, less_or_more, listed
from advisor.decide.decision import (
    Decision,
    RatedSplit,
    Running,
    most_valuable,
    nearest,
    savings_of,
)
from advisor.decide.limits import Request
from advisor.errors import InputError, ModelError, NoSplitError, StoreError
from advisor.launch.account import Trial
from advisor.launch.spec import (
    Forecast,
    JobForecast,
    LaunchPart,
    LaunchSet,
    Resplit,
    at_rate,
    with_part,
)
from advisor.predict.predictions import RATE_SPREADS, Prediction, host_factor
from advisor.predict.profiles import Profile, kind_of, with_rate
from advisor.predict.sets import OptionPredictor, is_by_physics, why_not_below_normal
from advisor.runtime.processes import available_cores
from advisor.settings import Settings
from advisor_advice.answers import ModelAdvice, SetAdvisor, changed_jobs, gpu_warnings
from advisor_advice.conditions import (
    AdvisorInputs,
    ProfileSet,
    find_profiles,
    read_conditions,
    stored_points,
)
from advisor_advice.launching import ResolvedLaunch, count_notes, host_safety
from advisor_models.registry import Manifest, Registry


def recommended(
    jobs: Sequence[Job], launch: ResolvedLaunch, settings: Settings, *, measured: bool = False
) -> list[tuple[LaunchSet, tuple[str, ...]]]:
    """Jobs at the split that is worth most, and what the recommendation warns of.

    Where ways are to be tried, the best of each way of sharing, that split first; where they are
    only `measured`, also of jobs that should not share.

    Raises:
        InputError: a job has no profile.
        ModelError: there is no model, or it is damaged.
        NoSplitError: nothing keeps every limit, or the jobs should not share.
    """
    profile_set, criteria = criteria_of(jobs, launch, settings)
    given = SetAdvisor.of(AdvisorInputs.read(profile_set, settings, launch.gpu_uuid)).answer(
        criteria
    )
    options = options_to_try(given.decision, launch.request.tries)
    if not (options and (measured or given.decision.choice)):
        raise _apart(given.decision, joins=False)
    made = (_to_launch(option, jobs, given, profile_set, criteria) for option in options)
    return [(_on_host(pair, profile_set, launch, settings), notes) for pair, notes in made]


def options_to_try(decision: Decision, most: int) -> list[RatedSplit]:
    """What was chosen, and of each other sharing the best that keeps all limits, so many.

    Where nothing was chosen, what may break a limit and saves the most: a trial will tell.
    """
    picked = [decision.choice] if decision.choice else []
    for option in sorted(decision.options[:-1], key=lambda option: -option.score):
        may = not (decision.choice and option.violations) and option.score >= decision.apart.value
        if may and option.sharing not in {other.sharing for other in picked}:
            picked.append(option)
    return picked[:most]


def joining(
    parts: Sequence[LaunchPart],
    job: Job,
    running: Running,
    launch: ResolvedLaunch,
    settings: Settings,
) -> tuple[LaunchSet, tuple[str, ...]]:
    """Jobs that run already and one that joins, with the share for that one that is worth most.

    What was asked for when those that run were launched is kept as well, and host cores are.

    Raises:
        As `recommended`.
    """
    jobs = [*(part.job for part in parts), job]
    profile_set, criteria = criteria_of(jobs, launch, settings)
    criteria = replace(
        with_kept(criteria, parts, profile_set.profiles), host_cores=float(len(available_cores()))
    )
    given = SetAdvisor.of(AdvisorInputs.read(profile_set, settings, launch.gpu_uuid)).answer(
        criteria, running
    )
    if given.decision.choice is None:
        raise _apart(given.decision, joins=True)
    pair, notes = _to_launch(given.decision.chosen, jobs, given, profile_set, criteria)
    return _on_host(pair, profile_set, launch, settings), notes


def with_kept(
    criteria: Request, parts: Iterable[LaunchPart], profiles: Iterable[Profile] = ()
) -> Request:
    """The limits with those of jobs that run: the stricter one of each.

    A p99 that holds anyway by their profiles is no limit that was given.
    """
    anyway_ms = {profile.job: criteria.longest_p99_ms(profile) for profile in profiles}
    speeds, tails_ms = dict(criteria.min_speed), dict(criteria.max_p99_ms)
    powers_w = [criteria.max_power_w]
    for part in parts:
        name = part.job.name
        powers_w.append(part.max_power_w)
        if part.min_speed is not None:
            speeds[name] = max(part.min_speed, speeds.get(name, 0.0))
        if part.max_p99_ms not in (None, anyway_ms.get(name)):
            tails_ms[name] = min(part.max_p99_ms, tails_ms.get(name, math.inf))
    return replace(
        criteria,
        min_speed=speeds,
        max_p99_ms=tails_ms,
        max_power_w=min((most for most in powers_w if most is not None), default=None),
    )


def _to_launch(
    option: RatedSplit,
    jobs: Sequence[Job],
    given: ModelAdvice,
    profile_set: ProfileSet,
    criteria: Request,
) -> tuple[LaunchSet, tuple[str, ...]]:
    chosen = LaunchSet(
        split=option.prediction.split,
        parts=tuple(LaunchPart(job=job) for job in jobs),
        forecast=_forecast(option.prediction, given.manifest, profile_set),
    )
    promised = _promising(_with_profiles(chosen, profile_set), profile_set, criteria)
    return promised, (*changed_jobs(jobs, profile_set.profiles), *given.warnings)


def _promising(made: LaunchSet, profile_set: ProfileSet, criteria: Request) -> LaunchSet:
    """The jobs with their limits, which are watched, and which later joins must keep."""
    parts = (
        replace(
            part,
            min_speed=criteria.floor(profile),
            max_p99_ms=criteria.longest_p99_ms(profile),
            max_power_w=criteria.max_power_w,
        )
        for part, profile in zip(made.parts, profile_set.profiles, strict=True)
    )
    return replace(made, parts=tuple(parts))


def criteria_of(
    jobs: Sequence[Job], launch: ResolvedLaunch, settings: Settings
) -> tuple[ProfileSet, Request]:
    """The profiles of jobs, and what a launch of them is to keep.

    Raises:
        InputError: a job has no profile.
        StoreError: the store cannot be read.
    """
    profile_set = _profiles_for([job.name for job in jobs], launch, settings)
    return profile_set, _criteria(jobs, profile_set, launch, settings)


def _criteria(
    jobs: Sequence[Job], profile_set: ProfileSet, launch: ResolvedLaunch, settings: Settings
) -> Request:
    names, request = [job.name for job in jobs], launch.request
    # A limit for all servers says nothing of a set in a queue without one.
    is_for_these = (not request.then and {job.job for job in request.jobs} <= {*names}) or any(
        profile.serving for profile in profile_set.profiles
    )
    return Request(
        policy=request.policy(settings.policy),
        min_speed={job: least for job, least in request.min_speeds().items() if job in names},
        max_p99_ms={job.name: job.max_p99_ms for job in jobs if job.max_p99_ms is not None}
        | {job: most for job, most in request.p99_by_job_ms.items() if job in names},
        default_max_p99_ms=request.max_p99_ms if is_for_these else None,
        max_power_w=request.max_power_w,
        memory_mib=launch.memory_mib,
    )


def _profiles_for(names: Sequence[str], launch: ResolvedLaunch, settings: Settings) -> ProfileSet:
    profile_set = find_profiles(
        names,
        settings,
        launch.gpu_model,
        launch.profiles,
        several_gpus=True,
        # That the card is to have, or has where it was seen.
        power_limit_w=launch.request.power_limit_w or (launch.card and launch.card.power_limit_w),
    )
    if launch.card is None:
        return profile_set
    of_host = _host_factors(profile_set, launch.card, settings)
    factors = [of_host[n][0] if n in of_host else 1.0 for n in range(len(names))]
    return _at_factors(profile_set, factors, launch.card)


def _host_factors(
    profile_set: ProfileSet, card: Gpu, settings: Settings
) -> dict[int, tuple[float, float]]:
    """Rate alone on this host over that of the profile, of jobs that were profiled on others.

    By the job's number, with the standard deviation of the logarithm. What serves a demand serves
    the same anywhere.

    Raises:
        StoreError: the store cannot be read.
    """
    cards, factors = {card.uuid, *card.beside}, dict[int, tuple[float, float]]()
    for n, profile in enumerate(profile_set.profiles):
        if (kind := kind_of(profile)) in RATE_SPREADS and profile.gpu_uuids.isdisjoint(cards):
            here = [p for p in stored_points(settings, [profile.job]) if p.gpu_uuid in cards]
            log_factor, spread = host_factor(kind, profile, here)
            factors[n] = math.exp(log_factor), spread
    return factors


def _at_factors(profile_set: ProfileSet, factors: Sequence[float], card: Gpu) -> ProfileSet:
    """The jobs at their rates alone on this host, so many times those of the profiles.

    What was measured of them together on other hosts was at other rates, and does not count where
    these differ by more than those of jobs that fill the GPU do.
    """
    profiles = tuple(map(_at_factor, profile_set.profiles, factors))
    most = max(abs(math.log(factor)) for factor in factors)
    is_near = most <= RATE_SPREADS["filling"][0]
    cards = frozenset[str]() if is_near else frozenset({card.uuid, *card.beside})
    return replace(profile_set, profiles=profiles, only_on=cards)


def _at_factor(profile: Profile, factor: float) -> Profile:
    brought = with_rate(profile, factor * profile.whole_gpu_rate)
    if brought is profile:
        return profile
    # The same job: what it did beside others on this host was at this rate.
    measured = profile.measured and _at_factor(profile.measured, factor)
    return replace(brought, job=profile.job, measured=measured)


def with_forecast(
    pair: LaunchSet, launch: ResolvedLaunch, settings: Settings, *, joins: bool = False
) -> tuple[LaunchSet, tuple[str, ...]]:
    """Jobs at a given split with its forecast, or why there is none; limits are as recommended.

    Where the last one is to join the others, its share alone was asked for.

    Raises:
        InputError: a latency of a job was asked for of which none was measured.
        NoSplitError: a priority below normal was asked for where it is not known to help.
        StoreError: what the check of the GPU model found cannot be read.
        UnsafeCountError: the split has an unsafe count, and that was not asked for.
    """
    names = [job.name for job in pair.jobs]
    try:
        profile_set = _profiles_for(names, launch, settings)
    except (InputError, StoreError) as error:
        host = host_safety(settings.home, launch.gpu_model, launch.units_total)
        notes = count_notes(
            pair, [host] * len(names), allow_unsafe=launch.request.allow_unsafe, joins=joins
        )
        return pair, (f"no forecast: {error}", *notes)
    low = pair.split.below_normal
    if low and (why := why_not_below_normal(profile_set.profiles, pair.split)):
        raise NoSplitError(
            f"to run {listed(names[n] for n in low)} below normal priority is not known to help",
            why=why,
            fix="leave :low out of the split",
        )
    criteria = _criteria(pair.jobs, profile_set, launch, settings)
    # A p99 of the request needs a measured latency; one of a job file is kept without.
    limited = launch.request.p99_by_job_ms.keys() & set(names)
    requested = replace(criteria, max_p99_ms={job: criteria.max_p99_ms[job] for job in limited})
    requested.check_limits(profile_set.profiles)
    criteria = with_kept(criteria, pair.parts, profile_set.profiles)
    pair = _promising(pair, profile_set, criteria)
    checked = profile_set.checked(settings)
    safeties = [profile.safety(checked) for profile in profile_set.profiles]
    notes = count_notes(pair, safeties, allow_unsafe=launch.request.allow_unsafe, joins=joins)
    expected, said = _expected(pair, profile_set, launch, settings)
    return _on_host(expected, profile_set, launch, settings), (
        *changed_jobs(pair.jobs, profile_set.profiles),
        *said,
        *notes,
    )


def _expected(
    pair: LaunchSet, profile_set: ProfileSet, launch: ResolvedLaunch, settings: Settings
) -> tuple[LaunchSet, tuple[str, ...]]:
    """The jobs with their forecast and what is to be said of it, or why there is none."""
    without = _with_profiles(pair, profile_set)
    try:
        expected, manifest, warnings = _predicted(pair, profile_set, launch.card, settings)
    except (InputError, ModelError, StoreError) as error:
        return without, (f"no forecast: {error}",)
    if math.isnan(expected.power_w.value):
        return without, ("no forecast: the idle power of the GPU is not known", *warnings)
    said = (f"expected: {text}" for text in _broken(without, expected))
    return replace(without, forecast=_forecast(expected, manifest, profile_set)), (*said, *warnings)


def _broken(pair: LaunchSet, expected: Prediction) -> tuple[str, ...]:
    """What jobs have promised and are not expected to keep."""
    return Trial(
        pair,
        [part.speed.value for part in expected.parts],
        [part.latency_p99_ms and part.latency_p99_ms.value for part in expected.parts],
        expected.power_w.value,
    ).broken


def _predicted(
    pair: LaunchSet, profile_set: ProfileSet, card: Gpu | None, settings: Settings
) -> tuple[Prediction, Manifest, tuple[str, ...]]:
    """What the model in use expects of jobs at a split on a card, and what it warns of.

    Raises:
        InputError: the profiles cannot be used.
        ModelError: there is no model, or it is damaged.
        StoreError: the store cannot be read.
    """
    predictor = Registry(settings.home / "models").open_champion()
    conditions = read_conditions(
        settings,
        predictor,
        profile_set.profiles,
        card and card.uuid,
        card and card.driver,
        only_on=profile_set.only_on,
    )
    filled, assumed = profile_set.with_idle_power_filled(predictor.manifest.fill)
    model, profiles = conditions.applied(OptionPredictor(predictor), filled.profiles)
    (expected,) = model.predict(profiles, [pair.split])
    warnings = (
        *gpu_warnings(predictor.manifest, profile_set.profiles),
        *assumed,
        *conditions.warnings(profile_set.profiles),
    )
    return expected, predictor.manifest, warnings


def renewed(
    pair: LaunchSet, demands: Sequence[float | None], gpu: Gpu, settings: Settings
) -> tuple[Forecast, tuple[str, ...]]:
    """What is to be expected of jobs at the rates alone that are known of them here.

    Of servers other demands may arrive, None: as declared. And which of their promises that would
    break, in words.

    Raises:
        InputError: a job has no profile, or none with a rate alone.
        ModelError: there is no model, or it is damaged.
        StoreError: the store cannot be read.
    """
    profile_set = find_profiles(
        [job.name for job in pair.jobs],
        settings,
        gpu.model,
        several_gpus=True,
        power_limit_w=gpu.power_limit_w,
    )
    profile_set = _as_alone_here(profile_set, pair, gpu)
    at_demands = (
        with_rate(profile, demand) if demand else profile
        for profile, demand in zip(profile_set.profiles, demands, strict=True)
    )
    profile_set = replace(profile_set, profiles=tuple(at_demands))
    expected, manifest, _ = _predicted(pair, profile_set, gpu, settings)
    if (forecast := _forecast(expected, manifest, profile_set)) is None:
        raise InputError("a job has no rate alone, so nothing is expected of it at any demand")
    return _as_here(pair, forecast, demands), _broken(pair, expected)


def _as_alone_here(profile_set: ProfileSet, pair: LaunchSet, gpu: Gpu) -> ProfileSet:
    """The jobs at the rates alone that the launch knows."""
    factors = [
        (part.solo_rate or profile.whole_gpu_rate) / profile.whole_gpu_rate
        for profile, part in zip(profile_set.profiles, pair.parts, strict=True)
    ]
    return _at_factors(profile_set, factors, gpu)


def _as_here(pair: LaunchSet, forecast: Forecast, demands: Sequence[float | None] = ()) -> Forecast:
    """What is expected of jobs on this host, as known at the launch, with its error."""
    for n, part in enumerate(pair.parts):
        if part.solo_rate and not any(demands[n : n + 1]):
            factor, spread = part.solo_rate / forecast.jobs[n].solo_rate, 2**0.5 * part.host_spread
            forecast = (
                at_rate(replace(pair, forecast=forecast), n, factor, spread).forecast or forecast
            )
    return forecast


def better(
    pair: LaunchSet, observations: Sequence[Observation], gpu: Gpu, settings: Settings
) -> tuple[Resplit, LaunchSet | None]:
    """Whether another split of jobs that run does more work per joule, beyond its range.

    The split is what would be recommended now, with the `observations` of their launch. A job
    that is left under its limit is held against the whole GPU.

    Returns:
        What may be said of it; and what would be started then, None: nothing.

    Raises:
        As `renewed`; NoSplitError: nothing keeps every limit.
    """
    names = [job.name for job in pair.jobs]
    profile_set = find_profiles(names, settings, gpu.model, power_limit_w=gpu.power_limit_w)
    if len(pair.parts) == 1:
        return _whole(pair, profile_set, gpu)
    profile_set = _as_alone_here(profile_set, pair, gpu)
    set_advisor = SetAdvisor.of(
        AdvisorInputs.read(profile_set, settings, gpu.uuid, newest=observations)
    )
    request = Request(policy=settings.policy, memory_mib=gpu.memory_mib)
    kept = with_kept(request, pair.parts, set_advisor.outlook.profiles)
    if (option := set_advisor.decide(kept).choice) is None:
        return Resplit(refused="no split of them saves anything and keeps all limits"), None
    splits = pair.split, option.split
    now, then = set_advisor.outlook.predict(splits)
    by = OBJECTIVES[DEFAULT_OBJECTIVE]
    gain = then.objective_value(by).times(1 / now.objective_value(by).value)
    offer = Resplit(split=option.name, worth=gain)
    if len({tuple(sorted(zip(names, split.seats, strict=True))) for split in splits}) == 1:
        return replace(
            offer, refused=f"they run at the best split that is known: {option.name}"
        ), None
    forecast = _forecast(then, set_advisor.inputs.model.manifest, profile_set)
    made = replace(pair, split=option.split, forecast=forecast and _as_here(pair, forecast))
    return _offered(offer, made, profile_set, gpu)


def _whole(pair: LaunchSet, profile_set: ProfileSet, gpu: Gpu) -> tuple[Resplit, LaunchSet | None]:
    """The whole GPU for the job that is left."""
    (part,), (profile,), (share,) = pair.parts, profile_set.profiles, pair.split.shares
    gain = Interval.sure(1 - (_rest(profile, share, pair.split.sharing) or 0.0))
    # Two windows differ by so much, and one of each is compared.
    error = part.window_spread or RATE_SPREADS["launch-bound"][1]
    made = replace(pair, split=Split((WHOLE,)), forecast=None)
    offer = Resplit(split=str(made.split), worth=gain.spread_by(2 * error**2))
    return _offered(offer, made, profile_set, gpu)


def _offered(
    offer: Resplit, made: LaunchSet, profile_set: ProfileSet, gpu: Gpu
) -> tuple[Resplit, LaunchSet | None]:
    """What may be started, with the units and rates alone of its shares; only what does more."""
    if offer.worth is None or offer.worth.low <= 1:
        return replace(offer, refused=f"{offer.split} is not known to do more: {offer.text}"), None
    parts = tuple(
        replace(
            part,
            units=units_for_share(share, gpu.units_total, gpu.vendor) if gpu.units_total else None,
            share_rate=(alone := _with_profile(part, profile, share)).share_rate
            and part.solo_rate
            and alone.share_rate * part.solo_rate / profile.whole_gpu_rate,
        )
        for part, profile, share in zip(
            made.parts, profile_set.profiles, made.split.shares, strict=True
        )
    )
    return offer, replace(made, parts=parts, alone_s=None)


def _apart(d: Decision, *, joins: bool) -> NoSplitError:
    """Why jobs are not to share, and how they could all the same."""
    jobs, model = counted(profile.job for profile in d.profiles), d.profiles[0].gpu_model
    shared = d.options[:-1]
    kept = [option for option in shared if not option.violations]
    near = d.call or (most_valuable(kept) if kept else nearest(shared))
    take = f"--share {near.prediction.split.shares[-1]:g}" if joins else f"--split {near.name}"
    if not kept:
        # Limits of those that run cannot be named beside a newcomer.
        hint = (not joins and d.near_miss()) or f"take it: {take}"
        broken = dict.fromkeys(violation.text for violation in near.violations)
        return NoSplitError(
            f"no split of {jobs} on the {model} keeps the limits",
            why=f"nearest is {near.name}: {'; '.join(broken)}",
            fix=f"give each a GPU of its own, or {hint}",
        )
    savings = savings_of(near.prediction, d.request.policy.prices)
    return NoSplitError(
        f"{jobs} {'need' if d.call else 'should'} not share the {model}",
        why=f"with {near.name} the same work takes {less_or_more(savings.energy.value)} energy and "
        f"{less_or_more(savings.gpu_time.value)} GPU time, against a GPU for each (objective "
        f"{d.request.objective.name})",
        fix=f"give each a GPU of its own, or share it anyway: {take}",
    )


def _forecast(expected: Prediction, manifest: Manifest, profile_set: ProfileSet) -> Forecast | None:
    """None where a rate alone is not known: there is nothing to compare with."""
    if any(profile.rate_unit == UNCOUNTED_UNIT for profile in profile_set.profiles):
        return None
    saved = expected.energy_saved
    return Forecast(
        # Of jobs that are time-sliced, or more than two, no model is asked.
        model_version="physics" if is_by_physics(expected.split) else manifest.version,
        jobs=tuple(
            JobForecast(
                rate=part.rate,
                solo_rate=part.solo_rate,
                rest_energy_saved=_rest(profile, share, expected.split.sharing),
            )
            for part, profile, share in zip(
                expected.parts, profile_set.profiles, expected.split.shares, strict=True
            )
        ),
        power_w=expected.power_w,
        work_per_joule=expected.objective_value(OBJECTIVES[PER_WATT_OBJECTIVE]),
        coverage=manifest.coverage,
        # Where a job may stand still nothing is saved, and infinity is not JSON.
        energy_saved=saved
        if all(map(math.isfinite, (saved.low, saved.value, saved.high)))
        else None,
    )


def _rest(profile: Profile, share_percent: float, sharing: Sharing) -> float | None:
    """What a job saves when it goes on under its limit, against the same work on the whole GPU."""
    if sharing != "limited":
        return 0.0
    at = profile.at([share_percent])
    alone_w = float(at["rate"][0]) / profile.whole_gpu_rate * profile.whole_gpu_power_w
    saved = 1 - profile.gpus * float(at["power_w"][0]) / alone_w
    return saved if math.isfinite(saved) else None


def _with_profiles(pair: LaunchSet, profile_set: ProfileSet) -> LaunchSet:
    """The jobs with what profiles know: rates alone, and memory that their files do not tell."""
    of_jobs = zip(pair.parts, profile_set.profiles, pair.split.shares, strict=True)
    return replace(pair, parts=tuple(_with_profile(*of_job) for of_job in of_jobs))


def _on_host(
    pair: LaunchSet, profile_set: ProfileSet, launch: ResolvedLaunch, settings: Settings
) -> LaunchSet:
    """The set with ranges that hold what hosts differ by, where profiles are of other hosts.

    Raises:
        StoreError: the store cannot be read.
    """
    if launch.card is None:
        return pair
    for n, profile in enumerate(profile_set.profiles):
        if (kind := kind_of(profile)) in RATE_SPREADS and pair.parts[n].solo_rate is not None:
            pair = with_part(pair, n, window_spread=RATE_SPREADS[kind][1])
    for n, (_, spread) in _host_factors(profile_set, launch.card, settings).items():
        if pair.parts[n].solo_rate is not None:
            pair = at_rate(pair, n, 1.0, spread)
    return pair


def _with_profile(part: LaunchPart, profile: Profile, share_percent: float) -> LaunchPart:
    job = part.job
    # A profile without counted progress has no rate to compare with.
    is_counted = profile.rate_unit != UNCOUNTED_UNIT
    if job.memory_mib is None and profile.memory_used_mib is not None:
        job = replace(job, memory_mib=math.ceil(profile.memory_used_mib))
    return replace(
        part,
        job=job,
        solo_rate=profile.whole_gpu_rate if is_counted else None,
        # Below the smallest measured share a profile says nothing.
        share_rate=float(profile.at([share_percent])["rate"][0])
        if is_counted and share_percent >= profile.shares[0]
        else None,
        solo_power_w=profile.whole_gpu_power_w,
        idle_power_w=None
        if math.isnan(profile.idle_power_w)
        else profile.gpus * profile.idle_power_w,
        reported=profile.reported if profile.job_hash == job.job_hash else None,
        memory_bound=profile.memory_bound,
    )
