"""What a GPU's power goes to: floor, classes of SM work, fabric and memory."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from advisor.core.gpu import UNCAPPED, WHOLE, Split
from advisor.core.objectives import Interval
from advisor.core.records import DOUBTFUL, PairPoint, SoloPoint
from advisor.core.telemetry import NEAR_LIMIT
from advisor.decide.decision import Decision
from advisor.errors import InputError
from advisor.predict.features import FULL_BANDWIDTH_PERCENT
from advisor.predict.predictions import Prediction
from advisor.predict.profiles import Floats, Profile
from advisor.validity.points import is_usable, with_pair_flags, with_solo_flags
from advisor.wire.answers import (
    Basis,
    ComponentsOfJob,
    ComponentsOfPair,
    FittedTo,
    PowerParts,
    ShareParts,
    SplitParts,
)

Component: TypeAlias = Literal["floor", "tensor", "fp32", "integer", "warps", "fabric", "memory"]

PARTS: Mapping[Component, str] = MappingProxyType(
    {
        "floor": "a context on an idle GPU at full clock, and leakage, which grows with heat",
        "tensor": "tensor cores",
        "fp32": "FP32 pipe",
        "integer": "integer pipe",
        "warps": "SMs that hold warps: scheduling, registers, shared memory and all other pipes",
        "fabric": "what is awake while kernels run, such as L2 and crossbar; where the memory was "
        "measured, moving its bytes through them, too",
        "memory": "moving bytes to and from HBM: HBM, L2 and crossbar; HBM alone where its sensor "
        "was read",
    }
)
"""Every part of the power, and what it stands for."""

SM_CLASSES: Mapping[Component, str] = MappingProxyType(
    {
        "tensor": "tensor_active_percent",
        "fp32": "fp32_active_percent",
        "integer": "integer_active_percent",
        "warps": "sm_active_percent",
    }
)
"""Classes of SM work, and the counter of each.

