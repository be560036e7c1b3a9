"""What products are expected to draw, by their fingerprints, made without a GPU.

What somebody else asks through the service names no files, and its matrices are not large and
filled one at a time.
"""

import threading
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
from cachetools import LRUCache

from advisor.errors import InputError
from advisor.wire.power import FEATURES, InputAsked, InputPowerRequest, InputPredictions
from advisor_models.manifest import MANIFEST
from advisor_power.inputs.case import case_of
from advisor_power.model.find import NoInputModelError, find_input_model
from advisor_power.model.predictor import InputPredictor
from advisor_power.operands.fingerprint import product_fingerprint
from advisor_power.operands.from_file import FILE
from advisor_power.operands.grammar import OperandPair, parse_operands
from advisor_power.operands.of_job import SIDE

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
