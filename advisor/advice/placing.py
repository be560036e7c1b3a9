"""The plan of a queue by the model in use, what simpler ways give, and both as JSON."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from advisor.advice.answer import of_check
from advisor.advice.gpu_warnings import gpu_warnings
from advisor.advice.idle_power import with_idle_power
from advisor.advice.known_profiles import Found, checked_on, find_profiles
from advisor.core.split import NINE, split_environments
from advisor.core.units import vendor_of
from advisor.decide.constraints import Limits, floor, with_card_memory
from advisor.decide.memory import check_jobs_fit, memory_unknown
from advisor.place.first_come import first_come
from advisor.place.options import mean_idle_power_w, predict_options
from advisor.place.problem import Group, JobType, Problem, QueuedJob, make_problem
from advisor.place.schedule import Run, Schedule, Slot
from advisor.place.solver import Plan, alone
from advisor.place.solver import place as solve
from advisor.predict.profiles import Profile
from advisor.settings import Settings
from advisor.validity.safe_counts import CheckedCounts
from advisor.validity.safe_splits import avoided_texts
from advisor_models.manifest import Manifest
from advisor_models.onnx_predictor import OnnxPredictor
from advisor_models.registry import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What was asked for.

    Attributes:
        queue: The jobs, in the order in which they come.
        profiles: File of solo points; None: the stored and the bundled ones.
        time_limit_s: Most time for the search, after all pairs were predicted.
    """

    queue: Sequence[QueuedJob]
    gpus: int
    objective: str
    limits: Limits
    gpu_model: str | None
    profiles: Path | None
    time_limit_s: float

    @property
    def names(self) -> list[str]:
        """Of the jobs, each once, in an order that does not depend on the queue's."""
        return sorted({job.name for job in self.queue})


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Planned:
    """The answer.

    Attributes:
        units_total: SMs or CUs of a GPU; None: no profile has them.
        others: What simpler ways give, by what they do.
        bundled: Names of the jobs whose profile came with advisor.
        warnings: What may be less certain than it looks, which counts are not used and why.
    """

    wanted: Wanted
    gpu_model: str
    units_total: int | None
    problem: Problem
    plan: Plan
    others: dict[str, Schedule]
    manifest: Manifest
    bundled: tuple[str, ...]
    warnings: tuple[str, ...] = ()

    @property
    def groups(self) -> dict[Group, int]:
        """How often each group runs, the one that saves the most energy first, jobs alone last."""
        counts = Counter(slot.group for slot in self.plan.slots)

        def saved_j(group: Group) -> float:
            return counts[group] * (group.alone_j - group.energy_j)

        order = sorted(counts, key=lambda g: (-len(g.jobs), -saved_j(g), g.jobs))
        return {group: counts[group] for group in order}


def plan(
    wanted: Wanted,
    settings: Settings,
    told: Callable[[int, int], None] = lambda done, pairs: None,
) -> Planned:
    """The best plan by the model in use.

    Args:
        wanted: What was asked for.
        settings: Say where points and models are kept.
        told: Called after each predicted pair with the pairs done and all pairs.

    Raises:
        InputError: a job without a profile, or an objective that is not for queues.
        ModelError: there is no model, or it is damaged.
        NoSplitError: not every job can be placed within the limits.
        StoreError: profiles, or what the check of the GPU model found, cannot be read.
    """
    found = find_profiles(wanted.names, settings, wanted.gpu_model, wanted.profiles)
    predictor = Registry(settings.home / "models").open_champion()
    return plan_by(predictor, found, wanted, checked_on(found, settings), told)


def plan_by(
    predictor: OnnxPredictor,
    found: Found,
    wanted: Wanted,
    checked: CheckedCounts | None,
    told: Callable[[int, int], None] = lambda done, pairs: None,
) -> Planned:
    """The best plan by a model.

    Args:
        predictor: The model.
        found: One profile of each of `wanted.names`.
        wanted: What was asked for.
        checked: What the check of the GPU model found.
        told: As for `plan`.

    Raises:
        InputError: as for `plan`.
        NoSplitError: as for `plan`.
    """
    found, assumed = with_idle_power(found, predictor.manifest.fill)
    wanted = replace(wanted, limits=_limits(wanted.limits, found.profiles))
    problem = _problem(predictor, found.profiles, wanted, checked, told)
    warnings = (
        *gpu_warnings(predictor.manifest, found.profiles),
        *of_check(found, checked),
        *_avoided(found, checked),
        *memory_unknown(found.profiles, wanted.limits.memory_mib),
        *assumed,
    )
    return Planned(
        wanted=wanted,
        gpu_model=found.profiles[0].gpu_model,
        units_total=next((p.units_total for p in found.profiles if p.units_total), None),
        problem=problem,
        plan=solve(problem, time_limit_s=wanted.time_limit_s),
        others=_others(problem),
        manifest=predictor.manifest,
        bundled=found.bundled,
        warnings=tuple(dict.fromkeys(warnings)),
    )


