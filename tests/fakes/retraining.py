"""A site with made-up points for retraining: a small bundled model, and nights of new points."""

import functools
import itertools
import shutil
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from unittest import mock

import synthetic_pairs as made_up
from synthetic_pairs import MadeUpJob

from advisor.core.records import Observation, ObservedPart, PairPoint
from advisor_models.registry import Registry, write_artefact
from advisor_training import learners
from advisor_training.learners import TREES
from advisor_training.retrain import Collected, PointSet, training_set
from advisor_training.train import fit_model, make_artefact


def _on(day: str, moment: str) -> str:
    return day + moment[10:]


FIRST_DAY = datetime(2026, 2, 1, 3, 0, tzinfo=UTC)


def points(jobs: Sequence[MadeUpJob], day: str = "2026-02-01", host: str = "node-1") -> PointSet:
    """All pairs of jobs at all splits on one host, measured on one day, and their profiles."""
    run = f"{day} {host}"
    pairs = made_up.pair_points(
        itertools.combinations_with_replacement(jobs, 2), run, gpu_uuid=f"GPU-{host}", noise=0.005,
    )  # fmt: skip
    return PointSet(
        pairs=tuple(replace(p, host=host, started_at=_on(day, p.started_at)) for p in pairs),
        profiled=tuple(
            replace(p, host=host, idle_power_w=made_up.IDLE_W, started_at=_on(day, p.started_at))
            for p in made_up.solo_points(jobs, run, gpu_uuid=f"GPU-{host}")
        ),
    )


BUNDLED_POINTS = points(made_up.JOBS[:3], "2026-01-31", "maker")
NEW_POINTS = points(made_up.JOBS, "2026-02-01")


def registry_in(folder: Path, bundled: Path | None = None) -> Registry:
    """The registry of a site, whose bundled model knows three of the made-up jobs."""
    return Registry(folder / "models", bundled or bundled_model(folder / "bundled"))


@contextmanager
def few_trees(trees: int = 8) -> Generator[None]:
    """Small models, since a run of retraining makes some twenty."""
    with mock.patch.object(learners, "TREES", trees):
        yield


def bundled_model(folder: Path) -> Path:
    """A model of `BUNDLED_POINTS`, without a list of them, as the package's has none."""
    return shutil.copytree(_bundled_once().name, folder, dirs_exist_ok=True)


@functools.cache
def _bundled_once() -> tempfile.TemporaryDirectory[str]:
    made = tempfile.TemporaryDirectory()
    made_from = training_set(BUNDLED_POINTS)
    with few_trees(TREES):
        trained = fit_model(made_from.rows, blind=made_from.blind)
    write_artefact(Path(made.name), make_artefact(made_from, trained, FIRST_DAY))
    return made


def collected(own: PointSet = NEW_POINTS) -> Collected:
    """What a site with these points of its own has."""
    return Collected(local=own, bundled=BUNDLED_POINTS)


def changed(found: PointSet, which: int, **fields: object) -> PointSet:
    """The points with one pair point that has other fields."""
    pairs = list(found.pairs)
    pairs[which] = replace(pairs[which], **fields)  # pyright: ignore[reportArgumentType]
    return replace(found, pairs=tuple(pairs))


def faster(point: PairPoint, factor: float) -> PairPoint:
    parts = tuple(replace(p, rate=p.rate and p.rate * factor) for p in point.parts)
    return replace(point, parts=parts)


def launched(point: PairPoint, number: int) -> Observation:
    """What a launch of a made-up pair would have kept."""
    kept = {"job", "share_percent", "units", "rate", "rate_unit"}
    return Observation(
        launch_id=f"launch-{number}",
        parts=tuple(
            ObservedPart(**{name: getattr(part, name) for name in kept}, results="right")
            for part in point.parts
        ),
        gpu_model=point.gpu_model,
        gpu_uuid=point.gpu_uuid,
        units_total=point.units_total,
        mode=point.mode,
        power_w=point.power_w,
        overlap_s=60.0,
        settled_s=57.0,
        state="finished",
        started_at=point.started_at.replace("T0", "T1", 1),
        host="launching",
    )
