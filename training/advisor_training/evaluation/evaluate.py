"""The whole evaluation: every method under every protocol."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias

import numpy as np

from advisor.core.objectives import DEFAULT_OBJECTIVE, OBJECTIVES
from advisor_training.dataset.data import Data
from advisor_training.dataset.noise import noise_ceiling
from advisor_training.dataset.rows import Rows
from advisor_training.evaluation.bars import by_job
from advisor_training.evaluation.errors import compare
from advisor_training.evaluation.methods import (
    HEADLINE,
    METHODS,
    OURS,
    PHYSICAL,
    Method,
    MethodResult,
    ask,
)
from advisor_training.evaluation.other_gpu import leave_gpus_out
from advisor_training.evaluation.outcomes import figures_of
from advisor_training.evaluation.rows import choice_rows, error_rows, limit_rows
from advisor_training.evaluation.values import (
    Evaluation,
    EvaluationBasis,
    SeedFigures,
)
from advisor_training.learn import carrying_over
from advisor_training.learn.calibration import calibrate, strictest
from advisor_training.learn.conformal import COVERAGE
from advisor_training.learn.estimator import extra_trees
from advisor_training.learn.learners import Regressors, fit
from advisor_training.learn.protocols import (
    BOTH_UNSEEN,
    BY_FAMILY,
    BY_GPU_MODEL,
    BY_PAIR,
    BY_RUN,
    BY_WORKLOAD,
    PROTOCOLS,
    RANDOM_ROWS,
    has_other_runs,
)

OTHER_GPU = "on another GPU model"
OTHER_SEEDS = "by workload, other seeds"

SEEDS = tuple(range(1, 10))
"""Seeds next to that of the model."""

OnProgress: TypeAlias = Callable[[str, str], None]
"""Takes the protocol and the method after each fit."""


def run_evaluation(data: Data, *, quick: bool, watch: OnProgress) -> Evaluation:
    """Run the protocols, and tell `watch` of every fit.

    Quick are the model and physics only, by workload, and what the intervals are made of.

    Raises:
        InputError: too few pairs to leave some out.
    """
    results = {
        (protocol, name): ask(
            METHODS[name], data, PROTOCOLS[protocol].answer, partial(watch, protocol, name)
        )
        for protocol, name in _asked(data, quick=quick)
    }
    ours = results[BY_WORKLOAD, OURS]
    chosen = {name: ours.choices(data, name) for name in HEADLINE}
    held_out = ours.answers.held_out
    gpus = [] if quick else list(leave_gpus_out(data, partial(watch, OTHER_GPU, OURS)))
    return Evaluation(
        quick=quick,
        basis=_basis(data),
        ceilings={o.name: noise_ceiling(data.pairs, o) for o in OBJECTIVES.values()},
        choices=tuple(choice_rows(data, results)),
        errors=tuple(error_rows(data, results)),
        wanted_coverage=COVERAGE,
        coverage=calibrate(data.rows, results[strictest(data.rows), OURS].answers.held_out).held,
        training_s={name: t.training_s for (p, name), t in results.items() if p == BY_WORKLOAD},
        jobs=by_job(data, held_out, chosen),
        gpus=tuple(figures for figures, _ in gpus),
        gpu_curve=tuple(point for _, points in gpus for point in points),
        limits=tuple(
            row
            for (protocol, _), answers in results.items()
            if protocol not in (RANDOM_ROWS, BY_PAIR)
            for row in limit_rows(data, protocol, answers)
        ),
        seeds=() if quick else tuple(_seeds(data, ours, watch)),
        chosen={name: tuple(found) for name, found in chosen.items()},
        compared=compare(data, held_out, (data.rows.kind == "nine")[held_out.row]),
    )


def planned_fits(data: Data, *, quick: bool) -> dict[tuple[str, str], int]:
    """How many fits an evaluation takes, by protocol and method, in the order of its work."""
    fits = {
        (protocol, name): PROTOCOLS[protocol].fits(data.rows)
        for protocol, name in _asked(data, quick=quick)
    }
    if quick:
        return fits
    others = carrying_over.fits(data.rows)
    fits |= {(OTHER_GPU, OURS): others} if others else {}
    return fits | {(OTHER_SEEDS, OURS): len(SEEDS) * len(data.rows.jobs)}


def _asked(data: Data, *, quick: bool) -> list[tuple[str, str]]:
    """Which method is asked under which protocol; some need several runs or GPU models."""
    if quick:
        # Intervals are made of what the strictest protocol finds.
        strictly = dict.fromkeys([(BY_WORKLOAD, OURS), (strictest(data.rows), OURS)])
        return [*strictly, (BY_WORKLOAD, PHYSICAL)]
    models = [BY_GPU_MODEL] if carrying_over.gpu_models(data.rows) else []
    runs = [BY_RUN] if has_other_runs(data.rows) else []
    strict = [(p, name) for p in (BOTH_UNSEEN, BY_FAMILY, *runs) for name in (OURS, PHYSICAL)]
    shared = [(p, name) for p in (BY_WORKLOAD, *models, BY_PAIR, RANDOM_ROWS) for name in METHODS]
    return [*shared, *strict]


def _seeds(data: Data, ours: MethodResult, watch: OnProgress) -> Iterator[SeedFigures]:
    """The model's own seed, then the others."""
    yield _seed(data, 0, ours)
    for seed in SEEDS:

        def learner(rows: Rows, seed: int = seed) -> Regressors:
            return fit(lambda: extra_trees(seed), rows)

        tick = partial(watch, OTHER_SEEDS, OURS)
        yield _seed(
            data, seed, ask(Method(OURS, learner), data, PROTOCOLS[BY_WORKLOAD].answer, tick)
        )


def _seed(data: Data, seed: int, results: MethodResult) -> SeedFigures:
    found = {name: figures_of(results.choices(data, name)) for name in HEADLINE}
    known = {name: figures for name, figures in found.items() if figures}
    asked = known[DEFAULT_OBJECTIVE]
    return SeedFigures(
        seed=seed,
        saved_percent=asked.saved.value,
        shared_percent=asked.shared.value,
        missed_percent=asked.missed.value if asked.missed else None,
        fractions={name: figures.mean_percent for name, figures in known.items()},
        errors=results.errors(data, np.asarray(data.rows.kind == "nine")),
    )


def _basis(data: Data) -> EvaluationBasis:
    return EvaluationBasis(
        gpu_models=tuple(sorted({m.gpu_model for m in data.measurements})),
        cards=len({m.gpu_uuid for m in data.measurements}),
        jobs=len(data.rows.jobs),
        pairs=len(data.pairs),
        launch_bound_pairs=len(
            {
                (*m.jobs, m.gpu_model)
                for m, bound in zip(data.measurements, data.with_launch_bound(), strict=True)
                if bound
            }
        ),
        measurements=len(data.measurements),
        splits=len(data.rows),
        left_out=data.left_out,
    )
