"""The plan of a queue by the model in use, and what simpler ways give."""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from advisor.core.gpu import WHOLE, vendor_of
from advisor.core.objectives import DEFAULT_OBJECTIVE, Prices
from advisor.core.policy import Policy
from advisor.core.records import ONE_WINDOW
from advisor.core.split import ADVISED_JOBS, NINE, split_environments
from advisor.core.wording import as_asked
from advisor.decide.decision import LEAST_TIME_SAVED
from advisor.decide.limits import (
    Request,
    check_jobs_fit,
    floor,
    is_served,
    memory_unknown,
    with_card_memory,
)
from advisor.errors import InputError
from advisor.formats.wire import write_bytes
from advisor.place.problem import (
    JobGroup,
    JobType,
    PairOptions,
    Problem,
    QueuedJob,
    make_problem,
    mean_idle_power_w,
    predict_options,
)
from advisor.place.schedule import JobRun, Schedule, first_come
from advisor.place.sets.placing import Kind, PlacedSet, Pool, RunningPlan, make_placing
from advisor.place.sets.solver import place_running
from advisor.place.solver import QueuePlan, alone
from advisor.place.solver import place as solve
from advisor.predict.card_factor import CardFactor
from advisor.predict.predictions import PairPredictor
from advisor.predict.profiles import IDLE, Profile
from advisor.predict.sets import MEASURED_ON
from advisor.settings import Settings
from advisor.validity.safe_counts import CheckedCounts, avoided_texts
from advisor.wire import placement as wire
from advisor.wire.answers import ModelName
from advisor.wire.placement import QueueWorth
from advisor.wire.requests import WORK_S, PlacementRequest, QueuedJobs, SetPlacementRequest
from advisor_advice.answers import gpu_warnings, of_check, promised_p99_ms
from advisor_advice.conditions import Conditions, KnownJobs
from advisor_advice.partners import best_size
from advisor_advice.profiles import (
    ProfileSet,
    all_profiles,
    checked_on,
    find_profiles,
    with_idle_power,
)
from advisor_models.manifest import Manifest
from advisor_models.model_predictor import ModelPredictor
from advisor_models.registry import Registry

