"""Physical power of a product, and the clock at which it stays within a limit."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InputError
from advisor.predict.profiles import Floats
from advisor.wire.power import FEATURES, InputPoint, Product
from advisor_power.data.physics import (
    COLUMNS,
    LEAST_PART,
    PARTS,
    by_feature_w,
    columns,
    held_to,
    known_of,
    parts,
)

PART = st.floats(0, 1)
WEIGHTS = st.lists(st.floats(0, 2), min_size=len(PARTS), max_size=len(PARTS))


def product(features: Sequence[float], units: int = 66) -> Product:
    return Product(
        gpu_model="H",
        dtype="bf16",
        shape=(64, 32, 16),
        units=units,
        features=dict(zip(FEATURES, features, strict=True)),
        idle_w=100.0,
        flop_per_s=4e14,
        clock_mhz=1900.0,
    )


PRODUCTS = st.lists(PART, min_size=len(FEATURES), max_size=len(FEATURES)).map(product)


@given(PRODUCTS, WEIGHTS)
def test_power_is_never_negative_and_features_are_a_part_of_it(
    one: Product, weights: list[float]
) -> None:
    watts = parts([one])[0] * np.array(weights)
    assert watts.shape == (len(PARTS),)
    assert columns([one]).shape == (1, len(COLUMNS))
    assert (watts >= 0).all()
    of_features = sum(by_feature_w(one, weights).values())
    always = watts[
        [PARTS.index(n) for n in PARTS if n.startswith(("always", "units", "operation"))]
    ]
    assert of_features + always.sum() == pytest.approx(watts.sum())


@given(PRODUCTS, WEIGHTS, st.floats(110, 800))
def test_within_the_limit_at_the_highest_clock(
    one: Product, weights: list[float], limit_w: float
) -> None:
    def expected_w(products: Sequence[Product]) -> Floats:
        return 100 + parts(products) @ np.array(weights)

    (run,) = held_to(expected_w, [one], np.array([limit_w]))
    power_w, free_w = float(expected_w([run])[0]), float(expected_w([one])[0])
    assert run.flop_per_s / run.clock_mhz == pytest.approx(one.flop_per_s / one.clock_mhz)
    if free_w <= limit_w:
        assert run == one
    elif run.clock_mhz > 1.001 * LEAST_PART * one.clock_mhz:
        assert power_w == pytest.approx(limit_w, rel=1e-3)
        assert power_w <= limit_w * (1 + 1e-9)


def test_each_product_has_its_own_limit() -> None:
    def expected_w(products: Sequence[Product]) -> Floats:
        return np.array([100 + p.clock_mhz / 10 for p in products])

    some = [product([0.5] * len(FEATURES), units) for units in (1, 2, 3)]
    found = held_to(expected_w, some, np.array([200.0, 400.0, np.inf]))
    assert [p.clock_mhz for p in found] == pytest.approx([1000, 1900, 1900], rel=1e-5)
    assert [p.units for p in found] == [1, 2, 3]


def measured(units: int, clock_mhz: float, power_w: float) -> InputPoint:
    """Of 1,000 operations in a cycle of an SM."""
    return InputPoint(
        gpu_model="H",
        gpu_uuid="GPU-1",
        measured_at="2026-11-24T10:00:00Z",
        dtype="bf16",
        shape=(64, 32, 16),
        units=units,
        expression="zeros",
        group="zeros",
        features=dict.fromkeys(FEATURES, 0.0),
        power_w=power_w,
        idle_w=100.0,
        flop_per_s=units * clock_mhz * 1e9,
        clock_mhz=clock_mhz,
        power_limit_w=700.0,
        at_limit=clock_mhz < 1980,
    )


def test_highest_clock_is_that_of_as_many_sms() -> None:
    """With tensor cores of all SMs busy it is lower, far from the power limit."""
    known = known_of([measured(34, 1980, 270), measured(132, 1725, 470), measured(132, 1380, 700)])
    for units, clock_mhz in ((34, 1980.0), (132, 1725.0)):
        found, unlike = known.product("bf16", (64, 32, 16), {}, units=units)
        assert (found.clock_mhz, unlike) == (clock_mhz, ())
        assert found.flop_per_s == pytest.approx(units * clock_mhz * 1e9)
    nearest, unlike = known.product("bf16", (64, 32, 16), {}, units=100)
    assert (nearest.clock_mhz, unlike) == (1725.0, ("units",))


@given(st.tuples(st.integers(10, 300), st.integers(5, 150), st.integers(2, 80)))
def test_a_shape_is_answered_where_no_side_is_over_four_times_off(
    shape: tuple[int, int, int],
) -> None:
    """Whichever side it is, up or down."""
    known = known_of([measured(132, 1725, 470)])
    near = all(a <= 4 * b and b <= 4 * a for a, b in zip(shape, (64, 32, 16), strict=True))
    if near:
        assert known.product("bf16", shape, {})[0].shape == shape
    else:
        with pytest.raises(InputError, match="is unlike all that were measured in bf16"):
            known.product("bf16", shape, {})
