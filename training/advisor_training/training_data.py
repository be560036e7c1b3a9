"""What a model is learned from, for whoever wants to learn something else from it."""

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from advisor.errors import InputError
from advisor.predict.features import feature_names_of
from advisor.predict.profiles import Floats
from advisor_training.dataset.measured import read_measured
from advisor_training.dataset.rows import Names
from advisor_training.learn.head_learners import HEAD_LEARNERS, OPTIONAL_LEARNERS
from advisor_training.learn.learners import learned_from
from advisor_training.train import make_training_set

if TYPE_CHECKING:
    import pandas as pd

Indices = npt.NDArray[np.int64]

_LEARNERS = {learner.head.name: learner for learner in (*HEAD_LEARNERS, *OPTIONAL_LEARNERS)}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TrainingData:
    """One head's share of the training rows, as scikit-learn takes it; n rows.

    Attributes:
        X: The column `prior`, then the features by their names.
        y: What was measured, in the unit of the head; shape (n,).
        weight: What each row counts; shape (n,).
        jobs: Of each row, in the order of their names; shape (n, 2).
    """

    X: "pd.DataFrame"
    y: Floats
    weight: Floats
    jobs: Names

    def folds(self) -> Iterator[tuple[Indices, Indices]]:
        """For each job the rows without it and those with it: the `cv` of `cross_val_score`."""
        for job in np.unique(self.jobs):
            is_tested = np.any(self.jobs == job, axis=1)
            yield np.flatnonzero(~is_tested), np.flatnonzero(is_tested)


def training_data(
    head: str = "speed",
    *,
    pairs: str | Path | None = None,
    solo: str | Path | None = None,
    with_bundled: bool = False,
) -> TrainingData:
    """What `advisor train` learns of a head, from the bundled points or from files.

    Args:
        head: `speed` of a job, `power` of the GPU, or `memory_power`.
        pairs: A file of pair points; of those not given, the bundled ones.
        solo: A file of solo points; as `pairs`.
        with_bundled: The bundled points as well as the files'.

    Raises:
        InputError: no such head, a file that cannot be read, or nothing to learn from.
    """
    if head not in _LEARNERS:
        raise InputError(f"no head {head}", fix=f"name one of {', '.join(_LEARNERS)}")
    files = [None if file is None else Path(file) for file in (pairs, solo)]
    measured = read_measured(*files, with_bundled=with_bundled)
    rows = make_training_set(measured.pairs, measured.profiled, measured.references).rows
    learner = _LEARNERS[head]
    known = rows.take(learner.is_known(rows))
    found = learned_from(learner, known)
    frame: Any = importlib.import_module("pandas").DataFrame
    return TrainingData(
        X=frame(found.X, columns=["prior", *feature_names_of(learner.head.features_of)]),
        y=found.y,
        weight=found.weight,
        jobs=np.column_stack([known.job_a, known.job_b])[found.row],
    )
