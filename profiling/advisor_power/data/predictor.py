"""Power and speed of matrix products by their data, from a model and without a GPU.

A model is a folder: manifest, points that it was made from, and trees. For each type it predicts
exp(mean of the trees) x physical power above idle + idle power.

Physical power above idle is a sum of parts that cannot be negative. One part is always there, one
for each SM that is awake, and for each operation an energy and one for each bit that switches, is
set, or is not zero. With the clock they grow as in the weights of components: what an SM draws by
its cycles and the voltage, an operation by the voltage. What the sum leaves is learned: the
logarithm of measured over physical power above idle.
"""

import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import numpy as np

from advisor.core.gpu import check_card_units, named_model
from advisor.core.objectives import Interval
from advisor.core.records import grouped
from advisor.errors import InputError, ModelError
from advisor.files import open_home
from advisor.formats.moments import is_utc
from advisor.formats.wire import read
from advisor.predict.profiles import Floats, rounded
from advisor.wire.power import (
    FEATURES,
    InputPoint,
    InputPowerRequest,
    InputPrediction,
    InputPredictions,
    InputQuery,
    MostOf,
    Product,
)
from advisor_models.model_predictor import Forest, read_trees
from advisor_models.registry import (
    MANIFEST,
    LogBounds,
    check_version,
    checked_file,
    file_faults,
    trees_file,
    whole_file,
)
from advisor_power.data import SIDE
from advisor_power.data.measuring import case_of
from advisor_power.data.operands import (
    FILE,
    parse_operands,
    product_fingerprint,
)

# SM work costs about the clock times the square of the voltage, which follows the clock, but less
# than in proportion: 3 if it did, 1 if it stayed. Of 2, 2.5 and 3 this is nearest to jobs
# (docs/measurements/power/component_fit.py).
SM_POWER_EXPONENT = 2.5
_WORK_EXPONENT = SM_POWER_EXPONENT - 1  # energy of the same work ~ clock to this power
# Features that lower power: their opposite has a weight, since none can be negative.
_ENERGIES = ("operation", *FEATURES)

PARTS = (
    "always",
    f"units x clock^{SM_POWER_EXPONENT}",
    *(f"{name} x rate x clock^{_WORK_EXPONENT}" for name in _ENERGIES),
)
"""What each weight is of."""

COLUMNS = (*FEATURES, "log_m", "log_n", "log_k", "units")
"""What the learned part sees. Not the clock: at the power limit it is the result."""


def feature_matrix(products: Sequence[Product]) -> Floats:
    """Fingerprints, shape (products, features)."""
    return np.array([[p.features[name] for name in FEATURES] for p in products]).reshape(
        len(products), len(FEATURES)
    )


def parts(products: Sequence[Product]) -> Floats:
    """What each weight is multiplied with, W at weight 1; shape (products, parts)."""
    features, one = feature_matrix(products), np.ones(len(products))
    saving = np.isin(FEATURES, ("a_zeros", "b_zeros", "zero_products", "sum_non_finite"))
    of_operation = np.column_stack([one, np.where(saving, 1 - features, features)])
    tera_per_s = np.array([p.flop_per_s / 1e12 for p in products])[:, None]
    clock_ghz = np.array([p.clock_mhz / 1000 for p in products])[:, None]
    units = np.array([p.units for p in products], dtype=float)[:, None]
    by_rate = of_operation * tera_per_s * clock_ghz**_WORK_EXPONENT
    return np.column_stack([one, units * clock_ghz**SM_POWER_EXPONENT, by_rate])


def evened(features: Mapping[str, float]) -> dict[str, float]:
    """The same with what both operands have on average in each of them.

    Nearly all that was measured had both alike, so nothing tells A from B.
    """
    return {
        name: (value + features["ba"[name[0] == "b"] + name[1:]]) / 2 if name[1] == "_" else value
        for name, value in features.items()
    }


def columns(products: Sequence[Product]) -> Floats:
    """What the learned part sees, `rounded`; shape (products, columns)."""
    others = np.array([[*np.log(p.shape), p.units] for p in products]).reshape(-1, 4)
    return rounded(np.column_stack([feature_matrix(products), others]))


