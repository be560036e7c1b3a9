"""Many jobs on several GPUs: who can run with whom, what must hold, and who runs where.

Equal jobs are grouped by type. One GPU runs a pair of jobs at a split, one job alone, or nothing;
jobs without a place wait. `advisor.place_solver` finds the best placement, `advisor.place_rules`
those that people choose without it.

Work is counted in relative speed: 1 is what a job does alone on a whole GPU.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from advisor.constraints import Limits
from advisor.errors import InputError
from advisor.gpu import MEMORY_PART
from advisor.objectives import PER_WATT_OBJECTIVE, find_objective
from advisor.place_options import Ints, JobType, PairOptions, check_power
from advisor.predictions import Split
from advisor.profiles import Floats

Bools: TypeAlias = npt.NDArray[np.bool_]

Choice: TypeAlias = tuple[int, int]
"""What one GPU does: (row of a pair, column of its split), or (type, `ALONE`)."""

ALONE = -1

PLACE_OBJECTIVE = PER_WATT_OBJECTIVE

NO_LIMITS = Limits(default_min_speed=0)

REFUSED: Mapping[str, str] = {
    "energy-efficiency": "a job that waits saves nothing, and it is not asked which jobs wait",
    "raw-throughput-per-watt": "over many jobs it adds rates of many units, and the type with the "
    "largest numbers would decide",
    "energy-delay": "energy times time of a whole cluster is no sum over its GPUs",
    "max-min": "the slowest job decides alone, so nearly all placements are worth the same",
}
"""Objectives that are not for placements, and why."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Problem:
    """Jobs, GPUs and what must hold.

    Attributes:
        gpus: How many there are, all of one model.
        idle_power_w: Power of a GPU that runs nothing.
        per_watt: Whether work per joule is maximised, and not work.
        pair_fits: Which pairs there can be, and keep every limit at which split, shape
            (pairs, splits).
        alone_fits: Which types do so alone, shape (types,).
    """

    types: tuple[JobType, ...]
    options: PairOptions
    gpus: int
    idle_power_w: float
    per_watt: bool
    pair_fits: Bools
    alone_fits: Bools

    @property
    def counts(self) -> Ints:
        """Jobs of each type, shape (types,)."""
        return np.array([kind.count for kind in self.types])


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What some GPUs do, each of them the same.

    Attributes:
        gpus: How many.
        jobs: Two names, or one of a job alone.
        split: Shares of the two jobs; None for a job alone.
        speeds: Relative speed of each job.
        power_w: Power of each GPU.
    """

    gpus: int
    jobs: tuple[str, ...]
    split: Split | None
    speeds: tuple[float, ...]
    power_w: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Who runs where.

    Attributes:
        uses: What the busy GPUs do, the most frequent first.
        waiting: How many jobs of each type have no place.
        gpus: All GPUs, idle ones among them.
        work: Sum of all relative speeds.
        power_w: Power of all GPUs, idle ones among them.
    """

    uses: tuple[Use, ...]
    waiting: Mapping[str, int]
    gpus: int
    work: float
    power_w: float

    @property
    def gpus_used(self) -> int:
        """GPUs that run something."""
        return sum(use.gpus for use in self.uses)

    @property
    def jobs(self) -> int:
        """Jobs that have a place."""
        return sum(use.gpus * len(use.jobs) for use in self.uses)

    @property
    def work_per_joule(self) -> float:
        """Sum of relative speeds per watt of all GPUs."""
        return self.work / self.power_w


