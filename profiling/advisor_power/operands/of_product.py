"""The fingerprint of a product whose matrices are filled for it."""

import threading

from advisor.errors import InputError
from advisor.wire.input_power import InputFingerprint
from advisor_power.operands.expression import OperandPair
from advisor_power.operands.fill import fill_pair
from advisor_power.operands.fingerprint import features_of, fingerprint
from advisor_power.operands.from_file import FILE
from advisor_power.operands.words import DTYPES

ONE_AT_A_TIME = threading.Lock()
"""Matrices take memory: those that somebody else asks for are filled one after the other."""


def product_fingerprint(
    pair: OperandPair, shape: tuple[int, int, int], dtype: str
) -> InputFingerprint:
    """What the matrices of a product of `shape` (m, n, k) hold.

    Args:
        pair: Pinned, if from files.
        shape: m, n, k.
        dtype: A type that products compute in.

    Raises:
        InputError: products do not compute in this type, or as `fill.fill_pair`.
    """
    if dtype not in DTYPES:
        raise InputError(
            f"products do not compute in {dtype}", fix=f"there are {', '.join(DTYPES)}"
        )
    a, b = fill_pair(pair, shape, dtype)
    features = features_of(fingerprint(a.matrix, b.matrix, dtype))
    return InputFingerprint(dtype=dtype, operands=str(pair), features=features)


def check_no_file(pair: OperandPair) -> None:
    """Refuse a file that somebody else names.

    Raises:
        InputError: an operand is from a file.
    """
    if FILE in (pair.a.source.name, pair.b.source.name):
        raise InputError(
            "a file cannot be named here",
            why="it would be one of the service's own host",
            fix="send its fingerprint to /v1/power/input: features of advisor power tensor FILE "
            "--json",
        )