def by_feature_w(product: Product, weights: Sequence[float]) -> dict[str, float]:
    """Power of a product that each feature stands for, W."""
    watts = parts([product])[0] * np.asarray(weights)
    return dict(zip(FEATURES, map(float, watts[-len(FEATURES) :]), strict=True))


P = TypeVar("P", bound=Product)

LEAST_PART = 0.1  # of the highest clock: the power limit lowers it no further
_MOST_TIMES = 4.0  # larger or smaller may a side be than that of the nearest measured shape


@dataclass(frozen=True, slots=True, kw_only=True)
class _MeasuredCard:
    """A GPU model as it was measured.

    Attributes:
        idle_w: With a context, without work.
        power_limit_w: None: not known.
        heat_w: Least power at which something else than the power limit, such as heat, held the
            clock back; None: never.
        units: Most SMs that were measured.
    """

    gpu_model: str
    idle_w: float
    power_limit_w: float | None
    heat_w: float | None
    units: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pace:
    """How fast one shape is computed.

    Attributes:
        work_per_cycle: Operations of one SM in one cycle of its clock.
        clock_mhz: The highest one, with whatever data. With the tensor cores of all SMs busy it is
            150 MHz and more below that of a part of the SMs, far from the power limit.
    """

    gpu_model: str
    dtype: str
    shape: tuple[int, int, int]
    units: int
    work_per_cycle: float
    clock_mhz: float


@dataclass(frozen=True, slots=True)
class MeasuredCards:
    """All cards and paces that were measured."""

    cards: tuple[_MeasuredCard, ...]
    paces: tuple[_Pace, ...]

    def card(self, gpu_model: str | None = None) -> _MeasuredCard:
        """The card of a GPU model; None: the only one."""
        names = [*dict.fromkeys(card.gpu_model for card in self.cards)]
        named = gpu_model and named_model(gpu_model, names)
        of_model = [card for card in self.cards if named in (None, card.gpu_model)]
        if not of_model or (named is None and len(names) != 1):
            lack = "no GPU model was named" if gpu_model is None else f"{gpu_model} has no inputs"
            raise InputError(
                f"{lack}: there are measured ones of {', '.join(names)}",
                fix="name one of these as GPU model, or measure: advisor power input",
            )
        return of_model[0]

    def product(
        self,
        dtype: str,
        shape: tuple[int, int, int],
        features: Mapping[str, float],
        *,
        units: int | None = None,
        gpu_model: str | None = None,
    ) -> tuple[Product, tuple[str, ...]]:
        """A product at its highest clock; and which of shape and units was not measured.

        Of another shape or number of SMs it runs, cycle by cycle, as the nearest that was measured.
        """
        card = self.card(gpu_model)
        of = [p for p in self.paces if p.gpu_model == card.gpu_model and p.dtype == dtype]
        if not of:
            there = sorted({p.dtype for p in self.paces if p.gpu_model == card.gpu_model})
            raise InputError(
                f"no input of {dtype} was measured on {card.gpu_model}",
                why=f"each type has units of its own on the GPU; measured are {', '.join(there)}",
                fix=f"advisor power input --dtype {dtype} --preset T12, then advisor power train",
            )
        units = card.units if units is None else units
        check_card_units(units, card.gpu_model)
        times, alike = min(
            (max(max(a / b, b / a) for a, b in zip(pace.shape, shape, strict=True)), pace.shape)
            for pace in of
        )
        if times > _MOST_TIMES:
            wanted, closest = ("x".join(map(str, sides)) for sides in (shape, alike))
            raise InputError(
                f"a product of {wanted} is unlike all that were measured in {dtype}",
                why=f"a side is {times:.3g} times off that of {closest}: a product that waits for "
                "memory or for its launch runs and draws otherwise, which the model does not know",
                fix=f"ask for sides within {_MOST_TIMES:g} times, or measure it: advisor power "
                f"input --shape {wanted}",
            )

        def distance(pace: _Pace) -> tuple[float, float]:
            off = (abs(math.log(a / b)) for a, b in zip(pace.shape, shape, strict=True))
            return sum(off), abs(math.log(pace.units / units))

        nearest = min(of, key=distance)
        unlike = {
            "shape": shape not in {p.shape for p in of},
            "units": units not in {p.units for p in of},
        }
        return Product(
            gpu_model=card.gpu_model,
            dtype=dtype,
            shape=shape,
            units=units,
            features=features,
            idle_w=card.idle_w,
            flop_per_s=nearest.work_per_cycle * units * nearest.clock_mhz * 1e6,
            clock_mhz=nearest.clock_mhz,
        ), tuple(name for name, is_so in unlike.items() if is_so)

    def limit_w(self, gpu_model: str) -> float:
        """Power limit of a GPU model; infinite where it is not known."""
        limit_w = self.card(gpu_model).power_limit_w
        return math.inf if limit_w is None else limit_w


