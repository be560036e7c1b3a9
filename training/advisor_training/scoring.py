"""How good predictions are: their errors, intervals that hold them, and the splits they choose.

Intervals are to hold a stated part of the measured values, for workloads that were not seen.
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

How sure figures over pairs are: another site has other jobs, so jobs are drawn again. A pair counts
as often as its first job was drawn, times the second ("The pigeonhole bootstrap", A. B. Owen,
Annals of Applied Statistics 1(2), 2007): all pairs of a job come and go together. It is
conservative: noise of single pairs counts up to three times.

Splits that predictions and simple rules choose are worth what was measured of them.
"""

import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

import numpy as np

from advisor.core.gpu import EQUAL, Split, best_within_tie
from advisor.core.objectives import (
    DEFAULT_OBJECTIVE,
    NORMAL_90,
    OBJECTIVES,
    POLICY,
    Candidate,
    Interval,
    Objective,
    PartResult,
    Policy,
    SplitResult,
    best,
)
from advisor.core.records import grouped
from advisor.core.telemetry import NEAR_LIMIT
from advisor.decide.decision import fewest_limits
from advisor.decide.limits import Request
from advisor.errors import InputError
from advisor.predict.predictions import (
    Prediction,
    Predictions,
    is_within,
    possible_speeds,
    predict_exclusive,
    predicted_part,
    safe_splits_of,
)
from advisor.predict.profiles import COLUMNS, NEEDED, Floats, Profile, kind_of, of_job
from advisor_models.model_predictor import SPEED
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
    SEED,
    SPEED_LEARNER,
    HeadLearner,
    HeldOut,
    Learner,
    has_other_runs,
    leave_out,
)
from advisor_training.rows import (
    BASELINES,
    Data,
    Mask,
    Measurement,
    Names,
    Numbers,
    ResultsBySplit,
    Rows,
    flat,
    is_full,
)


def _strata(rows: Rows, held_out: HeldOut, learner: HeadLearner) -> Names:
    """The stratum of each residual; expected power decides whether a card is at its limit."""
    row = held_out.row
    if learner.head.of == "job":
        return np.concatenate([rows.situation_a[row], rows.situation_b[row]])
    strata = rows.situation[row]
    if learner.head.limit_of is None:
        return strata
    at_limit = held_out.heads[learner.head.name][:, 0] >= NEAR_LIMIT * rows.power_limit_w[row]
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
    return leave_out(rows, learner, PROTOCOLS[strictest(rows)].draws(rows))


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

    def take(self, which: Mask) -> "Residuals":
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
    return Residuals(
        np.log(measured / expected),
        np.tile(held_out.left_out, parts),
        np.tile(_beside(rows, held_out), parts),
        _strata(rows, held_out, learner),
        tested.gpu_model if learner.head.of == "pair" else None,
    ).take(np.minimum(measured, expected) < 2 * flat(learner.all_served(tested)) - 1)


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
    if residuals.gpu_model is None or len(np.unique(residuals.gpu_model)) == 1:
        return bounds
    both = zip(residuals.stratum.tolist(), residuals.gpu_model.tolist(), strict=True)
    on_models = np.array([on_gpu_model(*each) for each in both])
    by_model = {str(name): residuals.take(on_models == name) for name in np.unique(on_models)}
    return bounds | {
        name: _bounds(its, coverage)
        for name, its in by_model.items()
        # Workloads enough for a quantile: rounding must not decide.
        if len(np.unique(its.left_out)) * (1 - coverage) >= coverage - 1e-9
    }


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
        bounds = bounds_of(residuals.take((residuals.left_out != job) & (residuals.beside != job)))
        if not len(bounded := _bounded(residuals.take(residuals.left_out == job), bounds)):
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
    if not len(bounded := _bounded(residuals, bounds)):
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
    places = {place_of(name) for name in bounds}
    if SPLIT in places:
        places.add(LIMITED)
    its = [place_of(name) in places for name in residuals.stratum.tolist()]
    return residuals.take(np.array(its, dtype=bool))


