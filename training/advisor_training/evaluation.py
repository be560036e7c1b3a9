"""The whole evaluation: every method under every protocol, its figures, their JSON, the check."""

import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib import resources
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import pandas as pd

from advisor.core.objectives import (
    DEFAULT_OBJECTIVE,
    OBJECTIVES,
    PER_WATT_OBJECTIVE,
    POLICY,
    RAW_OBJECTIVE,
    Interval,
)
from advisor.core.records import grouped
from advisor.errors import InputError, ModelError
from advisor.formats.wire import as_answer, to_plain
from advisor.predict.predictions import Prediction
from advisor.predict.profiles import Floats, is_launch_bound, kind_of
from advisor_models.model_predictor import ModelPredictor
from advisor_training.learners import (
    BOTH_UNSEEN,
    BY_FAMILY,
    BY_GPU_MODEL,
    BY_PAIR,
    BY_RUN,
    BY_WORKLOAD,
    LEARNERS,
    POWER_LEARNER,
    PROTOCOLS,
    RANDOM_ROWS,
    SEED,
    SPEED_LEARNER,
    Fitted,
    HeldOut,
    Learner,
    OnFold,
    Regressors,
    extra_trees,
    fit,
    has_other_runs,
    joined,
    leave_out,
    paper_learner,
)
from advisor_training.rows import Data, Mask, Rows, flat
from advisor_training.scoring import (
    COVERAGE,
    QUESTIONS,
    RULES,
    Choice,
    ChoiceFigures,
    ChoiceQuestion,
    Coverage,
    Errors,
    KeptBy,
    calibrate,
    choose,
    choose_by_rule,
    compare,
    error,
    errors_of,
    figures_of,
    fractions,
    head_errors,
    noise_scores,
    rounded_percent,
    strictest,
)
from advisor_training.train import (
    add_pairs,
    carry_over,
    fits as fits_of_others,
    gpu_models,
    mean_held,
    widenings,
)

HEADLINE = (DEFAULT_OBJECTIVE, PER_WATT_OBJECTIVE, RAW_OBJECTIVE)
"""Objectives whose figures are always shown."""

OURS = next(iter(LEARNERS))
PHYSICAL = "physical"
PAPER = "paper"

COSTS = {OURS: 1.0, "linear": 0.02, PHYSICAL: 0.001, PAPER: 0.3}
"""Time of a fit relative to the model's, by method; for the time that is left only."""


@dataclass(frozen=True, slots=True, eq=False)
class _MethodResult:
    """What a method answers under a protocol.

    Attributes:
        training_s: Seconds of one fit, the median.
    """

    name: str
    held_out: HeldOut
    training_s: float

    def choices(self, data: Data, objective: str) -> list[Choice]:
        """What it chooses by an objective.

        The paper's method predicts no single job, so it chooses by (X1 + X2) / W whatever the
        objective; it takes no ties.
        """
        question = QUESTIONS[objective]
        if self.name == PAPER:
            return choose(data, self.held_out, QUESTIONS[RAW_OBJECTIVE], 0.0, question)
        return choose(data, self.held_out, _put_to(self.name, question), POLICY.tie, question)

    def errors(self, data: Data, which: Mask) -> Errors:
        """Errors over the rows of a mask; the paper's method has none of single jobs."""
        errors = errors_of(data, self.held_out, which)
        return replace(errors, rate=None, speed=None) if self.name == PAPER else errors


def _put_to(name: str, question: ChoiceQuestion) -> ChoiceQuestion:
    """The question as it is put to a method.

    Physics does not know that a job without limits starves another one, and is not asked.
    """
    if name == PHYSICAL and question.scope == "every way":
        return replace(question, scope="nine or exclusive")
    return question