def make_problem(
    types: Sequence[JobType],
    options: PairOptions,
    gpus: int,
    *,
    idle_power_w: float,
    objective: str = PLACE_OBJECTIVE,
    limits: Limits = NO_LIMITS,
) -> Problem:
    """A problem whose numbers make sense.

    Args:
        types: Each name once.
        options: Pairs of these types, in their order.
        gpus: How many GPUs there are.
        idle_power_w: Power of a GPU that runs nothing.
        objective: `throughput-per-watt` or `throughput`.
        limits: What every GPU and job must keep; a job of unknown memory is taken to need none.

    Raises:
        InputError: nonsense, or an objective that is not for placements.
    """
    find_objective(objective)
    if objective in REFUSED:
        raise InputError(
            f"jobs are not placed by {objective}",
            why=REFUSED[objective],
            fix="use throughput-per-watt or throughput; --min-speed protects each job",
        )
    if gpus < 1 or not types:
        raise InputError(f"{len(types)} types of jobs on {gpus} GPUs: nothing to place")
    if doubles := [name for name, n in Counter(kind.name for kind in types).items() if n > 1]:
        raise InputError(f"{', '.join(doubles)} is given as several types", fix="add the counts")
    check_power("the power of an idle GPU", idle_power_w)
    # A comparison with NaN is false: what is not known is no nonsense.
    backwards = (np.minimum(options.speed_a, options.speed_b) < 0).any()
    if bool(backwards or (options.power_w <= 0).any()):
        raise InputError("a pair that draws no power, or goes backwards, is nonsense")
    return Problem(
        types=tuple(types),
        options=options,
        gpus=gpus,
        idle_power_w=idle_power_w,
        per_watt=objective == PLACE_OBJECTIVE,
        pair_fits=_pair_fits(types, options, limits),
        alone_fits=_alone_fits(types, limits),
    )


def value(problem: Problem, placement: Placement) -> float:
    """What the problem maximises, of one placement."""
    return placement.work_per_joule if problem.per_watt else placement.work


def placed(problem: Problem, chosen: Mapping[Choice, int]) -> Placement:
    """The placement that makes each choice so many times."""
    uses = [_use(problem, choice, times) for choice, times in chosen.items() if times]
    names = Counter({kind.name: kind.count for kind in problem.types})
    for use in uses:
        names.subtract({name: use.jobs.count(name) * use.gpus for name in set(use.jobs)})
    used = sum(use.gpus for use in uses)
    return Placement(
        uses=tuple(sorted(uses, key=lambda use: (-use.gpus, -len(use.jobs), use.jobs))),
        waiting={name: left for name, left in names.items() if left},
        gpus=problem.gpus,
        work=sum(use.gpus * sum(use.speeds) for use in uses),
        power_w=sum(use.gpus * use.power_w for use in uses)
        + (problem.gpus - used) * problem.idle_power_w,
    )


def _use(problem: Problem, choice: Choice, times: int) -> Use:
    row, column = choice
    if column == ALONE:
        kind = problem.types[row]
        return Use(gpus=times, jobs=(kind.name,), split=None, speeds=(1.0,), power_w=kind.power_w)
    options = problem.options
    ends = int(options.first[row]), int(options.second[row])
    return Use(
        gpus=times,
        jobs=tuple(problem.types[end].name for end in ends),
        split=options.split(row, column),
        speeds=(float(options.speed_a[row, column]), float(options.speed_b[row, column])),
        power_w=float(options.power_w[row, column]),
    )


def _pair_fits(types: Sequence[JobType], options: PairOptions, limits: Limits) -> Bools:
    least = np.array([limits.least_speed(kind.name) for kind in types])[:, None]
    memory_mib = _memory_mib(types)
    together_mib = memory_mib[options.first] + memory_mib[options.second]
    counts = np.array([kind.count for kind in types])
    there = (options.first != options.second) | (counts[options.first] > 1)
    # A comparison with NaN is false: what is not known is no option.
    return (
        (options.speed_a >= least[options.first])
        & (options.speed_b >= least[options.second])
        & (options.power_w <= _or_inf(limits.max_power_w))
        & (there & (together_mib <= MEMORY_PART * _or_inf(limits.memory_mib)))[:, None]
    )


def _alone_fits(types: Sequence[JobType], limits: Limits) -> Bools:
    power_w = np.array([kind.power_w for kind in types])
    fits = _memory_mib(types) <= _or_inf(limits.memory_mib)
    return (power_w <= _or_inf(limits.max_power_w)) & fits


def _memory_mib(types: Sequence[JobType]) -> Floats:
    return np.array([kind.memory_mib or 0.0 for kind in types])


def _or_inf(limit: float | None) -> float:
    return math.inf if limit is None else limit