def _ends(residuals: Residuals, bounds: Strata) -> tuple[Floats, Floats]:
    models = [""] * len(residuals) if residuals.gpu_model is None else residuals.gpu_model.tolist()
    each = zip(residuals.stratum.tolist(), models, strict=True)
    bounds_of_rows = [bounds_of_stratum(bounds, *names) for names in each]
    return np.array([b.low for b in bounds_of_rows]), np.array([b.high for b in bounds_of_rows])


def _weights(residuals: Residuals) -> Floats:
    """Of each residual: jobs count the same, however many rows they have; adds up to 1."""
    _, job, rows_of_job = np.unique(residuals.left_out, return_inverse=True, return_counts=True)
    return 1 / (len(rows_of_job) * rows_of_job[job])


def _bounds(residuals: Residuals, coverage: float) -> LogBounds:
    order = np.argsort(residuals.values, kind="stable")
    values, weights = residuals.values[order], _weights(residuals)[order]
    outside = (1 - min(1.0, coverage * (1 + 1 / len(np.unique(residuals.left_out))))) / 2
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
    return replace(profile, values=values, missing=tuple(n for n in COLUMNS if n not in NEEDED))


DRAWS = 1000

# Part of the draws below an interval, and above it.
_OUTSIDE = 0.025


class Resamples:
    """Sets of pairs as they could have been, had other jobs been measured.

    Args:
        pairs: The two jobs of each value, at least one; one job twice where it is next to itself.
    """

    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        names, places = np.unique(np.array(pairs), return_inverse=True)
        first, second = places.reshape(-1, 2).T
        equal = np.full(len(names), 1 / len(names))
        times = np.random.default_rng(SEED).multinomial(len(names), equal, DRAWS)
        both = np.where(first == second, times[:, first], times[:, first] * times[:, second])
        self._weights: Floats = both[both.any(axis=1)].astype(np.float64)

    def mean(self, values: Sequence[float] | Floats) -> Interval:
        """Of values that are in the order of the pairs."""
        samples = np.asarray(values, dtype=np.float64)
        return _estimate(float(samples.mean()), self._weights @ samples / self._weights.sum(axis=1))

    def median(self, values: Sequence[float] | Floats) -> Interval:
        """The same of the median."""
        samples = np.asarray(values, dtype=np.float64)
        order = np.argsort(samples, kind="stable")
        reached = np.cumsum(self._weights[:, order], axis=1)
        places = (reached >= reached[:, -1:] / 2).argmax(axis=1)
        return _estimate(float(np.median(samples)), samples[order][places])


def _estimate(value: float, drawn: Floats) -> Interval:
    low, high = np.quantile(drawn, (_OUTSIDE, 1 - _OUTSIDE))
    return Interval(value, float(low), float(high))


def noise_scores(measurements: Iterable[Measurement], objective: Objective) -> list[float]:
    """What the best possible predictor would reach, since the truth itself is noisy.

    A take is one repeat of the nine splits of a pair. Each choice takes the best split of one take
    and scores it on another one, as a fraction of that one's best. Takes in steps of 10 and takes
    at safe counts are not compared: they have too few splits in common. There is a score for each
    ordered couple of takes of a pair; none where no pair was taken twice.
    """
    return [
        score
        for pair, of_pair in grouped(measurements, lambda m: m.pair).items()
        for takes in _alike(
            [results for m in of_pair for results in m.repeats], beside_itself=pair[0] == pair[1]
        )
        for score in _scores(takes, objective)
    ]


