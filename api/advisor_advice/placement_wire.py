"""The plan of a queue as command line, service and client tell it."""

from collections.abc import Sequence
from typing import Any

from advisor.core.gpu import WHOLE
from advisor.decide.limits import Limits
from advisor.formats.wire import write_bytes
from advisor.place.problem import JobGroup
from advisor.place.schedule import JobRun, Schedule, Slot
from advisor.validity.safe_counts import CheckedCounts
from advisor.wire import placement as wire
from advisor.wire.recommendation import ModelName
from advisor.wire.requests import PlacementRequest
from advisor_advice.placing import Planned, environments, plan_by, way
from advisor_advice.site.conditions import Conditions
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
        InputError: as for `plan_by`.
        ModelError: there is no model, or it is damaged.
        NoSplitError: as for `plan_by`.
    """
    predictor = registry.open_champion()
    return write_bytes(to_wire(plan_by(predictor, found, asked, limits, checked, conditions)))


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
        schedule=placed_jobs(found.slots),
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


def placed_jobs(placed: Sequence[Slot]) -> tuple[wire.PlacedJob, ...]:
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
            )
            for job, (share, speed, time_s, environment) in zip(group.jobs, values, strict=True)
        ),
        power_w=group.power_w,
        energy_j=group.energy_j,
        energy_saved=group.energy_saved,
        time_saved=group.time_saved,
    )
