"""What stands next to a model of power by data: weights, what it was made from, how good it is.

It predicts exp(mean of the trees) x physical power above idle + idle power, for each type.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from advisor.errors import ModelError
from advisor.formats.moments import is_utc
from advisor.formats.wire import read
from advisor.wire.power import FEATURES
from advisor_models.intervals import LogBounds
from advisor_models.manifest import (
    MANIFEST,
    LearnerSettings,
    Range,
    check_version,
    checked_file,
    file_faults,
    trees_file,
    whole_file,
    write_parsed,
)
from advisor_power.model.pace import Known
from advisor_power.model.physics import COLUMNS, PARTS

SCHEMA = 2

POINTS = "points.jsonl"
"""What it was made from, next to it."""

RETRAIN = (
    "make one: advisor power train; without a folder of its own the home has the one that comes "
    "with advisor"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeModel:
    """What was learned of one type."""

    dtype: str
    """Name of the file of its trees, too."""
    points: int
    weights: tuple[float, ...]
    """Of the parts of the physics, in their order, W."""
    ranges: tuple[Range, ...]
    """Smallest and largest value of each feature in training."""
    bounds: LogBounds
    """Of power above idle, for patterns of data that were not seen."""
    usual: Mapping[str, float] | None
    """Fingerprint of normal random numbers; None: they were not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFacts:
    """What a model was trained on."""

    sha256: str
    """Of the points, in whatever order."""
    points: int
    held_back: int
    """Points at which power limit or heat held back the clock."""
    patterns: tuple[str, ...]
    """Patterns of operands that were left out in their turn."""
    cards: tuple[str, ...]
    """UUIDs of the GPUs."""
    drivers: tuple[str, ...]
    torch: tuple[str, ...]
    left_out: Mapping[str, int]
    """Points that were not used, by reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputManifest:
    """All that is known of a model."""

    schema: int
    version: str
    created_at: str
    """ISO 8601, UTC."""
    features: tuple[str, ...]
    physics: tuple[str, ...]
    """Parts of the power, one for each weight."""
    columns: tuple[str, ...]
    """What the trees take."""
    coverage: float
    types: tuple[TypeModel, ...]
    known: Known
    """Cards, and how fast shapes were computed."""
    dataset: InputFacts
    figures: Mapping[str, float]
    """Of its evaluation in percent, by method and kind of error: on patterns left out, beside
    baselines, with the noise of the repeated reference."""
    settings: LearnerSettings
    libraries: Mapping[str, str]
    """Versions that made it, by name."""
    files: Mapping[str, str]
    """SHA-256 of each file next to the manifest, by name."""


def read_input_model(folder: Path) -> tuple[InputManifest, dict[str, bytes]]:
    """The manifest of a folder and its trees by type, every file checked against its hash.

    Raises:
        ModelError: the manifest or a file is missing, damaged, or of another version.
    """
    manifest = read_input_manifest(folder)
    contents = {n: checked_file(folder / n, h, RETRAIN) for n, h in manifest.files.items()}
    return manifest, {of.dtype: contents[trees_file(of.dtype)] for of in manifest.types}


def read_input_manifest(folder: Path) -> InputManifest:
    """The manifest of a folder alone.

    Raises:
        ModelError: it is missing, damaged, or of another version.
    """
    return _parsed(folder / MANIFEST, whole_file(folder / MANIFEST, RETRAIN))


def write_input_manifest(folder: Path, manifest: InputManifest) -> None:
    """Write the manifest next to its files.

    Raises:
        ModelError: it could not be read back.
        OSError: it cannot be written.
    """
    write_parsed(folder, manifest, _parsed)


def _parsed(path: Path, text: bytes) -> InputManifest:
    with ModelError.instead_of(
        ValueError, f"{path} is not the manifest of a model of power by data", fix=RETRAIN
    ):
        manifest = read(InputManifest, text)
        if wrong := [name for name, is_so in _faults(manifest).items() if is_so]:
            raise ValueError(wrong[0])
    check_version(manifest.version)
    return manifest


def _faults(m: InputManifest) -> dict[str, bool]:
    return {
        f"schema is {m.schema}, and this version reads {SCHEMA}": m.schema != SCHEMA,
        f"created_at is {m.created_at!r}, not a moment in UTC": not is_utc(m.created_at),
        "it takes other features than this version counts": m.features != FEATURES,
        "its physics has other parts than that of this version": m.physics != PARTS,
        "its trees take other columns": m.columns != COLUMNS,
        "it has no types, or one twice": len({t.dtype for t in m.types}) != max(1, len(m.types)),
        "a type has not a weight for each part": any(len(t.weights) != len(PARTS) for t in m.types),
        "a weight is negative": any(w < 0 for t in m.types for w in t.weights),
        "a type has not a range for each feature": any(
            len(t.ranges) != len(FEATURES) for t in m.types
        ),
        "a low is above its high": any(t.bounds.low > t.bounds.high for t in m.types),
        "the usual fingerprint has other features": any(
            t.usual is not None and set(t.usual) != set(FEATURES) for t in m.types
        ),
        f"coverage is {m.coverage}": not 0 < m.coverage < 1,
        "it knows no card": not m.known.cards,
        **file_faults(m.files, (t.dtype for t in m.types)),
    }
