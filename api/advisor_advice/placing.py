"""Placements: jobs that run from now on in sets, or a queue of work in pairs."""

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from operator import itemgetter
from pathlib import Path
from typing import Any

from advisor.core.gpu import ADVISED_JOBS, WHOLE, vendor_of
from advisor.core.objectives import AIMS, DEFAULT_OBJECTIVE, FEWEST_CARDS, Work
from advisor.core.records import PRIOR, SINGLE_WINDOW
from advisor.core.wording import as_requested, listed
from advisor.decide.decision import LEAST_TIME_SAVED, Decision, Running, savings_of
from advisor.decide.limits import (
    Request,
    check_jobs_fit,
    is_served,
    memory_unknown,
)
from advisor.errors import InputError, NoSplitError
from advisor.formats.moments import duration_text
from advisor.formats.wire import write_bytes
from advisor.placement import solver
from advisor.placement.placing import Ask, Kind, PlacedSet, Placing, Pool
from advisor.placement.solver import APART, Plan, Schedule
from advisor.predict.predictions import LEAST_LIMIT, STEP_W, under_limit
from advisor.predict.profiles import MEASURED_ON, Profile, hold_several
from advisor.predict.sets import fills
from advisor.settings import Settings, read_settings
from advisor.validity.safe_counts import CheckedCounts
from advisor.wire import answers as wire
from advisor.wire.requests import WORK_S, PlacementRequest, QueuedJobs, RecommendationRequest
from advisor_advice.answers import (
    ModelAdvice,
    SetAdvisor,
    gpu_warnings,
    of_check,
    promised_p99_ms,
)
from advisor_advice.conditions import (
    AdvisorInputs,
    Conditions,
    ProfileSet,
    all_profiles,
    find_profiles,
)
from advisor_advice.words import launch_words
from advisor_models.registry import Registry


def place(*jobs: str | QueuedJobs, gpus: int | None = None, **fields: Any) -> wire.Placement:
    """Which jobs share a GPU, as `advisor place --json` says: `advisor.place("gemm", "triad")`.

    `fields` are those of `advisor.client.PlacementRequest`; without `gpus` there is one for each
    job.

    Raises:
        As `place_jobs`.
    """
    return place_jobs(
        PlacementRequest(
            jobs=tuple(QueuedJobs(job=job) if isinstance(job, str) else job for job in jobs),
            gpus=gpus,
            **fields,
        ),
        read_settings(),
    )


def place_request(request: PlacementRequest, settings: Settings) -> Request:
    """The limits of every set; settings and job files fill in what the request leaves out.

    Raises:
        InputError: limits that cannot be meant.
    """
    policy = request.policy(settings.policy)
    if policy.deciding == FEWEST_CARDS:
        # Of options of one set that which does most in a GPU hour.
        policy = replace(policy, objective="throughput")
    return Request(
        min_speed=request.min_speeds(),
        policy=policy,
        max_p99_ms=promised_p99_ms(request.names, settings.jobs_dir) | request.p99_by_job_ms,
        default_max_p99_ms=request.max_p99_ms,
        max_power_w=request.max_power_w,
        memory_mib=request.memory_mib,
        host_cores=request.host_cores,
    )


def place_jobs(
    wire_request: PlacementRequest,
    settings: Settings,
    also: Mapping[str, int] | None = None,
    file: Path | None = None,
) -> wire.Placement:
    """Which of the jobs share a GPU, on GPUs of one model and, of no queue, `also` of others.

    Profiles of a file go before the stored ones.

    Raises:
        InputError: a job without a profile, an objective that is none, or a deadline that no speed
            keeps.
        ModelError: there is no model, or it is damaged.
        NoSplitError: a job keeps its limits nowhere.
        StoreError: profiles, or what the check of a GPU model found, cannot be read.
    """
    request, inputs = place_request(wire_request, settings), list[AdvisorInputs]()
    for gpu_model in (wire_request.gpu_model, *(also or ())):
        names = wire_request.types
        if also and gpu_model is not None:
            names = sorted({*names} & {*all_profiles(settings, gpu_model)})
            if not names:
                raise InputError(
                    f"no job has a profile on {gpu_model}", fix="leave out that GPU model"
                )
        profile_set = find_profiles(
            names, settings, gpu_model, file, power_limit_w=wire_request.power_limit_w
        )
        inputs.append(AdvisorInputs.read(profile_set, settings, wire_request.gpu_uuid, any_of=True))
    return placed(wire_request, request, inputs, [wire_request.gpus, *(also or {}).values()])


