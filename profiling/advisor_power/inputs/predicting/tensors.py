"""The matrices of a file with what their products are expected to draw."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from advisor.core.gpu import check_card_units
from advisor.errors import InputError
from advisor.wire.power import InputAsked, InputPrediction
from advisor_power.model.predictor import InputPredictor
from advisor_power.operands.fill import fill
from advisor_power.operands.fingerprint import features_of, fingerprint
from advisor_power.operands.grammar import parse_operands
from advisor_power.operands.in_file import Chosen, MatrixPrint
from advisor_power.operands.words import DTYPES
from advisor_power.tensors.types import Matrix

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
