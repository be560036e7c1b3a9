"""What stands next to a model of power by data: weights, what it was made from, how good it is.

It predicts exp(mean of the trees) x physical power above idle + idle power, for each type.
"""

import math
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from cachetools import LRUCache

from advisor.core.gpu import check_card_units
from advisor.core.interval import Interval
from advisor.errors import InputError, ModelError
from advisor.files.home import open_home
from advisor.formats.moments import is_utc
from advisor.formats.typed_json import parse
from advisor.predict.profiles import Floats
from advisor.wire.input_power import (
    FEATURES,
    InputAsked,
    InputPowerRequest,
    InputPrediction,
    InputPredictions,
    MostOf,
    Product,
)
from advisor_models.forest import Forest, read_trees
from advisor_models.intervals import LogBounds
from advisor_models.made_from import LearnerSettings
from advisor_models.manifest import (
    MANIFEST,
    check_version,
    checked_file,
    file_faults,
    trees_file,
    whole_file,
    write_parsed,
)
from advisor_models.trained_head import Range
from advisor_power.data.fill import FILE, fill
from advisor_power.data.fingerprint import (
    Chosen,
    MatrixPrint,
    features_of,
    fingerprint,
    product_fingerprint,
)
from advisor_power.data.language import DTYPES, OperandPair, parse_operands
from advisor_power.data.of_job import SIDE
from advisor_power.data.physics import (
    COLUMNS,
    PARTS,
    Known,
    by_feature_w,
    columns,
    feature_matrix,
    held_to,
    parts,
)
from advisor_power.data.result import case_of
from advisor_power.data.tensor_file import Matrix

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
        manifest = parse(InputManifest, text)
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


MODEL_FOLDER = "input-model"
"""In the advisor's home."""

BUNDLED = Path(__file__).parent / "bundled"
"""A folder for each GPU model."""


class NoInputModelError(ModelError):
    """Nothing can be predicted: no model was made here, and none came with advisor."""

    def __init__(self) -> None:
        super().__init__(
            "there is no model of power by data",
            why="none was made here, and those that come with advisor are missing",
            fix="measure on a GPU (advisor power input --preset T12, and others), then advisor "
            "power train",
        )


def own_folder(home: Path) -> Path:
    """Where `advisor power train` writes; it is made.

    Raises:
        StoreError: it cannot be made.
        UnsafeFileError: the home belongs to another user, or is open to others.
    """
    return open_home(home, MODEL_FOLDER)


def bundled_folder(gpu_model: str) -> Path:
    """Where the model of a GPU model is, if one comes with advisor."""
    return BUNDLED / re.sub(r"[^a-z0-9]+", "-", gpu_model.lower())


def find_input_model(home: Path, gpu_model: str | None = None) -> Path | None:
    """The folder of the model in use; None: there is none.

    What was measured on this host goes first, unless it is of other GPU models than the one that is
    asked for and one of that comes with advisor; then what comes with advisor, the first one where
    none is of the GPU model.
    """
    own, named = home / MODEL_FOLDER, [bundled_folder(gpu_model)] if gpu_model else []
    first = [own, *named] if gpu_model is None or _may_be_of(own, gpu_model) else [*named, own]
    folders = (*first, *sorted(BUNDLED.glob("*")))
    return next((folder for folder in folders if (folder / MANIFEST).exists()), None)


def _may_be_of(folder: Path, gpu_model: str) -> bool:
    """Whether inputs of a GPU model were measured for a model; of a damaged one nobody knows."""
    from advisor_power.data.predictor import read_input_manifest

    try:
        cards = read_input_manifest(folder).known.cards
    except ModelError:
        # It is not passed over: whoever loads it is told what is wrong with it.
        return True
    return gpu_model in {card.gpu_model for card in cards}


