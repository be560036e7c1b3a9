"""Power above idle of a matrix product as a sum of parts that cannot be negative.

One part is always there, one for each SM that is awake, and for each operation an energy and one
for each bit that switches, is set, or is not zero. With the clock they grow as in the weights of
components: what an SM draws by its cycles and the voltage, an operation by the voltage. What the
sum leaves is learned: the logarithm of measured over physical power above idle.
"""

from collections.abc import Sequence

import numpy as np

from advisor.predict.features import rounded
from advisor.predict.profiles import Floats
from advisor.wire.power import FEATURES, Product
from advisor_power.components.activity import SM_POWER_EXPONENT

WORK_EXPONENT = SM_POWER_EXPONENT - 1
"""The energy of the same work grows with this power of the clock."""

SAVING = ("a_zeros", "b_zeros", "zero_products", "sum_non_finite")
"""Features that lower power: their opposite has a weight, since none can be negative."""

_ENERGIES = ("operation", *FEATURES)

PARTS = (
    "always",
    f"units x clock^{SM_POWER_EXPONENT}",
    *(f"{name} x rate x clock^{WORK_EXPONENT}" for name in _ENERGIES),
)
"""What each weight is of."""

COLUMNS = (*FEATURES, "log_m", "log_n", "log_k", "units")
"""What the learned part sees. Not the clock: at the power limit that is what is asked for."""


def feature_matrix(products: Sequence[Product]) -> Floats:
    """Fingerprints, shape (products, features)."""
    return np.array([[p.features[name] for name in FEATURES] for p in products]).reshape(
        len(products), len(FEATURES)
    )


def parts(products: Sequence[Product]) -> Floats:
    """What each weight is multiplied with, W at weight 1; shape (products, parts)."""
    features = feature_matrix(products)
    saving = np.isin(FEATURES, SAVING)
    count = len(products)
    of_operation = np.column_stack([np.ones(count), np.where(saving, 1 - features, features)])
    tera_per_s = np.array([p.flop_per_s / 1e12 for p in products])[:, None]
    clock_ghz = np.array([p.clock_mhz / 1000 for p in products])[:, None]
    units = np.array([p.units for p in products], dtype=float)[:, None]
    by_units = units * clock_ghz**SM_POWER_EXPONENT
    by_rate = of_operation * tera_per_s * clock_ghz**WORK_EXPONENT
    return np.column_stack([np.ones(count), by_units, by_rate])


def columns(products: Sequence[Product]) -> Floats:
    """What the learned part sees, `rounded`; shape (products, columns)."""
    others = [[*np.log(p.shape), p.units] for p in products]
    return rounded(np.column_stack([feature_matrix(products), np.array(others).reshape(-1, 4)]))


def by_feature_w(product: Product, weights: Sequence[float]) -> dict[str, float]:
    """Power of a product that each feature stands for, W."""
    watts = parts([product])[0] * np.asarray(weights)
    return dict(zip(FEATURES, map(float, watts[-len(FEATURES) :]), strict=True))