APART, FIRST_COME = "one after the other", "first come, 50/50"
"""Simpler ways, by their names."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Planned:
    """The answer."""

    request: PlacementRequest
    gpu_model: str
    units_total: int | None
    """SMs or CUs of a GPU; None: no profile has them."""
    problem: Problem
    plan: QueuePlan
    others: dict[str, Schedule]
    """What simpler ways give, by what they do."""
    eager: QueuePlan | None
    """The plan without a least gain; None: there is none to drop, or the time was up."""
    filling: tuple[str, ...]
    """Jobs that need the whole GPU for nearly all of their speed."""
    one_window: tuple[str, ...]
    """Jobs that were seen on the whole GPU alone."""
    manifest: Manifest
    bundled: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    card: CardFactor | None = None
    """By which power was corrected for the card; None: it was not."""

    @property
    def groups(self) -> dict[JobGroup, int]:
        """How often each group runs, the one that saves the most energy first, jobs alone last."""
        counts = Counter(slot.group for slot in self.plan.slots)
        saved_j = {g: count * (g.alone_j - g.energy_j) for g, count in counts.items()}
        order = sorted(counts, key=lambda g: (-len(g.jobs), -saved_j[g], g.jobs))
        return {group: counts[group] for group in order}

    @property
    def worth(self) -> QueueWorth:
        """Whether sharing pays for the queue as a whole."""
        apart, found = self.others.get(APART), self.plan.schedule
        if not self.plan.pairs:
            return "no"
        if apart is None:
            return "yes"  # nothing else keeps the limits
        time = 1 - found.busy_s / apart.busy_s
        energy = 1 - found.energy_j / apart.energy_j
        return "yes" if max(time, energy) >= LEAST_TIME_SAVED else "barely"


def limits_of(request: PlacementRequest, policy: Policy) -> Request:
    """What every group must keep.

    Raises:
        InputError: limits that cannot be meant.
    """
    return Request(
        min_speed=request.min_speeds(),
        policy=request.policy(policy),
        max_power_w=request.max_power_w,
        memory_mib=request.memory_mib,
    )


def plan(
    known: KnownJobs,
    request: PlacementRequest,
    limits: Request,
    on_progress: Callable[[int, int], None] = lambda done, pairs: None,
) -> Planned:
    """The best plan; one profile of each of `request.names`.

    Progress is told after each predicted pair: the pairs done, and all pairs.

    Raises:
        InputError: an objective that is not for queues.
        NoSplitError: not every job can be placed within the limits.
    """
    if request.gpu_uuid is not None and request.gpus > 1:
        raise InputError(
            f"{request.gpus} GPUs are not the one card {request.gpu_uuid}",
            why="what a card draws beside others of its model is known of that card alone",
            fix="leave out the card, or place on one GPU",
        )
    checked, conditions, manifest = known.checked, known.conditions, known.model.manifest
    profile_set, assumed = with_idle_power(known.found, manifest.fill)
    limits = _limits(limits, profile_set.profiles)
    there, profiles = conditions.applied(known.model, profile_set.profiles)
    options = predict_options(profiles, there, checked=checked, on_progress=on_progress)
    problem = _problem(profiles, options, request, limits)
    ends = time.monotonic() + request.time_limit_s
    found = solve(problem, time_limit_s=request.time_limit_s)
    warnings = (
        *gpu_warnings(manifest, profile_set.profiles),
        *of_check(profile_set, checked),
        # Which counts of the nine splits no pair gets, or one job does not, and why.
        *(
            text
            for p in profile_set.profiles
            for text in avoided_texts(NINE, [p.job] * 2, [p.safety(checked)] * 2)
        ),
        *memory_unknown(profile_set.profiles, limits.memory_mib),
        *assumed,
        *conditions.warnings(profile_set.profiles),
    )
    return Planned(
        request=request,
        gpu_model=profile_set.profiles[0].gpu_model,
        units_total=next((p.units_total for p in profile_set.profiles if p.units_total), None),
        problem=problem,
        plan=found,
        others=_others(problem),
        eager=_eager(problem, found, ends - time.monotonic()),
        filling=tuple(p.job for p in profile_set.profiles if best_size(p) is None),
        one_window=tuple(p.job for p in profile_set.profiles if ONE_WINDOW in p.flags),
        manifest=manifest,
        bundled=profile_set.bundled,
        warnings=tuple(dict.fromkeys(warnings)),
        card=conditions.card_of(profile_set.profiles),
    )


def _limits(limits: Request, profiles: Sequence[Profile]) -> Request:
    """With the memory of the card, and the floors that low ends are to keep, by name."""
    limits = with_card_memory(limits, profiles[0].gpu_model)
    check_jobs_fit(profiles, limits.memory_mib)
    return replace(limits, min_speed={p.job: floor(p, limits) for p in profiles})


def _problem(
    profiles: Sequence[Profile], options: PairOptions, request: PlacementRequest, limits: Request
) -> Problem:
    types = [
        JobType(name=p.job, power_w=p.whole_gpu_power_w, memory_mib=p.memory_used_mib)
        for p in profiles
    ]
    jobs = ((QueuedJob(job.job, job.work_s), job.count) for job in request.jobs)
    return make_problem(
        [job for job, count in jobs for _ in range(count)],
        types,
        options,
        request.gpus,
        idle_power_w=mean_idle_power_w(profiles),
        objective=request.objective or DEFAULT_OBJECTIVE,
        limits=limits,
        min_gain=limits.policy.min_gain,
    )


def _eager(problem: Problem, found: QueuePlan, left_s: float) -> QueuePlan | None:
    """The plan in which whatever saves anything shares, if the time suffices."""
    if not problem.min_gain or found.timed_out or left_s <= 0:
        return None
    eager = solve(replace(problem, min_gain=0.0), time_limit_s=left_s)
    return None if eager.timed_out else eager


def _others(problem: Problem) -> dict[str, Schedule]:
    """What simpler ways come to; without those that cannot run every job."""
    sequential = alone(problem)
    others = {FIRST_COME: first_come(problem), APART: sequential and sequential.schedule}
    return {name: found for name, found in others.items() if found}


def environments(planned: Planned, group: JobGroup) -> list[dict[str, str]]:
    """Variables that limit each job of a group; none without limits.

    Raises:
        InputError: an AMD GPU of which no profile has the number of CUs.
    """
    if group.split is None:
        return [{} for _ in group.jobs]
    return list(split_environments(group.split, planned.units_total, vendor_of(planned.gpu_model)))


def way(group: JobGroup) -> str:
    """Shares as people write them, or `alone`."""
    return str(group.split) if group.split else "alone"


CUT_OFF_W = 1.0
"""Sets that are said to draw so much less than the power limit are not cut off there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningRequest:
    """Jobs to run together from now on.

    Attributes:
        jobs: Work counts where there is a deadline.
        gpus: How many cards of each GPU model; None: of the one that all profiles have in common.
        deadline_s: By when jobs with work are to be done; None: no hurry.
    """

    jobs: tuple[QueuedJobs, ...]
    gpus: Mapping[str | None, int]
    objective: str
    limits: Request
    deadline_s: float | None = None
    time_limit_s: float = 10.0


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PlacedRunning:
    """The answer.

    Attributes:
        host_w: Watts of the server for each card in use, by which energy is told.
    """

    plan: RunningPlan
    bundled: tuple[str, ...]
    warnings: tuple[str, ...]
    host_w: float = 0.0


