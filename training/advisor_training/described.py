"""A model that was trained, with all that is known of it."""

from collections.abc import Mapping
from datetime import datetime
from importlib import metadata
from types import MappingProxyType

from advisor.predict.features import feature_names_of
from advisor_models.made_from import LearnerSettings
from advisor_models.manifest import SCHEMA, Artefact, Manifest, named
from advisor_models.trained_head import TrainedHead
from advisor_training.dataset.rows import Rows, flat
from advisor_training.learn.artefact import LIBRARIES, trees_files
from advisor_training.learn.calibration import Calibrated
from advisor_training.learn.conformal import COVERAGE
from advisor_training.learn.estimator import LEAST_IN_LEAF, PART_OF_FEATURES, SEED, TREES
from advisor_training.learn.head_learners import HeadLearner
from advisor_training.train import Trained, TrainingSet

LEARNER = "extra-trees"


def make_artefact(
    made_from: TrainingSet,
    trained: Trained,
    created_at: datetime,
    more: Mapping[str, bytes] = MappingProxyType({}),
) -> Artefact:
    """A model as files, with `more` that belong to it, under the name that is its own.

    It was created at a moment in UTC.

    Raises:
        ModelError: its trees are not what scikit-learn says.
    """
    asked = {name: flat(head.features) for name, head in made_from.rows.heads.items()}
    files = trees_files(trained.regressors.by_head, asked)
    return named(_manifest(made_from, trained, created_at), {**files, **more})


def _manifest(made_from: TrainingSet, trained: Trained, created_at: datetime) -> Manifest:
    """All that is known of a model, but for its files and its name."""
    rows = made_from.rows
    return Manifest(
        schema=SCHEMA,
        version="",
        learner=LEARNER,
        created_at=created_at.isoformat(timespec="seconds"),
        gpu_models=tuple(sorted(set(rows.gpu_model.tolist()))),
        fill=made_from.fill,
        coverage=COVERAGE,
        heads=tuple(_trained_head(x, rows, trained.calibrated) for x in trained.learners),
        efficiency=trained.calibrated.efficiency,
        other_gpu=trained.other_gpu,
        no_counters=trained.calibrated.no_counters,
        dataset=made_from.facts,
        figures=trained.figures,
        settings=LearnerSettings(TREES, LEAST_IN_LEAF, PART_OF_FEATURES, SEED),
        libraries={name: metadata.version(name) for name in LIBRARIES},
        files={},
    )


def _trained_head(learner: HeadLearner, rows: Rows, calibrated: Calibrated) -> TrainedHead:
    head = learner.head
    seen = flat(rows.take(learner.is_known(rows)).heads[head.name].features)
    return TrainedHead(
        name=head.name,
        of=head.of,
        target=head.target,
        unit=head.unit,
        prior=head.prior,
        features=feature_names_of(head.features_of),
        ranges=tuple(zip(seen.min(axis=0).tolist(), seen.max(axis=0).tolist(), strict=True)),
        intervals=calibrated.intervals[head.name],
    )
