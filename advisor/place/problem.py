"""A queue of jobs on several GPUs: what is to be done, who can share, and what must hold.

Work is counted in seconds that a job takes alone on a whole GPU. A group is one job alone, or two
at a split; it has its GPU until both have ended. `advisor.place.solver` finds the groups,
`advisor.place.schedule` says when and where each runs, `advisor.place.schedule` does without a
plan.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from advisor.core.gpu import MEMORY_PART
from advisor.core.objectives import AIMS, DEFAULT_OBJECTIVE
from advisor.core.split import NINE, Split
from advisor.decide.limits import Request, sure_speeds
from advisor.errors import InputError, NoSplitError
from advisor.predict.predictions import Predictor, is_within, safe_splits_of
from advisor.predict.profiles import Floats, Profile
from advisor.validity.safe_counts import CheckedCounts
from advisor.wire.requests import WORK_S

Ints: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PairOptions:
    """What pairs of types do at splits; NaN where nothing is known of a pair at a split.

    Attributes:
        types: Index of the type of each job, shape (2, pairs); twice the same for a job next to its
            like.
        splits: The splits that were wanted, in the order of the columns.
        used: For each pair the splits that stand for them, where counts were checked; None where
            no safe one is left.
        speed: Relative speed of each job, shape (2, pairs, splits).
        low_speed: The low end of its interval, shape (2, pairs, splits).
        power_w: Power of the GPU, shape (pairs, splits).
        left_speed: Relative speed of each job under its limit once the other has ended, shape
            (2, pairs, splits).
        left_power_w: Power of the GPU then, shape (2, pairs, splits).
    """

    types: Ints
    splits: tuple[Split, ...]
    speed: Floats
    low_speed: Floats
    power_w: Floats
    left_speed: Floats
    left_power_w: Floats
    used: Sequence[Sequence[Split | None]] = ()

    def split(self, row: int, column: int) -> Split | None:
        """What a pair is limited to in a column."""
        return self.used[row][column] if self.used else self.splits[column]

    @property
    def most_power_w(self) -> Floats:
        """The most that a pair draws until both have ended, shape (pairs, splits)."""
        return np.maximum(self.power_w, self.left_power_w.max(axis=0))


def predict_options(
    profiles: Sequence[Profile],
    predictor: Predictor,
    checked: CheckedCounts | None = None,
    on_progress: Callable[[int, int], None] = lambda done, pairs: None,
) -> PairOptions:
    """What a predictor expects of every pair of profiles, each next to another of its kind too.

    Args:
        profiles: One of each type, all of one GPU model.
        predictor: Of pairs.
        checked: What the check of the GPU model found: in the place of a split with an unsafe count
            the nearest safe one is asked for.
        on_progress: Called after each pair with the pairs done and all pairs.

    Raises:
        InputError: profiles of several GPU models, or one that lacks the idle power.
    """
    if len(models := sorted({profile.gpu_model for profile in profiles})) > 1:
        raise InputError(
            f"the profiles are of {', '.join(models)}",
            why="a placement is on GPUs of one model",
            fix="place the jobs of each model by themselves",
        )
    for profile in profiles:
        _check_power(f"the idle power in the profile of {profile.job}", profile.idle_power_w)
    types = np.array(np.triu_indices(len(profiles)))
    shape = types.shape[1], len(NINE)
    options = PairOptions(
        types=types,
        splits=NINE,
        speed=np.full((2, *shape), np.nan),
        low_speed=np.full((2, *shape), np.nan),
        power_w=np.full(shape, np.nan),
        left_speed=np.full((2, *shape), np.nan),
        left_power_w=np.full((2, *shape), np.nan),
    )
    used: list[tuple[Split | None, ...]] = []
    pairs = combinations_with_replacement(profiles, 2)  # in the order of triu_indices
    for row, pair in enumerate(pairs):
        safe = safe_splits_of(pair, NINE, checked)
        # Most pairs have the same ones, and there can be tens of thousands of pairs.
        used.append(used[-1] if used and used[-1] == safe else safe)
        _fill(options, row, predictor, pair, safe)
        on_progress(row + 1, types.shape[1])
    return replace(options, used=tuple(used))


def mean_idle_power_w(profiles: Sequence[Profile]) -> float:
    """Power of a GPU that runs nothing, as the profiles found it before their jobs started."""
    return float(np.mean([profile.idle_power_w for profile in profiles]))


def _check_power(what: str, power_w: float) -> None:
    """Refuse a power that no GPU draws.

    Raises:
        InputError: 0, less, or no number.
    """
    if not 0 < power_w < math.inf:
        raise InputError(f"{what} is {power_w} W", why="energy is power times time")


def _fill(
    options: PairOptions,
    row: int,
    predictor: Predictor,
    pair: Sequence[Profile],
    splits: Sequence[Split | None],
) -> None:
    known = {n: split for n, split in enumerate(splits) if split and is_within(split, pair)}
    if not known:
        return
    found = predictor.predict(pair, list(known.values()))
    for column, p in zip(known, found, strict=True):
        options.speed[:, row, column] = [part.speed.value for part in p.parts]
        options.low_speed[:, row, column] = [part.speed.low for part in p.parts]
        options.power_w[row, column] = p.power_w.value
    for n, profile in enumerate(pair):
        alone = profile.at([split.shares[n] for split in known.values()])
        options.left_speed[n, row, list(known)] = alone["rate"] / profile.whole_gpu_rate
        options.left_power_w[n, row, list(known)] = alone["power_w"]


Bools: TypeAlias = npt.NDArray[np.bool_]

MOST_KINDS = 300
"""Jobs that differ in name or work: 45,150 pairs of them at nine splits each."""

SAVES_ENERGY: Mapping[str, bool] = {DEFAULT_OBJECTIVE: True, "throughput": False}
"""Objectives of queues: whether a plan's joules count, or the time until its last job has ended."""