def running_request(asked: SetPlacementRequest, settings: Settings) -> RunningRequest:
    """The same as it is asked for over HTTP; settings and job files say what it leaves out.

    Raises:
        InputError: limits that cannot be meant.
    """
    jobs = (
        QueuedJobs(job=job.job, count=job.count, work_s=job.work_s or WORK_S) for job in asked.jobs
    )
    return RunningRequest(
        jobs=tuple(jobs),
        gpus={asked.gpu_model: asked.gpus},
        objective=asked.objective,
        limits=Request(
            min_speed=asked.min_speeds(),
            policy=settings.policy,
            max_p99_ms=promised_p99_ms(asked.names, settings.jobs_dir) | asked.p99_by_job_ms,
            default_max_p99_ms=asked.max_p99_ms,
            max_power_w=asked.max_power_w,
            memory_mib=asked.memory_mib,
            host_cores=asked.host_cores,
        ),
        deadline_s=asked.deadline_s,
        time_limit_s=asked.time_limit_s,
    )


def place_jobs(
    request: RunningRequest, settings: Settings, profiles: Path | None = None
) -> PlacedRunning:
    """Which of the jobs share a card.

    Raises:
        InputError: a job without a profile, an objective that is none, or a deadline that no speed
            keeps.
        ModelError: there is no model, or it is damaged.
        NoSplitError: a job keeps its limits nowhere.
        StoreError: profiles, or what the check of a GPU model found, cannot be read.
    """
    names = sorted({job.job for job in request.jobs})
    model = Registry(settings.home / "models").open_champion()
    sets = [_profiles(gpu_model, names, request, settings, profiles) for gpu_model in request.gpus]
    checked = [checked_on(found, settings) for found in sets]
    return _place_jobs_by(model, sets, checked, request, settings.prices)


