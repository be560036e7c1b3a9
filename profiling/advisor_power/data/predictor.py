"""Power and speed of matrix products by their data, from a model and without a GPU.

A model is a folder: manifest, points that it was made from, and trees. For each type it predicts
exp(mean of the trees) x physical power above idle + idle power.
"""

import math
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from cachetools import LRUCache

from advisor.core.gpu import check_card_units
from advisor.core.interval import Interval
from advisor.errors import InputError, ModelError
from advisor.files import open_home
from advisor.formats.moments import is_utc
from advisor.formats.wire import read, to_plain
from advisor.predict.profiles import Floats
from advisor.wire.power import (
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
from advisor_power.data import physics
from advisor_power.data.fill import FILE, STORAGE, fill
from advisor_power.data.fingerprint import (
    OperandPrint,
    features_of,
    fingerprint,
    operand_print,
    product_fingerprint,
)
from advisor_power.data.language import DTYPES, parse_operands
from advisor_power.data.measuring import case_of
from advisor_power.data.of_job import SIDE
from advisor_power.data.physics import Known
from advisor_power.data.tensor_file import Tensor, TensorFile

SCHEMA = 2
POINTS = "points.jsonl"  # in the folder of a model: what it was made from
_MODEL_FOLDER = "input-model"  # in the advisor's home
BUNDLED = Path(__file__).parent / "bundled"  # a folder for each GPU model
_OUTSIDE = 0.02  # how far beyond all that was measured a feature is unlike it
_MOST_FILLED = 1 << 27  # elements of all matrices of one request: four products of 4096 cubed
_SENT_ELEMENTS = SIDE * SIDE  # of one matrix of a request
ROWS = 4096  # of random numbers that a matrix of a file is multiplied with
_SAMPLED = 128  # of these rows are filled: a fingerprint is a mean over a sample

_RETRAIN = (
    "make one: advisor power train; without a folder of its own the home has the one that comes "
    "with advisor"
)

_filling, _loading = threading.Lock(), threading.Lock()
_loaded: "LRUCache[tuple[Path, int], InputPredictor]" = LRUCache(4)


class NoInputModelError(ModelError):
    """Nothing can be predicted: no model was made here, and none came with advisor."""

    def __init__(self) -> None:
        super().__init__(
            "there is no model of power by data",
            why="none was made here, and those that come with advisor are missing",
            fix="measure on a GPU (advisor power input --preset T12, and others), then advisor "
            "power train",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeModel:
    """What was learned of one type.

    Attributes:
        dtype: Name of the file of its trees, too.
        weights: Of the parts of the physics, in their order, W.
        ranges: Smallest and largest value of each feature in training.
        bounds: Of power above idle, for patterns of data that were not seen.
        usual: Fingerprint of normal random numbers; None: they were not measured.
    """

    dtype: str
    points: int
    weights: tuple[float, ...]
    ranges: tuple[Range, ...]
    bounds: LogBounds
    usual: Mapping[str, float] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFacts:
    """What a model was trained on.

    Attributes:
        sha256: Of the points, in whatever order.
        held_back: Points at which power limit or heat held back the clock.
        patterns: Patterns of operands that were left out in their turn.
        cards: UUIDs of the GPUs.
        left_out: Points that were not used, by reason.
    """

    sha256: str
    points: int
    held_back: int
    patterns: tuple[str, ...]
    cards: tuple[str, ...]
    drivers: tuple[str, ...]
    torch: tuple[str, ...]
    left_out: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputManifest:
    """All that is known of a model.

    Attributes:
        created_at: ISO 8601, UTC.
        physics: Parts of the power, one for each weight.
        columns: What the trees take.
        known: Cards, and how fast shapes were computed.
        figures: Of its evaluation in percent, by method and kind of error: on patterns left out,
            beside baselines, with the noise of the repeated reference.
        libraries: Versions that made it, by name.
        files: SHA-256 of each file next to the manifest, by name.
    """

    schema: int
    version: str
    created_at: str
    features: tuple[str, ...]
    physics: tuple[str, ...]
    columns: tuple[str, ...]
    coverage: float
    types: tuple[TypeModel, ...]
    known: Known
    dataset: InputFacts
    figures: Mapping[str, float]
    settings: LearnerSettings
    libraries: Mapping[str, str]
    files: Mapping[str, str]

    @property
    def line(self) -> str:
        """Where the model is from."""
        cards = ", ".join(card.gpu_model for card in self.known.cards)
        return f"model {self.version}, {self.dataset.points} measured inputs on {cards}"


def own_folder(home: Path) -> Path:
    """The folder into which `advisor power train` writes; it is made."""
    return open_home(home, _MODEL_FOLDER)


def bundled_folder(gpu_model: str) -> Path:
    """The folder of the model of a GPU model, if one comes with advisor."""
    return BUNDLED / re.sub(r"[^a-z0-9]+", "-", gpu_model.lower())


def find_input_model(home: Path, gpu_model: str | None = None) -> Path | None:
    """The folder of the model in use; None: there is none.

    A model of this host goes first, unless it is of another GPU model and a bundled one is of the
    named one; last goes the first bundled model.
    """
    own = home / _MODEL_FOLDER
    first = [own]
    if gpu_model is not None:
        try:
            cards = _read_input_manifest(own).known.cards
            is_of = gpu_model in {card.gpu_model for card in cards}
        except ModelError:
            is_of = True  # loading a damaged model raises; another one does not replace it
        named = bundled_folder(gpu_model)
        first = [own, named] if is_of else [named, own]
    folders = (*first, *sorted(BUNDLED.glob("*")))
    return next((folder for folder in folders if (folder / MANIFEST).exists()), None)


def load_input_model(home: Path, gpu_model: str | None = None) -> "InputPredictor":
    """The model in use, read once."""
    folder = find_input_model(home, gpu_model)
    if folder is None:
        raise NoInputModelError
    with _loading:
        # Read again where another one was made.
        key = folder, (folder / MANIFEST).stat().st_mtime_ns
        if key not in _loaded:
            _loaded[key] = InputPredictor(folder)
        return _loaded[key]


def _read_input_manifest(folder: Path) -> InputManifest:
    """The manifest of a folder alone."""
    return _parsed(folder / MANIFEST, whole_file(folder / MANIFEST, _RETRAIN))


def write_input_manifest(folder: Path, manifest: InputManifest) -> None:
    """Write the manifest next to its files."""
    write_parsed(folder, manifest, _parsed)


def _parsed(path: Path, text: bytes) -> InputManifest:
    with ModelError.instead_of(
        ValueError, f"{path} is not the manifest of a model of power by data", fix=_RETRAIN
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
        "its physics has other parts than that of this version": m.physics != physics.PARTS,
        "its trees take other columns": m.columns != physics.COLUMNS,
        "it has no types, or one twice": len({t.dtype for t in m.types}) != max(1, len(m.types)),
        "a type has not a weight for each part": any(
            len(t.weights) != len(physics.PARTS) for t in m.types
        ),
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


class InputPredictor:
    """A model of power by data in a folder; safe for several threads."""

    def __init__(self, folder: Path) -> None:
        self.manifest = _read_input_manifest(folder)
        files = {n: checked_file(folder / n, h, _RETRAIN) for n, h in self.manifest.files.items()}
        self._types = {of.dtype: of for of in self.manifest.types}
        self._forests = {
            dtype: Forest(
                read_trees(dtype, files[trees_file(dtype)], len(physics.COLUMNS), _RETRAIN)
            )
            for dtype in self._types
        }

    def predict(self, asked: InputAsked) -> InputPrediction:
        """What a product is expected to draw, of its fingerprint."""
        if asked.features is None:
            raise InputError("there is no fingerprint to predict from")
        known = self.manifest.known
        product, unlike = known.product(
            asked.dtype, asked.shape, asked.features, units=asked.units, gpu_model=asked.gpu_model
        )
        of = self._types[asked.dtype]
        limit_w = known.limit_w(product.gpu_model)
        runs = [self._run(product, of, factor, limit_w) for factor in (1.0, *of.bounds.factors)]
        run, power_w = runs[0]
        flop = 2.0 * math.prod(asked.shape)
        usual_w = None
        if of.usual is not None:
            _, usual_w = self._run(replace(product, features=of.usual), of, 1.0, limit_w)
        values = zip(physics.feature_matrix([product])[0], of.ranges, strict=True)
        if any(value < low - _OUTSIDE or value > high + _OUTSIDE for value, (low, high) in values):
            unlike = (*unlike, "fingerprint")
        return InputPrediction(
            operands=asked.operands,
            shape=asked.shape,
            dtype=asked.dtype,
            gpu_model=product.gpu_model,
            units=product.units,
            features=asked.features,
            power_w=_interval(watts for _, watts in runs),
            work_per_s=_interval(run.flop_per_s for run, _ in runs),
            energy_j=_interval(watts * flop / run.flop_per_s for run, watts in runs),
            usual_ratio=None if usual_w is None else power_w / usual_w,
            clock_mhz=run.clock_mhz,
            power_limit_w=None if math.isinf(limit_w) else limit_w,
            at_limit=run.clock_mhz < product.clock_mhz,
            heat_w=known.card(product.gpu_model).heat_w,
            most=_most(product, of),
            unmeasured=unlike,
        )

    def _run(
        self, product: Product, of: TypeModel, factor: float, limit_w: float
    ) -> tuple[Product, float]:
        """The product within the power limit, and its power, W, where it is off by a factor."""
        ((log_residual,),) = self._forests[product.dtype](
            physics.columns([product]).astype(np.float32)
        )
        scale = factor * math.exp(log_residual)

        def expected_w(products: Sequence[Product]) -> Floats:
            above = physics.parts(products) @ np.array(of.weights) * scale
            return np.array([p.idle_w for p in products]) + above

        (run,) = physics.held_to(expected_w, [product], np.array([limit_w]))
        return run, float(expected_w([run])[0])


def _interval(found: Iterable[float]) -> Interval:
    """Of the expected value and those at both bounds: where power is at its limit, speed moves."""
    value, *bounds = found
    return Interval(value, min(value, *bounds), max(value, *bounds))


def _most(product: Product, of: TypeModel) -> MostOf | None:
    """By the physics: the trees have no parts."""
    if of.usual is None:
        return None
    here = physics.by_feature_w(product, of.weights)
    there = physics.by_feature_w(replace(product, features=of.usual), of.weights)
    found = max(here, key=lambda name: abs(here[name] - there[name]))
    difference_w = here[found] - there[found]
    return MostOf(feature=found, difference_w=difference_w) if difference_w else None


def with_features(asked: InputAsked) -> InputAsked:
    """The same with the fingerprint and the canonical text of its operands, which are filled."""
    if (asked.operands is None) == (asked.features is None):
        raise InputError(
            "a product needs operands or a fingerprint, and one of them alone",
            fix='say {"operands": "normal(0,1)", ...}, or {"features": {...}, ...}',
        )
    if asked.operands is not None:
        case = case_of(asked.operands, asked.shape, asked.dtype)
        found = product_fingerprint(case.pair, case.shape, case.dtype)
        return replace(asked, operands=found.operands, features=found.features)
    features = asked.features or {}
    if odd := sorted(set(FEATURES) ^ features.keys()):
        raise InputError(
            f"of the fingerprint, {', '.join(odd[:5])} are missing or unknown",
            fix=f"give {', '.join(FEATURES)}",
        )
    if not all(np.isfinite(value) and 0 <= value <= 1 for value in features.values()):
        raise InputError("a number of the fingerprint is not from 0 to 1")
    return asked


def with_sent_features(asked: InputAsked) -> InputAsked:
    """As `with_features` of a request, whose matrices are small, and filled one after the other."""
    if asked.operands is None:
        return with_features(asked)
    pair, (m, n, k) = parse_operands(asked.operands), asked.shape
    if FILE in (pair.a.source.name, pair.b.source.name):
        raise InputError(
            "a file cannot be named here",
            why="it would be one of the service's own host",
            fix="send its fingerprint to /v1/power/input: features of advisor power tensor FILE "
            "--json",
        )
    if max(m * k, k * n) > _SENT_ELEMENTS:
        raise InputError(
            f"matrices of {m}x{n}x{k} are too large to be filled here",
            why=f"one has {_SENT_ELEMENTS} elements at most",
            fix=f"ask for {SIDE}x{SIDE}x{SIDE}, or send the fingerprint",
        )
    with _filling:
        return with_features(asked)


def predictions(model: InputPredictor, asked: Iterable[InputAsked]) -> InputPredictions:
    """What products with fingerprints are expected to draw."""
    return InputPredictions(
        model=model.manifest.version,
        coverage=model.manifest.coverage,
        predictions=tuple(map(model.predict, asked)),
    )


def predicted(asked: InputPowerRequest, home: Path) -> InputPredictions:
    """The answer to a request, by one model: that of the GPU model that all name; may block."""
    named = {one.gpu_model for one in asked.inputs}
    model = load_input_model(home, named.pop() if len(named) == 1 else None)
    shapes = (one.shape for one in asked.inputs if one.operands is not None)
    if (filled := sum(m * k + k * n for m, n, k in shapes)) > _MOST_FILLED:
        raise InputError(
            f"the matrices of the request have {filled} elements",
            why=f"{_MOST_FILLED} are filled for one request at most",
            fix="ask in several requests, or for smaller products, or send fingerprints",
        )
    return predictions(model, map(with_sent_features, asked.inputs))


@dataclass(frozen=True, slots=True)
class TensorPower:
    """A matrix of a file, (outputs, inputs), and what its product with random numbers draws.

    Attributes:
        expected: None: not known.
        why_not: Why; empty without a model.
    """

    tensor: Tensor
    found: OperandPrint
    expected: InputPrediction | None = None
    why_not: str = ""

    def as_json(self) -> dict[str, Any]:
        """All of it, with the numbers of the fingerprint beside the others."""
        return {
            "tensor": self.tensor.name,
            "dtype": self.tensor.dtype,
            "shape": list(self.tensor.shape),
            **asdict(self.found),
            "expected": to_plain(self.expected),
            "why_not": self.why_not,
        }


def no_print(tensor: Tensor) -> str:
    """Why a tensor has no fingerprint; empty: it has one."""
    if tensor.no_matrix or tensor.dtype in STORAGE:
        return tensor.no_matrix
    return f"no fingerprint is made of {tensor.dtype}: cast it, for instance to fp32"


def tensor_powers(
    file: TensorFile,
    tensors: Iterable[Tensor],
    model: InputPredictor | None,
    units: int | None = None,
    gpu_model: str | None = None,
) -> Iterator[TensorPower]:
    """Matrices of a file, each read when it is asked for."""
    if model is not None:
        card = model.manifest.known.card(gpu_model)
        if units is not None:
            check_card_units(units, card.gpu_model)
    for tensor in tensors:
        matrix = file.matrix(tensor)
        found, dtype = operand_print(matrix, tensor.dtype), tensor.dtype
        if model is None:
            yield TensorPower(tensor, found)
        elif dtype not in DTYPES:
            yield TensorPower(tensor, found, why_not=f"products do not compute in {dtype}")
        else:
            source = parse_operands("normal(0,32)" if dtype == "int8" else "normal(0,1)").a
            drawn = fill(source, (_SAMPLED, matrix.shape[1]), dtype, seed=0, side="a").matrix
            features = features_of(fingerprint(drawn, matrix.T, dtype))
            shape = (ROWS, *matrix.shape)
            asked = InputAsked(
                features=features, shape=shape, dtype=dtype, units=units, gpu_model=gpu_model
            )
            try:
                yield TensorPower(tensor, found, model.predict(asked))
            except InputError as error:
                yield TensorPower(tensor, found, why_not=error.what)