def load_input_model(home: Path, gpu_model: str | None = None) -> "InputPredictor":
    """The model in use.

    Raises:
        NoInputModelError: there is none.
        ModelError: it is damaged.
    """
    from advisor_power.data.predictor import InputPredictor

    found = find_input_model(home, gpu_model)
    if found is None:
        raise NoInputModelError
    return InputPredictor(found)


OUTSIDE = 0.02
"""How far beyond all that was measured a feature is unlike it, as a part of its whole range."""


@dataclass(frozen=True, slots=True)
class _Run:
    """A product at one bound of its interval."""

    product: Product
    power_w: float


class InputPredictor:
    """A model of power by data in a folder; safe for several threads.

    Raises:
        ModelError: it is not whole, or of another version.
    """

    def __init__(self, folder: Path) -> None:
        self.manifest, trees = read_input_model(folder)
        self._types = {of.dtype: of for of in self.manifest.types}
        self._forests = {
            dtype: Forest(read_trees(dtype, data, len(COLUMNS), RETRAIN))
            for dtype, data in trees.items()
        }

    def predict(self, asked: InputAsked) -> InputPrediction:
        """What a product is expected to draw, of its fingerprint.

        Raises:
            InputError: its GPU model or its type was not measured, or it has no fingerprint.
        """
        if asked.features is None:
            raise InputError("there is no fingerprint to predict from")
        known = self.manifest.known
        product, unlike = known.product(
            asked.dtype,
            asked.shape,
            asked.features,
            units=asked.units,
            gpu_model=asked.gpu_model,
        )
        of = self._types[asked.dtype]
        limit_w = known.limit_w(product.gpu_model)
        factors = (1.0, *of.bounds.factors)
        middle, *_ = runs = [self._run(product, of, factor, limit_w) for factor in factors]
        usual_w = self._usual_w(product, of, limit_w)
        return InputPrediction(
            operands=asked.operands,
            shape=asked.shape,
            dtype=asked.dtype,
            gpu_model=product.gpu_model,
            units=product.units,
            features=asked.features,
            power_w=_interval(run.power_w for run in runs),
            work_per_s=_interval(run.product.flop_per_s for run in runs),
            energy_j=_interval(map(_energy_j, runs)),
            usual_ratio=None if usual_w is None else middle.power_w / usual_w,
            clock_mhz=middle.product.clock_mhz,
            power_limit_w=None if math.isinf(limit_w) else limit_w,
            at_limit=middle.product.clock_mhz < product.clock_mhz,
            heat_w=known.card(product.gpu_model).heat_w,
            most=_most(product, of),
            unmeasured=(*unlike, *_outside(product, of)),
        )

    def _run(self, product: Product, of: TypeModel, factor: float, limit_w: float) -> _Run:
        """The product within the power limit, where it draws more or less by a factor."""
        scale = factor * math.exp(self._log_residual(product))

        def expected_w(products: Sequence[Product]) -> Floats:
            above = parts(products) @ np.array(of.weights) * scale
            return np.array([p.idle_w for p in products]) + above

        (run,) = held_to(expected_w, [product], np.array([limit_w]))
        return _Run(run, float(expected_w([run])[0]))

    def _usual_w(self, product: Product, of: TypeModel, limit_w: float) -> float | None:
        if of.usual is None:
            return None
        return self._run(replace(product, features=of.usual), of, 1.0, limit_w).power_w

    def _log_residual(self, product: Product) -> float:
        ((found,),) = self._forests[product.dtype](columns([product]).astype(np.float32))
        return found


def model_line(manifest: InputManifest) -> str:
    """Where a model is from, in one line."""
    cards = ", ".join(card.gpu_model for card in manifest.known.cards)
    return f"model {manifest.version}, {manifest.dataset.points} measured inputs on {cards}"


def _interval(found: Iterable[float]) -> Interval:
    """Of the expected value and those at both bounds: where power is at its limit, speed moves."""
    value, *bounds = found
    return Interval(value, min(value, *bounds), max(value, *bounds))


