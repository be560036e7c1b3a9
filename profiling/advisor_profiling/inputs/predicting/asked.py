"""Fingerprints of products whose power is asked for, made without a GPU."""

import threading
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from advisor.errors import InputError
from advisor.wire.input_power import FEATURES, InputAsked, InputPredictions
from advisor_models.input_power.predictor import InputPredictor
from advisor_profiling.inputs.case import case_of
from advisor_profiling.operands.expression import OperandPair
from advisor_profiling.operands.fill import fill_pair
from advisor_profiling.operands.fingerprint import features_of, fingerprint
from advisor_profiling.operands.grammar import parse_operands
from advisor_profiling.operands.of_job import check_no_file
from advisor_profiling.operands.words import DTYPES

SENT_ELEMENTS = 1 << 24
"""Of a matrix that somebody else asks for: 4096 by 4096."""

_one_at_a_time = threading.Lock()


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
    case = case_of(asked.operands, asked.shape, _known(asked.dtype))
    a, b = fill_pair(case.pair, case.shape, case.dtype)
    found = fingerprint(a.matrix, b.matrix, case.dtype)
    return replace(asked, operands=case.operands, features=features_of(found))


def with_sent_features(asked: InputAsked) -> InputAsked:
    """As `with_features`, for what somebody else sent: no files, and no large matrices.

    One after the other, however many ask: matrices take memory.

    Raises:
        InputError: as `with_features`; it names a file, or its matrices are too large.
    """
    if asked.operands is None:
        return with_features(asked)
    _check_sent(parse_operands(asked.operands), asked.shape)
    with _one_at_a_time:
        return with_features(asked)


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


def _known(dtype: str) -> str:
    if dtype not in DTYPES:
        raise InputError(
            f"products do not compute in {dtype}", fix=f"there are {', '.join(DTYPES)}"
        )
    return dtype


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


def _check_sent(pair: OperandPair, shape: tuple[int, int, int]) -> None:
    check_no_file(pair)
    m, n, k = shape
    if max(m * k, k * n) > SENT_ELEMENTS:
        raise InputError(
            f"matrices of {m}x{n}x{k} are too large to be filled here",
            why=f"one has {SENT_ELEMENTS} elements at most",
            fix="ask for 4096x4096x4096, or send the fingerprint",
        )
