"""Intervals that hold a stated part of the measured values, for workloads that were not seen.

Rows of one workload depend on each other, so a workload is the unit that counts. The method is
pooling of distribution functions (R. Dunn, L. Wasserman, A. Ramdas, "Distribution-Free Prediction
Sets for Two-Layer Hierarchical Models", arXiv:1809.07441) over the residuals of leaving one
workload out: each workload has the same weight, however many rows it has, and the interval lies
between two quantiles of the weighted residuals.

Power depends on the GPU model, too: each GPU model with enough jobs has its own intervals
("Mondrian" conformal prediction, V. Vovk, A. Gammerman, G. Shafer, "Algorithmic Learning in a
Random World", 2005, section 4.5), the others have pooled ones. Pooled over all of them, power below
the limit was expected 2 % too high on H100 and 2 % too low on H200, and intervals for 90 % held 87
and 95 % on cards left out (docs/measurements/model.md, 2026-11-23).

Pooling alone holds a little less than it says. As in split conformal prediction, where n points
take the quantile (1 + 1/n) x coverage, the part to be held is raised by one over the number of
workloads. (Y. Lee, R. F. Barber, R. Willett, "Distribution-free inference with hierarchical data",
arXiv:2306.06342, put the weight of one workload at infinity on each side. That is safe, and held
96 % where 90 % were asked for, with 28 workloads.) The coverage of workloads that took no part is
measured: `measured_coverage`.

A tested row has one job that was left out and one that was learned from, so the intervals are for
a new job next to a known one. For two known jobs they are wide, for two new ones perhaps narrow.

A user's profile is of one card and day, and the launch of another. So a job is left out together
with each run and every card of that run: differences of power between cards at the same rate, and
errors of profiles and days, are part of the errors. Where all points are of one run, only the job
can be left out, and the spread between cards is added from `HeadLearner.card_spread`. Energy for
the same work is a ratio of powers of one card, so its bounds get no such term.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from advisor.core.objectives import NORMAL_90
from advisor.core.telemetry import NEAR_LIMIT
from advisor.errors import InputError
from advisor.predict.profiles import COLUMNS, NEEDED, Floats, Profile
from advisor_models.registry import (
    LIMITED,
    SPLIT,
    UNCAPPED,
    LogBounds,
    Strata,
    bounds_of_stratum,
    on_gpu_model,
    place_of,
)
from advisor_training.learners import (
    BY_RUN,
    BY_WORKLOAD,
    HEAD_LEARNERS,
    LEAST_SPEED,
    PROTOCOLS,
    HeadLearner,
    HeldOut,
    Learner,
    has_other_runs,
)
from advisor_training.rows import Names, Rows, flat


def _strata(rows: Rows, held_out: HeldOut, learner: HeadLearner) -> Names:
    """Of each residual; whether a card is at its limit is told from what is expected."""
    row = held_out.row
    if learner.head.of == "job":
        return np.concatenate([rows.situation_a[row], rows.situation_b[row]])
    strata = rows.situation[row]
    if learner.head.limit_of is None:
        return strata
    expected = held_out.heads[learner.head.name][:, 0]
    at_limit = expected >= NEAR_LIMIT * rows.power_limit_w[row]
    # What is uncapped has no such place in its name.
    return np.where(at_limit, np.char.replace(strata, f"{SPLIT}, ", f"{LIMITED}, "), strata)


def _beside(rows: Rows, held_out: HeldOut) -> Names:
    a, b = rows.job_a[held_out.row], rows.job_b[held_out.row]
    return np.where(a == held_out.left_out, b, a)


COVERAGE = 0.9

# A bound nearer to the prediction than 1 %, or on the other side of it, counts as this far away
# where it is asked how much further it must be.
_LEAST_BOUND = 0.01


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


def _quantile(ordered: Floats, weights: Floats, part: float) -> float:
    """The smallest value up to which, itself included, the weights add up to the part."""
    # A part that the weights reach exactly must not be missed by their rounding.
    place = int(np.searchsorted(np.cumsum(weights), part - 1e-9))
    return float(ordered[min(place, len(ordered) - 1)])


def strictest(rows: Rows) -> str:
    """The protocol that the rows allow whose errors the intervals are made of."""
    return BY_RUN if has_other_runs(rows) else BY_WORKLOAD


def with_card_term(strata: Strata, card_spread: float) -> Strata:
    """Bounds below the power limit for a profile and a launch on two cards.

    The spread of a difference of two cards (`card_spread`: the standard deviation between cards of
    the logarithm), added to the errors as what does not hang on them. At the limit all cards draw
    the same.
    """
    if not card_spread:
        return strata
    term = NORMAL_90 * math.sqrt(2) * card_spread
    return {
        name: LogBounds(-math.hypot(min(b.low, 0), term), math.hypot(max(b.high, 0), term))
        if place_of(name) == SPLIT
        else b
        for name, b in strata.items()
    }


def left_out(rows: Rows, learner: Learner) -> HeldOut:
    """Predictions of all rows under the `strictest` protocol."""
    return PROTOCOLS[strictest(rows)].answer(rows, learner, lambda: None)


@dataclass(frozen=True, slots=True, eq=False)
class Residuals:
    """Logarithms of measured over predicted values of jobs left out; each shape (n,).

    Attributes:
        left_out: Job that the learner had not seen.
        beside: The other job of the pair; the same one, of a job next to itself.
        stratum: What has an interval of its own (`advisor_models.registry`).
        gpu_model: Where GPU models have intervals of their own; None: they have not.
    """

    values: Floats
    left_out: Names
    beside: Names
    stratum: Names
    gpu_model: Names | None = None

    def __len__(self) -> int:
        return len(self.values)

    def take(self, which: npt.NDArray[np.bool_]) -> "Residuals":
        """Those for which `which`, as long as the residuals, is true."""
        return Residuals(
            self.values[which],
            self.left_out[which],
            self.beside[which],
            self.stratum[which],
            None if self.gpu_model is None else self.gpu_model[which],
        )


def residuals_of(rows: Rows, held_out: HeldOut, learner: HeadLearner) -> Residuals:
    """Of one head; first of all first jobs, then of all second ones.

    Of jobs with a fixed demand they are of what the jobs could do, to which bounds are put before
    the demand is (`advisor.predict.profiles.Serving.served`). Where all of it was expected and
    served, or missed by less than twice what chance misses, an error is not to be seen, and there
    is none.
    """
    tested = rows.take(held_out.row)
    predicted = held_out.heads[learner.head.name]
    parts = predicted.shape[1]
    measured = learner.possible(tested, learner.measured(tested))
    expected = learner.possible(tested, predicted)
    residuals = Residuals(
        np.log(measured / expected),
        np.tile(held_out.left_out, parts),
        np.tile(_beside(rows, held_out), parts),
        _strata(rows, held_out, learner),
        tested.gpu_model if learner.head.of == "pair" else None,
    )
    short = 2 * flat(learner.all_served(tested)) - 1
    return residuals.take(np.minimum(measured, expected) < short)


def efficiency_residuals(rows: Rows, held_out: HeldOut) -> Residuals:
    """Of the energy that the same work takes one after the other, per energy that it takes shared.

    What is expected has the powers alone from the profiles, what is measured those of the pair's
    own card: where that card draws more for everything, both are the same.
    """
    row = held_out.row
    measured = (
        rows.speed_a[row] * rows.solo_power_a_w[row] + rows.speed_b[row] * rows.solo_power_b_w[row]
    ) / rows.power_w[row]
    speed_a, speed_b = held_out.speed.T
    expected = (
        speed_a * rows.profile_power_a_w[row] + speed_b * rows.profile_power_b_w[row]
    ) / held_out.power_w
    return Residuals(
        np.log(np.maximum(measured, LEAST_SPEED) / expected),
        held_out.left_out,
        _beside(rows, held_out),
        rows.situation[row],
    )


def bounds_of(residuals: Residuals, coverage: float = COVERAGE) -> dict[str, LogBounds]:
    """The interval of each stratum, by its name, and of each place over all situations.

    With fewer than coverage / (1 - coverage) workloads it is between the smallest and the largest
    residual, and covers less.

    A GPU model with fewer than coverage / (1 - coverage) workloads, 9 for 90 %, has none of its
    own, a situation with fewer than three none either: for it stands the widest of its place.
    """
    names, which = np.unique(residuals.stratum, return_inverse=True)
    by_stratum = {str(name): residuals.take(which == n) for n, name in enumerate(names)}
    places = np.array([place_of(str(name)) for name in names])
    pooled = {str(p): residuals.take((places == p)[which]) for p in np.unique(places)}
    sufficient = {
        n: its for n, its in by_stratum.items() if len(np.unique(its.left_out)) >= FEWEST_JOBS
    }
    bounds = {name: _bounds(its, coverage) for name, its in (pooled | sufficient).items()}
    return bounds | _bounds_by_gpu_model(residuals, coverage)


def intervals(residuals: Residuals) -> dict[str, LogBounds]:
    """The intervals of a head by stratum, as a model's manifest has them.

    Raises:
        InputError: no pair was measured uncapped.
    """
    bounds = bounds_of(residuals)
    if LIMITED in bounds:
        bounds.setdefault(SPLIT, bounds[LIMITED])  # cards that never were below their limit
    if missing := {SPLIT, UNCAPPED} - bounds.keys():
        raise InputError(
            f"no pair was measured {', '.join(sorted(missing))}",
            fix="measure pairs at the nine splits and uncapped: advisor colocate",
        )
    return dict(sorted(bounds.items()))


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
        bounds = bounds_of(residuals.take((residuals.left_out != job) & (residuals.beside != job)))
        bounded = _bounded(tested, bounds)
        if not len(bounded):
            continue
        low, high = _ends(bounded, bounds)
        held = (low <= bounded.values) & (bounded.values <= high)
        overall.append(float(held.mean()))
        for stratum in np.unique(bounded.stratum):
            strata.setdefault(str(stratum), []).append(
                float(held[bounded.stratum == stratum].mean())
            )
    if not overall:
        raise InputError(
            f"coverage cannot be measured with {len(np.unique(residuals.left_out))} jobs",
            fix="measure pairs of more jobs: advisor colocate",
        )
    means = {name: float(np.mean(parts)) for name, parts in strata.items()}
    return Coverage(float(np.mean(overall)), means, min(overall))


def _reach(residuals: Residuals, bounds: Strata) -> tuple[Floats, Floats]:
    """Residuals in parts of the bound on their side, and weights that add up to 1."""
    bounded = _bounded(residuals, bounds)
    if not len(bounded):
        raise InputError(
            "no pair was measured at a share whose error is known",
            fix="measure pairs at the nine splits and uncapped: advisor colocate",
        )
    low, high = _ends(bounded, bounds)
    ends = np.where(
        bounded.values < 0, np.minimum(low, -_LEAST_BOUND), np.maximum(high, _LEAST_BOUND)
    )
    return bounded.values / ends, _weights(bounded)


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
    bounds_of_rows = [bounds_of_stratum(bounds, *names) for names in each]
    return np.array([b.low for b in bounds_of_rows]), np.array([b.high for b in bounds_of_rows])


def _weights(residuals: Residuals) -> Floats:
    """Of each residual: jobs count the same, however many rows they have; adds up to 1."""
    _, job, rows_of_job = np.unique(residuals.left_out, return_inverse=True, return_counts=True)
    return 1 / (len(rows_of_job) * rows_of_job[job])


def _bounds_by_gpu_model(residuals: Residuals, coverage: float) -> dict[str, LogBounds]:
    """Of each GPU model with enough jobs, where there are several GPU models."""
    if residuals.gpu_model is None or len(np.unique(residuals.gpu_model)) == 1:
        return {}
    both = zip(residuals.stratum.tolist(), residuals.gpu_model.tolist(), strict=True)
    names = np.array([on_gpu_model(*each) for each in both])
    parts = {str(name): residuals.take(names == name) for name in np.unique(names)}
    return {
        stratum: _bounds(its, coverage)
        for stratum, its in parts.items()
        # Workloads enough for a quantile: rounding must not decide.
        if len(np.unique(its.left_out)) * (1 - coverage) >= coverage - 1e-9
    }


def _bounds(residuals: Residuals, coverage: float) -> LogBounds:
    jobs = len(np.unique(residuals.left_out))
    order = np.argsort(residuals.values, kind="stable")
    values, weights = residuals.values[order], _weights(residuals)[order]
    outside = (1 - min(1.0, coverage * (1 + 1 / jobs))) / 2
    return LogBounds(
        low=-_quantile(-values[::-1], weights[::-1], 1 - outside),
        high=_quantile(values, weights, 1 - outside),
    )


@dataclass(frozen=True, slots=True)
class Calibrated:
    """Intervals, and what they hold of jobs that took no part in making them.

    Attributes:
        intervals: By head.
        efficiency: Bounds of `energy-efficiency` at splits; empty: no split was measured.
        held: By head, and of "efficiency".
        no_counters: By head, how much wider they must be for profiles without counters; None: not
            tried.
    """

    intervals: dict[str, Strata]
    efficiency: Strata
    held: dict[str, Coverage]
    no_counters: dict[str, float] | None


def calibrate(
    rows: Rows,
    held_out: HeldOut,
    blind: HeldOut | None = None,
    learners: Sequence[HeadLearner] = HEAD_LEARNERS,
) -> Calibrated:
    """Intervals from the errors of what was left out under the `strictest` protocol.

    `blind` are predictions of the same rows for profiles without counters.

    Raises:
        InputError: no pair was measured uncapped, or there are too few jobs.
    """
    errors = {learner.head.name: residuals_of(rows, held_out, learner) for learner in learners}
    has_others = has_other_runs(rows)
    efficiency = efficiency_residuals(rows, held_out)
    return Calibrated(
        intervals={
            x.head.name: with_card_term(
                intervals(errors[x.head.name]), 0.0 if has_others else x.card_spread
            )
            for x in learners
        },
        efficiency={n: b for n, b in bounds_of(efficiency).items() if place_of(n) == SPLIT},
        held={n: measured_coverage(e) for n, e in {**errors, "efficiency": efficiency}.items()},
        no_counters=None
        if blind is None
        else {
            n: round(widening(residuals_of(rows, blind, x), bounds_of(errors[n])), 3)
            for n, x in ((x.head.name, x) for x in learners)
        },
    )


def without_counters(profile: Profile) -> Profile:
    """The profile as a host without counters makes it: rates and power only."""
    values = {
        name: column if name in NEEDED else np.full_like(column, np.nan)
        for name, column in profile.values.items()
    }
    missing = tuple(name for name in COLUMNS if name not in NEEDED)
    return replace(profile, values=values, missing=missing)