No FP16 and FP64: no job that was measured uses these pipes in earnest, so nothing says what they
draw. They are looked at when it is asked whether a job is like those that were measured.
"""

TERMS: Mapping[str, Component] = MappingProxyType(
    {
        "floor": "floor",
        "temperature": "floor",
        **{part: part for part in SM_CLASSES},
        "fabric": "fabric",
        "memory": "memory",
    }
)
"""Terms in the order of their columns, and the part that each one is of."""

SM_POWER_EXPONENT = 2.5
"""Power of SM work grows with this power of the clock: with the clock and the square of the
voltage, which follows the clock, but less than in proportion (3 if it did, 1 if it stayed). Chosen
of 2, 2.5 and 3, which docs/measurements/power/component_fit.py compares."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """Readings of one window that power is explained by.

    Attributes:
        counters: Percent by column, of `COLUMNS`.
        units_part: Part of the SMs that jobs may use, at most 1.
    """

    counters: Mapping[str, float]
    units_part: float
    clock_mhz: float
    temperature_c: float

    def terms(self, highest_clock_mhz: float) -> Floats:
        """What weights are multiplied with, in the order of `TERMS`.

        SM work costs about the clock times the square of the voltage, which changes with the clock
        as well: `SM_POWER_EXPONENT`. Memory has a clock of its own that does not move.
        """
        slower = (self.clock_mhz / highest_clock_mhz) ** SM_POWER_EXPONENT
        parts = {name: value / WHOLE for name, value in self.counters.items()}
        awake = min(1.0, parts["sm_active_percent"] / self.units_part)
        # Leakage counts from the temperature of an idle card.
        leakage = max(0.0, self.temperature_c - 30.0) / 100
        classes = [parts[column] * slower for column in SM_CLASSES.values()]
        return np.array([1.0, leakage, *classes, awake, parts["dram_active_percent"]])


COLUMNS = (
    *SM_CLASSES.values(),
    "dram_active_percent",
    "fp16_active_percent",
    "fp64_active_percent",
)


def activity_of(point: SoloPoint | PairPoint) -> Activity | None:
    """The activity of a window; None where a reading is missing."""
    found: dict[str, float | None] = {name: getattr(point, name) for name in COLUMNS}
    counters = {n: float(v) for n, v in found.items() if v is not None and math.isfinite(v)}
    if len(counters) < len(COLUMNS) or not point.sm_clock_mhz or point.temperature_c is None:
        return None
    given = (
        [point.units_granted] if isinstance(point, SoloPoint) else [p.units for p in point.parts]
    )
    units = sum(units or 0 for units in given)
    capped = None not in given and getattr(point, "mode", "") != "uncapped"
    part = max(1, units) / point.units_total if capped and point.units_total else 1.0
    return Activity(
        counters=counters,
        units_part=min(1.0, part),
        clock_mhz=point.sm_clock_mhz,
        temperature_c=point.temperature_c,
    )


def non_negative_least_squares(
    matrix: Floats, values: Floats, begin: npt.NDArray[np.bool_] | None = None
) -> Floats:
    """The x (columns,) of no negative number with the least |matrix x - values|.

    It begins with coefficients above 0 in these columns, such as those of nearly the same problem;
    None: in no column.
    """
    # Columns of one size: what counts as nothing is then the same of each coefficient.
    sizes = np.abs(matrix).max(axis=0)
    sizes[sizes == 0] = 1.0
    matrix = matrix / sizes
    columns = matrix.shape[1]
    free = np.zeros(columns, dtype=bool) if begin is None else begin.copy()
    found = _inside(matrix, values, np.zeros_like(sizes), free)
    # With a smaller gradient no coefficient is worth moving.
    least = 1e-9 * max(float(np.abs(matrix.T @ values).max(initial=0.0)), 1e-300)
    for _ in range(3 * columns):
        gradient = np.where(free, -np.inf, matrix.T @ (values - matrix @ found))
        if gradient.max(initial=-np.inf) <= least:
            break
        free[int(gradient.argmax())] = True
        found = _inside(matrix, values, found, free)
    return found / sizes


def _inside(matrix: Floats, values: Floats, found: Floats, free: npt.NDArray[np.bool_]) -> Floats:
    """Moves towards the least squares of the free columns, and frees fewer until none is negative.

    Changes `free`.
    """
    while free.any():
        wanted = np.zeros_like(found)
        wanted[free] = np.linalg.lstsq(matrix[:, free], values, rcond=None)[0]
        blocked = free & (wanted <= 0)
        if not blocked.any():
            return wanted
        steps = np.full_like(found, np.inf)
        steps[blocked] = found[blocked] / np.maximum(found[blocked] - wanted[blocked], 1e-300)
        found = found + float(steps.min()) * (wanted - found)
        # Those that are at 0 and would go below. A new one that is still at 0 goes up: it stays.
        free &= ~blocked | (found > 1e-12 * max(float(found.max()), 1e-300))
        free[int(steps.argmin())] = False
        found = np.where(free, found, 0.0)
    return np.zeros_like(found)


DRAWS = 200
"""Fits to jobs drawn again, from which intervals are made."""

MICROBENCHMARK = "component-"
"""Begins the names of jobs that keep one part of the GPU busy (jobs/components). Weights that are
fitted to them as well miss the power of all other jobs by 4.2 % instead of 3.7 % on average
(docs/component-power.md)."""

# Fewer jobs than terms say nothing of what each term draws.
_FEWEST_JOBS = 8

# Part of the largest reading by which a window may lie outside all that weights were fitted to.
_OUTSIDE = 0.1


@dataclass(frozen=True, slots=True, eq=False)
class ComponentWeights:
    """Watts for each term at 1: an activity of 100 % at the highest clock.

    Attributes:
        values: None is negative; in the order of `TERMS`, shape (terms,).
        draws: The same, each fitted to jobs drawn again; shape (draws, terms).
        terms: Of the points that it was fitted to; shape (points, terms).
        counters: Largest reading of each counter among them, percent.
    """

    gpu_model: str
    highest_clock_mhz: float
    values: Floats
    draws: Floats
    terms: Floats
    counters: dict[str, float]
    jobs: tuple[str, ...]

    def outside(self, activity: Activity) -> tuple[str, ...]:
        """What is unlike any mixture of the windows that it was fitted to; empty: nothing.

        A mixture is nearest by least squares, each term relative to its largest. Pipes without a
        weight are compared with the most that was seen of them.
        """
        unweighed = [
            name
            for name in ("fp16_active_percent", "fp64_active_percent")
            if activity.counters[name] > self.counters[name] + 100 * _OUTSIDE
        ]
        scale = np.maximum(self.terms.max(axis=0), 1e-9)
        known, asked = self.terms / scale, activity.terms(self.highest_clock_mhz) / scale
        # The first term is 1 everywhere, so that ten times it has the parts sum to 1.
        known[:, 0], asked[0] = 10.0, 10.0
        mixture = non_negative_least_squares(known.T, asked) @ known
        far = np.abs(mixture - asked) > _OUTSIDE
        return (*(name for name, is_far in zip(TERMS, far, strict=True) if is_far), *unweighed)


def fit_components(points: Iterable[SoloPoint]) -> ComponentWeights:
    """Weights of one GPU model, from the points of jobs alone that can be trusted.

    Relative errors count, since a job that idles half its time draws a third of what others do.
    Jobs are drawn with all their points, which resemble each other.

    Args:
        points: Of one GPU model; those that failed a cross-check or lack a reading are left out.

    Raises:
        InputError: points of several GPU models, or of fewer than `_FEWEST_JOBS` jobs.
    """
    known = [(p, a) for p in fitted_to(points) if (a := activity_of(p)) is not None]
    models, jobs = {p.gpu_model for p, _ in known}, sorted({p.job for p, _ in known})
    if len(models) > 1:
        raise InputError(f"component weights are of one GPU model, not of {sorted(models)}")
    if len(jobs) < _FEWEST_JOBS:
        raise InputError(
            f"{len(jobs)} jobs with all counters, clock and temperature are too few for component "
            "weights",
            why=f"what each part draws is told apart by at least {_FEWEST_JOBS} unlike jobs",
            fix="profile more jobs on that GPU: advisor profile JOB",
        )
    highest = max(a.clock_mhz for _, a in known)
    terms = np.array([a.terms(highest) for _, a in known])
    rows = terms / np.array([p.power_w or 0.0 for p, _ in known])[:, None]
    by_job = [rows[[p.job == job for p, _ in known]] for job in jobs]
    values = non_negative_least_squares(rows, np.ones(len(rows)))
    dice, draws = np.random.default_rng(0), list[Floats]()
    for _ in range(DRAWS):
        chosen: list[int] = dice.integers(len(by_job), size=len(by_job)).tolist()
        drawn: Floats = np.concatenate([by_job[n] for n in chosen])
        # Nearly all draws have coefficients in the same columns as all jobs together.
        draws.append(non_negative_least_squares(drawn, np.ones(len(drawn)), values > 0))
    return ComponentWeights(
        gpu_model=models.pop(),
        highest_clock_mhz=highest,
        values=values,
        draws=np.array(draws),
        terms=terms,
        counters={n: max(a.counters[n] for _, a in known) for n in known[0][1].counters},
        jobs=tuple(jobs),
    )


def _trusted(points: Iterable[SoloPoint]) -> list[SoloPoint]:
    """Those with a power that passed every cross-check, among them right results."""
    return [p for p in with_solo_flags(points) if is_usable(p) and DOUBTFUL.isdisjoint(p.flags)]


def fitted_to(points: Iterable[SoloPoint]) -> list[SoloPoint]:
    """The trusted ones that weights are fitted to."""
    return [p for p in _trusted(points) if not p.job.startswith(MICROBENCHMARK)]


_PERCENTILES = (5.0, 95.0)  # of the draws: the bounds of a part
_UNREAD_MEMORY = 2.0  # how much wider the interval of memory is where its sensor was not read
_FABRIC, _MEMORY = list(PARTS).index("fabric"), list(PARTS).index("memory")
# 1 where a term is of a part, shape (terms, parts).
_BELONGS = np.array([[of == part for part in PARTS] for of in TERMS.values()], dtype=np.float64)


def components(
    weights: ComponentWeights,
    activity: Activity,
    total_w: float,
    memory_power_w: float | None = None,
    *,
    power_basis: Basis = "measured",
    limit_w: float | None = None,
) -> PowerParts:
    """Split a total in proportion to what the weights expect, the memory as measured if it was.

    Args:
        weights: Of the GPU model.
        activity: Of the window.
        total_w: Its power, above 0.
        memory_power_w: From the sensor of the memory, over the same window; None, or a reading that
            cannot be (not between 0 and the total): estimated.
        power_basis: How the total is known.
        limit_w: Power limit of the GPU; None: not known.
    """
    terms = activity.terms(weights.highest_clock_mhz)
    unlike = weights.outside(activity)
    others: Basis = "extrapolated" if unlike else "estimated"
    found = _scaled((np.vstack([weights.values, weights.draws]) * terms) @ _BELONGS, total_w)
    # "not between" is true of NaN as well.
    is_read = memory_power_w is not None and 0 < memory_power_w < total_w
    if is_read and memory_power_w is not None:
        # The weight of memory has L2 and crossbar in it: what is above the sensor is fabric's.
        core = found.copy()
        core[:, _FABRIC] += np.maximum(0.0, found[:, _MEMORY] - memory_power_w)
        core[:, _MEMORY] = 0.0
        found = _scaled(core, total_w - memory_power_w)
        found[:, _MEMORY] = memory_power_w
    low, high = np.percentile(found[1:], _PERCENTILES, axis=0)
    value = found[0]
    low, high = np.minimum(low, value), np.maximum(high, value)
    if not is_read:
        below, above = value[_MEMORY] - low[_MEMORY], high[_MEMORY] - value[_MEMORY]
        low[_MEMORY] = max(0.0, value[_MEMORY] - _UNREAD_MEMORY * below)
        high[_MEMORY] = min(total_w, value[_MEMORY] + _UNREAD_MEMORY * above)
    return PowerParts(
        power_w=total_w,
        power_basis=power_basis,
        headroom_w=None if limit_w is None else limit_w - total_w,
        clock_mhz=activity.clock_mhz,
        components_w={
            str(part): Interval(float(value[n]), float(low[n]), float(high[n]))
            for n, part in enumerate(PARTS)
        },
        memory_basis="measured" if is_read else others,
        others_basis=others,
        unlike=unlike,
    )


def _scaled(watts: Floats, total_w: float) -> Floats:
    """Each row as parts of the total; what draws nothing at all is floor."""
    sums = watts.sum(axis=1, keepdims=True)
    floor = np.zeros_like(watts)
    floor[:, 0] = 1.0
    return total_w * np.where(sums > 0, watts / np.maximum(sums, 1e-300), floor)


_SLOWEST = 0.1  # least part of the highest clock that is considered

# Which terms follow the clock of the SMs.
_OF_CLOCK = np.array([of in SM_CLASSES for of in TERMS.values()])

# 1 for terms that jobs add to, 0 for those of the floor.
_OF_JOBS = np.array([of != "floor" for of in TERMS.values()], dtype=np.float64)


def at_once(activities: Sequence[Activity]) -> Activity:
    """Jobs side by side, each at the same clock: counters and SMs add up, as far as there are any.

    The memory is busy with data for `FULL_BANDWIDTH_PERCENT` of the time at most.
    """
    counters = {
        name: min(WHOLE, sum(a.counters[name] for a in activities))
        for name in activities[0].counters
    }
    dram = min(counters["dram_active_percent"], FULL_BANDWIDTH_PERCENT)
    return Activity(
        counters={**counters, "dram_active_percent": dram},
        units_part=min(1.0, sum(a.units_part for a in activities)),
        clock_mhz=max(a.clock_mhz for a in activities),
        temperature_c=max(a.temperature_c for a in activities),
    )


def at_work(activity: Activity, kept: float, clock_mhz: float) -> Activity:
    """The job at a part of its rate and at another clock: the same work takes as many cycles.

    Args:
        activity: What it does at its full rate.
        kept: Its rate for each one of that.
        clock_mhz: The other clock; of fewer cycles in a second the work takes a larger part.
    """
    cycles = kept * activity.clock_mhz / clock_mhz
    counters = {
        name: min(WHOLE, value * (cycles if name in SM_CLASSES.values() else kept))
        for name, value in activity.counters.items()
    }
    return replace(activity, counters=counters, clock_mhz=clock_mhz)


def at_power(activity: Activity, weights: ComponentWeights, power_w: float) -> Activity:
    """The same work in a second, at the clock at which the GPU draws this power.

    A larger part of fewer cycles: SM work follows the clock with one power less than
    `SM_POWER_EXPONENT`.
    """
    top = weights.highest_clock_mhz
    at_top = at_work(activity, 1.0, top)
    watts = at_top.terms(top) * weights.values
    left = (power_w - watts[~_OF_CLOCK].sum()) / max(float(watts[_OF_CLOCK].sum()), 1e-9)
    slower = float(np.clip(left, _SLOWEST, 1.0)) ** (1 / (SM_POWER_EXPONENT - 1))
    return at_work(at_top, 1.0, top * max(slower, _SLOWEST))


def causes(weights: ComponentWeights, activities: Sequence[Activity]) -> tuple[Interval, ...]:
    """Which part of the fall of the clock each job causes: the expected values sum to 1.

    As its part of the watts that all ask for above the floor, each alone at its share and at the
    highest clock: at the limit these have to share what there is.
    """
    rows = np.vstack([weights.values, weights.draws])
    top = weights.highest_clock_mhz
    of_jobs = (_OF_JOBS * at_work(a, 1.0, top).terms(top) for a in activities)
    asked = np.maximum(np.array([rows @ terms for terms in of_jobs]), 1e-9)
    parts = asked / asked.sum(axis=0)
    low, high = np.percentile(parts[:, 1:], _PERCENTILES, axis=1)
    return tuple(
        Interval(float(v), float(min(lo, v)), float(max(hi, v)))
        for v, lo, hi in zip(parts[:, 0], low, high, strict=True)
    )


@dataclass(frozen=True, slots=True, eq=False)
class KnownPower:
    """What is known of the power of jobs on one GPU model.

    Attributes:
        profiles: Of the jobs, one or two.
        solos: Of these jobs on the GPU model, doubtful ones too.
    """

    profiles: tuple[Profile, ...]
    solos: tuple[SoloPoint, ...]
    weights: ComponentWeights

    @property
    def gpu_model(self) -> str:
        """On which they were measured."""
        return self.profiles[0].gpu_model

    @property
    def power_limit_w(self) -> float | None:
        """Of the GPU; None: not known."""
        return self.profiles[0].power_limit_w

    @property
    def pair_names(self) -> tuple[str, ...]:
        """Of the jobs, as pair points have them."""
        return tuple(sorted(profile.job for profile in self.profiles))

    @property
    def fitted_to(self) -> FittedTo:
        """What the weights come from."""
        return FittedTo(windows=len(self.weights.terms), jobs=len(self.weights.jobs))

    def windows(self, job: str) -> dict[float, tuple[SoloPoint, Activity]]:
        """The newest trusted window of a job at each share, in the order of the shares.

        Raises:
            InputError: there is none with all readings.
        """
        mine = _trusted(p for p in self.solos if p.job == job)
        mine.sort(key=lambda p: p.started_at)
        read = {p.share_percent: (p, a) for p in mine if (a := activity_of(p)) is not None}
        if not read:
            raise InputError(
                f"no window of {job} on {self.gpu_model} has all counters",
                why="what the parts of the GPU draw follows from counters, clock and temperature",
                fix=f"measure it with counters: advisor doctor, then advisor profile {job}",
            )
        return dict(sorted(read.items()))


def known_power(
    profiles: Sequence[Profile], points: Iterable[SoloPoint], weights: ComponentWeights
) -> KnownPower:
    """What is known of the power of jobs on one GPU model; points may be of other jobs."""
    names = {profile.job for profile in profiles}
    mine = _each_once((p for p in points if p.job in names), profiles[0].gpu_model)
    return KnownPower(tuple(profiles), tuple(mine), weights)


def fitted_weights(points: Iterable[SoloPoint], gpu_model: str) -> ComponentWeights:
    """The component weights of a GPU model, by all that was measured on it."""
    return fit_components(_each_once(points, gpu_model))


def _each_once(points: Iterable[SoloPoint], gpu_model: str) -> list[SoloPoint]:
    """Those of a GPU model; what was imported from the bundle is the same measurement."""
    return list({p.point_id: p for p in points if p.gpu_model == gpu_model}.values())


_Windows = Mapping[float, tuple[SoloPoint, Activity]]


def components_by_share(known: KnownPower) -> ComponentsOfJob:
    """The parts of the first job's power, from the newest trusted window at each share."""
    name = known.profiles[0].job
    return ComponentsOfJob(
        job=name,
        gpu_model=known.gpu_model,
        power_limit_w=known.power_limit_w,
        weights=known.fitted_to,
        shares=tuple(
            ShareParts(
                share_percent=share,
                power=components(
                    known.weights,
                    activity,
                    point.power_w or 0.0,
                    point.memory_power_w,
                    limit_w=known.power_limit_w,
                ),
            )
            for share, (point, activity) in known.windows(name).items()
        ),
    )