def ask(
    name: str, learner: Learner, data: Data, protocol: str, progress: OnFold | None = None
) -> _MethodResult:
    """A method's answers under a protocol."""
    seconds: list[float] = []

    def timed(rows: Rows) -> Fitted:
        start = time.perf_counter()
        fitted = learner(rows)
        seconds.append(time.perf_counter() - start)
        return fitted

    held_out = leave_out(data.rows, timed, PROTOCOLS[protocol].draws(data.rows), progress)
    return _MethodResult(name, held_out, float(np.median(seconds)))


def by_job(
    data: Data, held_out: HeldOut, choices: Mapping[str, Sequence[Choice]]
) -> tuple[Mapping[str, Any], ...]:
    """One entry for each job that was left out and GPU model, the busiest SMs first.

    All pairs with that job. `bars` has by objective the number of `choices`, their mean
    `fraction_percent` of the oracle, that of 50/50 in the same pairs (`equal_percent`), and what
    ours gains over it (`gain_percent`; None where that of 50/50 is 0). `own` is the error of the
    job's own relative speed, `beside` of the jobs next to it.
    """
    by_objective = {
        name: grouped(
            chosen, lambda choice: (choice.left_out, data.measurements[choice.number].gpu_model)
        )
        for name, chosen in choices.items()
    }
    jobs = [
        _job(
            data, held_out, key, {n: bar_of(of[key]) for n, of in by_objective.items() if key in of}
        )
        for key in dict.fromkeys(itertools.chain.from_iterable(by_objective.values()))
    ]
    return tuple(sorted(jobs, key=lambda job: (-job["sm_active_percent"], job["job"])))


def bar_of(choices: Sequence[Choice]) -> Mapping[str, float | None]:
    """The mean of choices; at least one."""
    ours = statistics.mean(choice.fraction for choice in choices)
    # A pair in which 50/50 is worth nothing has no ratio to it, and 50/50 is 0 of its oracle.
    equal = statistics.mean(
        choice.fraction / choice.over["equal"] if choice.over.get("equal") else 0.0
        for choice in choices
    )
    return {
        "choices": len(choices),
        "fraction_percent": 100 * ours,
        "equal_percent": 100 * equal,
        "gain_percent": 100 * (ours / equal - 1) if equal > 0 else None,
    }


def _job(
    data: Data,
    held_out: HeldOut,
    key: tuple[str, str],
    bars: Mapping[str, Mapping[str, float | None]],
) -> Mapping[str, Any]:
    rows, profile = data.rows, data.profiles[key]
    nine = (rows.kind == "nine") & (rows.gpu_model == key[1])
    its = (held_out.left_out == key[0]) & nine[held_out.row]
    compared, tested = compare(data, held_out, its), rows.take(held_out.row[its])
    expected, measured = map(flat, compared["speed"])
    is_job = np.concatenate([tested.job_a == key[0], tested.job_b == key[0]])
    return {
        "job": key[0],
        "gpu_model": key[1],
        "launch_bound": is_launch_bound(profile),
        "sm_active_percent": float(profile.values["sm_active_percent"][-1]),
        "bars": bars,
        "own": error(expected[is_job], measured[is_job]),
        "beside": error(expected[~is_job], measured[~is_job]),
        "power": error(*compared["power"]),
    }


def leave_gpus_out(
    data: Data, progress: OnFold | None = None
) -> Iterator[tuple[Mapping[str, Any], list[Mapping[str, Any]]]]:
    """Each GPU model left out, then with pairs of it added; nothing where there is one only.

    Rows of `gpus` and `gpu_curve` of an `Evaluation`.
    """
    for name in gpu_models(data.rows):
        mask = data.rows.gpu_model == name
        carried = carry_over(data.rows, mask, name, LEARNERS[OURS], progress)
        added = add_pairs(data.rows, mask, LEARNERS[OURS], progress)
        yield (
            {
                "left_out": name,
                "learned_pairs": carried.learned_pairs,
                "pairs": len(np.unique(data.rows.pair[carried.held_out.row])),
                "fractions": _fractions(data, carried.held_out),
                "errors": _errors(data, carried.held_out),
                "held": mean_held(carried, data.rows, [carried.held_out]),
                "widening": widenings(carried, data.rows),
            },
            [
                {
                    "left_out": name,
                    "added_pairs": pairs,
                    "draws": len(by_draw),
                    "fractions": _fractions(data, joined(by_draw)),
                    "errors": _errors(data, joined(by_draw)),
                    "held": mean_held(carried, data.rows, by_draw),
                }
                for pairs, by_draw in added
            ],
        )


