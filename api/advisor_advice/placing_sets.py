"""Running jobs placed in sets, on GPUs of one model or several, and how that is told."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from advisor.core.objectives import Prices
from advisor.core.split import ADVISED_JOBS
from advisor.decide.limits import Limits, is_served, memory_unknown, with_card_memory
from advisor.errors import InputError
from advisor.place.sets.placing import Kind, Pool, RunningPlan, make_placing
from advisor.place.sets.solver import place_running
from advisor.predict.predictions import PairPredictor
from advisor.predict.profiles import IDLE, Profile
from advisor.predict.sets import MEASURED_ON
from advisor.settings import Settings
from advisor.validity.safe_counts import CheckedCounts
from advisor.wire.requests import WORK_S, QueuedJobs, SetPlacementRequest
from advisor_advice.answer import of_check
from advisor_advice.idle_power import with_idle_power
from advisor_advice.site.known_profiles import ProfileSet, all_profiles, checked_on, find_profiles
from advisor_advice.site.promises import promised_p99_ms
from advisor_models.model_predictor import ModelPredictor
from advisor_models.registry import Registry

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
    limits: Limits
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
        limits=Limits(
            min_speed=asked.min_speeds(),
            default_min_speed=settings.min_speed,
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
    return place_jobs_by(model, sets, checked, request, settings.prices)


def place_jobs_by(
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
    told = (*(text for _, texts in given for text in texts), *_told(given, plan))
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
    limits: Limits,
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


def _with_deadline(request: RunningRequest, profiles: Sequence[Profile]) -> Limits:
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
            told = least.get(job.job, request.limits.default_min_speed)
            least[job.job] = max(speed, told)
    return replace(request.limits, min_speed=least)


def _told(given: Sequence[tuple[ProfileSet, tuple[str, ...]]], plan: RunningPlan) -> Iterator[str]:
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

    How many of their jobs fell below: docs/measurements/planned_floors.py, on three cards.
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