def components_by_split(
    known: KnownPower, given: Decision, points: Iterable[PairPoint]
) -> ComponentsOfPair:
    """The parts at each split that was measured, else as it was predicted.

    Args:
        known: Of both jobs.
        given: What is predicted of them, best of all splits whatever their speeds.
        points: Windows of pairs; those of both that can be trusted count, the newest last.
    """
    windows = tuple(known.windows(profile.job) for profile in known.profiles)
    predicted = (option.prediction for option in given.options)
    mine = [p for p in points if p.jobs == known.pair_names and p.gpu_model == known.gpu_model]
    flagged = with_pair_flags(mine, with_solo_flags(known.solos))
    right = [p for p in flagged if DOUBTFUL.isdisjoint(p.flags) and (p.power_w or 0) > 0]
    # In turns of the driver the jobs are not on the GPU at once.
    together = sorted((p for p in right if p.mode != "time-sliced"), key=lambda p: p.started_at)
    splits = {
        **{p.split: _predicted(known, windows, p) for p in predicted if _is_at_once(p)},
        **dict(_measured(known, windows, together)),
    }
    in_order = sorted(splits, key=lambda split: (not split.is_limited, split))
    return ComponentsOfPair(
        jobs=tuple(profile.job for profile in known.profiles),
        gpu_model=known.gpu_model,
        power_limit_w=known.power_limit_w,
        weights=known.fitted_to,
        splits=tuple(splits[split] for split in in_order),
    )


