"""Fingerprints of products whose power is asked for, made without a GPU."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from advisor.errors import InputError
from advisor.wire.input_power import FEATURES, InputAsked, InputPredictions
from advisor_power.inputs.case import case_of
from advisor_power.model.predictor import InputPredictor
from advisor_power.operands.fingerprint import product_fingerprint


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
