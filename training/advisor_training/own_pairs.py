"""How well a model predicts pairs that were measured here: the model in use, not another fit."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from advisor.core.interval import Interval
from advisor.core.objectives import DEFAULT_OBJECTIVE, OBJECTIVES
from advisor.core.policy import POLICY
from advisor.errors import InputError
from advisor.predict.predictions import Prediction
from advisor.predict.profiles import Floats
from advisor_models.model_predictor import ModelPredictor
from advisor_training.held_out import HeldOut
from advisor_training.learners import POWER_LEARNER
from advisor_training.pairs import LeftOut
from advisor_training.rows import Data
from advisor_training.scoring import fractions, head_errors, speed_errors


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnEvaluation:
    """What a model is worth on measured pairs; errors and fractions at the nine splits.

    Attributes:
        splits: How many measured splits were predicted, uncapped ones among them.
        known_jobs: Jobs of these pairs that the model may have learned from, by name: figures of
            their pairs say less of jobs that are new to it.
        oracle_percent: Measured worth of the split chosen by prediction, in percent of the best
            measured one, mean over the measurements; `oracle_worst_percent` the least.
        rate_coverage_percent: Measured rates within their intervals, at all splits.
        coverage_percent: What the intervals promise.
    """

    model: str
    objective: str
    pairs: int
    jobs: int
    splits: int
    known_jobs: tuple[str, ...]
    new_gpu_models: tuple[str, ...]
    oracle_percent: float
    oracle_worst_percent: float
    rate_mean_error_percent: float
    rate_median_error_percent: float
    power_mean_error_percent: float
    rate_coverage_percent: float
    power_coverage_percent: float
    coverage_percent: float
    left_out: tuple[LeftOut, ...]


def evaluate_own(predictor: ModelPredictor, data: Data) -> OwnEvaluation:
    """Compare what a model, as it answers, predicts of measured pairs with what was measured.

    Raises:
        InputError: a profile that the model cannot predict from, or no measured split is worth
            anything.
    """
    predicted, manifest = _predict(predictor, data), predictor.manifest
    # Without bounds, as answers about held-out rows are.
    speed = np.array([[part.speed.value for part in p.parts] for p in predicted])
    held_out = HeldOut(
        left_out=np.full(len(predicted), manifest.version),
        row=np.arange(len(predicted)),
        speed=speed,
        heads={"speed": speed, "power": np.array([[p.power_w.value] for p in predicted])},
    )
    rows = data.rows
    scores = fractions(rows, held_out, OBJECTIVES[DEFAULT_OBJECTIVE], POLICY.tie)
    if not len(scores):
        raise InputError("no measured split did any work", fix="measure pairs: advisor colocate")
    rates = speed_errors(rows, held_out)
    held = (
        *_within((p.parts[0].speed for p in predicted), rows.speed_a),
        *_within((p.parts[1].speed for p in predicted), rows.speed_b),
    )
    return OwnEvaluation(
        model=manifest.version,
        objective=DEFAULT_OBJECTIVE,
        pairs=len(data.pairs),
        jobs=len(rows.jobs),
        splits=len(rows),
        known_jobs=tuple(sorted(set(rows.jobs) & set(manifest.dataset.jobs))),
        new_gpu_models=tuple(sorted(set(rows.gpu_model.tolist()) - set(manifest.gpu_models))),
        oracle_percent=_percent(scores.mean()),
        oracle_worst_percent=_percent(scores.min()),
        rate_mean_error_percent=_percent(rates.mean()),
        rate_median_error_percent=_percent(np.median(rates)),
        power_mean_error_percent=_percent(head_errors(rows, held_out, POWER_LEARNER).mean()),
        rate_coverage_percent=_percent(np.mean(held)),
        power_coverage_percent=_percent(
            _within((p.power_w for p in predicted), rows.power_w).mean()
        ),
        coverage_percent=_percent(manifest.coverage),
        left_out=data.left_out,
    )


def _predict(predictor: ModelPredictor, data: Data) -> list[Prediction]:
    rows, found = data.rows, list[Prediction]()
    for number, measurement in enumerate(data.measurements):
        which = np.flatnonzero(rows.measurement == number)
        found += predictor.predict(data.profiles_of(measurement), rows.splits(which))
    return found


def _within(intervals: Iterable[Interval], measured: Floats) -> npt.NDArray[np.bool_]:
    bounds = np.array([(interval.low, interval.high) for interval in intervals])
    return (bounds[:, 0] <= measured) & (measured <= bounds[:, 1])


def _percent(part: float | np.floating) -> float:
    return round(100 * float(part), 3)
