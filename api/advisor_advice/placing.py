"""The plan of a queue by the model in use, and what simpler ways give."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from advisor.core.gpu import vendor_of
from advisor.core.records import ONE_WINDOW
from advisor.core.split import NINE, split_environments
from advisor.decide.limits import (
    Limits,
    check_jobs_fit,
    floor,
    memory_unknown,
    must_be_sure,
    with_card_memory,
)
from advisor.decide.recommendation import LEAST_TIME_SAVED
from advisor.errors import InputError
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
from advisor.place.schedule import Schedule, first_come
from advisor.place.solver import QueuePlan, alone
from advisor.place.solver import place as solve
from advisor.predict.card_factor import CardFactor
from advisor.predict.profiles import Profile
from advisor.validity.safe_counts import CheckedCounts, avoided_texts
from advisor.wire.placement import QueueWorth
from advisor.wire.requests import PlacementRequest
from advisor_advice.answer import of_check
from advisor_advice.gpu_warnings import gpu_warnings
from advisor_advice.idle_power import with_idle_power
from advisor_advice.partners import best_size
from advisor_advice.site.known_jobs import KnownJobs
from advisor_advice.site.known_profiles import ProfileSet
from advisor_models.manifest import Manifest

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

        def saved_j(group: JobGroup) -> float:
            return counts[group] * (group.alone_j - group.energy_j)

        order = sorted(counts, key=lambda g: (-len(g.jobs), -saved_j(g), g.jobs))
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


def limits_of(request: PlacementRequest, default_min_speed: float) -> Limits:
    """What every group must keep.

    Raises:
        InputError: limits that cannot be meant.
    """
    return Limits(
        min_speed=request.min_speeds(),
        default_min_speed=default_min_speed,
        max_power_w=request.max_power_w,
        memory_mib=request.memory_mib,
    )


def plan(
    known: KnownJobs,
    request: PlacementRequest,
    limits: Limits,
    on_progress: Callable[[int, int], None] = lambda done, pairs: None,
) -> Planned:
    """The best plan; one profile of each of `request.names`.

    Progress is told after each predicted pair: the pairs done, and all pairs.

    Raises:
        InputError: an objective that is not for queues.
        NoSplitError: not every job can be placed within the limits.
    """
    _check_card(request)
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
        *_avoided(profile_set, checked),
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


def _check_card(request: PlacementRequest) -> None:
    if request.gpu_uuid is not None and request.gpus > 1:
        raise InputError(
            f"{request.gpus} GPUs are not the one card {request.gpu_uuid}",
            why="what a card draws beside others of its model is known of that card alone",
            fix="leave out the card, or place on one GPU",
        )


def _avoided(profile_set: ProfileSet, checked: CheckedCounts | None) -> Iterator[str]:
    """Which counts of the nine splits no pair gets, or one job does not, and why."""
    for p in profile_set.profiles:
        yield from avoided_texts(NINE, [p.job] * 2, [p.safety(checked)] * 2)


def _limits(limits: Limits, profiles: Sequence[Profile]) -> Limits:
    """With the memory of the card, and the floors that low ends are to keep, by name."""
    limits = with_card_memory(limits, profiles[0].gpu_model)
    check_jobs_fit(profiles, limits.memory_mib)
    sure = [profile for profile in profiles if must_be_sure(profile, limits)]
    return replace(limits, min_speed={p.job: floor(p, limits) for p in sure})


def _problem(
    profiles: Sequence[Profile], options: PairOptions, request: PlacementRequest, limits: Limits
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
        objective=request.objective,
        limits=limits,
        min_gain=request.min_gain,
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
    vendor = vendor_of(planned.gpu_model)
    return list(split_environments(group.split, planned.units_total, vendor))


def way(group: JobGroup) -> str:
    """Shares as people write them, or `alone`."""
    return str(group.split) if group.split else "alone"