def measured_cards(points: Sequence[InputPoint]) -> MeasuredCards:
    """What measured points say of their cards, and how fast they were computed."""
    by_pace = grouped(points, lambda p: (p.gpu_model, p.dtype, p.shape, p.units))
    paces = [
        _Pace(
            gpu_model=gpu_model,
            dtype=dtype,
            shape=shape,
            units=units,
            work_per_cycle=float(
                np.median([p.flop_per_s / (units * p.clock_mhz * 1e6) for p in of_pace])
            ),
            clock_mhz=max(p.clock_mhz for p in of_pace),
        )
        for (gpu_model, dtype, shape, units), of_pace in sorted(by_pace.items())
    ]
    by_model = sorted(grouped(points, lambda p: p.gpu_model).items())
    return MeasuredCards(tuple(_card(name, of) for name, of in by_model), tuple(paces))


def _card(name: str, points: Sequence[InputPoint]) -> _MeasuredCard:
    limits_w = [p.power_limit_w for p in points if p.power_limit_w is not None]
    return _MeasuredCard(
        gpu_model=name,
        idle_w=float(np.median([p.idle_w for p in points])),
        power_limit_w=float(np.median(limits_w)) if limits_w else None,
        heat_w=min((p.power_w for p in points if p.throttled and not p.at_limit), default=None),
        units=max(p.units for p in points),
    )


def held_to(
    expected_w: Callable[[Sequence[P]], Floats], products: Sequence[P], limits_w: Floats
) -> list[P]:
    """The products at the highest clock up to theirs at which they stay within the limit.

    Args:
        expected_w: Power of products, which grows with their clock; shape (products,).
        products: At their highest clock.
        limits_w: Of each.
    """
    low, high = np.full(len(products), LEAST_PART), np.ones(len(products))
    over = expected_w(products) > limits_w
    if not over.any():
        return list(products)
    low[~over] = 1.0
    for _ in range(24):  # halves what is between them
        middle = (low + high) / 2
        above = expected_w(_scaled(products, middle)) > limits_w
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return _scaled(products, low)


def _scaled(products: Sequence[P], of_clock: Floats) -> list[P]:
    return [
        replace(p, clock_mhz=part * p.clock_mhz, flop_per_s=part * p.flop_per_s)
        for p, part in zip(products, of_clock.tolist(), strict=True)
    ]


SCHEMA = 2
POINTS = "points.jsonl"  # in the folder of a model: what it was made from
_MODEL_FOLDER = "input-model"  # in the advisor's home
BUNDLED = Path(__file__).parent / "bundled"  # a folder for each GPU model
_OUTSIDE = 0.02  # how far beyond all that was measured a feature is unlike it
_MOST_FILLED = 1 << 27  # elements of all matrices of one request: four products of 4096 cubed
_SENT_ELEMENTS = SIDE * SIDE  # of one matrix of a request

_RETRAIN = (
    "make one: advisor power train; without a folder of its own the home has the one that comes "
    "with advisor"
)

_filling, _loading = threading.Lock(), threading.Lock()


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
    ranges: tuple[tuple[float, float], ...]
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
    known: MeasuredCards
    dataset: InputFacts
    figures: Mapping[str, float]
    settings: Mapping[str, int | float]
    libraries: Mapping[str, str]
    files: Mapping[str, str]


def model_folder(home: Path) -> Path:
    """The folder into which `advisor power train` writes; it is made."""
    return open_home(home, _MODEL_FOLDER)