def _avoided(found: Found, checked: CheckedCounts | None) -> Iterator[str]:
    """Which counts of the nine splits no pair gets, or one job does not, and why."""
    for p in found.profiles:
        yield from avoided_texts(NINE, [p.job] * 2, [p.safety(checked)] * 2)


def _limits(limits: Limits, profiles: Sequence[Profile]) -> Limits:
    """With the memory of the card and the floor of each job, as its profile says."""
    limits = with_card_memory(limits, profiles[0].gpu_model)
    check_jobs_fit(profiles, limits.memory_mib)
    return replace(limits, min_speed={p.job: floor(p, limits) for p in profiles})


def _problem(
    predictor: OnnxPredictor,
    profiles: Sequence[Profile],
    wanted: Wanted,
    checked: CheckedCounts | None,
    told: Callable[[int, int], None],
) -> Problem:
    types = [
        JobType(name=p.job, power_w=p.whole_gpu_power_w, memory_mib=p.memory_used_mib)
        for p in profiles
    ]
    return make_problem(
        wanted.queue,
        types,
        predict_options(profiles, predictor, checked=checked, told=told),
        wanted.gpus,
        idle_power_w=mean_idle_power_w(profiles),
        objective=wanted.objective,
        limits=wanted.limits,
    )


def _others(problem: Problem) -> dict[str, Schedule]:
    """What simpler ways come to; without those that cannot run every job."""
    sequential = alone(problem)
    others = {
        "first come, 50/50": first_come(problem),
        "one after the other": sequential and sequential.schedule,
    }
    return {name: found for name, found in others.items() if found}


def environments(planned: Planned, group: Group) -> list[dict[str, str]]:
    """Variables that limit each job of a group; none without limits.

    Raises:
        InputError: an AMD GPU of which no profile has the number of CUs.
    """
    if group.split is None:
        return [{} for _ in group.jobs]
    vendor = vendor_of(planned.gpu_model)
    return list(split_environments(group.split, planned.units_total, vendor))


def way(group: Group) -> str:
    """Shares as people write them, or `alone`."""
    return str(group.split) if group.split else "alone"


def to_json(planned: Planned) -> dict[str, Any]:
    """Keys that stay; docs/place.md explains them."""
    problem, found = planned.problem, planned.plan
    return {
        "gpu_model": planned.gpu_model,
        "objective": planned.wanted.objective,
        "gpus": problem.gpus,
        "jobs": len(problem.queue),
        "idle_power_w": problem.idle_power_w,
        **_totals(found.schedule),
        "groups": [_group(planned, group, count) for group, count in planned.groups.items()],
        "schedule": schedule_rows(found.slots),
        "others": [
            {"way": name, **_totals(other), **_less(found.schedule, other)}
            for name, other in planned.others.items()
        ],
        "timed_out": found.timed_out,
        "bundled_profiles": list(planned.bundled),
        "warnings": list(planned.warnings),
        "model": {
            "version": planned.manifest.version,
            "gpu_models": list(planned.manifest.gpu_models),
        },
    }


def schedule_rows(placed: Sequence[Slot]) -> list[dict[str, Any]]:
    """One flat row for each job, in the order of the starts; numbers count the queue from 1."""
    return [
        {
            "gpu": run.gpu,
            "start_s": run.start_s,
            "end_s": run.end_s,
            "number": run.number + 1,
            "job": run.job.name,
            "work_s": run.job.work_s,
            "share_percent": run.share_percent,
            "speed": run.speed,
            "beside": next((n + 1 for n in slot.numbers if n != run.number), None),
        }
        for slot in placed
        for run in slot.runs
    ]


def _totals(schedule: Schedule) -> dict[str, Any]:
    slowest: Run = schedule.slowest
    return {
        "energy_j": schedule.energy_j,
        "idle_j": schedule.idle_j,
        "makespan_s": schedule.makespan_s,
        "mean_completion_s": schedule.mean_completion_s,
        "slowest_job": slowest.job.name,
        "slowest_speed": slowest.speed,
    }


def _less(this: Schedule, other: Schedule) -> dict[str, float]:
    """What the plan saves against another way."""
    return {
        "energy_saved": 1 - this.energy_j / other.energy_j,
        "time_saved": 1 - this.makespan_s / other.makespan_s,
    }


def _group(planned: Planned, group: Group, count: int) -> dict[str, Any]:
    return {
        "count": count,
        "jobs": [job.name for job in group.jobs],
        "work_s": [job.work_s for job in group.jobs],
        "split": way(group),
        "shares_percent": list(group.split.shares) if group.split else None,
        "environments": environments(planned, group),
        "speeds": list(group.speeds),
        "times_s": list(group.times_s),
        "power_w": group.power_w,
        "energy_j": group.energy_j,
        "energy_saved": group.energy_saved,
        "time_saved": group.time_saved,
    }