def placement_text(
    registry: Registry,
    wire_request: PlacementRequest,
    request: Request,
    profile_set: ProfileSet,
    checked: CheckedCounts | None,
    conditions: Conditions,
) -> bytes:
    """The answer for one GPU model as JSON, by the model in use.

    Raises:
        InputError: as for `place_jobs`.
        ModelError: there is no model, or it is damaged.
        NoSplitError: as for `place_jobs`.
    """
    inputs = AdvisorInputs(
        profile_set=profile_set,
        model=registry.open_champion(),
        checked=checked,
        conditions=conditions,
    )
    return write_bytes(placed(wire_request, request, [inputs], [wire_request.gpus]))


# Under a budget of watts a small saving does not pay for a GPU that it leaves idle: plans in which
# jobs share for less than this are compared with those by the least gain of the policy.
_LARGE_GAIN = 0.5


def placed(
    wire_request: PlacementRequest,
    request: Request,
    inputs: Sequence[AdvisorInputs],
    gpus: Sequence[int | None],
) -> wire.Placement:
    """The placement from the profiles on each GPU model and its number of GPUs.

    Raises:
        InputError: an objective that is none, a deadline that no speed keeps, or a budget of watts
            for a queue, for GPUs of several models, or below what one card takes.
        NoSplitError: a job keeps its limits nowhere.
    """
    if wire_request.rack_power_w is None:
        placement, _ = _planned(wire_request, request, inputs, gpus)
        return replace(placement, power_limit_w=wire_request.power_limit_w)
    limits = [p.power_limit_w for of in inputs for p in of.profile_set.profiles]
    profiled_w = min((limit for limit in limits if limit), default=None)
    if profiled_w is None or None in limits or wire_request.is_queue or len(inputs) > 1:
        raise InputError(
            f"{wire_request.rack_power_w:g} W for all GPUs say nothing here",
            why="they are kept by one power limit for all, of GPUs of one model whose limit the "
            "profiles know, for jobs that run from now on",
            fix="leave out the budget, or the work and the other GPUs",
        )
    most = gpus[0] or sum(job.count for job in wire_request.jobs)
    least_w, budget_w = LEAST_LIMIT * profiled_w, wire_request.rack_power_w
    if budget_w < least_w:
        raise InputError(
            f"{budget_w:g} W are less than one GPU takes",
            fix=f"allow {least_w:g} W, the lowest limit that can be predicted",
        )
    # Fewer cards at a higher limit, or more at a lower one; six numbers of cards are tried.
    cards = range(
        min(most, int(budget_w // profiled_w) or 1), min(most, int(budget_w // least_w)) + 1
    )
    tried = cards[:: math.ceil(len(cards) / 6)]
    plans = list[tuple[int, float, wire.Placement]]()
    least_gain = request.policy.min_gain
    for count, min_gain in itertools.product(tried, {least_gain, max(least_gain, _LARGE_GAIN)}):
        limit_w = min(profiled_w, budget_w / count // STEP_W * STEP_W)
        (of,) = inputs
        profiles = tuple(under_limit(profile, limit_w) for profile in of.profile_set.profiles)
        part = replace(
            wire_request,
            gpus=count,
            min_gain=min_gain,
            time_limit_s=wire_request.time_limit_s / len(tried) / 2,
        )
        placement, plan = _planned(
            part,
            replace(request, policy=part.policy(request.policy)),
            [replace(of, profile_set=replace(of.profile_set, profiles=profiles))],
            [count],
        )
        left = {p.job: p.whole_gpu_rate / (p.measured or p).whole_gpu_rate for p in profiles}
        work = sum(
            cards * speed * left[plan.placing.kinds[kind].name]
            for placed_set, cards in plan.sets.items()
            for kind, speed in zip(placed_set.kinds, placed_set.speeds, strict=True)
        )
        plans.append((placement.seated, work, replace(placement, power_limit_w=limit_w)))
    return max(plans, key=itemgetter(0, 1))[2]


def _planned(
    wire_request: PlacementRequest,
    request: Request,
    inputs: Sequence[AdvisorInputs],
    gpus: Sequence[int | None],
) -> tuple[wire.Placement, Plan]:
    """As `placed`, whatever all GPUs draw together."""
    jobs = sum(job.count for job in wire_request.jobs)
    if wire_request.gpu_uuid is not None and wire_request.gpus != 1:
        raise InputError(
            f"{wire_request.gpus or jobs} GPUs are not the one GPU {wire_request.gpu_uuid}",
            why="the power correction is that of one GPU",
            fix="leave out its UUID, or place on one GPU",
        )
    filled = [of.profile_set.with_idle_power_filled(of.model.manifest.fill) for of in inputs]
    profiles = [p for profile_set, _ in filled for p in profile_set.profiles]
    served = {profile.job for profile in profiles if is_served(profile)}
    if wire_request.is_queue:
        request.check_work_ends(profiles)
    request = _with_deadline(wire_request, request, served)
    works = Counter[tuple[str, float | None]]()
    for job in wire_request.jobs:
        works[job.job, (job.work_s or WORK_S) if wire_request.is_queue else None] += job.count
    order = sorted(works, key=lambda kind: (kind[0], kind[1] or 0.0))
    kinds = [
        Kind(name=name, count=works[name, work_s], is_server=name in served, work_s=work_s)
        for name, work_s in order
    ]
    pools = [
        pool_of(of, profile_set, count or jobs, kinds, request)
        for of, (profile_set, _), count in zip(inputs, filled, gpus, strict=True)
    ]
    policy = wire_request.policy(request.policy)
    queue = [
        order.index((job.job, job.work_s or WORK_S))
        for job in wire_request.jobs
        if wire_request.is_queue
        for _ in range(job.count)
    ]
    placing = Placing.of(kinds, pools, policy.deciding, policy.prices, queue)
    plan = solver.place(placing, time_limit_s=wire_request.time_limit_s)
    notes = (*(text for _, texts in filled for text in texts), *_warnings(inputs, plan))
    return _to_wire(plan, inputs, tuple(dict.fromkeys(notes)), policy.prices.host_w), plan


def advised(
    set_advisor: SetAdvisor, wire_request: RecommendationRequest, request: Request
) -> ModelAdvice:
    """The answer to a request; jobs that do not share one GPU are placed on as few as they can.

    Raises:
        As `SetAdvisor.advise`.
    """
    given = set_advisor.advise(wire_request, request)
    decision, jobs = given.decision, Counter(wire_request.looked_at)
    is_set = len(wire_request.names) > ADVISED_JOBS and not hold_several(decision.profiles)
    if decision.sharing_option or wire_request.running or not is_set:
        return given
    profile_set, _ = set_advisor.inputs.profile_set.with_idle_power_filled(
        set_advisor.inputs.model.manifest.fill
    )
    served = {profile.job for profile in profile_set.profiles if is_served(profile)}
    kinds = [Kind(name=job, count=jobs[job], is_server=job in served) for job in sorted(jobs)]
    pool = pool_of(
        set_advisor.inputs, profile_set, len(wire_request.names), kinds, decision.request
    )
    policy = decision.request.policy
    aim = policy.deciding if policy.deciding in AIMS else DEFAULT_OBJECTIVE
    plan = solver.place(Placing.of(kinds, [pool], aim, policy.prices), time_limit_s=2.0)
    sets = [seated.launch for seated in _sets(plan) for _ in range(seated.count)]
    return replace(given, gpus=tuple(sets) if len(sets) < len(wire_request.names) else ())


def pool_of(
    inputs: AdvisorInputs,
    profile_set: ProfileSet,
    gpus: int,
    kinds: Sequence[Kind],
    request: Request,
) -> Pool:
    """GPUs of the model of some profiles, with the limits that every set keeps there."""
    there = {profile.job: profile for profile in profile_set.profiles}
    idle_w = [profile.idle_power_w for profile in profile_set.profiles]
    gpu_model = profile_set.a.gpu_model
    limits = request.with_card_memory(gpu_model)
    check_jobs_fit(profile_set.profiles, limits.memory_mib)
    return Pool(
        gpu_model=gpu_model,
        gpus=gpus,
        profiles=tuple(there.get(kind.name) for kind in kinds),
        limits=limits,
        idle_power_w=sum(idle_w) / len(idle_w),
        of_pairs=inputs.model,
        checked=inputs.checked,
        ask=decider_of(inputs, request),
    )


def decider_of(inputs: AdvisorInputs, request: Request, running: Running | None = None) -> Ask:
    """Decides as `advisor recommend` does of the same jobs; all but the last may be running."""
    profiles = {profile.job: profile for profile in inputs.profile_set.profiles}
    sets: dict[tuple[str, ...], SetAdvisor] = {}

    def ask(jobs: Sequence[Profile], work: Work | None) -> Decision | None:
        names = tuple(profile.job for profile in jobs)
        profiles_of_set = tuple(profiles[name] for name in names)
        if names not in sets:
            sets[names] = SetAdvisor.of(
                replace(inputs, profile_set=replace(inputs.profile_set, profiles=profiles_of_set))
            )
        try:
            return sets[names].decide(replace(request.of(profiles_of_set), work=work), running)
        except NoSplitError:
            return None

    return ask


def _with_deadline(wire_request: PlacementRequest, request: Request, served: set[str]) -> Request:
    """What runs from now to the deadline keeps its work over that time as its speed."""
    if wire_request.deadline_s is None:
        return request
    least = dict(request.min_speed)
    for job in wire_request.jobs:
        if job.job not in served:
            speed = check_deadline(job.job, job.work_s or WORK_S, wire_request.deadline_s)
            least[job.job] = max(speed, least.get(job.job, request.policy.min_speed))
    return replace(request, min_speed=least)


def check_deadline(job: str, work_s: float | None, deadline_s: float) -> float:
    """The speed at which a job that starts now is done in time.

    Raises:
        InputError: no speed is enough, or its duration alone is unknown.
    """
    if work_s is None:
        raise InputError(
            f"{job} has a deadline, and its duration alone is unknown",
            fix=f"say so: --work {job}=1h, or `work_s` in a request",
        )
    if work_s > deadline_s:
        raise InputError(
            f"{job} takes {duration_text(work_s)} alone, longer than the deadline, "
            f"{duration_text(deadline_s)}",
            fix="give it a later deadline, or say how long it takes, where that is wrong",
        )
    return work_s / deadline_s


def _warnings(inputs: Sequence[AdvisorInputs], plan: Plan) -> Iterator[str]:
    if plan.schedule is None:
        yield "sets of three jobs and more are by physics fitted to measured sets"
    for of, pool in zip(inputs, plan.placing.pools, strict=True):
        profiles = of.profile_set.profiles
        yield from of_check(of.profile_set, of.checked)
        yield from memory_unknown(profiles, pool.limits.memory_mib)
        yield from of.conditions.warnings(profiles)
        if plan.schedule:
            yield from gpu_warnings(of.model.manifest, profiles)
        elif pool.gpu_model not in MEASURED_ON:
            yield f"no set was measured on {pool.gpu_model}"
        if guessed := [p.job for p in profiles if p and PRIOR in p.flags]:
            yield f"what {listed(guessed)} keep of a part of a GPU is a prior, with wide ranges"
    yield from _at_the_power_limit(plan)


def _at_the_power_limit(plan: Plan) -> Iterator[str]:
    """Predicted watts are cut off there, and of jobs without limits the clock takes nothing.

    How many of their jobs fell below: docs/measurements/placement.md, on three cards.
    """
    for number, pool in enumerate(plan.placing.pools):
        limits_w = [p.power_limit_w for p in pool.profiles if p and p.power_limit_w]
        # Sets that are said to draw a watt less than the power limit are not cut off there.
        below_w = min(limits_w, default=math.inf) - 1.0
        sets = {
            placed_set: cards
            for placed_set, cards in plan.sets.items()
            if placed_set.pool == number and len(placed_set.kinds) > ADVISED_JOBS
        }
        if hot := sum(cards for placed_set, cards in sets.items() if placed_set.power_w > below_w):
            yield (
                f"{hot} of {sum(sets.values())} GPUs with three or more jobs would run at the "
                f"power limit: half of the jobs of such sets were slower than their minimum when "
                f"measured; --max-power {below_w:g} avoids such sets"
            )


def _to_wire(
    plan: Plan, inputs: Sequence[AdvisorInputs], warnings: tuple[str, ...], host_w: float
) -> wire.Placement:
    placing = plan.placing
    kinds, pools = placing.kinds, placing.pools
    used = Counter(placed_set.pool for placed_set, count in plan.sets.items() for _ in range(count))
    queue, saved = None, _saved(plan, host_w)
    if plan.schedule:
        queue = _queue(plan, plan.schedule)
        used[0] = len({run.gpu for run in plan.schedule.runs})
        saved = _saved_to_the_end(plan, plan.schedule)
    manifest, conditions = inputs[0].model.manifest, inputs[0].conditions
    card = conditions.card_of(inputs[0].profile_set.profiles)
    return wire.Placement(
        objective=placing.aim,
        gpus=tuple(
            wire.UsedGpus(gpu_model=pool.gpu_model, gpus=pool.gpus, used=used[n])
            for n, pool in enumerate(pools)
        ),
        queued=sum(kind.count for kind in kinds),
        seated=plan.seated,
        waiting=tuple(
            wire.WaitingJobs(job=kinds[n].name, count=count) for n, count in plan.waiting.items()
        ),
        cards=sum(used.values()),
        cost=plan.cost,
        waiting_cost=plan.waiting_cost,
        bound=None if queue else plan.bound,
        gap=None if queue else plan.gap,
        energy_saved=saved[0],
        energy_saved_idle=saved[1],
        gpu_time_saved=saved[2],
        sets=tuple(_sets(plan)),
        queue=queue,
        timed_out=plan.timed_out,
        bundled_profiles=tuple(sorted({name for of in inputs for name in of.profile_set.bundled})),
        warnings=warnings,
        risks=tuple(_at_the_power_limit(plan)),
        model=wire.ModelName(version=manifest.version, gpu_models=manifest.gpu_models),
        card=card,
    )


def _saved(plan: Plan, host_w: float) -> tuple[float, float, float]:
    """Energy saved against separate GPUs with free GPUs off, with them idle, and GPU time saved."""
    cards, same_cards = plan.cards, plan.same_work_cards
    drawn_w = (
        sum(count * placed_set.power_w for placed_set, count in plan.sets.items()) + host_w * cards
    )
    same_w = plan.same_work_w + host_w * same_cards
    free_w = sum(
        count * (len(placed_set.kinds) - 1) * plan.placing.pools[placed_set.pool].idle_power_w
        for placed_set, count in plan.sets.items()
    )
    if not same_w:
        return 0.0, 0.0, 0.0
    return 1 - drawn_w / same_w, 1 - (drawn_w + free_w) / same_w, 1 - cards / same_cards


def _saved_to_the_end(plan: Plan, schedule: Schedule) -> tuple[float, float, float]:
    """The same against one job after the other; idle until the last of all has ended."""
    works = [plan.placing.alone_to_the_end(0, kind) for kind in plan.placing.queue]
    same_s, same_j = (sum(values) for values in zip(*works, strict=True))
    apart = plan.others.get(APART)
    off, totals = 1 - schedule.busy_j / same_j, schedule.totals
    idle = 1 - totals.energy_j / apart.totals.energy_j if apart else off
    return off, idle, 1 - totals.gpu_time_s / same_s


def _queue(plan: Plan, schedule: Schedule) -> wire.Queue:
    pool, totals = plan.placing.pools[0], schedule.totals
    return wire.Queue(
        **asdict(totals),
        worth=_gain_of_queue(plan, schedule),
        filling_jobs=tuple(dict.fromkeys(p.job for p in pool.profiles if p and fills(p))),
        idle_power_w=pool.idle_power_w,
        schedule=tuple(sorted(schedule.runs, key=lambda run: (run.start_s, run.gpu, run.number))),
        baselines=tuple(
            wire.SimplerSchedule(
                name=name,
                **asdict(other),
                energy_saved=1 - totals.energy_j / other.energy_j,
                time_saved=1 - totals.makespan_s / other.makespan_s,
                gpu_time_saved=1 - totals.gpu_time_s / other.gpu_time_s,
            )
            for name, other in ((name, other.totals) for name, other in plan.others.items())
        ),
    )


def _gain_of_queue(plan: Plan, schedule: Schedule) -> wire.QueueGain:
    """Whether sharing pays for the queue as a whole."""
    if plan.seated == plan.cards:
        return "no"
    if (apart := plan.others.get(APART)) is None:
        return "yes"  # nothing else keeps the limits
    totals, of_apart = schedule.totals, apart.totals
    of_time = 1 - totals.gpu_time_s / of_apart.gpu_time_s
    of_energy = 1 - totals.energy_j / of_apart.energy_j
    return "yes" if max(of_time, of_energy) >= LEAST_TIME_SAVED else "barely"


def _sets(plan: Plan) -> Iterator[wire.SeatedSet]:
    """Cards of the first GPU model have the lowest numbers; those of a queue change."""
    placing = plan.placing
    pools = placing.pools
    free = [sum(pool.gpus for pool in pools[:n]) for n in range(len(pools))]
    for placed_set, count in plan.sets.items():
        first = free[placed_set.pool]
        free[placed_set.pool] += count
        launch = as_requested(placing.kinds[kind].name for kind in placed_set.kinds)
        if placed_set.split and (decision := placed_set.decision):
            launch = launch_words(decision.request, decision.profiles, placed_set.split)
        energy_saved, gpu_time_saved = _saved_by(plan, placed_set)
        yield wire.SeatedSet(
            launch=launch,
            gpu_model=pools[placed_set.pool].gpu_model,
            count=count,
            gpus=() if plan.schedule else tuple(range(first, first + count)),
            jobs=tuple(_seats(plan, placed_set)),
            power_w=placed_set.power_w,
            energy_saved=energy_saved,
            gpu_time_saved=gpu_time_saved,
            energy_j=placed_set.energy_j if plan.schedule else None,
        )


def _saved_by(plan: Plan, placed_set: PlacedSet) -> tuple[float, float]:
    """Energy and GPU time against one after the other: of the work, or of any span of time."""
    if placed_set.decision is None or placed_set.decision.choice is None:
        return 0.0, 0.0
    if plan.schedule:
        works = [plan.placing.alone_to_the_end(0, kind) for kind in placed_set.kinds]
        same_s, same_j = (sum(values) for values in zip(*works, strict=True))
        return 1 - placed_set.energy_j / same_j, 1 - placed_set.time_s / same_s
    savings = savings_of(
        placed_set.decision.choice.prediction, placed_set.decision.request.policy.prices
    )
    return savings.energy.value, savings.gpu_time.value


def _seats(plan: Plan, placed_set: PlacedSet) -> Iterator[wire.SeatedJob]:
    pool = plan.placing.pools[placed_set.pool]
    shares: tuple[float, ...] = (WHOLE,)
    limits: tuple[dict[str, str], ...] = ({},)
    if placed_set.split:
        total = next((p.units_total for p in pool.profiles if p and p.units_total), None)
        shares = placed_set.split.shares
        limits = placed_set.split.environments(total, vendor_of(pool.gpu_model))
    for n, kind in enumerate(placed_set.kinds):
        profile = pool.profiles[kind]
        yield wire.SeatedJob(
            job=plan.placing.kinds[kind].name,
            share_percent=shares[n],
            speed=placed_set.speeds[n],
            p99_ms=placed_set.p99_ms[n],
            environment=limits[n],
            one_window=profile is not None and SINGLE_WINDOW in profile.flags,
            work_s=plan.placing.kinds[kind].work_s,
            time_s=placed_set.times_s[n] if placed_set.times_s else None,
        )
