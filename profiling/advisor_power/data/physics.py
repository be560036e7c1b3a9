"""Power above idle of a matrix product as a sum of parts that cannot be negative.

One part is always there, one for each SM that is awake, and for each operation an energy and one
for each bit that switches, is set, or is not zero. With the clock they grow as in the weights of
components: what an SM draws by its cycles and the voltage, an operation by the voltage. What the
sum leaves is learned: the logarithm of measured over physical power above idle.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from advisor.core.gpu import check_card_units
from advisor.core.records import grouped
from advisor.errors import InputError
from advisor.predict.features import rounded
from advisor.predict.profiles import Floats
from advisor.wire.power import FEATURES, InputPoint, Product
from advisor_power.components import SM_POWER_EXPONENT

_WORK_EXPONENT = SM_POWER_EXPONENT - 1  # energy of the same work ~ clock to this power
# Features that lower power: their opposite has a weight, since none can be negative.
_ENERGIES = ("operation", *FEATURES)

PARTS = (
    "always",
    f"units x clock^{SM_POWER_EXPONENT}",
    *(f"{name} x rate x clock^{_WORK_EXPONENT}" for name in _ENERGIES),
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
    saving = np.isin(FEATURES, ("a_zeros", "b_zeros", "zero_products", "sum_non_finite"))
    count = len(products)
    of_operation = np.column_stack([np.ones(count), np.where(saving, 1 - features, features)])
    tera_per_s = np.array([p.flop_per_s / 1e12 for p in products])[:, None]
    clock_ghz = np.array([p.clock_mhz / 1000 for p in products])[:, None]
    units = np.array([p.units for p in products], dtype=float)[:, None]
    by_units = units * clock_ghz**SM_POWER_EXPONENT
    by_rate = of_operation * tera_per_s * clock_ghz**_WORK_EXPONENT
    return np.column_stack([np.ones(count), by_units, by_rate])


def columns(products: Sequence[Product]) -> Floats:
    """What the learned part sees, `rounded`; shape (products, columns)."""
    others = [[*np.log(p.shape), p.units] for p in products]
    return rounded(np.column_stack([feature_matrix(products), np.array(others).reshape(-1, 4)]))


def by_feature_w(product: Product, weights: Sequence[float]) -> dict[str, float]:
    """Power of a product that each feature stands for, W."""
    watts = parts([product])[0] * np.asarray(weights)
    return dict(zip(FEATURES, map(float, watts[-len(FEATURES) :]), strict=True))


P = TypeVar("P", bound=Product)

LEAST_PART = 0.1  # of the highest clock: the power limit lowers it no further
_MOST_TIMES = 4.0  # larger or smaller may a side be than that of the nearest measured shape


@dataclass(frozen=True, slots=True, kw_only=True)
class _MeasuredCard:
    """A GPU model as it was measured.

    Attributes:
        idle_w: With a context, without work.
        power_limit_w: None: not known.
        heat_w: Least power at which something else than the power limit, such as heat, held the
            clock back; None: never.
        units: Most SMs that were measured.
    """

    gpu_model: str
    idle_w: float
    power_limit_w: float | None
    heat_w: float | None
    units: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pace:
    """How fast one shape is computed.

    Attributes:
        work_per_cycle: Operations of one SM in one cycle of its clock.
        clock_mhz: The highest one, with whatever data. With the tensor cores of all SMs busy it is
            150 MHz and more below that of a part of the SMs, far from the power limit.
    """

    gpu_model: str
    dtype: str
    shape: tuple[int, int, int]
    units: int
    work_per_cycle: float
    clock_mhz: float


@dataclass(frozen=True, slots=True)
class Known:
    """All cards and paces that were measured."""

    cards: tuple[_MeasuredCard, ...]
    paces: tuple[_Pace, ...]

    def card(self, gpu_model: str | None = None) -> _MeasuredCard:
        """The card of a GPU model; None: the only one."""
        names = [card.gpu_model for card in self.cards]
        if gpu_model is None and len(names) == 1:
            return self.cards[0]
        if gpu_model not in names:
            asked = "no GPU model was named" if gpu_model is None else f"{gpu_model} has no inputs"
            raise InputError(
                f"{asked}: there are measured ones of {', '.join(names)}",
                fix="name one of these as GPU model, or measure: advisor power input",
            )
        return next(card for card in self.cards if card.gpu_model == gpu_model)

    def product(
        self,
        dtype: str,
        shape: tuple[int, int, int],
        features: Mapping[str, float],
        *,
        units: int | None = None,
        gpu_model: str | None = None,
    ) -> tuple[Product, tuple[str, ...]]:
        """A product at its highest clock; and which of shape and units was not measured.

        Of another shape or number of SMs it runs, cycle by cycle, as the nearest that was measured.
        """
        card = self.card(gpu_model)
        of = [p for p in self.paces if p.gpu_model == card.gpu_model and p.dtype == dtype]
        if not of:
            there = sorted({p.dtype for p in self.paces if p.gpu_model == card.gpu_model})
            raise InputError(
                f"no input of {dtype} was measured on {card.gpu_model}",
                why=f"each type has units of its own on the GPU; measured are {', '.join(there)}",
                fix=f"advisor power input --dtype {dtype} --preset T12, then advisor power train",
            )
        units = card.units if units is None else units
        check_card_units(units, card.gpu_model)
        _check_shape(of, shape)

        def distance(pace: _Pace) -> tuple[float, float]:
            sides = zip(pace.shape, shape, strict=True)
            return sum(abs(math.log(a / b)) for a, b in sides), abs(math.log(pace.units / units))

        nearest = min(of, key=distance)
        product = Product(
            gpu_model=card.gpu_model,
            dtype=dtype,
            shape=shape,
            units=units,
            features=features,
            idle_w=card.idle_w,
            flop_per_s=nearest.work_per_cycle * units * nearest.clock_mhz * 1e6,
            clock_mhz=nearest.clock_mhz,
        )
        unlike = {
            "shape": shape not in {p.shape for p in of},
            "units": units not in {p.units for p in of},
        }
        return product, tuple(name for name, is_so in unlike.items() if is_so)

    def limit_w(self, gpu_model: str) -> float:
        """Power limit of a GPU model; infinite where it is not known."""
        found = self.card(gpu_model).power_limit_w
        return math.inf if found is None else found


def _check_shape(paces: Sequence[_Pace], shape: tuple[int, int, int]) -> None:
    """Whether one of the paces is of a shape that is not too far off."""
    times, nearest = min(
        (max(max(a / b, b / a) for a, b in zip(pace.shape, shape, strict=True)), pace.shape)
        for pace in paces
    )
    if times > _MOST_TIMES:
        asked, known = ("x".join(map(str, sides)) for sides in (shape, nearest))
        raise InputError(
            f"a product of {asked} is unlike all that were measured in {paces[0].dtype}",
            why=f"a side is {times:.3g} times off that of {known}: a product that waits for memory "
            "or for its launch runs and draws otherwise, which the model does not know",
            fix=f"ask for sides within {_MOST_TIMES:g} times, or measure it: advisor power input "
            f"--shape {asked}",
        )


def known_of(points: Sequence[InputPoint]) -> Known:
    """What measured points say of their cards, and how fast they were computed."""
    by_pace = grouped(points, lambda p: (p.gpu_model, p.dtype, p.shape, p.units))
    paces = [
        _Pace(
            gpu_model=gpu_model,
            dtype=dtype,
            shape=shape,
            units=units,
            work_per_cycle=float(
                np.median([p.flop_per_s / (units * p.clock_mhz * 1e6) for p in found])
            ),
            clock_mhz=max(p.clock_mhz for p in found),
        )
        for (gpu_model, dtype, shape, units), found in sorted(by_pace.items())
    ]
    models = sorted({p.gpu_model for p in points})
    cards = [_card(name, [p for p in points if p.gpu_model == name]) for name in models]
    return Known(tuple(cards), tuple(paces))


def _card(name: str, points: Sequence[InputPoint]) -> _MeasuredCard:
    limits_w = [p.power_limit_w for p in points if p.power_limit_w is not None]
    return _MeasuredCard(
        gpu_model=name,
        idle_w=float(np.median([p.idle_w for p in points])),
        power_limit_w=float(np.median(limits_w)) if limits_w else None,
        heat_w=min((p.power_w for p in points if p.throttled and not p.at_limit), default=None),
        units=max(p.units for p in points),
    )


def held_to(
    expected_w: Callable[[Sequence[P]], Floats], products: Sequence[P], limits_w: Floats
) -> list[P]:
    """The products at the highest clock up to theirs at which they stay within the limit.

    Args:
        expected_w: Power of products, which grows with their clock; shape (products,).
        products: At their highest clock.
        limits_w: Of each.
    """
    low, high = np.full(len(products), LEAST_PART), np.ones(len(products))
    over = expected_w(products) > limits_w
    if not over.any():
        return list(products)
    low[~over] = 1.0
    for _ in range(24):  # halves what is between them
        middle = (low + high) / 2
        above = expected_w(_scaled(products, middle)) > limits_w
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return _scaled(products, low)


def _scaled(products: Sequence[P], of_clock: Floats) -> list[P]:
    both = zip(products, map(float, of_clock), strict=True)
    return [
        replace(p, clock_mhz=part * p.clock_mhz, flop_per_s=part * p.flop_per_s) for p, part in both
    ]
