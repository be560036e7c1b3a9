"""A model learned from checked points, next to what the champion's points teach."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeAlias

import numpy as np

from advisor.errors import ModelError
from advisor.predict.profiles import Floats
from advisor_models.manifest import Artefact, Manifest, check_intervals, write_artefact
from advisor_training.dataset.rows import Rows
from advisor_training.dataset.solo import job_classes, whole_gpu
from advisor_training.dataset.split_kinds import measurement_of
from advisor_training.described import make_artefact
from advisor_training.learn.artefact import write_model
from advisor_training.learn.held_out import Mask, OnFold
from advisor_training.learn.learners import LEARNERS
from advisor_training.retrain.collected import (
    LONG_AGO,
    POINTS,
    PointSet,
    measurements,
    moment_of,
    points_file,
)
from advisor_training.retrain.comparison import ComparedFigure, compare, groups_of
from advisor_training.retrain.rivals import answers, questions_of, scores
from advisor_training.train import (
    Trained,
    TrainingSet,
    fit_model,
    make_training_set,
)

HALF_LIFE_DAYS = 30.0
LEAST_WEIGHT = 0.25
"""A measurement counts half as much after a month, and never less than a quarter: drivers,
libraries and jobs change, and a new point says more of today. In simulated quarters rates are
wrong by 6 % less so, and as much where nothing changes (docs/measurements/quarter.md)."""

OnStage: TypeAlias = Callable[[str], OnFold | None]
"""Takes the name of a stage that begins; what it returns is called after each fit."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Challenger:
    """A trained model that no folder has yet."""

    points: PointSet
    made_from: TrainingSet
    trained: Trained
    artefact: Artefact

    @property
    def manifest(self) -> Manifest:
        """As it will be written beside the graph."""
        return self.artefact.manifest

    @property
    def fault(self) -> str | None:
        """Why it cannot be promoted; None where it can."""
        try:
            check_intervals(self.manifest)
        except ModelError as error:
            return str(error)
        return None

    def write(self, folder: Path) -> None:
        """Write it, with the list of its points.

        Raises:
            StoreError: the files cannot be written.
        """
        write_model(folder, lambda folder: write_artefact(folder, self.artefact))


def training_set(points: PointSet) -> TrainingSet:
    """Rows of checked points, of which older ones count less.

    Raises:
        InputError: nothing can be learned from them.
    """
    made_from = make_training_set(points.pairs, points.profiled, points.references)
    weights = _by_age(made_from.rows, points)
    return replace(
        made_from,
        rows=replace(made_from.rows, weight=made_from.rows.weight * weights),
        blind=replace(made_from.blind, weight=made_from.blind.weight * weights),
    )


def _by_age(rows: Rows, points: PointSet) -> Floats:
    """What rows count by their age, measured from the newest of them; shape (n,)."""
    begun: dict[tuple[str, ...], datetime] = {}
    for point in points.pairs:
        key, at = measurement_of(point), moment_of(point, LONG_AGO)
        begun[key] = min(begun.get(key, at), at)
    at = [begun[key] for key in measurements(rows)]
    days = np.array([(max(at) - one) / timedelta(days=1) for one in at])
    return np.maximum(0.5 ** (days / HALF_LIFE_DAYS), LEAST_WEIGHT)


def train_challenger(
    points: PointSet, made_from: TrainingSet, now: datetime, on_stage: OnStage
) -> Challenger:
    """Learn from all checked points.

    Raises:
        InputError: there are too few jobs.
    """
    trained = fit_model(made_from.rows, on_stage("training the challenger"), made_from.blind)
    artefact = make_artefact(made_from, trained, now, {POINTS: points_file(points)})
    return Challenger(points=points, made_from=made_from, trained=trained, artefact=artefact)


def compare_with(
    learned: PointSet, challenger: Challenger, on_stage: OnStage
) -> tuple[ComparedFigure, ...]:
    """What the champion's checked points teach against what the challenger's do, on the same rows.

    Raises:
        InputError: nothing can be learned from the champion's points.
    """
    rows = challenger.made_from.rows
    of_champion = answers(
        training_set(learned).rows,
        rows,
        LEARNERS["extra-trees"],
        on_stage("asking the champion's points"),
    )
    of_challenger = challenger.trained.held_out
    tests = questions_of(rows, of_challenger)
    solos = whole_gpu((*challenger.points.references, *challenger.points.profiled))
    return compare(
        (scores(rows, of_champion), scores(rows, of_challenger)),
        tests,
        groups_of(rows, tests, _newest(rows, challenger.points, learned), job_classes(solos)),
    )


def _newest(rows: Rows, points: PointSet, learned: PointSet) -> Mask:
    """Rows of measurements with points that the champion has not learned from."""
    known = learned.ids
    new = {measurement_of(point) for point in points.pairs if point.point_id not in known}
    return np.array([key in new for key in measurements(rows)])