def _alike(takes: Sequence[ResultsBySplit], *, beside_itself: bool) -> list[list[ResultsBySplit]]:
    """Takes in groups, two or more in each, that have enough of the nine splits in common."""
    groups: list[list[ResultsBySplit]] = []
    for take in takes:
        for group in groups:
            if is_full(set(take).intersection(*group), beside_itself=beside_itself):
                group.append(take)
                break
        else:
            groups.append([take])
    return [group for group in groups if len(group) > 1]


def _scores(takes: Sequence[ResultsBySplit], objective: Objective) -> Iterator[float]:
    for first, other in itertools.permutations(takes, 2):
        common = first.keys() & other.keys()
        chosen = best([Candidate(split, first[split]) for split in common], objective, 0.0).split
        most = max(objective.value(other[split]) for split in common)
        if most > 0:
            yield objective.value(other[chosen]) / most


def fractions(rows: Rows, predicted: HeldOut, objective: Objective, tie: float) -> Floats:
    """Fraction of the oracle at the split that predictions choose among the nine.

    The value measured at the chosen split for each one of the best measured value, both of one
    measurement; `tie` is that of `advisor.core.objectives.best`. There is one for each (left out,
    measurement), in their order, so a measurement that was left out for two jobs counts twice;
    those in which no split is worth anything are not among them.
    """
    parts: list[float] = []
    for _, places in predicted.by_measurement(rows, rows.kind == "nine"):
        row = predicted.row[places]
        measured = np.column_stack([rows.speed_a, rows.speed_b])[row]
        values = [objective.value(x) for x in _results(rows, row, measured, rows.power_w[row])]
        expected = _results(rows, row, predicted.speed[places], predicted.power_w[places])
        candidates = [Candidate(*each) for each in zip(rows.splits(row), expected, strict=True)]
        chosen = best(candidates, objective, tie)
        if max(values) > 0:
            place = next(n for n, candidate in enumerate(candidates) if candidate is chosen)
            parts.append(values[place] / max(values))
    return np.array(parts)


def head_errors(rows: Rows, predicted: HeldOut, learner: HeadLearner, kind: str = "nine") -> Floats:
    """|predicted / measured - 1| of a head at one kind of split, part by part, where known.

    A relative speed is a rate over a constant, so that of speeds, as served, is the relative error
    of the rates, too. What was measured as 0 has no relative error and is left out.
    """
    tests = rows.kind[predicted.row] == kind
    name = learner.head.name
    expected = flat((predicted.speed if name == SPEED.name else predicted.heads[name])[tests])
    measured = flat(learner.measured(rows)[predicted.row[tests]])
    is_known = (measured > 0) & ~np.isnan(expected)  # a NaN is not above 0
    return np.abs(expected[is_known] / measured[is_known] - 1)