def components_at(known: KnownPower, prediction: Prediction) -> SplitParts:
    """The parts of the power that is predicted of both jobs together.

    Raises:
        InputError: they do not run together, or a job has no window with counters.
    """
    if not _is_at_once(prediction):
        raise InputError(
            f"{' and '.join(p.job for p in known.profiles)} run one after the other, or in turns",
            why="the parts are of what two jobs draw together",
            fix="those of each job alone: advisor power components JOB",
        )
    windows = tuple(known.windows(profile.job) for profile in known.profiles)
    return _predicted(known, windows, prediction)


def _is_at_once(prediction: Prediction) -> bool:
    return prediction.split.sharing in ("limited", "uncapped")


def _predicted(
    known: KnownPower, windows: tuple[_Windows, ...], prediction: Prediction
) -> SplitParts:
    """Each job does what it does alone at the share, in proportion to the rate that it keeps."""
    split, power_w, weights = prediction.split, prediction.power_w.value, known.weights
    shares = split.shares if split.is_limited else (WHOLE, WHOLE)
    alone = tuple(_at_share(own, s) for own, s in zip(windows, shares, strict=True))
    rates = [
        float(np.interp(share, list(own), [point.rate for point, _ in own.values()]))
        for own, share in zip(windows, shares, strict=True)
    ]
    kept = [
        part.speed.value * part.solo_rate / rate
        for part, rate in zip(prediction.parts, rates, strict=True)
    ]
    together = at_once(
        [at_work(job, k, weights.highest_clock_mhz) for job, k in zip(alone, kept, strict=True)]
    )
    if _is_at_limit(known, power_w):
        together = at_power(together, weights, power_w)
    return _split_parts(known, split, alone, together, power_w, "estimated")