def _fractions(data: Data, held_out: HeldOut) -> dict[str, ChoiceFigures]:
    return {
        name: figures
        for name in HEADLINE
        if (figures := figures_of(choose(data, held_out, QUESTIONS[name], POLICY.tie)))
    }


def _errors(data: Data, held_out: HeldOut) -> Errors:
    return errors_of(data, held_out, np.asarray(data.rows.kind == "nine"))


# By protocol and method.
_MethodResults: TypeAlias = Mapping[tuple[str, str], _MethodResult]

# The default, and "both keep half of their speed".
_LEAST_SPEEDS = (0.4, 0.5)


Some: TypeAlias = Literal[
    "all",
    "with a launch-bound job",
    "without",
    "with a server",
    "without a server",
    "at the power limit",
    "below the power limit",
]
"""Which pairs or rows: a launch-bound job measures a core of the CPU, which profiles cannot
foresee, and at the limit the power is known beforehand."""


def _choice_rows(data: Data, results: _MethodResults) -> Iterator[Mapping[str, Any]]:
    """What each method and rule chooses, by objective and for each subset of the pairs."""
    for (protocol, name), answers in results.items():
        for objective in OBJECTIVES if protocol == BY_WORKLOAD else HEADLINE:
            yield from _rows(data, protocol, name, objective, answers.choices(data, objective))
    ours = results[BY_WORKLOAD, OURS].choices(data, DEFAULT_OBJECTIVE)
    keys = [(choice.left_out, choice.number) for choice in ours]
    for rule in RULES:
        for objective, question in QUESTIONS.items():
            chosen = choose_by_rule(data, keys, rule, question)
            yield from _rows(data, BY_WORKLOAD, rule, objective, chosen)


def _error_rows(data: Data, results: _MethodResults) -> Iterator[Mapping[str, Any]]:
    """How far each method is off, for each subset of the rows."""
    limited = data.at_power_limit()
    for (protocol, name), answers in results.items():
        masks: dict[Some, Mask] = {
            pairs: np.isin(data.rows.measurement, [*numbers])
            for pairs, numbers in _subsets(data, protocol).items()
        }
        masks |= {"at the power limit": limited, "below the power limit": ~limited}
        for splits in ("nine", "uncapped"):
            for pairs, mask in masks.items():
                errors = answers.errors(data, (data.rows.kind == splits) & mask)
                if errors.rows:
                    yield {
                        "protocol": protocol,
                        "method": name,
                        "splits": splits,
                        "pairs": pairs,
                        "errors": errors,
                    }


def limit_rows(data: Data, protocol: str, results: _MethodResult) -> Iterator[Mapping[str, Any]]:
    """One for each minimum speed, and what is to keep it."""
    for least, kept in itertools.product(_LEAST_SPEEDS, get_args(KeptBy)):
        wanted = ChoiceQuestion(OBJECTIVES[DEFAULT_OBJECTIVE], "every way", least)
        question = _put_to(results.name, replace(wanted, kept=kept))
        if figures := figures_of(choose(data, results.held_out, question, POLICY.tie, wanted)):
            yield {
                "protocol": protocol,
                "method": results.name,
                "min_speed": least,
                "kept": kept,
                "shared": figures.shared,
                "missed": figures.missed,
                "saved": figures.saved,
            }


