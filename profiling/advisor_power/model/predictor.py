"""Power and speed of matrix products by their data, from a model and without a GPU."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from advisor.core.interval import Interval
from advisor.errors import InputError
from advisor.predict.profiles import Floats
from advisor.wire.power import InputAsked, InputPrediction, MostOf, Product
from advisor_models.forest import Forest, read_trees
from advisor_power.model.manifest import RETRAIN, InputManifest, TypeModel, read_input_model
from advisor_power.model.pace import held_to
from advisor_power.model.physics import COLUMNS, by_feature_w, columns, feature_matrix, parts

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