def _place_jobs_by(
    model: ModelPredictor,
    sets: Sequence[ProfileSet],
    checked: Sequence[CheckedCounts | None],
    request: RunningRequest,
    prices: Prices,
) -> PlacedRunning:
    """The same by a model, with the profiles on each GPU model and what its check found.

    Raises:
        InputError: an objective that is none, or a deadline that no speed keeps.
        NoSplitError: a job keeps its limits nowhere.
    """
    counts = Counter[str]()
    for job in request.jobs:
        counts[job.job] += job.count
    names = sorted(counts)
    fill = {IDLE: model.manifest.fill[IDLE]} if IDLE in model.manifest.fill else {}
    given = [with_idle_power(profile_set, fill) for profile_set in sets]
    limits = _with_deadline(request, [p for found, _ in given for p in found.profiles])
    pools = [
        _pool(found, count, names, limits, model, of_model)
        for (found, _), count, of_model in zip(given, request.gpus.values(), checked, strict=True)
    ]
    served = {p.job for found, _ in given for p in found.profiles if is_served(p)}
    kinds = [Kind(name=name, count=counts[name], is_server=name in served) for name in names]
    placing = make_placing(kinds, pools, request.objective, prices)
    plan = place_running(placing, time_limit_s=request.time_limit_s)
    told = (*(text for _, texts in given for text in texts), *_warnings(given, plan))
    return PlacedRunning(
        plan=plan,
        bundled=tuple(sorted({name for found in sets for name in found.bundled})),
        warnings=tuple(dict.fromkeys(told)),
        host_w=prices.host_w,
    )


def _profiles(
    gpu_model: str | None,
    names: Sequence[str],
    request: RunningRequest,
    settings: Settings,
    file: Path | None,
) -> ProfileSet:
    """Of one GPU model all jobs; of one among several those that were measured there."""
    if len(request.gpus) > 1 and gpu_model is not None:
        names = sorted(set(names) & set(all_profiles(settings, gpu_model)))
        if not names:
            raise InputError(f"no job has a profile on {gpu_model}", fix="leave out that GPU model")
    return find_profiles(names, settings, gpu_model, file)


def _pool(
    found: ProfileSet,
    gpus: int,
    names: Sequence[str],
    limits: Request,
    model: PairPredictor,
    checked: CheckedCounts | None,
) -> Pool:
    there = {profile.job: profile for profile in found.profiles}
    idle_w = [profile.idle_power_w for profile in found.profiles]
    gpu_model = found.profiles[0].gpu_model
    return Pool(
        gpu_model=gpu_model,
        gpus=gpus,
        profiles=tuple(there.get(name) for name in names),
        limits=with_card_memory(limits, gpu_model),
        idle_power_w=sum(idle_w) / len(idle_w),
        of_pairs=model,
        checked=checked,
    )


def _with_deadline(request: RunningRequest, profiles: Sequence[Profile]) -> Request:
    """What runs from now to the deadline keeps its work over that time as its speed."""
    if request.deadline_s is None:
        return request.limits
    served = {profile.job for profile in profiles if is_served(profile)}
    least = dict(request.limits.min_speed)
    for job in request.jobs:
        if job.job not in served:
            if (speed := job.work_s / request.deadline_s) > 1:
                raise InputError(
                    f"{job.job} takes {job.work_s:g} s alone, longer than the deadline",
                    fix="give it more time with --deadline, or leave it out",
                )
            told = least.get(job.job, request.limits.policy.min_speed)
            least[job.job] = max(speed, told)
    return replace(request.limits, min_speed=least)


def _warnings(
    given: Sequence[tuple[ProfileSet, tuple[str, ...]]], plan: RunningPlan
) -> Iterator[str]:
    pools = plan.placing.pools
    yield "sets of three jobs and more are by physics fitted to measured sets"
    yield "what was measured of jobs together is not taken in: advisor recommend takes it"
    for (found, _), pool in zip(given, pools, strict=True):
        yield from of_check(found, pool.checked)
        yield from memory_unknown(found.profiles, pool.limits.memory_mib)
        if pool.gpu_model not in MEASURED_ON:
            yield f"no set was measured on {pool.gpu_model}"
    yield from _at_the_power_limit(plan)


def _at_the_power_limit(plan: RunningPlan) -> Iterator[str]:
    """Predicted watts are cut off there, and the speeds of sets are not lowered with the clock.

    How many of their jobs fell below: docs/measurements/placement.md, on three cards.
    """
    for number, pool in enumerate(plan.placing.pools):
        limits_w = [p.power_limit_w for p in pool.profiles if p and p.power_limit_w]
        below_w = min(limits_w, default=math.inf) - CUT_OFF_W
        sets = {
            one: cards
            for one, cards in plan.sets.items()
            if one.pool == number and len(one.kinds) > ADVISED_JOBS
        }
        if hot := sum(cards for one, cards in sets.items() if one.power_w > below_w):
            yield (
                f"{hot} of {sum(sets.values())} cards with three jobs and more are to draw the "
                f"power limit: half of the jobs of such sets were slower than their minimum when "
                f"measured; --max-power {below_w:g} keeps such sets out"
            )


