"""Measured points to a model: rows, the fit, its intervals, and what is known of it."""

import hashlib
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from advisor.core.objectives import DEFAULT_OBJECTIVE, OBJECTIVES, PER_WATT_OBJECTIVE
from advisor.core.records import PairPoint, Point, SoloPoint
from advisor.core.wording import listed
from advisor.decide.recommendation import TIE
from advisor.errors import InputError
from advisor.formats.rows import to_row
from advisor.predict.profiles import COLUMNS, IDLE, Profile, filled
from advisor_models.heads import KNOWN_HEADS
from advisor_models.made_from import DatasetFacts, OtherGpu
from advisor_models.manifest import figure_word
from advisor_training.dataset.data import make_data
from advisor_training.dataset.pairs import LeftOut
from advisor_training.dataset.rows import Rows, make_rows
from advisor_training.learn.calibration import (
    Calibrated,
    ask_blind,
    calibrate,
    left_out,
    strictest,
    without_counters,
)
from advisor_training.learn.carrying_over import learn_other_gpu
from advisor_training.learn.estimator import extra_trees
from advisor_training.learn.head_learners import HeadLearner, learners_for
from advisor_training.learn.held_out import HeldOut, OnFold, leave_one_job_out
from advisor_training.learn.learners import (
    Regressors,
    fit,
)
from advisor_training.learn.protocols import BY_WORKLOAD
from advisor_training.learn.scoring import fractions, head_errors, speed_errors

SCORED = (DEFAULT_OBJECTIVE, PER_WATT_OBJECTIVE, "raw-throughput-per-watt")

