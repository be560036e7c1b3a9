"""Measured inputs to a model of power by data, with its intervals and all that is known of it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from importlib import metadata
from pathlib import Path

import numpy as np
import numpy.typing as npt

from advisor.errors import InputError
from advisor.files import PUBLIC_FILE, replace_file
from advisor.predict.features import Float32s
from advisor.wire.power import FEATURES, InputPoint
from advisor_data.known import input_points_sha256, input_points_text
from advisor_models.intervals import LogBounds
from advisor_models.manifest import LearnerSettings, hashes, version_of
from advisor_power.learn.evaluate import (
    InputErrors,
    errors_of,
    noise_floor,
    real_left_out,
    sweep_left_out,
)
from advisor_power.learn.held_out import HeldOutInputs, OnGroup
from advisor_power.learn.model import (
    LEAST_POINTS,
    InputModel,
    physics_and_trees,
    residuals_of,
    types_of,
)
from advisor_power.model.manifest import (
    POINTS,
    SCHEMA,
    InputFacts,
    InputManifest,
    TypeModel,
    write_input_manifest,
)
from advisor_power.model.pace import known_of
from advisor_power.model.physics import COLUMNS, PARTS, columns, feature_matrix
from advisor_training.intervals import COVERAGE, bounds_of, measured_coverage
from advisor_training.learners import LEAST_IN_LEAF, PART_OF_FEATURES, SEED, TREES
from advisor_training.train import LIBRARIES, trees_files, write_model


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TrainedInputs:
    """A model, and how good it is for patterns of data that it has not seen."""

    points: tuple[InputPoint, ...]
    """What it was fitted to."""
    left_out: Mapping[str, int]
    """Points that were not used, by reason."""
    model: InputModel
    held_out: Mapping[str, HeldOutInputs]
    """What each method expected of drawn points, their pattern left out."""
    bounds: Mapping[str, LogBounds]
    """By type, of data whose sums are finite."""
    figures: Mapping[str, float]
    """As the manifest has them."""


def fit_inputs(
    points: Sequence[InputPoint],
    progress: OnGroup | None = None,
    gpu_model: str | None = None,
) -> TrainedInputs:
    """Fit the model, and know its errors; the same points in whatever order give the same trees.

    Args:
        points: Of one GPU model, or of several, of which one is learned.
        progress: Called after each pattern of data that was left out.
        gpu_model: Which one; None: the one with the most points.

    Raises:
        InputError: no type has points enough.
    """
    kept, left_out = learnable(points, gpu_model)
    if not kept:
        raise InputError(
            f"no type has enough of the {len(points)} measured inputs",
            why="; ".join(left_out) or "there are none",
            fix="measure several sweeps: advisor power input --preset T4 --preset T9 --preset T12",
        )
    held_out = sweep_left_out(kept, progress)
    found = held_out["model"]
    residuals = residuals_of(found.points, found.as_run_w).take(_finite(found.points))
    return TrainedInputs(
        points=kept,
        left_out=left_out,
        model=physics_and_trees(kept),
        held_out=held_out,
        bounds=bounds_of(residuals),
        figures=_figures(kept, held_out)
        | {"coverage_percent": 100 * measured_coverage(residuals).overall},
    )


def learnable(
    points: Sequence[InputPoint], gpu_model: str | None = None
) -> tuple[tuple[InputPoint, ...], dict[str, int]]:
    """Points of types that are learned whatever pattern is left out; and the others, by reason.

    Of one GPU model: another one draws other power with the same data. In an order of their own,
    so that trees do not depend on that of the files.
    """
    models = Counter(p.gpu_model for p in points)
    chosen = gpu_model or max(sorted(models), key=lambda name: models[name], default="")
    others = Counter(
        f"of {p.gpu_model}, and the model is of {chosen}: --gpu-model"
        for p in points
        if p.gpu_model != chosen
    )
    points = [p for p in points if p.gpu_model == chosen]
    ordered = sorted(points, key=lambda p: input_points_text([p]))
    few = {d for d in types_of(points) if not _is_enough([p for p in points if p.dtype == d])}
    why = "{} has fewer than {} points beside each of its patterns"
    left_out = Counter(why.format(p.dtype, LEAST_POINTS) for p in points if p.dtype in few)
    return tuple(p for p in ordered if p.dtype not in few), dict(others + left_out)


def make_input_manifest(trained: TrainedInputs, created_at: datetime) -> InputManifest:
    """All that is known of the model, but for its files and its name."""
    points = trained.points
    return InputManifest(
        schema=SCHEMA,
        version="",
        created_at=created_at.isoformat(timespec="seconds"),
        features=FEATURES,
        physics=PARTS,
        columns=COLUMNS,
        coverage=COVERAGE,
        types=tuple(_type_model(d, trained) for d in types_of(points)),
        known=known_of(points),
        dataset=InputFacts(
            sha256=input_points_sha256(points),
            points=len(points),
            held_back=sum(p.held_back for p in points),
            patterns=tuple(sorted({p.group for p in points})),
            cards=tuple(sorted({p.gpu_uuid for p in points})),
            drivers=tuple(sorted({p.driver for p in points})),
            torch=tuple(sorted({p.torch for p in points})),
            left_out=trained.left_out,
        ),
        figures=trained.figures,
        settings=LearnerSettings(TREES, LEAST_IN_LEAF, PART_OF_FEATURES, SEED),
        libraries={name: metadata.version(name) for name in LIBRARIES},
        files={},
    )


def write_input_model(
    folder: Path, trained: TrainedInputs, manifest: InputManifest
) -> InputManifest:
    """Write a model with its points; the manifest comes last, so that a half is no model.

    Raises:
        ModelError: the trees are not what scikit-learn says.
        StoreError: the files cannot be written.
    """
    asked: dict[str, Float32s] = {
        of.dtype: columns([p for p in trained.points if p.dtype == of.dtype]).astype(np.float32)
        for of in manifest.types
    }
    trees = trees_files(trained.model.trees, asked)
    contents = {**trees, POINTS: input_points_text(trained.points)}
    written = replace(manifest, files=hashes(contents))
    written = replace(written, version=version_of(written))
    write_model(folder, lambda folder: _write(folder, contents, written))
    return written


def _write(folder: Path, contents: Mapping[str, bytes], manifest: InputManifest) -> None:
    for name, data in contents.items():
        replace_file(folder / name, data, PUBLIC_FILE)
    write_input_manifest(folder, manifest)


def _finite(points: Sequence[InputPoint]) -> npt.NDArray[np.bool_]:
    """Which points tell the intervals: one pattern of NaN, no work, would widen those of all data.

    All of a type that has only one pattern with finite sums.
    """
    patterns: dict[str, set[str]] = {}
    for p in points:
        if not p.features["sum_non_finite"]:
            patterns.setdefault(p.dtype, set()).add(p.group)
    few = {p.dtype for p in points if len(patterns.get(p.dtype, ())) < 2}
    return np.array([p.dtype in few or not p.features["sum_non_finite"] for p in points])


def _is_enough(points: Sequence[InputPoint]) -> bool:
    drawn = [p for p in points if not p.real]
    groups = Counter(p.group for p in drawn)
    return len(groups) > 1 and len(drawn) - max(groups.values()) >= LEAST_POINTS


def _type_model(dtype: str, trained: TrainedInputs) -> TypeModel:
    of = [p for p in trained.points if p.dtype == dtype]
    features = feature_matrix(of)
    usual = [p for p in of if p.is_reference]
    middle = np.median(feature_matrix(usual), axis=0) if usual else ()
    return TypeModel(
        dtype=dtype,
        points=len(of),
        weights=tuple(map(float, trained.model.weights[dtype])),
        ranges=tuple(
            (float(low), float(high))
            for low, high in zip(features.min(axis=0), features.max(axis=0), strict=True)
        ),
        bounds=trained.bounds[dtype],
        usual=dict(zip(FEATURES, map(float, middle), strict=True)) if usual else None,
    )


def _figures(
    points: Sequence[InputPoint], held_out: Mapping[str, HeldOutInputs]
) -> dict[str, float]:
    """Errors of patterns left out, in percent, by method and kind (`InputErrors`).

    Of tensors of files, which took no part in what was fitted for it, with `real_` before it.
    """
    found = _error_figures({name: errors_of(of) for name, of in held_out.items()})
    if any(p.real for p in points):
        of_real = _error_figures(real_left_out(points))
        found |= {f"real_{name}": value for name, value in of_real.items()}
    noise = noise_floor(points)
    return found | ({} if noise is None else {"reference_noise_percent": 100 * noise})


def _error_figures(of_methods: Mapping[str, InputErrors]) -> dict[str, float]:
    found: dict[str, float] = {}
    for method, errors in of_methods.items():
        kinds = {"power": errors.power, "speed": errors.speed, "energy": errors.energy}
        for kind, its in kinds.items():
            if its is not None:
                found[f"{method}_{kind}_mean_error_percent"] = 100 * its.mean
                found[f"{method}_{kind}_p90_error_percent"] = 100 * its.p90
                found[f"{kind}_points"] = its.points
    return found