def find_input_model(home: Path, gpu_model: str | None = None) -> Path | None:
    """The folder of the model in use; None: there is none.

    That of this host goes before those that come with advisor; of a GPU model, the first of it.

    Raises:
        InputError: none is of that GPU model.
        ModelError: one of them is damaged; another one does not replace it.
    """
    places = home / _MODEL_FOLDER, *sorted(BUNDLED.glob("*"))
    folders = [folder for folder in places if (folder / MANIFEST).exists()]
    if gpu_model is None or not folders:
        return next(iter(folders), None)
    cards = {folder: _read_input_manifest(folder).known.cards for folder in folders}
    wanted = MeasuredCards(tuple(c for of in cards.values() for c in of), ()).card(gpu_model)
    return next(folder for folder, of in cards.items() if wanted in of)


def load_input_model(home: Path, gpu_model: str | None = None) -> "InputPredictor":
    """The model in use, read once."""
    folder = find_input_model(home, gpu_model)
    if folder is None:
        raise NoInputModelError
    with _loading:
        return _loaded(folder, (folder / MANIFEST).stat().st_mtime_ns)


@lru_cache(4)
def _loaded(folder: Path, _: int) -> "InputPredictor":
    """Read again where another one was made, which shows in its time."""
    return InputPredictor(folder)


def _read_input_manifest(folder: Path) -> InputManifest:
    return parsed_manifest(folder / MANIFEST, whole_file(folder / MANIFEST, _RETRAIN))


def parsed_manifest(path: Path, text: bytes) -> InputManifest:
    """The manifest in a file with this text.

    Raises:
        ModelError: it is none, or of another version.
    """
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


class InputPredictor:
    """A model of power by data in a folder; safe for several threads."""

    def __init__(self, folder: Path) -> None:
        self.manifest = _read_input_manifest(folder)
        files = {n: checked_file(folder / n, h, _RETRAIN) for n, h in self.manifest.files.items()}
        self._types = {of.dtype: of for of in self.manifest.types}
        self._forests = {
            dtype: Forest(read_trees(dtype, files[trees_file(dtype)], len(COLUMNS), _RETRAIN))
            for dtype in self._types
        }

    def predict(self, wanted: InputQuery) -> InputPrediction:
        """What a product is expected to draw, of its fingerprint."""
        if wanted.features is None:
            raise InputError("there is no fingerprint to predict from")
        cards = self.manifest.known
        product, unlike = cards.product(
            wanted.dtype,
            wanted.shape,
            evened(wanted.features),
            units=wanted.units,
            gpu_model=wanted.gpu_model,
        )
        of = self._types[wanted.dtype]
        limit_w = cards.limit_w(product.gpu_model)
        runs = [self._run(product, of, factor, limit_w) for factor in (1.0, *of.bounds.factors)]
        run, power_w = runs[0]
        flop = 2.0 * math.prod(wanted.shape)
        usual = replace(product, features=of.usual) if of.usual is not None else None
        usual_w = usual and self._run(usual, of, 1.0, limit_w)[1]
        outside = (
            not low - _OUTSIDE <= value <= high + _OUTSIDE
            for value, (low, high) in zip(feature_matrix([product])[0], of.ranges, strict=True)
        )
        if any(outside) or abs(wanted.features["a_zeros"] - wanted.features["b_zeros"]) > _OUTSIDE:
            unlike = (*unlike, "fingerprint")
        return InputPrediction(
            operands=wanted.operands,
            shape=wanted.shape,
            dtype=wanted.dtype,
            gpu_model=product.gpu_model,
            units=product.units,
            features=wanted.features,
            power_w=_interval(watts for _, watts in runs),
            work_per_s=_interval(run.flop_per_s for run, _ in runs),
            energy_j=_interval(watts * flop / run.flop_per_s for run, watts in runs),
            usual_ratio=power_w / usual_w if usual_w else None,
            clock_mhz=run.clock_mhz,
            power_limit_w=None if math.isinf(limit_w) else limit_w,
            at_limit=run.clock_mhz < product.clock_mhz,
            heat_w=cards.card(product.gpu_model).heat_w,
            most=_most(product, of),
            unmeasured=unlike,
        )

    def _run(
        self, product: Product, of: TypeModel, factor: float, limit_w: float
    ) -> tuple[Product, float]:
        """The product within the power limit, and its power, W, where it is off by a factor."""
        ((log_residual,),) = self._forests[product.dtype](columns([product]).astype(np.float32))
        scale = factor * math.exp(log_residual)

        def expected_w(products: Sequence[Product]) -> Floats:
            idle_w = np.array([p.idle_w for p in products])
            return idle_w + parts(products) @ np.array(of.weights) * scale

        (run,) = held_to(expected_w, [product], np.array([limit_w]))
        return run, float(expected_w([run])[0])


