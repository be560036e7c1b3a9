"""The plan of a queue as command line, service and client tell it."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from advisor.core.gpu import WHOLE, vendor_of
from advisor.core.objectives import Prices
from advisor.core.records import ONE_WINDOW
from advisor.core.split import split_environments
from advisor.core.wording import as_asked
from advisor.decide.limits import Limits
from advisor.formats.wire import write_bytes
from advisor.place.problem import JobGroup
from advisor.place.schedule import JobRun, Schedule, Slot
from advisor.place.sets.placing import PlacedSet, RunningPlan
from advisor.validity.safe_counts import CheckedCounts
from advisor.wire import placement as wire
from advisor.wire.answers import ModelName
from advisor.wire.requests import PlacementRequest
from advisor_advice.placing import Planned, environments, plan, way
from advisor_advice.placing_sets import PlacedRunning, RunningRequest, place_jobs_by
from advisor_advice.site.conditions import Conditions
from advisor_advice.site.known_jobs import KnownJobs
from advisor_advice.site.known_profiles import ProfileSet
from advisor_models.registry import Registry


def placement_text(
    registry: Registry,
    found: ProfileSet,
    asked: PlacementRequest,
    limits: Limits,
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
    return write_bytes(sets_to_wire(place_jobs_by(model, [found], [checked], request, prices)))


def to_wire(planned: Planned) -> wire.Placement:
    """The answer; docs/place.md explains each key."""
    problem, found = planned.problem, planned.plan
    return wire.Placement(
        gpu_model=planned.gpu_model,
        objective=planned.request.objective,
        gpus=problem.gpus,
        queued=len(problem.queue),
        worth=planned.worth,
        pairs=found.pairs,
        pairs_without_min_gain=planned.eager and planned.eager.pairs,
        filling_jobs=planned.filling,
        idle_power_w=problem.idle_power_w,
        **_totals(found.schedule),
        groups=tuple(_group(planned, group, count) for group, count in planned.groups.items()),
        schedule=_placed_jobs(found.slots),
        baselines=tuple(
            wire.SimplerSchedule(name=name, **_totals(other), **_less(found.schedule, other))
            for name, other in planned.others.items()
        ),
        timed_out=found.timed_out,
        bundled_profiles=planned.bundled,
        warnings=planned.warnings,
        model=ModelName(version=planned.manifest.version, gpu_models=planned.manifest.gpu_models),
        card=planned.card and planned.card.told,
    )


def _placed_jobs(placed: Sequence[Slot]) -> tuple[wire.PlacedJob, ...]:
    """Each job, in the order of the starts; numbers count the queue from 1."""
    return tuple(
        wire.PlacedJob(
            gpu=run.gpu,
            start_s=run.start_s,
            end_s=run.end_s,
            number=run.number + 1,
            job=run.job.name,
            work_s=run.job.work_s,
            share_percent=run.share_percent,
            speed=run.speed,
            beside=next((n + 1 for n in slot.numbers if n != run.number), None),
        )
        for slot in placed
        for run in slot.runs
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


def _less(this: Schedule, other: Schedule) -> dict[str, Any]:
    """What the plan saves against another way."""
    return {
        "energy_saved": 1 - this.energy_j / other.energy_j,
        "time_saved": 1 - this.makespan_s / other.makespan_s,
        "gpu_time_saved": 1 - this.busy_s / other.busy_s,
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
        yield wire.SeatedSet(
            launch=_launch_text(plan, one),
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


def _launch_text(plan: RunningPlan, one: PlacedSet) -> str:
    """What `advisor launch` is given for it, `a*3 b --split 100/100/100/50`; of one job its name.

    The split is the one that keeps the limits of the plan, so these are not told again.
    """
    jobs = as_asked(plan.placing.kinds[kind].name for kind in one.kinds)
    return f"{jobs} --split {one.split}" if one.split else jobs