def _energy_j(run: _Run) -> float:
    m, n, k = run.product.shape
    return run.power_w * 2.0 * m * n * k / run.product.flop_per_s


def _most(product: Product, of: TypeModel) -> MostOf | None:
    """By the physics: the trees have no parts."""
    if of.usual is None:
        return None
    here = by_feature_w(product, of.weights)
    there = by_feature_w(replace(product, features=of.usual), of.weights)
    found = max(here, key=lambda name: abs(here[name] - there[name]))
    difference_w = here[found] - there[found]
    return MostOf(feature=found, difference_w=difference_w) if difference_w else None


def _outside(product: Product, of: TypeModel) -> tuple[str, ...]:
    values = feature_matrix([product])[0]
    odd = any(
        value < low - OUTSIDE or value > high + OUTSIDE
        for value, (low, high) in zip(values, of.ranges, strict=True)
    )
    return ("fingerprint",) if odd else ()


MOST_FILLED = 1 << 27
"""Elements of all matrices of one request that are filled: four products of 4096x4096x4096."""

SENT_ELEMENTS = SIDE * SIDE
"""Of one matrix."""

_filling, _loading = threading.Lock(), threading.Lock()
_loaded: LRUCache[tuple[Path, int], InputPredictor] = LRUCache(4)


def with_features(asked: InputAsked) -> InputAsked:
    """The same with the fingerprint of its operands, which are filled for it, and canonical text.

    Raises:
        InputError: neither operands nor a fingerprint are given, or both, or they cannot be.
    """
    if (asked.operands is None) == (asked.features is None):
        raise InputError(
            "a product needs operands or a fingerprint, and one of them alone",
            fix='say {"operands": "normal(0,1)", ...}, or {"features": {...}, ...}',
        )
    if asked.features is not None:
        return _checked(asked)
    assert asked.operands is not None
    case = case_of(asked.operands, asked.shape, asked.dtype)
    found = product_fingerprint(case.pair, case.shape, case.dtype)
    return replace(asked, operands=found.operands, features=found.features)


def predictions(model: InputPredictor, asked: Iterable[InputAsked]) -> InputPredictions:
    """What products with fingerprints are expected to draw.

    Raises:
        InputError: a GPU model or a type was not measured.
    """
    return InputPredictions(
        model=model.manifest.version,
        coverage=model.manifest.coverage,
        predictions=tuple(map(model.predict, asked)),
    )


def _checked(asked: InputAsked) -> InputAsked:
    assert asked.features is not None
    if odd := sorted(set(FEATURES) ^ asked.features.keys()):
        raise InputError(
            f"of the fingerprint, {', '.join(odd[:5])} are missing or unknown",
            fix=f"give {', '.join(FEATURES)}",
        )
    if not all(np.isfinite(value) and 0 <= value <= 1 for value in asked.features.values()):
        raise InputError("a number of the fingerprint is not from 0 to 1")
    return asked


def predicted(asked: InputPowerRequest, home: Path) -> InputPredictions:
    """What products are expected to draw; may block.

    Raises:
        InputError: operands cannot be, name a file, or are too large; or a GPU model or a type was
            not measured.
        NoInputModelError: there is no model.
        ModelError: it is damaged.
    """
    model = _model(home, {one.gpu_model for one in asked.inputs})
    filled = sum(
        m * k + k * n for m, n, k in (one.shape for one in asked.inputs if one.operands is not None)
    )
    if filled > MOST_FILLED:
        raise InputError(
            f"the matrices of the request have {filled} elements",
            why=f"{MOST_FILLED} are filled for one request at most",
            fix="ask in several requests, or for smaller products, or send fingerprints",
        )
    return predictions(model, map(with_sent_features, asked.inputs))


def with_sent_features(asked: InputAsked) -> InputAsked:
    """As `with_features`; matrices take memory, so they are filled one after the other.

    Raises:
        InputError: as `with_features`; it names a file, or its matrices are too large.
    """
    if asked.operands is None:
        return with_features(asked)
    _check_no_file(parse_operands(asked.operands))
    _check_small(asked.shape)
    with _filling:
        return with_features(asked)