def _subsets(data: Data, protocol: str) -> dict[Some, frozenset[int]]:
    """Numbers of the measurements of each subset; under most protocols all of them only."""
    bound = data.with_launch_bound()
    server = np.array(["server" in map(kind_of, data.profiles_of(m)) for m in data.measurements])
    every: dict[Some, frozenset[int]] = {"all": frozenset(range(len(bound)))}
    if protocol != BY_WORKLOAD:
        return every
    return {
        **every,
        "with a launch-bound job": frozenset(np.flatnonzero(bound).tolist()),
        "without": frozenset(np.flatnonzero(~bound).tolist()),
        "with a server": frozenset(np.flatnonzero(server).tolist()),
        "without a server": frozenset(np.flatnonzero(~server).tolist()),
    }


def _rows(
    data: Data, protocol: str, method: str, objective: str, choices: Sequence[Choice]
) -> Iterator[Mapping[str, Any]]:
    yield from (
        {
            "protocol": protocol,
            "method": method,
            "objective": objective,
            "scope": QUESTIONS[objective].scope,
            "pairs": pairs,
            "figures": figures,
        }
        for pairs, numbers in _subsets(data, protocol).items()
        if (figures := figures_of([choice for choice in choices if choice.number in numbers]))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Everything that was found.

    Attributes:
        quick: Whether only the model, physics and the paper's method were asked, by workload.
        basis: What it rests on: GPU models, and how many of each thing; `left_out` has reasons.
        ceilings: The noise ceiling by objective: how many `noise_scores`, and their mean; None
            where no pair was measured twice.
        choices: What the choices of methods and rules are worth, a row for each protocol, method,
            objective and subset of the pairs (`Some`), as `figures`. A protocol says what the
            method had seen, rules see nothing; `scope` is what is chosen from.
        errors: Errors of methods, a row for each protocol, method and subset, at the nine splits
            or uncapped (`splits`), as `errors`.
        wanted_coverage: What the intervals are made for.
        coverage: What intervals of jobs that were left out, with run and cards where there are
            several, hold of "speed", "power" and "efficiency".
        training_s: Seconds of one fit to all jobs but one, by method.
        gpus: The model on each GPU model that it has not learned from, nor from the job on another
            one; empty where there is one only, and where the evaluation is quick. `held` are parts
            of "speed" and "power" within the intervals of the other GPU models, `widening` how much
            wider those must be to hold what they promise.
        gpu_curve: The same with ever more pairs of that model learned from (`added_pairs`), over
            all random draws of these; choices are of all other pairs of it.
        limits: Choices by energy for the same work that keep a minimum speed as predicted:
            `min_speed` is what each job is to keep, `kept` what keeps it where a split is chosen,
            `shared` the percentage that is not one after the other, `missed` that of these with a
            job below the minimum as measured.
        seeds: The model grown from other seeds, by workload; empty where the evaluation is quick.
        chosen: The model's choices for jobs that were left out, by objective.
        compared: The model's predictions of these, at the nine splits; not in the JSON form.
    """

    quick: bool
    basis: Mapping[str, Any]
    ceilings: Mapping[str, Mapping[str, float] | None]
    choices: tuple[Mapping[str, Any], ...]
    errors: tuple[Mapping[str, Any], ...]
    wanted_coverage: float
    coverage: Mapping[str, Coverage]
    training_s: Mapping[str, float]
    jobs: tuple[Mapping[str, Any], ...]
    gpus: tuple[Mapping[str, Any], ...]
    gpu_curve: tuple[Mapping[str, Any], ...]
    limits: tuple[Mapping[str, Any], ...]
    seeds: tuple[Mapping[str, Any], ...]
    chosen: Mapping[str, tuple[Choice, ...]]
    compared: Mapping[Literal["speed", "rate", "power"], tuple[Floats, Floats]]


def errors_of_all_pairs(evaluation: Evaluation) -> "pd.Series[Any]":
    """`Errors` of all pairs at the nine splits, by protocol and method."""
    rows = pd.DataFrame(evaluation.errors)
    its = (rows["pairs"] == "all") & (rows["splits"] == "nine")
    return rows[its].set_index(["protocol", "method"])["errors"]


def to_json(evaluation: Evaluation) -> str:
    """The evaluation as JSON text."""
    values = {
        field.name: getattr(evaluation, field.name)
        for field in fields(evaluation)
        if field.name != "compared"
    }
    protocols = {name: protocol.meaning for name, protocol in PROTOCOLS.items()}
    whole = {"protocols": protocols, **values, "check": checked_figures(evaluation)}
    return as_answer(json.dumps(whole, default=to_plain, allow_nan=False).encode()).decode()


OTHER_GPU = "on another GPU model"
OTHER_SEEDS = "by workload, other seeds"

# Seeds next to that of the model.
_SEEDS = tuple(range(1, 10))

OnProgress: TypeAlias = Callable[[str, str], None]
"""Takes the protocol and the method after each fit."""


def run_evaluation(data: Data, *, quick: bool, watch: OnProgress) -> Evaluation:
    """Run the protocols, and tell `watch` of every fit.

    Quick are the model, physics and the paper's method, by workload, and what the intervals are
    made of.

    Raises:
        InputError: too few pairs to leave some out.
    """

    def progress(protocol: str, name: str) -> OnFold:
        return lambda _left_out, _done, _total: watch(protocol, name)

    learners = {**LEARNERS, PAPER: paper_learner(data.profiles)}
    results = {
        (protocol, name): ask(name, learners[name], data, protocol, progress(protocol, name))
        for protocol, name in _compared_methods(data, quick=quick)
    }
    ours = results[BY_WORKLOAD, OURS]
    chosen = {name: ours.choices(data, name) for name in HEADLINE}
    gpus = [] if quick else list(leave_gpus_out(data, progress(OTHER_GPU, OURS)))
    bounds = zip(data.measurements, data.with_launch_bound(), strict=True)
    return Evaluation(
        quick=quick,
        basis={
            "gpu_models": tuple(sorted({m.gpu_model for m in data.measurements})),
            "cards": len({m.gpu_uuid for m in data.measurements}),
            "jobs": len(data.rows.jobs),
            "launch_bound_pairs": len({m.pair for m, bound in bounds if bound}),
            "pairs": len({m.pair for m in data.measurements}),
            "measurements": len(data.measurements),
            "splits": len(data.rows),
            "left_out": data.left_out,
        },
        ceilings={
            name: {"choices": len(scores), "mean_percent": 100 * statistics.mean(scores)}
            if (scores := noise_scores(data.measurements, objective))
            else None
            for name, objective in OBJECTIVES.items()
        },
        choices=tuple(_choice_rows(data, results)),
        errors=tuple(_error_rows(data, results)),
        wanted_coverage=COVERAGE,
        coverage=calibrate(data.rows, results[strictest(data.rows), OURS].held_out).held,
        training_s={name: t.training_s for (p, name), t in results.items() if p == BY_WORKLOAD},
        jobs=by_job(data, ours.held_out, chosen),
        gpus=tuple(figures for figures, _ in gpus),
        gpu_curve=tuple(point for _, points in gpus for point in points),
        limits=tuple(
            row
            for (protocol, name), answers in results.items()
            if protocol not in (RANDOM_ROWS, BY_PAIR) and name != PAPER
            for row in limit_rows(data, protocol, answers)
        ),
        seeds=() if quick else tuple(_seeds(data, ours, progress(OTHER_SEEDS, OURS))),
        chosen={name: tuple(of_method) for name, of_method in chosen.items()},
        compared=compare(data, ours.held_out, (data.rows.kind == "nine")[ours.held_out.row]),
    )


def planned_fits(data: Data, *, quick: bool) -> dict[tuple[str, str], int]:
    """How many fits an evaluation takes, by protocol and method, in the order of its work."""
    fits = {
        (protocol, name): sum(1 for _ in PROTOCOLS[protocol].draws(data.rows))
        for protocol, name in _compared_methods(data, quick=quick)
    }
    if quick:
        return fits
    others = fits_of_others(data.rows)
    fits |= {(OTHER_GPU, OURS): others} if others else {}
    return fits | {(OTHER_SEEDS, OURS): len(_SEEDS) * len(data.rows.jobs)}


def _compared_methods(data: Data, *, quick: bool) -> list[tuple[str, str]]:
    """Which method is asked under which protocol; some need several runs or GPU models."""
    if quick:
        # Intervals are made of what the strictest protocol finds.
        strictly = dict.fromkeys([(BY_WORKLOAD, OURS), (strictest(data.rows), OURS)])
        return [*strictly, (BY_WORKLOAD, PHYSICAL), (BY_WORKLOAD, PAPER)]
    models = [BY_GPU_MODEL] if gpu_models(data.rows) else []
    runs = [BY_RUN] if has_other_runs(data.rows) else []
    strict = [(p, name) for p in (BOTH_UNSEEN, BY_FAMILY, *runs) for name in (OURS, PHYSICAL)]
    shared = [
        (p, name)
        for p in (BY_WORKLOAD, *models, BY_PAIR, RANDOM_ROWS)
        for name in (*LEARNERS, PAPER)
    ]
    return [*shared, *strict]


def _seeds(data: Data, ours: _MethodResult, progress: OnFold) -> Iterator[Mapping[str, Any]]:
    """The model's own seed, then the others."""
    for seed in (SEED, *_SEEDS):

        def learner(rows: Rows, seed: int = seed) -> Regressors:
            return fit(lambda: extra_trees(seed), rows)

        results = ours if seed == SEED else ask(OURS, learner, data, BY_WORKLOAD, progress)
        by_objective = _fractions(data, results.held_out)
        default = by_objective[DEFAULT_OBJECTIVE]
        yield {
            "seed": seed,
            "saved_percent": default.saved.value,
            "shared_percent": default.shared.value,
            "missed_percent": default.missed.value if default.missed else None,
            "fractions": {name: figures.fraction.value for name, figures in by_objective.items()},
            "errors": _errors(data, results.held_out),
        }


FigureKind = Literal["fraction of oracle", "error", "coverage"]

TOLERANCES: Mapping[FigureKind, float] = MappingProxyType(
    {"fraction of oracle": 0.3, "error": 0.5, "coverage": 3.0}
)
"""Points by which a figure may be worse: other versions of libraries grow other trees."""

BUNDLED = "bundled_evaluation.json"


def checked_figures(evaluation: Evaluation) -> dict[FigureKind, dict[str, float]]:
    """The figures that are compared; those of the quick protocol, so any evaluation has them."""
    return {
        "fraction of oracle": {
            f"{row['method']} by {row['objective']}, {row['scope']}": row["figures"].fraction.value
            for row in evaluation.choices
            if row["protocol"] == BY_WORKLOAD and row["pairs"] == "all"
            if row["method"] in (OURS, PHYSICAL)
        },
        "error": {
            f"{method}, {name}": error.mean_percent
            for method, errors in errors_of_all_pairs(evaluation)[BY_WORKLOAD].items()
            if method in (OURS, PHYSICAL)
            for name, error in (("rates", errors.rate), ("power", errors.power))
            if error
        },
        "coverage": {
            name: 100 * coverage.overall for name, coverage in evaluation.coverage.items()
        },
    }


def bundled_figures() -> Mapping[FigureKind, Mapping[str, float]]:
    """The figures that come with the advisor, percent."""
    return json.loads(resources.files("advisor_training").joinpath(BUNDLED).read_text("utf-8"))


def check(
    figures: Mapping[FigureKind, Mapping[str, float]],
    bundled: Mapping[FigureKind, Mapping[str, float]],
) -> None:
    """Accept figures as good as the bundled ones.

    Raises:
        ModelError: one is worse by more than its tolerance; the message names all of them.
    """
    if faults := [
        fault
        for kind in TOLERANCES
        for name, was in bundled[kind].items()
        if (fault := _fault(kind, name, figures[kind].get(name), was))
    ]:
        raise ModelError(
            "; ".join(faults),
            why="features, learners or data changed",
            fix=f"mend that, or show why the new figures are right and replace {BUNDLED}",
        )


def _fault(kind: FigureKind, name: str, value: float | None, was: float) -> str:
    """By what a figure is worse than bundled, beyond the tolerance; empty: it is not."""
    side = 1 if kind == "error" else -1
    bound = was + side * TOLERANCES[kind]
    if value is not None and side * value <= side * bound:  # NaN is not
        return ""
    now = "missing" if value is None else f"{value:.2f} %"
    least = "at most" if kind == "error" else "at least"
    return f"{kind} of {name} is {now}, {least} {bound:.2f} % is wanted (bundled: {was:.2f} %)"


def evaluate_local(predictor: ModelPredictor, data: Data) -> dict[str, Any]:
    """Compare what a model, as it answers, predicts of measured pairs with what was measured.

    Errors and fractions are at the nine splits, in percent, and named as in manifests;
    `oracle_percent` is the measured worth of the split chosen by prediction for each one of the
    best measured split, the mean over the measurements; `rate_coverage_percent` the measured rates
    within their intervals, at all splits, which promise `coverage_percent`. `splits` says how many
    were predicted, uncapped ones among them. `known_jobs` are those that the model may have learned
    from, by name: figures of their pairs say less of jobs that are new to it.

    Raises:
        InputError: a profile that the model cannot predict from, or no measured split is worth
            anything.
    """
    rows, manifest, predicted = data.rows, predictor.manifest, list[Prediction]()
    for number, measurement in enumerate(data.measurements):
        splits = rows.splits(np.flatnonzero(rows.measurement == number))
        predicted += predictor.predict(data.profiles_of(measurement), splits)
    # Without bounds, as answers about held-out rows are.
    speed = np.array([[part.speed.value for part in p.parts] for p in predicted])
    held_out = HeldOut(
        left_out=np.full(len(predicted), manifest.version),
        row=np.arange(len(predicted)),
        tested=np.ones(len(predicted), dtype=bool),
        speed=speed,
        heads={"speed": speed, "power": np.array([[p.power_w.value] for p in predicted])},
    )
    scores = fractions(rows, held_out, OBJECTIVES[DEFAULT_OBJECTIVE], POLICY.tie)
    if not len(scores):
        raise InputError("no measured split did any work", fix="measure pairs: advisor colocate")
    rates = head_errors(rows, held_out, SPEED_LEARNER)
    held = (
        *_within((p.parts[0].speed for p in predicted), rows.speed_a),
        *_within((p.parts[1].speed for p in predicted), rows.speed_b),
    )
    return {
        "model": manifest.version,
        "objective": DEFAULT_OBJECTIVE,
        "pairs": len({m.pair for m in data.measurements}),
        "jobs": len(rows.jobs),
        "splits": len(rows),
        "known_jobs": tuple(sorted(set(rows.jobs) & set(manifest.dataset.jobs))),
        "new_gpu_models": tuple(sorted(set(rows.gpu_model.tolist()) - set(manifest.gpu_models))),
        "oracle_percent": rounded_percent(scores.mean()),
        "oracle_worst_percent": rounded_percent(scores.min()),
        "rate_mean_error_percent": rounded_percent(rates.mean()),
        "rate_median_error_percent": rounded_percent(np.median(rates)),
        "power_mean_error_percent": rounded_percent(
            head_errors(rows, held_out, POWER_LEARNER).mean()
        ),
        "rate_coverage_percent": rounded_percent(np.mean(held)),
        "power_coverage_percent": rounded_percent(
            _within((p.power_w for p in predicted), rows.power_w).mean()
        ),
        "coverage_percent": rounded_percent(manifest.coverage),
        "left_out": data.left_out,
    }


def _within(intervals: Iterable[Interval], measured: Floats) -> Mask:
    bounds = np.array([(interval.low, interval.high) for interval in intervals])
    return (bounds[:, 0] <= measured) & (measured <= bounds[:, 1])
