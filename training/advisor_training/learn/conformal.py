"""Intervals that hold a stated part of the measured values, for workloads that were not seen.

Rows of one workload depend on each other, so a workload is the unit that counts. The method is
pooling of distribution functions (R. Dunn, L. Wasserman, A. Ramdas, "Distribution-Free Prediction
Sets for Two-Layer Hierarchical Models", arXiv:1809.07441) over the residuals of leaving one
workload out: each workload has the same weight, however many rows it has, and the interval lies
between two quantiles of the weighted residuals.

What a card draws hangs on its GPU model, too: power has intervals for each GPU model with jobs
enough ("Mondrian" conformal prediction, V. Vovk, A. Gammerman, G. Shafer, "Algorithmic Learning in
a Random World", 2005, section 4.5), and others where it has too few. Over all of them together,
power below the limit was expected 2 % too high on H100 and 2 % too low on H200, and what 90 % were
asked of held 87 and 95 % on cards left out (docs/measurements/model.md, 2026-11-23).

Pooling alone holds a little less than it says. As in split conformal prediction, where n points
take the quantile (1 + 1/n) x coverage, the part to be held is raised by one over the number of
workloads. (Y. Lee, R. F. Barber, R. Willett, "Distribution-free inference with hierarchical data",
arXiv:2306.06342, put the weight of one workload at infinity on each side. That is sure, and held
96 % where 90 % were asked for, with 28 workloads.) What comes of it for workloads that took no part
is measured: `measured_coverage`.

A tested row has one job that was left out and one that was learned from, so the intervals are for
a new job next to a known one. For two known jobs they are wide, for two new ones perhaps narrow.
"""

from dataclasses import dataclass

import numpy as np

from advisor.errors import InputError
from advisor.predict.profiles import Floats
from advisor_models.intervals import (
    LIMITED,
    SPLIT,
    UNCAPPED,
    LogBounds,
    Strata,
    bounds_of_stratum,
    place_of,
)
from advisor_training.learn.head_learners import HeadLearner
from advisor_training.learn.residuals import Residuals

COVERAGE = 0.9