def _model(home: Path, gpu_models: set[str | None]) -> InputPredictor:
    """One answers all of a request: that of the GPU model that they name, if it is one."""
    folder = find_input_model(home, gpu_models.pop() if len(gpu_models) == 1 else None)
    if folder is None:
        raise NoInputModelError
    with _loading:
        # Read again where another one was made.
        key = folder, (folder / MANIFEST).stat().st_mtime_ns
        if key not in _loaded:
            _loaded[key] = InputPredictor(folder)
        return _loaded[key]


def _check_no_file(pair: OperandPair) -> None:
    if FILE in (pair.a.source.name, pair.b.source.name):
        raise InputError(
            "a file cannot be named here",
            why="it would be one of the service's own host",
            fix="send its fingerprint to /v1/power/input: features of advisor power tensor FILE "
            "--json",
        )


def _check_small(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    if max(m * k, k * n) > SENT_ELEMENTS:
        raise InputError(
            f"matrices of {m}x{n}x{k} are too large to be filled here",
            why=f"one has {SENT_ELEMENTS} elements at most",
            fix=f"ask for {SIDE}x{SIDE}x{SIDE}, or send the fingerprint",
        )


ROWS = 4096
"""Of the random numbers that a matrix is multiplied with."""

_SAMPLED = 128
"""Rows of them that are filled: a fingerprint is a mean over a sample."""


@dataclass(frozen=True, slots=True)
class TensorPower:
    """A matrix of a file."""

    matrix: MatrixPrint
    expected: InputPrediction | None
    """What its product with normal random numbers draws; None: not known."""
    why_not: str = ""
    """Why it is not; empty: there is no model, or it is known."""


@dataclass(frozen=True, slots=True, eq=False)
class Expecting:
    """How power is expected."""

    model: InputPredictor | None
    units: int | None = None
    """SMs; None: the most that were measured."""
    gpu_model: str | None = None
    """None: the one that was measured."""

    def powers(self, chosen: Chosen) -> Iterator[TensorPower]:
        """Of each matrix of a file, looked at when it is asked for.

        Raises:
            InputError: the GPU model was not measured, or has not so many SMs.
        """
        if self.model is not None:
            card = self.model.manifest.known.card(self.gpu_model)
            if self.units is not None:
                check_card_units(self.units, card.gpu_model)
        for tensor, matrix in zip(chosen.matrices, chosen.prints(), strict=True):
            yield self._power(matrix, chosen.file.matrix(tensor))

    def _power(self, matrix: MatrixPrint, numbers: Matrix) -> TensorPower:
        if self.model is None:
            return TensorPower(matrix, None)
        try:
            asked = _weights_asked(numbers, matrix.dtype, self.units, self.gpu_model)
            return TensorPower(matrix, self.model.predict(asked))
        except InputError as error:
            return TensorPower(matrix, None, error.what)


def _weights_asked(
    numbers: Any, dtype: str, units: int | None, gpu_model: str | None
) -> InputAsked:
    """The product of `ROWS` rows of normal random numbers with weights (outputs, inputs).

    The random numbers have a deviation of 1, of int8 32.

    Raises:
        InputError: products do not compute in that type.
    """
    if dtype not in DTYPES:
        raise InputError(f"products do not compute in {dtype}", fix="cast it, for instance to fp8")
    outputs, inputs = numbers.shape
    source = parse_operands("normal(0,32)" if dtype == "int8" else "normal(0,1)").a
    drawn = fill(source, (_SAMPLED, inputs), dtype, seed=0, side="a").matrix
    return InputAsked(
        features=features_of(fingerprint(drawn, numbers.T, dtype)),
        shape=(ROWS, outputs, inputs),
        dtype=dtype,
        units=units,
        gpu_model=gpu_model,
    )