LEAST_JOBS = 3
"""Without one of two jobs, nothing is left but the other one next to itself."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TrainingSet:
    """What a model is made from.

    Attributes:
        blind: The same rows as they are for profiles without counters.
        fill: Value of each profile column, and of the idle power, for profiles that lack it: the
            median over the training profiles at 100 %, 0 where none has it. And how far active
            idle power is above idle power.
        newest: When the last of the points was measured, ISO 8601, UTC.
    """

    rows: Rows
    blind: Rows
    fill: dict[str, float]
    facts: DatasetFacts
    newest: str
    left_out: tuple[LeftOut, ...]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Trained:
    """A model, and how good it is for jobs that it has not seen.

    Attributes:
        held_out: Predictions for each job by a learner that never saw it.
        figures: As the manifest has them.
        fit_s: Time to fit it to all rows.
        total_s: Time with leaving out one job after the other, to know the errors.
    """

    learners: tuple[HeadLearner, ...]
    regressors: Regressors
    held_out: HeldOut
    calibrated: Calibrated
    other_gpu: OtherGpu
    figures: dict[str, float]
    fit_s: float
    total_s: float


def make_training_set(
    points: Sequence[PairPoint],
    profiled: Sequence[SoloPoint],
    references: Sequence[SoloPoint] = (),
    left_out: Sequence[LeftOut] = (),
) -> TrainingSet:
    """Rows of points, in whatever order they come; arguments as of `make_data`.

    Raises:
        InputError: no measured pair has profiles of both its jobs, or no profile has the idle
            power.
    """
    data = make_data(points, profiled, references, left_out)
    used = {(job, pair.gpu_model) for pair in data.pairs for job in pair.jobs}
    usual = _usual([data.profiles[key] for key in sorted(used)])
    fill = {**usual, **{name: round(w, 3) for name, w in data.active_idle_fill.items()}}
    profiles = {key: filled(data.profiles[key], fill) for key in used}
    every = [*points, *profiled, *references]
    rows = make_rows(data.pairs, profiles, KNOWN_HEADS)
    blind = {key: filled(without_counters(data.profiles[key]), fill) for key in used}
    return TrainingSet(
        rows=rows,
        blind=make_rows(data.pairs, blind, KNOWN_HEADS),
        fill=fill,
        facts=DatasetFacts(
            sha256=dataset_sha256(every),
            pair_points=sum(m.points for m in data.measurements),
            pairs=len(data.pairs),
            jobs=tuple(rows.jobs),
            cards=len({m.gpu_uuid for m in data.measurements}),
        ),
        newest=max(point.started_at for point in every),
        left_out=data.left_out,
    )


def fit_model(
    rows: Rows,
    progress: OnFold | None = None,
    blind: Rows | None = None,
    learners: Sequence[HeadLearner] | None = None,
) -> Trained:
    """Fit the model, and know its errors; the same rows give the same trees.

    `blind` are the same rows for profiles without counters; None: what these cost is not known.
    Heads are learned by `learners`; None: all that can be learned from the rows.

    Raises:
        InputError: too few jobs, or no pair at enough of the nine splits.
    """
    _check_enough(rows)
    learners = learners_for(rows) if learners is None else tuple(learners)
    started = time.perf_counter()

    def learner(some: Rows) -> Regressors:
        return fit(extra_trees, some, learners)

    held_out = leave_one_job_out(rows, learner, progress=progress)
    strict = left_out(rows, learner) if strictest(rows) != BY_WORKLOAD else held_out
    asked_blind = ask_blind(rows, blind, learner) if blind is not None else None
    calibrated = calibrate(rows, strict, asked_blind, learners)
    other_gpu = learn_other_gpu(rows, learner, progress, learners)
    fitting = time.perf_counter()
    regressors = learner(rows)
    done = time.perf_counter()
    return Trained(
        learners=learners,
        regressors=regressors,
        held_out=held_out,
        calibrated=calibrated,
        other_gpu=other_gpu,
        figures=_figures(rows, held_out, calibrated, learners),
        fit_s=done - fitting,
        total_s=done - started,
    )


def _check_enough(rows: Rows) -> None:
    if len(rows.jobs) < LEAST_JOBS:
        raise InputError(
            f"a model cannot be learned from pairs of {listed(rows.jobs)} alone",
            why=f"how wrong it is shows when each job is left out, which takes {LEAST_JOBS} jobs",
            fix="measure pairs with another job, or add the bundled points: --with-bundled",
        )
    if "nine" not in rows.kind:
        raise InputError(
            "no pair was measured at enough of the nine splits to tell how good a choice is",
            why="50/50 and most of the others of one run are needed",
            fix="measure them: advisor colocate --pairs A+B; or learn with --with-bundled",
        )


_LATER = ("input_fingerprint", "written_by", "gpu_busy_percent")


def dataset_sha256(points: Iterable[Point]) -> str:
    """A hash of points that does not depend on their order."""
    lines = sorted(json.dumps(_as_first_hashed(point), sort_keys=True) for point in points)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _as_first_hashed(point: Point) -> dict[str, Any]:
    """The row without columns that came later and are empty, or models would be of other points."""
    row = to_row(point)
    return {name: value for name, value in row.items() if value is not None or name not in _LATER}


def _usual(profiles: Sequence[Profile]) -> dict[str, float]:
    columns = {name: np.array([p.values[name][-1] for p in profiles]) for name in COLUMNS}
    columns[IDLE] = np.array([p.idle_power_w for p in profiles])
    known = {name: values[~np.isnan(values)] for name, values in columns.items()}
    if not len(known[IDLE]):
        raise InputError(
            "no profile of the pairs' jobs has the power of the idle GPU",
            why="the power of a pair is predicted from it",
            fix="profile one of them on a GPU that nothing else uses: advisor profile JOB",
        )
    return {name: float(np.median(v)) if len(v) else 0.0 for name, v in known.items()}


def _figures(
    rows: Rows, held_out: HeldOut, calibrated: Calibrated, learners: Sequence[HeadLearner]
) -> dict[str, float]:
    """For jobs that were left out, at the nine splits where nothing else is said."""
    found: dict[str, float] = {}
    for name in SCORED:
        scores = fractions(rows, held_out, OBJECTIVES[name], TIE)
        word = f"oracle_{name.replace('-', '_')}"
        found[f"{word}"] = float(scores.mean())
        found[f"{word}_p10"] = float(np.quantile(scores, 0.1))
        found[f"{word}_worst"] = float(scores.min())
    rates, uncapped = speed_errors(rows, held_out), speed_errors(rows, held_out, "uncapped")
    found |= {"rate_mean_error": float(rates.mean()), "rate_median_error": float(np.median(rates))}
    others = [learner for learner in learners if learner.head.name != "speed"]
    for each in others:
        found[f"{each.head.name}_mean_error"] = float(head_errors(rows, held_out, each).mean())
    found["uncapped_rate_mean_error"] = float(uncapped.mean())
    for each in others:
        errors = head_errors(rows, held_out, each, "uncapped")
        found[f"uncapped_{each.head.name}_mean_error"] = float(errors.mean())
    held = {f"{figure_word(n)}_coverage": part.overall for n, part in calibrated.held.items()}
    return {f"{name}_percent": round(100 * v, 3) for name, v in (found | held).items()}