_COUNTED = "a queue is work that must be done, and is counted in joules or in seconds"

_NOT_A_SUM: Mapping[str, str] = {
    "energy-delay": "energy times time of a whole cluster is not a sum over its GPUs",
    "max-min": "the slowest job decides alone: run each job alone, or raise --min-speed",
}
"""Why some other objectives have no plan; of all others it is that queues are counted otherwise."""


@dataclass(frozen=True, slots=True, order=True)
class QueuedJob:
    """A job of the queue: its name, and its work in seconds alone on a whole GPU."""

    name: str
    work_s: float = WORK_S

    def __post_init__(self) -> None:
        if not 0 < self.work_s < math.inf:  # true of NaN as well
            raise InputError(
                f"{self.work_s:g} s of {self.name} is not an amount of work",
                fix="give the time that the job takes alone, such as 3h or 90min",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobType:
    """What is known of a job alone on a whole GPU; `memory_mib` is None where it is not known."""

    name: str
    power_w: float
    memory_mib: float | None = None

    def __post_init__(self) -> None:
        _check_power(f"the power of {self.name} alone", self.power_w)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Problem:
    """Jobs, GPUs and what must hold.

    Attributes:
        queue: In the order in which the jobs came.
        options: Pairs of these types, in their order.
        idle_power_w: Power of a GPU that runs nothing.
        saves_energy: Whether energy is minimised, and not the time until the last job has ended.
        pair_fits: Which pairs keep every limit at which split, shape (pairs, splits).
        alone_fits: Which types do so alone, shape (types,).
        min_gain: Least gain of a pair over one after the other; 0.1 is a tenth.
    """

    queue: tuple[QueuedJob, ...]
    types: tuple[JobType, ...]
    options: PairOptions
    gpus: int
    idle_power_w: float
    saves_energy: bool
    pair_fits: Bools
    alone_fits: Bools
    min_gain: float = 0.0

    @property
    def kinds(self) -> dict[QueuedJob, int]:
        """How many jobs of each name and work, in an order that does not depend on the queue's."""
        return dict(sorted(Counter(self.queue).items()))

    def type_of(self, job: QueuedJob) -> int:
        """Index of a job's type."""
        return next(n for n, kind in enumerate(self.types) if kind.name == job.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobGroup:
    """One or two jobs that have a GPU until both have ended.

    Attributes:
        split: Of two jobs; None for a job alone on the whole GPU.
        speeds: Relative speed of each while all run.
        power_w: Power of the GPU while all run.
        times_s: From the start until each has ended; the one that is left keeps its limit.
        energy_j: Of the GPU until both have ended.
        alone_j: The same work, one job after the other, each alone on the whole GPU.
    """

    jobs: tuple[QueuedJob, ...]
    split: Split | None
    speeds: tuple[float, ...]
    power_w: float
    times_s: tuple[float, ...]
    energy_j: float
    alone_j: float

    @property
    def time_s(self) -> float:
        """How long it has its GPU."""
        return max(self.times_s)

    @property
    def alone_s(self) -> float:
        """How long one job after the other takes."""
        return sum(job.work_s for job in self.jobs)

    @property
    def energy_saved(self) -> float:
        """Part of the energy that sharing saves against one after the other."""
        return 1 - self.energy_j / self.alone_j

    @property
    def time_saved(self) -> float:
        """Part of the GPU's time that sharing saves against one after the other."""
        return 1 - self.time_s / self.alone_s


def alone_group(job: QueuedJob, power_w: float) -> JobGroup:
    """A job alone on the whole GPU, which draws that power."""
    energy_j = job.work_s * power_w
    return JobGroup(
        jobs=(job,),
        split=None,
        speeds=(1.0,),
        power_w=power_w,
        times_s=(job.work_s,),
        energy_j=energy_j,
        alone_j=energy_j,
    )


def make_problem(
    queue: Sequence[QueuedJob],
    types: Sequence[JobType],
    options: PairOptions,
    gpus: int,
    *,
    idle_power_w: float,
    objective: str = DEFAULT_OBJECTIVE,
    limits: Request | None = None,
    min_gain: float = 0.0,
) -> Problem:
    """A problem whose numbers make sense.

    Types have each name once, and options are of pairs of them, in their order. A job of unknown
    memory is taken to need none.

    Raises:
        InputError: nonsense, too many kinds of jobs, or an objective that is not for queues.
        NoSplitError: a job keeps no limit, neither alone nor next to any other job of the queue.
    """
    if objective not in SAVES_ENERGY:
        raise InputError(
            f"a queue is not placed by {objective}",
            why=_NOT_A_SUM.get(objective, _COUNTED),
            fix=f"use {' or '.join(SAVES_ENERGY)}, or of jobs that run together "
            f"{', '.join(AIMS)}; --min-speed protects each job",
        )
    _check(queue, types, options, gpus)
    _check_power("the power of an idle GPU", idle_power_w)
    limits = limits or Request()
    problem = Problem(
        queue=tuple(queue),
        types=tuple(types),
        options=options,
        gpus=gpus,
        idle_power_w=idle_power_w,
        saves_energy=SAVES_ENERGY[objective],
        pair_fits=_pair_fits(types, options, limits),
        alone_fits=(_memory_mib(types) <= _or_inf(limits.memory_mib))
        & (np.array([kind.power_w for kind in types]) <= _or_inf(limits.max_power_w)),
        min_gain=min_gain,
    )
    _check_all_fit(problem)
    return problem


def _check(
    queue: Sequence[QueuedJob], types: Sequence[JobType], options: PairOptions, gpus: int
) -> None:
    if gpus < 1 or not queue:
        raise InputError(f"{len(queue)} jobs on {gpus} GPUs: nothing to place")
    if doubles := [name for name, n in Counter(kind.name for kind in types).items() if n > 1]:
        raise InputError(f"{', '.join(doubles)} is given as several types")
    if (kinds := len(set(queue))) > MOST_KINDS:
        raise InputError(
            f"these are {kinds} jobs that differ in name or work",
            why=f"every pair of them is looked at, so at most {MOST_KINDS} are taken",
            fix="round the work of each job, or place them in parts",
        )
    # A comparison with NaN is false: what is not known is no nonsense.
    backwards = (options.speed < 0).any()
    if bool(backwards or (options.power_w <= 0).any()):
        raise InputError("a pair that draws no power, or goes backwards, is nonsense")


def _check_all_fit(problem: Problem) -> None:
    first, second = problem.options.types
    counts = Counter(job.name for job in problem.queue)
    several = np.array([counts[kind.name] > 1 for kind in problem.types])
    fits = problem.pair_fits.any(axis=1) & ((first != second) | several[first])
    shared: set[int] = {*first[fits].tolist(), *second[fits].tolist()}
    lost = [
        kind.name
        for n, kind in enumerate(problem.types)
        if not problem.alone_fits[n] and n not in shared
    ]
    if lost:
        raise NoSplitError(
            f"{', '.join(lost)} cannot be placed",
            why="no limit is kept, neither alone nor beside another job of the queue",
            fix="loosen --max-power or --memory, or leave those jobs out",
        )


def _pair_fits(types: Sequence[JobType], options: PairOptions, limits: Request) -> Bools:
    least = np.array([limits.min_speed_of(kind.name) for kind in types])
    # Servers have their floors by name.
    speed = sure_speeds(options.speed, options.low_speed, limits.policy.chance)
    together_mib = _memory_mib(types)[options.types].sum(axis=0)
    # A comparison with NaN is false: what is not known is no option. Nor is standing still.
    return (
        (speed >= least[options.types][:, :, None]).all(axis=0)
        & (options.speed > 0).all(axis=0)
        & (options.most_power_w <= _or_inf(limits.max_power_w))
        & (together_mib <= MEMORY_PART * _or_inf(limits.memory_mib))[:, None]
    )


def _memory_mib(types: Sequence[JobType]) -> Floats:
    return np.array([kind.memory_mib or 0.0 for kind in types])


def _or_inf(limit: float | None) -> float:
    return math.inf if limit is None else limit