def placement_text(
    registry: Registry,
    found: ProfileSet,
    asked: PlacementRequest,
    limits: Request,
    checked: CheckedCounts | None,
    conditions: Conditions,
) -> bytes:
    """The answer as JSON, by the model in use.

    Raises:
        InputError: as for `plan`.
        ModelError: there is no model, or it is damaged.
        NoSplitError: as for `plan`.
    """
    model = registry.open_champion()
    known = KnownJobs(found=found, model=model, checked=checked, conditions=conditions)
    return write_bytes(to_wire(plan(known, asked, limits)))


def set_placement_text(
    registry: Registry,
    found: ProfileSet,
    request: RunningRequest,
    checked: CheckedCounts | None,
    prices: Prices,
) -> bytes:
    """The answer for one GPU model as JSON, by the model in use.

    Raises:
        InputError: as for `place_jobs_by`.
        ModelError: there is no model, or it is damaged.
        NoSplitError: as for `place_jobs_by`.
    """
    model = registry.open_champion()
    return write_bytes(sets_to_wire(_place_jobs_by(model, [found], [checked], request, prices)))


def to_wire(planned: Planned) -> wire.Placement:
    """The answer; docs/place.md explains each key."""
    problem, found = planned.problem, planned.plan
    return wire.Placement(
        gpu_model=planned.gpu_model,
        objective=planned.request.objective or DEFAULT_OBJECTIVE,
        gpus=problem.gpus,
        queued=len(problem.queue),
        worth=planned.worth,
        pairs=found.pairs,
        pairs_without_min_gain=planned.eager and planned.eager.pairs,
        filling_jobs=planned.filling,
        idle_power_w=problem.idle_power_w,
        **_totals(found.schedule),
        groups=tuple(_group(planned, group, count) for group, count in planned.groups.items()),
        schedule=tuple(
            wire.PlacedJob(
                gpu=run.gpu,
                start_s=run.start_s,
                end_s=run.end_s,
                number=run.number + 1,  # counted from 1
                job=run.job.name,
                work_s=run.job.work_s,
                share_percent=run.share_percent,
                speed=run.speed,
                beside=next((n + 1 for n in slot.numbers if n != run.number), None),
            )
            for slot in found.slots
            for run in slot.runs
        ),
        baselines=tuple(
            wire.SimplerSchedule(
                name=name,
                **_totals(other),
                energy_saved=1 - found.schedule.energy_j / other.energy_j,
                time_saved=1 - found.schedule.makespan_s / other.makespan_s,
                gpu_time_saved=1 - found.schedule.busy_s / other.busy_s,
            )
            for name, other in planned.others.items()
        ),
        timed_out=found.timed_out,
        bundled_profiles=planned.bundled,
        warnings=planned.warnings,
        model=ModelName(version=planned.manifest.version, gpu_models=planned.manifest.gpu_models),
        card=planned.card and planned.card.told,
    )


def _totals(schedule: Schedule) -> dict[str, Any]:
    slowest: JobRun = schedule.slowest
    return {
        "energy_j": schedule.energy_j,
        "idle_j": schedule.idle_j,
        "makespan_s": schedule.makespan_s,
        "gpu_time_s": schedule.busy_s,
        "mean_completion_s": schedule.mean_completion_s,
        "slowest_job": slowest.job.name,
        "slowest_speed": slowest.speed,
    }


