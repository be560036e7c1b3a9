"""A placement by the model in use, what simpler ways give, and both as JSON."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor.constraints import Limits
from advisor.errors import NoSplitError
from advisor.gpu import PERCENTAGE, Share
from advisor.place import Placement, Problem, Use, make_problem, value
from advisor.place_options import job_type, mean_idle_power_w, predict_options
from advisor.place_rules import all_alone, first_come, greedy
from advisor.place_solver import Solution
from advisor.place_solver import place as solve
from advisor.predictions import NINE, UNCAPPED
from advisor.profiles import Profile
from advisor.safe_counts import CheckedCounts
from advisor.safe_splits import avoided_texts
from advisor.settings import Settings
from advisor_models.answer import of_check
from advisor_models.gpu_warnings import gpu_warnings
from advisor_models.idle_power import with_idle_power
from advisor_models.known_profiles import Found, checked_on, find_profiles
from advisor_models.manifest import Manifest
from advisor_models.onnx_predictor import OnnxPredictor
from advisor_models.registry import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What was asked for.

    Attributes:
        queue: Name of each job, in the order in which they come.
        profiles: File of solo points; None: the stored and the bundled ones.
    """

    queue: Sequence[str]
    gpus: int
    objective: str
    limits: Limits
    gpu_model: str | None
    profiles: Path | None
    time_limit_s: float


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Planned:
    """The answer.

    Attributes:
        others: What simpler ways give, by what they do.
        bundled: Names of the jobs whose profile came with advisor.
        warnings: What may be less certain than it looks, which counts of SMs are not used and why.
    """

    wanted: Wanted
    gpu_model: str
    problem: Problem
    solution: Solution
    others: dict[str, Placement]
    manifest: Manifest
    bundled: tuple[str, ...]
    warnings: tuple[str, ...] = ()

    def gain_over(self, other: Placement) -> float | None:
        """How much more the placement is worth; 0.1 is a tenth more. None over nothing at all."""
        least = value(self.problem, other)
        return value(self.problem, self.solution.placement) / least - 1 if least else None


def plan(
    wanted: Wanted,
    settings: Settings,
    told: Callable[[int, int], None] = lambda done, pairs: None,
) -> Planned:
    """The best placement by the model in use.

    Args:
        wanted: What was asked for.
        settings: Say where points and models are kept.
        told: Called after each predicted pair with the pairs done and all pairs.

    Raises:
        InputError: a job without a profile, or an objective that is not for placements.
        ModelError: there is no model, or it is damaged.
        NoSplitError: no job keeps every limit.
        StoreError: profiles, or what the check of the GPU model found, cannot be read.
    """
    names = list(dict.fromkeys(wanted.queue))
    found = find_profiles(names, settings, wanted.gpu_model, wanted.profiles)
    predictor = Registry(settings.home / "models").open_champion()
    return plan_by(predictor, found, wanted, checked_on(found, settings), told)


def plan_by(
    predictor: OnnxPredictor,
    found: Found,
    wanted: Wanted,
    checked: CheckedCounts | None,
    told: Callable[[int, int], None] = lambda done, pairs: None,
) -> Planned:
    """The best placement by a model.

    Args:
        predictor: The model.
        found: One profile of each job of the queue, in the order in which they first come.
        wanted: What was asked for.
        checked: What the check of the GPU model found.
        told: As for `plan`.

    Raises:
        InputError: as for `plan`.
        NoSplitError: no job keeps every limit.
    """
    found, assumed = with_idle_power(found, predictor.manifest.fill)
    problem = _problem(predictor, found.profiles, wanted, checked, told)
    if not (problem.pair_fits.any() or problem.alone_fits.any()):
        raise _nothing_fits(found.profiles)
    return Planned(
        wanted=wanted,
        gpu_model=found.profiles[0].gpu_model,
        problem=problem,
        solution=solve(problem, time_limit_s=wanted.time_limit_s),
        others=_others(problem, wanted.queue),
        manifest=predictor.manifest,
        bundled=found.bundled,
        warnings=tuple(
            dict.fromkeys(
                (
                    *gpu_warnings(predictor.manifest, found.profiles),
                    *of_check(found, checked),
                    *_avoided(found, checked),
                    *assumed,
                )
            )
        ),
    )


