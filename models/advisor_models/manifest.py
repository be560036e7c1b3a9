"""What stands beside a model: what it takes, what it was made from, how good it is, its hashes.

A model is a folder with `manifest.json` and the files that it names by their SHA-256. Nothing of a
folder is used before every hash was checked, and what was hashed is what gets used: a file is read
once.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from advisor.errors import ModelError
from advisor.files.safe_files import read_whole
from advisor.formats.typed_json import parse
from advisor.formats.wire import to_plain
from advisor_models.intervals import Intervals, Widening
from advisor_models.other_gpu import OtherGpu

SCHEMA = 2
MANIFEST = "manifest.json"
MODEL = "model.onnx"

BUNDLED_NAME = "bundled"
"""What people call the model that comes with the package; no other one can be called so."""

MOST_BYTES = 64 << 20
"""Of one file of a model; the bundled one has 1.4 million."""

RETRAIN = "train one with this version: advisor train"

NEGLIGIBLE_PERCENT = 1.0
"""A measured rate repeats no better, so a smaller error is none."""

_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class DatasetFacts:
    """What a model was trained on.

    Attributes:
        sha256: Of the points.
        cards: GPUs that they were measured on.
    """

    sha256: str
    pair_points: int
    pairs: int
    jobs: tuple[str, ...]
    cards: int


@dataclass(frozen=True, slots=True)
class LearnerSettings:
    """How the trees were grown."""

    trees: int
    least_in_leaf: int
    part_of_features: float
    seed: int


Range = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """All that is known of a model.

    Attributes:
        schema: Of the manifest itself.
        created_at: ISO 8601, UTC.
        gpu_models: GPU models whose pairs it has seen.
        speed_features: Names in the order of the columns; `power_features` likewise.
        fill: Value of a profile column for profiles that lack it.
        speed_ranges: Smallest and largest value of each feature in training; `power_ranges`
            likewise.
        other_gpu: How much wider the intervals are for a GPU model that it has not seen.
        no_counters: How much wider they are for profiles without counters; None: not known.
        figures: Of its evaluation, by name.
        libraries: Versions that made it, by name.
        files: SHA-256 of each file beside the manifest, by name.
    """

    schema: int
    version: str
    learner: str
    created_at: str
    gpu_models: tuple[str, ...]
    speed_features: tuple[str, ...]
    power_features: tuple[str, ...]
    fill: Mapping[str, float]
    speed_ranges: tuple[Range, ...]
    power_ranges: tuple[Range, ...]
    intervals: Intervals
    other_gpu: OtherGpu
    no_counters: Widening | None
    dataset: DatasetFacts
    figures: Mapping[str, float]
    settings: LearnerSettings
    libraries: Mapping[str, str]
    files: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Artefact:
    """A folder whose files all are what its manifest says.

    Attributes:
        files: Content of each file by name, the bytes that were hashed.
    """

    manifest: Manifest
    files: Mapping[str, bytes]


def read_artefact(folder: Path) -> Artefact:
    """A model from its folder, every file checked against its hash.

    Raises:
        ModelError: the manifest or a file is missing, damaged, unnamed or of a newer schema.
    """
    manifest = _manifest(folder / MANIFEST)
    return Artefact(manifest, {n: _content(folder / n, h) for n, h in manifest.files.items()})


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a folder whose files are what it says.

    Raises:
        ModelError: as for `read_artefact`.
    """
    return read_artefact(folder).manifest


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest beside its files; what stood there is replaced at once or not at all.

    Raises:
        ModelError: it could not be read back: a number is not finite, a hash is no hash.
        OSError: it cannot be written.
    """
    text = json.dumps(to_plain(manifest), indent=1).encode() + b"\n"
    _parsed(folder / MANIFEST, text)
    draft = folder / f".{MANIFEST}.{os.getpid()}.part"
    with draft.open("wb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(folder / MANIFEST)


def sha256(data: bytes) -> str:
    """The hash as manifests have it."""
    return hashlib.sha256(data).hexdigest()


def check_version(version: str) -> str:
    """A name of a model that can be the name of a folder.

    Raises:
        ModelError: it cannot.
    """
    if version == BUNDLED_NAME or not _VERSION.fullmatch(version):
        raise ModelError(
            f"{version!r} is no version of a model",
            why="a version is letters, digits, dots and dashes, and bundled is the package's own",
            fix="list them: advisor models list",
        )
    return version


def check_intervals(manifest: Manifest) -> None:
    """A model whose intervals hold most of what they promise.

    Raises:
        ModelError: of rates or of powers they held less than half of it, for jobs left out, and
            the mean error was above `NEGLIGIBLE_PERCENT`.
    """
    promised = 100 * manifest.intervals.coverage
    for what in ("rate", "power"):
        held = manifest.figures.get(f"{what}_coverage_percent", promised)
        error = manifest.figures.get(f"{what}_mean_error_percent", 0.0)
        if held < promised / 2 and error > NEGLIGIBLE_PERCENT:
            raise ModelError(
                f"the model {manifest.version} cannot be relied on",
                why=f"its intervals for {promised:g} % held {held:g} % of the measured {what}s, "
                f"which were off by {error:g} %",
                fix="learn from more pairs: advisor colocate, then advisor train; the bundled ones "
                "help: advisor train --with-bundled",
            )


def _content(path: Path, expected: str) -> bytes:
    data = _read(path)
    if sha256(data) != expected:
        raise ModelError(
            f"{path} is not the file that was written",
            why=f"its SHA-256 differs from that in {MANIFEST}",
            fix=f"copy the whole folder again, or {RETRAIN}",
        )
    return data


def _read(path: Path) -> bytes:
    try:
        return read_whole(path, MOST_BYTES)
    except OSError as error:
        raise ModelError(
            f"{path} cannot be read",
            why=error.strerror or str(error),
            fix=f"copy the whole folder again, or {RETRAIN}",
        ) from error


def _manifest(path: Path) -> Manifest:
    return _parsed(path, _read(path))


def _parsed(path: Path, text: bytes) -> Manifest:
    try:
        # Before anything else: a newer manifest has other fields.
        _check_schema(text)
        manifest = parse(Manifest, text)
        _check(manifest)
    except ValueError as error:
        raise ModelError(
            f"{path} is no manifest of a model", why=str(error), fix=f"copy it again, or {RETRAIN}"
        ) from error
    check_version(manifest.version)
    return manifest


def _check_schema(text: bytes) -> None:
    try:
        schema = json.loads(text)["schema"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return  # `parse` says what is wrong
    if isinstance(schema, int) and schema > SCHEMA:
        raise ModelError(
            f"the model's manifest has schema {schema}",
            why=f"this version reads up to {SCHEMA}",
            fix="install a newer sm-advisor",
        )


def _check(manifest: Manifest) -> None:
    """What types do not say.

    Raises:
        ValueError: it does not hold.
    """
    for name, wrong in _faults(manifest).items():
        if wrong:
            raise ValueError(name)


def _faults(m: Manifest) -> dict[str, bool]:
    shares = [bounds.share_percent for bounds in m.intervals.speed]
    power = m.intervals.power
    known = (*m.intervals.speed, power.split, power.uncapped, power.limited, m.intervals.efficiency)
    ordered = [(b.low, b.high) for b in known if b is not None]
    return {
        f"schema is {m.schema}": m.schema != SCHEMA,
        f"created_at is {m.created_at!r}, not a moment in UTC": not _is_utc(m.created_at),
        "gpu_models is empty": not m.gpu_models,
        "a feature has no range, or a range no feature": (
            len(m.speed_features) != len(m.speed_ranges)
            or len(m.power_features) != len(m.power_ranges)
        ),
        "a low is above its high": any(
            low > high for low, high in (*ordered, *m.speed_ranges, *m.power_ranges)
        ),
        f"coverage is {m.intervals.coverage}": not 0 < m.intervals.coverage < 1,
        "the shares of the intervals do not ascend": not shares or shares != sorted(set(shares)),
        "the intervals of another GPU model are narrower": (
            min(m.other_gpu.speed_widening, m.other_gpu.power_widening) < 1
        ),
        "the intervals of profiles without counters are narrower": (
            m.no_counters is not None and min(m.no_counters.speed, m.no_counters.power) < 1
        ),
        f"{MODEL} has no hash": MODEL not in m.files,
        "a file has a path for a name": any(not _is_name(name) for name in m.files),
        "a hash is no SHA-256": any(not _SHA256.fullmatch(h) for h in m.files.values()),
    }


def _is_name(name: str) -> bool:
    """Whether it names a file of the same folder, on any system; the manifest names not itself."""
    return bool(_VERSION.fullmatch(name)) and name != MANIFEST


def _is_utc(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).utcoffset() == timedelta(0)
    except ValueError:
        return False