def _results(rows: Rows, row: Numbers, speeds: Floats, power_w: Floats) -> list[SplitResult]:
    """Results at rows with speeds, shape (n, 2), and powers, W, shape (n,)."""
    rates = np.column_stack([rows.solo_rate_a, rows.solo_rate_b])[row]
    watts = np.column_stack([rows.solo_power_a_w, rows.solo_power_b_w])[row]
    parts = np.stack([speeds * rates, rates, watts], axis=2).tolist()
    return [
        SplitResult(parts=tuple(PartResult(*part) for part in both), power_w=power)
        for both, power in zip(parts, power_w.tolist(), strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Error:
    """Relative errors |predicted / measured - 1| in short, in percent."""

    mean_percent: float
    median_percent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Errors of one learner, each over all tested rows; None of no values.

    Attributes:
        rate: Rate of each job as it is served: the predicted relative speed times the rate of its
            profile, against the rate measured next to the other job. It includes how far the
            profile's day was from the pair's.
        speed: Relative speed of each job, against the reference of the pair's own card and run.
        rates_sum: X1 + X2, what the paper predicts.
    """

    rows: int
    rate: Error | None
    speed: Error | None
    power: Error | None
    rates_sum: Error | None


def compare(
    data: Data, held_out: HeldOut, which: Mask
) -> Mapping[Literal["speed", "rate", "power"], tuple[Floats, Floats]]:
    """Expected and measured values of some of the predictions; `which` is a mask of these.

    Shape of speeds and rates (n, 2), of the power, W, (n,).
    """
    rows = data.rows.take(held_out.row[which])
    keys = zip([*rows.job_a, *rows.job_b], [*rows.gpu_model] * 2, strict=True)
    whole = np.array([data.profiles[key].whole_gpu_rate for key in keys]).reshape(2, -1).T
    measured = np.column_stack([rows.speed_a, rows.speed_b])
    alone = np.column_stack([rows.solo_rate_a, rows.solo_rate_b])
    expected = held_out.speed[which]
    return {
        "speed": (expected, measured),
        "rate": (expected * whole, measured * alone),
        "power": (held_out.power_w[which], rows.power_w),
    }


def errors_of(data: Data, held_out: HeldOut, which: Mask) -> Errors:
    """Errors over the tested ones of the rows of a mask."""
    tested = held_out.tested & which[held_out.row]
    compared = compare(data, held_out, tested)
    (rates, measured_rates), (speeds, measured_speeds) = compared["rate"], compared["speed"]
    return Errors(
        rows=int(tested.sum()),
        rate=error(flat(rates), flat(measured_rates)),
        speed=error(flat(speeds), flat(measured_speeds)),
        power=error(*compared["power"]),
        rates_sum=error(rates.sum(axis=1), measured_rates.sum(axis=1)),
    )


def error(expected: Floats, measured: Floats) -> Error | None:
    """The relative errors in short; values measured as 0 have none. None of no values."""
    if not (positive := measured > 0).any():
        return None
    errors = 100 * np.abs(expected[positive] / measured[positive] - 1)
    return Error(float(errors.mean()), float(np.median(errors)))


def rounded_percent(part: float | np.floating) -> float:
    """A part in percent, as reports keep it."""
    return round(100 * float(part), 3)


# Chance with which the low end of an interval is exceeded.
_LOW_END = 0.95


def speed_around(
    strata: Strata, capacity: float, split: Split, part: int, profiles: Sequence[Profile]
) -> Interval:
    """What is expected of a job of a split that could reach a speed.

    `strata` has bounds of speeds by stratum (`advisor_models.registry`); empty: nothing is known.
    """
    kinds = [kind_of(profile) for profile in profiles]
    place = SPLIT if split.is_limited else UNCAPPED
    name = of_job(kinds[part], (*kinds[:part], *kinds[part + 1 :]), split.shares[part], place)
    bounds = bounds_of_stratum(strata, name) if strata else LogBounds(-math.inf, math.inf)
    low, high = bounds.factors
    speeds = np.array([[capacity], [capacity * low], [capacity * high]])
    return Interval(*possible_speeds(profiles[part], speeds)[:, 0].tolist())


# Every speed is what is expected.
_NO_BOUNDS: Strata = {SPLIT: LogBounds(0.0, 0.0), UNCAPPED: LogBounds(0.0, 0.0)}


def bounds_without(rows: Rows, held_out: HeldOut, name: str, jobs: tuple[str, str]) -> Strata:
    """Bounds of the errors of all pairs that have neither of two jobs.

    Errors of the fit without `name`, what was left out for the choice that they are for, are not
    used.
    """
    a, b = rows.job_a[held_out.row], rows.job_b[held_out.row]
    others = held_out.take((held_out.left_out != name) & ~np.isin(a, jobs) & ~np.isin(b, jobs))
    # Jobs count the same. Where pairs or runs were left out, an error is of the first job.
    of_job = np.where(np.isin(others.left_out, rows.jobs), others.left_out, rows.job_a[others.row])
    return bounds_of(residuals_of(rows, replace(others, left_out=of_job), SPEED_LEARNER))


# What is chosen from: the nine splits, as in the paper, those and exclusive, or uncapped too.
_CandidateScope = Literal["nine", "nine or exclusive", "every way"]

KeptBy = Literal["as advised", "low end", "expected"]

# What was left out, and the number of the measurement.
_ChoiceKey = tuple[str, int]


@dataclass(frozen=True, slots=True)
class ChoiceQuestion:
    """A question with its limits.

    Attributes:
        min_speed: Relative speed that each job keeps where they share, and a job with a fixed
            demand all of it; 0: any.
        kept: What is to keep that: the low ends of the intervals, the expected values, or each
            where `advisor recommend` has it.
    """

    objective: Objective
    scope: _CandidateScope = "nine"
    min_speed: float = 0.0
    kept: KeptBy = "as advised"

    def allows(self, name: str, result: SplitResult, jobs: tuple[Profile, Profile]) -> bool:
        """Whether a way, as measured, keeps the minimum speeds; jobs that do not share always do.

        They run one after the other, or each on a GPU of its own: the energy is the same.
        """
        if name == "exclusive" or not self.min_speed:
            return True
        limits = Request(policy=Policy(min_speed=self.min_speed))
        return all(s >= limits.floor(job) for s, job in zip(result.speeds, jobs, strict=True))


QUESTIONS: Mapping[str, ChoiceQuestion] = MappingProxyType(
    {
        **{name: ChoiceQuestion(objective) for name, objective in OBJECTIVES.items()},
        DEFAULT_OBJECTIVE: ChoiceQuestion(
            OBJECTIVES[DEFAULT_OBJECTIVE], "every way", POLICY.min_speed
        ),
    }
)
"""By objective: the default one as `advisor recommend` asks it, the others as the paper does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One choice, scored by what was measured.

    Attributes:
        left_out: What the learner had not seen.
        chosen: Name of the way: shares such as "30/70", "uncapped", "time-sliced", "exclusive".
        oracle: The best way of the scope that keeps the minimum speed as measured.
        fraction: Value at the choice for each one of the oracle; above 1 where the choice is not
            in the scope or does not keep the minimum speed.
        missed: Whether a job is below the minimum speed that was asked for; None where none was
            asked for, or the jobs do not share.
        over: Value at the choice for each one of a baseline, by the baseline's name.
    """

    left_out: str
    number: int
    jobs: tuple[str, str]
    chosen: str
    oracle: str
    fraction: float
    energy_saved: float
    stp: float
    slower_speed: float
    missed: bool | None
    over: Mapping[str, float]


def choose(
    data: Data,
    held_out: HeldOut,
    question: ChoiceQuestion,
    tie: float,
    judged_by: ChoiceQuestion | None = None,
) -> list[Choice]:
    """What predictions choose, one choice for each thing left out and measurement.

    Choices are made from what is known before: predicted relative speeds and power, and the
    profiles' rates; `tie` is that of `advisor.core.objectives`. They may be scored by
    another question. Measurements in which nothing is worth anything are left out.
    """
    judge = judged_by or question
    return [
        choice
        for key, options in _expected(data, held_out, question)
        if (choice := _scored(data, key, _pick(data, key, options, question, tie), judge))
    ]


def choose_by_rule(
    data: Data, keys: Iterable[_ChoiceKey], rule: str, question: ChoiceQuestion
) -> list[Choice]:
    """What a rule of `RULES` chooses of the same measurements as `choose`, so that both compare.

    Measurements that lack what it chooses are left out.
    """
    named = ((key, RULES[rule](data, data.measurements[key[1]])) for key in keys)
    return [choice for of in named if (choice := _scored(data, *of, question))]


def _larger_rate(data: Data, measurement: Measurement) -> str:
    """90 % for the job with more steps per second, at a safe split; empty: not in the profiles."""
    profiles = data.profiles_of(measurement)
    rate_a, other = (profile.whole_gpu_rate for profile in profiles)
    larger = Split((90.0, 10.0) if rate_a > other else (10.0, 90.0))
    (split,) = safe_splits_of(profiles, [EQUAL if rate_a == other else larger], None)
    return str(split) if split and is_within(split, profiles) else ""


RULES: Mapping[str, Callable[[Data, Measurement], str]] = MappingProxyType(
    {
        "equal": lambda data, measurement: str(EQUAL),
        "uncapped": lambda data, measurement: "uncapped",
        "time-sliced": lambda data, measurement: "time-sliced",
        "exclusive": lambda data, measurement: "exclusive",
        "larger-rate": _larger_rate,
    }
)
"""Rules that need no model, as splits name them: the way that each of them
takes."""


def _expected(
    data: Data, held_out: HeldOut, question: ChoiceQuestion
) -> Iterator[tuple[_ChoiceKey, dict[str, Prediction]]]:
    """What is expected of each way, by its name, for each choice."""
    for key, its in held_out.by_measurement(data.rows, np.ones(len(data.rows), dtype=bool)):
        if not data.measurements[key[1]].is_full:
            continue
        profiles = data.profiles_of(data.measurements[key[1]])
        bounds = _NO_BOUNDS
        if question.min_speed and question.kept != "expected":
            bounds = bounds_without(data.rows, held_out, key[0], (profiles[0].job, profiles[1].job))
        options: dict[str, Prediction] = {}
        for test, split in zip(its, data.rows.splits(held_out.row[its]), strict=True):
            if _in_scope(str(split), question.scope):
                speeds = zip(profiles, held_out.heads["speed"][test].tolist(), strict=True)
                options[str(split)] = Prediction(
                    split=split,
                    parts=tuple(
                        predicted_part(profile, speed_around(bounds, speed, split, n, profiles))
                        for n, (profile, speed) in enumerate(speeds)
                    ),
                    power_w=Interval.sure(float(held_out.power_w[test])),
                )
        if _in_scope("exclusive", question.scope):
            options["exclusive"] = predict_exclusive(profiles)
        if options:
            yield key, options


def _pick(
    data: Data,
    key: _ChoiceKey,
    options: Mapping[str, Prediction],
    question: ChoiceQuestion,
    tie: float,
) -> str:
    """The name of the way that is recommended; of those that are allowed, if any is.

    Jobs need not share: one that answers requests gets a GPU of its own then.
    """
    profiles = data.profiles_of(data.measurements[key[1]])
    limits = Request(policy=Policy(min_speed=question.min_speed, p99_times_alone=0.0))
    if question.kept == "low end":
        limits = replace(limits, policy=replace(limits.policy, chance=_LOW_END))
    allowed = {
        name: option
        for name, option in options.items()
        # Without a minimum speed a server may fall short as well, as the oracle has it.
        if name == "exclusive"
        or not question.min_speed
        or limits.violations(Predictions.of([option]), profiles) == ((),)
    } or options
    jobs, value = [profile.job for profile in profiles], question.objective.value
    chosen = best_within_tie(
        allowed.values(),
        lambda p: value(p.result),
        tie,
        lambda p, value: fewest_limits(p.split, jobs, value),
    )
    return next(name for name, option in allowed.items() if option is chosen)


def _scored(data: Data, key: _ChoiceKey, name: str, question: ChoiceQuestion) -> Choice | None:
    """The choice of a way, None where it was not measured or nothing is worth anything."""
    measurement = data.measurements[key[1]]
    jobs = data.profiles_of(measurement)
    # Every way that was measured; exclusive comes from the jobs alone.
    results = {str(split): result for split, result in measurement.nine.items()}
    others = {name: BASELINES[name](measurement) for name in BASELINES if name != "equal"}
    results |= {name: result_of for name, result_of in others.items() if result_of}
    result = results.get(name)
    # The best way of the scope as measured; allowed ones first.
    within = {n: r for n, r in results.items() if _in_scope(n, question.scope)}
    allowed = {n: r for n, r in within.items() if question.allows(n, r, jobs)} or within
    values = {n: question.objective.value(r) for n, r in allowed.items()}
    oracle = max(values, key=lambda n: values[n])
    most = values[oracle]
    if result is None or most <= 0:
        return None
    value = question.objective.value(result)
    has_limit = question.min_speed > 0 and name != "exclusive"
    return Choice(
        left_out=key[0],
        number=key[1],
        jobs=measurement.jobs,
        chosen=name,
        oracle=oracle,
        fraction=value / most,
        energy_saved=result.energy_saved,
        stp=result.stp,
        slower_speed=min(result.speeds),
        missed=not question.allows(name, result, jobs) if has_limit else None,
        over={
            baseline: value / baseline_value
            for baseline, find in BASELINES.items()
            if (baseline_result := find(measurement))
            and (baseline_value := question.objective.value(baseline_result)) > 0
        },
    )


def _in_scope(name: str, scope: _CandidateScope) -> bool:
    others = {"exclusive": scope != "nine", "uncapped": scope == "every way"}
    return "/" in name or others.get(name, False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceFigures:
    """Many choices in short, in percent where nothing else is said, with 95 % intervals by job.

    Attributes:
        pairs: Of jobs, whatever GPU model; `jobs` that are in them.
        saved: Energy saved for the same work against one after the other, mean;
            `saved_median` likewise.
        loses: Choices that cost more energy than one after the other.
        shared: Choices that are not one after the other.
        missed: Of these, those in which a job is below the minimum speed that was asked for; None
            where none was asked for or nothing is shared.
        fraction: Value for each one of the oracle.
        p10_percent: A tenth of the choices reaches less of the oracle.
        over: Gain over each baseline, `mean_percent` and `median_percent` of so many `choices`;
            without those that were never measured. The mean of ratios hangs on few pairs in which
            the baseline starves a job; the median does not.
    """

    choices: int
    pairs: int
    jobs: int
    saved: Interval
    saved_median: Interval
    loses: Interval
    stp: Interval
    slower: Interval
    shared: Interval
    missed: Interval | None
    fraction: Interval
    p10_percent: float
    worst_percent: float
    over: Mapping[str, Mapping[str, float]]


def figures_of(choices: Sequence[Choice]) -> ChoiceFigures | None:
    """The choices in short; None of none."""
    if not choices:
        return None
    drawn = Resamples([c.jobs for c in choices])

    def mean(value: Callable[[Choice], float]) -> Interval:
        return drawn.mean([100 * value(choice) for choice in choices])

    limited = [c for c in choices if c.missed is not None]
    over = {name: [c.over[name] for c in choices if name in c.over] for name in BASELINES}
    return ChoiceFigures(
        choices=len(choices),
        pairs=len({c.jobs for c in choices}),
        jobs=len({job for c in choices for job in c.jobs}),
        saved=mean(lambda c: c.energy_saved),
        saved_median=drawn.median([100 * c.energy_saved for c in choices]),
        loses=mean(lambda c: c.energy_saved < 0),
        stp=drawn.mean([c.stp for c in choices]),
        slower=mean(lambda c: c.slower_speed),
        shared=mean(lambda c: c.chosen != "exclusive"),
        missed=Resamples([c.jobs for c in limited]).mean([100.0 * bool(c.missed) for c in limited])
        if limited
        else None,
        fraction=mean(lambda c: c.fraction),
        p10_percent=100 * float(np.quantile([choice.fraction for choice in choices], 0.1)),
        worst_percent=100 * min(choice.fraction for choice in choices),
        over={
            name: {
                "choices": len(r),
                "mean_percent": 100 * (statistics.mean(r) - 1),
                "median_percent": 100 * (statistics.median(r) - 1),
            }
            for name, r in over.items()
            if r
        },
    )
