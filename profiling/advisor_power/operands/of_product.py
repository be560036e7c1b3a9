"""The fingerprint of a product whose matrices are filled for it."""

from advisor.errors import InputError
from advisor.wire.input_power import InputFingerprint
from advisor_power.operands.fill import fill_pair
from advisor_power.operands.fingerprint import features_of, fingerprint
from advisor_power.operands.grammar import OperandPair
from advisor_power.operands.words import DTYPES


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