def _interval(values: Iterable[float]) -> Interval:
    """Of the expected value and those at both bounds: where power is at its limit, speed moves."""
    value, *bounds = values
    return Interval(value, min(value, *bounds), max(value, *bounds))


def _most(product: Product, of: TypeModel) -> MostOf | None:
    """By the physics: the trees have no parts."""
    if of.usual is None:
        return None
    here = by_feature_w(product, of.weights)
    there = by_feature_w(replace(product, features=of.usual), of.weights)
    feature = max(here, key=lambda name: abs(here[name] - there[name]))
    difference_w = here[feature] - there[feature]
    return MostOf(feature=feature, difference_w=difference_w) if difference_w else None


def with_features(wanted: InputQuery) -> InputQuery:
    """The same with the fingerprint and the canonical text of its operands, which are filled."""
    if (wanted.operands is None) == (wanted.features is None):
        raise InputError(
            "a product needs operands or a fingerprint, and one of them alone",
            fix='say {"operands": "normal(0,1)", ...}, or {"features": {...}, ...}',
        )
    if wanted.operands is not None:
        case = case_of(wanted.operands, wanted.shape, wanted.dtype)
        fingerprint = product_fingerprint(case.pair, case.shape, case.dtype)
        return replace(wanted, operands=fingerprint.operands, features=fingerprint.features)
    features = wanted.features or {}
    if odd := sorted(set(FEATURES) ^ features.keys()):
        raise InputError(
            f"of the fingerprint, {', '.join(odd[:5])} are missing or unknown",
            fix=f"give {', '.join(FEATURES)}",
        )
    if not all(np.isfinite(value) and 0 <= value <= 1 for value in features.values()):
        raise InputError("a number of the fingerprint is not from 0 to 1")
    return wanted


def with_sent_features(wanted: InputQuery) -> InputQuery:
    """As `with_features` of a request, whose matrices are small, and filled one after the other."""
    if wanted.operands is None:
        return with_features(wanted)
    pair, (m, n, k) = parse_operands(wanted.operands), wanted.shape
    if FILE in (pair.a.source.name, pair.b.source.name):
        raise InputError(
            "a file cannot be named here",
            why="it would be one of the service's own host",
            fix="send its fingerprint: features of advisor power input 'file(\"w.npy\")' --predict "
            "--json",
        )
    if max(m * k, k * n) > _SENT_ELEMENTS:
        raise InputError(
            f"matrices of {m}x{n}x{k} are too large to be filled here",
            why=f"one has {_SENT_ELEMENTS} elements at most",
            fix=f"ask for {SIDE}x{SIDE}x{SIDE}, or send the fingerprint",
        )
    with _filling:
        return with_features(wanted)


def predictions(model: InputPredictor, inputs: Iterable[InputQuery]) -> InputPredictions:
    """What products with fingerprints are expected to draw."""
    return InputPredictions(
        model=model.manifest.version,
        coverage=model.manifest.coverage,
        predictions=tuple(map(model.predict, inputs)),
    )


def predicted(request: InputPowerRequest, home: Path) -> InputPredictions:
    """The answer to a request, by one model: that of the GPU model that all name; may block."""
    named = {wanted.gpu_model for wanted in request.inputs}
    model = load_input_model(home, named.pop() if len(named) == 1 else None)
    shapes = (wanted.shape for wanted in request.inputs if wanted.operands is not None)
    if (filled := sum(m * k + k * n for m, n, k in shapes)) > _MOST_FILLED:
        raise InputError(
            f"the matrices of the request have {filled} elements",
            why=f"{_MOST_FILLED} are filled for one request at most",
            fix="ask in several requests, or for smaller products, or send fingerprints",
        )
    return predictions(model, map(with_sent_features, request.inputs))