LEAST_BOUND = 0.01
"""A bound nearer to the prediction than 1 %, or on the other side of it, counts as this far away
where it is asked how much further it must be."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """Part of the measured values that lie within their intervals, averaged by workload.

    Attributes:
        overall: Over all rows of a workload.
        least: Of the workload that is covered worst.
    """

    overall: float
    strata: dict[str, float]
    least: float


FEWEST_JOBS = 3
"""A situation that fewer jobs were measured in has no bounds of its own."""


def bounds_of(residuals: Residuals, coverage: float = COVERAGE) -> dict[str, LogBounds]:
    """The interval of each stratum, by its name, and of each place over all situations.

    With fewer than coverage / (1 - coverage) workloads it is between the smallest and the largest
    residual, and covers less.

    A GPU model with fewer than coverage / (1 - coverage) workloads, 9 for 90 %, has none of its
    own, a situation with fewer than three none either: for it stands the widest of its place.
    """
    names, which = np.unique(residuals.stratum, return_inverse=True)
    own = {str(name): residuals.take(which == n) for n, name in enumerate(names)}
    places = np.array([place_of(str(name)) for name in names])
    pooled = {str(p): residuals.take((places == p)[which]) for p in np.unique(places)}
    known = {n: its for n, its in own.items() if len(np.unique(its.left_out)) >= FEWEST_JOBS}
    found = {name: _bounds(its, coverage) for name, its in (pooled | known).items()}
    return found | _bounds_by_gpu_model(residuals, coverage)


def intervals(residuals: Residuals, learner: HeadLearner) -> dict[str, LogBounds]:
    """The intervals of a head by stratum, as a model's manifest has them.

    Raises:
        InputError: no pair was measured uncapped.
    """
    found = bounds_of(residuals)
    if LIMITED in found:
        found.setdefault(SPLIT, found[LIMITED])  # cards that never were below their limit
    if missing := {SPLIT, UNCAPPED} - found.keys():
        raise InputError(
            f"no pair was measured {', '.join(sorted(missing))}",
            fix="measure pairs at the nine splits and uncapped: advisor colocate",
        )
    return dict(sorted(found.items()))


def held(residuals: Residuals, bounds: Strata) -> float:
    """Part of the residuals within their bounds, each job counting the same.

    Raises:
        InputError: none of them has bounds.
    """
    reach, weights = _reach(residuals, bounds)
    return min(float(weights[reach <= 1].sum()), 1.0)  # weights are rounded


def widening(residuals: Residuals, bounds: Strata, coverage: float = COVERAGE) -> float:
    """How much further apart bounds must be to hold that part of the residuals; 1 or more.

    Each job counts the same.

    Raises:
        InputError: no residual has bounds.
    """
    reach, weights = _reach(residuals, bounds)
    order = np.argsort(reach, kind="stable")
    return max(1.0, _quantile(reach[order], weights[order], coverage))


def measured_coverage(residuals: Residuals) -> Coverage:
    """Coverage of each job's residuals by intervals made of residuals that do not have that job.

    Raises:
        InputError: there are too few jobs for that.
    """
    overall: list[float] = []
    strata: dict[str, list[float]] = {}
    for job in np.unique(residuals.left_out):
        tested = residuals.take(residuals.left_out == job)
        others = (residuals.left_out != job) & (residuals.beside != job)
        bounds = bounds_of(residuals.take(others))
        known = _bounded(tested, bounds)
        if not len(known):
            continue
        low, high = _ends(known, bounds)
        held = (low <= known.values) & (known.values <= high)
        overall.append(float(held.mean()))
        for stratum in np.unique(known.stratum):
            part = held[known.stratum == stratum]
            strata.setdefault(str(stratum), []).append(float(part.mean()))
    if not overall:
        raise InputError(
            f"coverage cannot be measured with {len(np.unique(residuals.left_out))} jobs",
            fix="measure pairs of more jobs: advisor colocate",
        )
    means = {name: float(np.mean(parts)) for name, parts in strata.items()}
    return Coverage(float(np.mean(overall)), means, min(overall))


def _reach(residuals: Residuals, bounds: Strata) -> tuple[Floats, Floats]:
    """Residuals in parts of the bound on their side, and weights that add up to 1."""
    known = _bounded(residuals, bounds)
    if not len(known):
        raise InputError(
            "no pair was measured at a share whose error is known",
            fix="measure pairs at the nine splits and uncapped: advisor colocate",
        )
    low, high = _ends(known, bounds)
    ends = np.where(known.values < 0, np.minimum(low, -LEAST_BOUND), np.maximum(high, LEAST_BOUND))
    return known.values / ends, _weights(known)


def _bounded(residuals: Residuals, bounds: Strata) -> Residuals:
    """Those of which there are bounds."""
    places = {place_of(name) for name in bounds}
    if SPLIT in places:
        places.add(LIMITED)
    its = [place_of(name) in places for name in residuals.stratum.tolist()]
    return residuals.take(np.array(its, dtype=bool))


def _ends(residuals: Residuals, bounds: Strata) -> tuple[Floats, Floats]:
    """The lower and the upper bound of each residual."""
    models = [""] * len(residuals) if residuals.gpu_model is None else residuals.gpu_model.tolist()
    each = zip(residuals.stratum.tolist(), models, strict=True)
    found = [bounds_of_stratum(bounds, *names) for names in each]
    return np.array([b.low for b in found]), np.array([b.high for b in found])


def _weights(residuals: Residuals) -> Floats:
    """Of each residual: jobs count the same, however many rows they have; adds up to 1."""
    _, job, rows_of_job = np.unique(residuals.left_out, return_inverse=True, return_counts=True)
    return 1 / (len(rows_of_job) * rows_of_job[job])


def _bounds_by_gpu_model(residuals: Residuals, coverage: float) -> dict[str, LogBounds]:
    """Of each GPU model with enough jobs, where there are several GPU models."""
    if residuals.gpu_model is None or len(np.unique(residuals.gpu_model)) == 1:
        return {}
    names = residuals.own_stratum
    parts = {str(name): residuals.take(names == name) for name in np.unique(names)}
    return {s: _bounds(its, coverage) for s, its in parts.items() if _is_enough(its, coverage)}


def _bounds(residuals: Residuals, coverage: float) -> LogBounds:
    jobs = len(np.unique(residuals.left_out))
    order = np.argsort(residuals.values, kind="stable")
    values, weights = residuals.values[order], _weights(residuals)[order]
    outside = (1 - min(1.0, coverage * (1 + 1 / jobs))) / 2
    return LogBounds(
        low=-_quantile(-values[::-1], weights[::-1], 1 - outside),
        high=_quantile(values, weights, 1 - outside),
    )


def _is_enough(residuals: Residuals, coverage: float) -> bool:
    """Whether there are workloads enough for a quantile: rounding must not decide."""
    return len(np.unique(residuals.left_out)) * (1 - coverage) >= coverage - 1e-9


def _quantile(ordered: Floats, weights: Floats, part: float) -> float:
    """The smallest value up to which, itself included, the weights add up to the part."""
    # A part that the weights reach exactly must not be missed by their rounding.
    place = int(np.searchsorted(np.cumsum(weights), part - 1e-9))
    return float(ordered[min(place, len(ordered) - 1)])