def _measured(
    known: KnownPower, windows: tuple[_Windows, ...], points: Iterable[PairPoint]
) -> Iterator[tuple[Split, SplitParts]]:
    a, b = known.profiles
    turned = a.job > b.job
    for point in points:
        if (together := activity_of(point)) is None:
            continue
        shares = point.shares_percent[::-1] if turned else point.shares_percent
        split = UNCAPPED if point.mode == "uncapped" else Split(shares)
        alone = tuple(_at_share(own, s) for own, s in zip(windows, split.shares, strict=True))
        power_w, memory_w = point.power_w or 0.0, point.memory_power_w
        yield split, _split_parts(known, split, alone, together, power_w, "measured", memory_w)


def _split_parts(
    known: KnownPower,
    split: Split,
    alone: tuple[Activity, ...],
    together: Activity,
    power_w: float,
    basis: Basis,
    memory_power_w: float | None = None,
) -> SplitParts:
    loss_mhz = known.weights.highest_clock_mhz - together.clock_mhz
    # Clocks of the SMs are multiples of 15 MHz. Four of five estimated ones at the power limit are
    # off by less than 120 MHz, in measured pairs that the weights had not seen
    # (docs/measurements/components.md).
    least_mhz = 15.0 if basis == "measured" else 120.0
    unknown = "it is unknown who lowers the clock"
    reasons = {
        f"{unknown}: the power limit is not known": known.power_limit_w is None,
        "the power limit is not reached, so it lowers no clock": not _is_at_limit(known, power_w),
        f"the power limit is near, and {unknown}: it falls too little to tell": (
            loss_mhz < least_mhz
        ),
    }
    why_unknown = next((why for why, is_so in reasons.items() if is_so), "")
    # To find out takes longer than all else.
    if not why_unknown and any(known.weights.outside(activity) for activity in alone):
        why_unknown = f"{unknown}: the weights were fitted to nothing like these jobs"
    of_jobs = None if why_unknown else causes(known.weights, alone)
    causes_mhz = of_jobs and tuple(part.times(loss_mhz) for part in of_jobs)
    shown = zip([profile.job for profile in known.profiles], causes_mhz or (), strict=False)
    told = " and ".join(f"{name} causes {cause.value:.0f}" for name, cause in shown)
    return SplitParts(
        split=str(split),
        power=components(
            known.weights,
            together,
            power_w,
            memory_power_w,
            power_basis=basis,
            limit_w=known.power_limit_w,
        ),
        clock_loss_mhz=loss_mhz,
        causes_mhz=causes_mhz,
        jostling=f"at {split} {why_unknown}"
        if why_unknown
        else f"at {split} the power limit is reached and the clock falls by {loss_mhz:.0f} MHz, "
        f"of which {told}",
    )


def _is_at_limit(known: KnownPower, power_w: float) -> bool:
    return known.power_limit_w is not None and power_w >= NEAR_LIMIT * known.power_limit_w


def _at_share(windows: _Windows, share: float) -> Activity:
    """The job alone at a share, between the measured ones in proportion."""
    known = [activity for _, activity in windows.values()]

    def between(values: list[float]) -> float:
        return float(np.interp(share, list(windows), values))

    return Activity(
        counters={n: between([a.counters[n] for a in known]) for n in known[0].counters},
        units_part=between([a.units_part for a in known]),
        clock_mhz=between([a.clock_mhz for a in known]),
        temperature_c=between([a.temperature_c for a in known]),
    )