def _avoided(found: Found, checked: CheckedCounts | None) -> Iterator[str]:
    """Which counts of the nine splits no pair gets, or one job does not, and why."""
    for p in found.profiles:
        yield from avoided_texts(NINE, (p.job, p.job), p.safety(checked), p.safety(checked))


def _problem(
    predictor: OnnxPredictor,
    profiles: Sequence[Profile],
    wanted: Wanted,
    checked: CheckedCounts | None,
    told: Callable[[int, int], None],
) -> Problem:
    counts = Counter(wanted.queue)
    return make_problem(
        [job_type(profile, counts[profile.job]) for profile in profiles],
        predict_options(profiles, predictor, checked=checked, told=told),
        wanted.gpus,
        idle_power_w=mean_idle_power_w(profiles),
        objective=wanted.objective,
        limits=wanted.limits,
    )


def _others(problem: Problem, queue: Sequence[str]) -> dict[str, Placement]:
    """What simpler rules would do; without those that find nothing."""
    number = {name: n for n, name in enumerate(dict.fromkeys(queue))}
    others = {
        "best pair first": greedy(problem),
        "first come, 50/50": first_come(problem, [number[name] for name in queue]),
        "each job alone": all_alone(problem),
    }
    return {name: placement for name, placement in others.items() if placement}


def environments(use: Use) -> list[dict[str, str]]:
    """Variables that limit each job under MPS; none without limits."""
    if use.split is None or use.split == UNCAPPED:
        return [{} for _ in use.jobs]
    return [{PERCENTAGE: str(Share(share))} for share in use.split]


def way(use: Use) -> str:
    """Shares as people write them, `uncapped` or `alone`."""
    if use.split is None:
        return "alone"
    return "uncapped" if use.split == UNCAPPED else f"{use.split[0]:g}/{use.split[1]:g}"


def to_json(planned: Planned) -> dict[str, Any]:
    """Keys that stay; docs/place.md explains them."""
    problem, solution = planned.problem, planned.solution
    return {
        "gpu_model": planned.gpu_model,
        "objective": planned.wanted.objective,
        "jobs": len(planned.wanted.queue),
        "idle_power_w": problem.idle_power_w,
        **_totals(solution.placement),
        "uses": [_use(use) for use in solution.placement.uses],
        "most_jobs": solution.most_jobs,
        # Infinity is no JSON.
        "gap": solution.gap if math.isfinite(solution.gap) else None,
        "timed_out": solution.timed_out,
        "others": [
            {"way": name, **_totals(other), "gain": planned.gain_over(other)}
            for name, other in planned.others.items()
        ],
        "bundled_profiles": list(planned.bundled),
        "warnings": list(planned.warnings),
        "model": {
            "version": planned.manifest.version,
            "gpu_models": list(planned.manifest.gpu_models),
        },
    }


def _totals(placement: Placement) -> dict[str, Any]:
    return {
        "gpus": placement.gpus,
        "gpus_used": placement.gpus_used,
        "jobs_placed": placement.jobs,
        "work": placement.work,
        "power_w": placement.power_w,
        "work_per_joule": placement.work_per_joule,
        "waiting": dict(placement.waiting),
    }


def _use(use: Use) -> dict[str, Any]:
    return {
        "gpus": use.gpus,
        "jobs": list(use.jobs),
        "way": way(use),
        "shares_percent": list(use.split) if use.split else None,
        "environments": environments(use),
        "speeds": list(use.speeds),
        "power_w": use.power_w,
    }


def _nothing_fits(profiles: Sequence[Profile]) -> NoSplitError:
    return NoSplitError(
        f"none of {', '.join(profile.job for profile in profiles)} can be placed",
        why="not one keeps these limits, alone or beside another one",
        fix="loosen --max-power, --memory or --min-speed",
    )
