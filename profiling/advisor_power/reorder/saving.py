"""What another order of hidden units saves, measured: the product of activations and weights."""

import math
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.errors import InputError, JobError
from advisor.wire.input_sweeps import Quantity, Verdict
from advisor_power.inputs.case import InputCase, case_of
from advisor_power.inputs.keeping import KeptInputs
from advisor_power.inputs.measuring import Asked, Step, measure_cases
from advisor_power.inputs.opening import Open
from advisor_power.inputs.reference import with_ratios
from advisor_power.inputs.result import InputPower
from advisor_power.inputs.verdicts import (
    STANDARD_ERRORS,
    Change,
    change_of,
    level_of,
    quantity_of,
)
from advisor_power.kernels.estimates import STANDARD_ERRORS_95
from advisor_power.operands.bits import Matrix
from advisor_power.operands.words import DTYPES
from advisor_power.reorder.agreement import down_weight, hidden_units
from advisor_power.reorder.layers import HiddenLayer
from advisor_power.reorder.orders import Order

LEAST_SAVING = 0.01
"""What is claimed is that much or more."""

ROUNDS, MOST_ROUNDS = 3, 9
"""Each measures both orders: more are begun while a saving that is claimed would not be sure."""

TOKENS = 4096
_ENDS = {"int8": 127.0, "fp8": 448.0}


@dataclass(frozen=True, slots=True)
class Saving:
    """The new order against the old one.

    Attributes:
        value: Part of the power that is saved; of energy above idle where the clock was held back.
        error: Its standard error.
        quantity: What was compared.
        by_clock: A lower clock may be why.
    """

    layer: str
    value: float
    error: float
    quantity: Quantity
    by_clock: bool = False

    @property
    def verdict(self) -> Verdict:
        """Confirmed from 1 % on, over four standard errors, at one clock; refuted surely below."""
        if self.value + self.half_width < LEAST_SAVING:
            return "refuted"
        sure = self.value > STANDARD_ERRORS * self.error and not self.by_clock
        return "confirmed" if sure and self.value >= LEAST_SAVING else "open"

    @property
    def half_width(self) -> float:
        """Half of the 95 % interval."""
        return STANDARD_ERRORS_95 * self.error


def activations_for(layer: HiddenLayer) -> NDArray[np.float32]:
    """Hidden units of normal random input, (tokens, hidden units)."""
    inputs = layer.ups[0].tensor.shape[1 - layer.ups[0].axis]
    x = np.random.default_rng(0).standard_normal((TOKENS, inputs), dtype=np.float32)
    return np.asarray(hidden_units(layer, {}, x), np.float32)


def check_measurable(layer: HiddenLayer, activations: NDArray[Any] | None) -> None:
    """Whether a layer can be measured, before anything is done.

    Raises:
        InputError: its type is none of products here, or activations have other hidden units.
    """
    dtype = layer.down.tensor.dtype
    if dtype not in DTYPES:
        raise InputError(
            f"{layer.name} is in {dtype}, in which no product is measured",
            fix=f"leave --measure out, or cast it to one of {', '.join(DTYPES)}",
        )
    if activations is not None and activations.shape[1] != layer.down.size:
        raise InputError(
            f"activations have {activations.shape[1]} columns, and {layer.name} has "
            f"{layer.down.size} hidden units",
            fix="give what comes into the second layer, (tokens, hidden units)",
        )


@dataclass(frozen=True, slots=True, eq=False)
class Measurable:
    """A product out of hidden units.

    Attributes:
        layer: Its name.
        activations: (tokens, hidden units).
        down: (outputs, hidden units).
        dtype: Of both, in the product.
    """

    layer: str
    activations: NDArray[Any]
    down: Matrix
    dtype: str


def measurable(layer: HiddenLayer, activations: NDArray[Any] | None) -> Measurable:
    """The product of a layer of a file.

    Args:
        layer: In its old order.
        activations: Of the user; None: of normal random input.

    Raises:
        InputError: as `check_measurable`.
    """
    check_measurable(layer, activations)
    found = activations_for(layer) if activations is None else activations
    return Measurable(layer.name, found, down_weight(layer, {}), layer.down.tensor.dtype)


def measure_saving(
    run: Open, product: Measurable, order: Order, report: Callable[[Step], object]
) -> Saving:
    """Measure both orders in turns; results are not kept, since nothing can name their data again.

    Raises:
        JobError: a case could not be measured, or the workload ended.
    """
    with tempfile.TemporaryDirectory(prefix="advisor-reorder-") as name:
        folder = Path(name)
        cases = _cases(folder, product, order)
        keep = KeptInputs(folder / "home", run.bench.conditions.gpu_uuid)

        def after_round(number: int) -> Saving:
            turned = cases if number % 2 == 0 else cases[::-1]
            asked = Asked(cases=turned, session=f"{run.name}-{number}", fresh=True)
            outcome = measure_cases(run.bench, run.filling, asked, keep, report)
            for case, error in outcome.refused.items():
                raise JobError(f"{case} could not be measured", why=str(error))
            results = with_ratios(keep.read())
            old, new = ([r for r in results if r.case == case] for case in cases)
            return saving_of(product.layer, old, new)

        found = after_round(0)
        for number in range(1, MOST_ROUNDS):
            if number >= ROUNDS and found.error <= LEAST_SAVING / STANDARD_ERRORS:
                break
            found = after_round(number)
    return found


def saving_of(layer: str, old: list[InputPower], new: list[InputPower]) -> Saving:
    """What results of both orders say, round by round: a card that gets warmer changes both.

    Raises:
        JobError: the reference between them was not measured.
    """
    quantity = quantity_of([*old, *new])
    rounds = [change for pair in zip(old, new, strict=True) if (change := _change(pair, quantity))]
    if not rounds:
        raise JobError("there is nothing to compare", fix="measure again")
    change = _mean(rounds)
    return Saving(layer, -change.value, change.error, quantity, change.by_clock)


def _change(pair: Sequence[InputPower], quantity: Quantity) -> Change | None:
    """From the old order to the new one."""
    levels = [level for result in pair if (level := level_of([result], quantity))]
    return change_of(dict(enumerate(levels)), "falls")


def _mean(changes: Sequence[Change]) -> Change:
    """With the scatter of them as its error, where that is larger than their own."""
    count = len(changes)
    within = math.hypot(*(c.error for c in changes)) / count
    between = statistics.stdev(c.value for c in changes) / math.sqrt(count) if count > 1 else 0.0
    value = statistics.fmean(c.value for c in changes)
    return Change(value, max(within, between), statistics.fmean(c.clock for c in changes))


def _cases(folder: Path, product: Measurable, order: Order) -> tuple[InputCase, InputCase]:
    """In the old and in the new order."""
    a, b, dtype = product.activations, product.down, product.dtype
    shape = len(a), len(b), b.shape[1]
    scale = f"|scale({_ENDS[dtype] / (_largest(a) or 1.0)!r})" if dtype in _ENDS else ""

    def case(name: str, columns: Order) -> InputCase:
        for side, matrix in (("a", a), ("b", b)):
            np.save(folder / f"{side}-{name}.npy", matrix[:, columns].astype(np.float32))
        first, second = (f'file("{folder}/{side}-{name}.npy")' for side in ("a", "b"))
        return case_of(f"a={first}{scale}; b={second}", shape, dtype)

    return case("old", np.arange(b.shape[1], dtype=np.int64)), case("new", order)


def _largest(matrix: NDArray[Any]) -> float:
    return float(np.abs(matrix).max())