def _group(planned: Planned, group: JobGroup, count: int) -> wire.PlacedGroup:
    shares = group.split.shares if group.split else (WHOLE,)
    values = zip(shares, group.speeds, group.times_s, environments(planned, group), strict=True)
    return wire.PlacedGroup(
        count=count,
        split=way(group),
        jobs=tuple(
            wire.GroupJob(
                job=job.name,
                work_s=job.work_s,
                share_percent=share,
                speed=speed,
                time_s=time_s,
                environment=environment,
                one_window=job.name in planned.one_window,
            )
            for job, (share, speed, time_s, environment) in zip(group.jobs, values, strict=True)
        ),
        power_w=group.power_w,
        energy_j=group.energy_j,
        energy_saved=group.energy_saved,
        time_saved=group.time_saved,
    )


def sets_to_wire(placed: PlacedRunning) -> wire.SetPlacement:
    """The answer as programs read it."""
    plan = placed.plan
    kinds, pools = plan.placing.kinds, plan.placing.pools
    used = Counter[int]()
    for one, count in plan.sets.items():
        used[one.pool] += count
    same_cards = plan.same_work_cards
    drawn_w = plan.power_w + placed.host_w * plan.cards
    same_w = plan.same_work_w + placed.host_w * same_cards
    free_w = sum(
        count * (len(one.kinds) - 1) * pools[one.pool].idle_power_w
        for one, count in plan.sets.items()
    )
    return wire.SetPlacement(
        objective=plan.placing.aim,
        gpus=tuple(
            wire.UsedGpus(gpu_model=pool.gpu_model, gpus=pool.gpus, used=used[n])
            for n, pool in enumerate(pools)
        ),
        queued=sum(kind.count for kind in kinds),
        seated=plan.seated,
        waiting=tuple(
            wire.WaitingJobs(job=kinds[n].name, count=count) for n, count in plan.waiting.items()
        ),
        cards=plan.cards,
        power_w=plan.power_w,
        cost=plan.cost,
        waiting_cost=plan.waiting_cost,
        bound=plan.bound,
        gap=plan.gap,
        energy_saved=1 - drawn_w / same_w if same_w else 0.0,
        energy_saved_idle=1 - (drawn_w + free_w) / same_w if same_w else 0.0,
        gpu_time_saved=1 - plan.cards / same_cards if same_cards else 0.0,
        sets=tuple(_sets(plan)),
        timed_out=plan.timed_out,
        bundled_profiles=placed.bundled,
        warnings=placed.warnings,
    )


def _sets(plan: RunningPlan) -> Iterator[wire.SeatedSet]:
    """Cards of the first GPU model have the lowest numbers."""
    pools = plan.placing.pools
    free = [sum(pool.gpus for pool in pools[:n]) for n in range(len(pools))]
    for one, count in plan.sets.items():
        first = free[one.pool]
        free[one.pool] += count
        # The split keeps the limits of the plan, so that these are not told again.
        jobs = as_asked(plan.placing.kinds[kind].name for kind in one.kinds)
        yield wire.SeatedSet(
            launch=f"{jobs} --split {one.split}" if one.split else jobs,
            gpu_model=pools[one.pool].gpu_model,
            gpus=tuple(range(first, first + count)),
            jobs=tuple(_seats(plan, one)),
            power_w=one.power_w,
        )


def _seats(plan: RunningPlan, one: PlacedSet) -> Iterator[wire.SeatedJob]:
    pool = plan.placing.pools[one.pool]
    shares: tuple[float, ...] = (WHOLE,)
    limits: tuple[dict[str, str], ...] = ({},)
    if one.split:
        total = next((p.units_total for p in pool.profiles if p and p.units_total), None)
        shares = one.split.shares
        limits = split_environments(one.split, total, vendor_of(pool.gpu_model))
    seats = zip(one.kinds, shares, one.speeds, one.p99_ms, limits, strict=True)
    for kind, share, speed, p99_ms, variables in seats:
        profile = pool.profiles[kind]
        yield wire.SeatedJob(
            job=plan.placing.kinds[kind].name,
            share_percent=share,
            speed=speed,
            p99_ms=p99_ms,
            environment={} if share == WHOLE else variables,
            one_window=profile is not None and ONE_WINDOW in profile.flags,
        )
