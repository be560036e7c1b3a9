"""The sweeps of the paper: fifteen takeaways, each as a row of operands.

Gregersen et al., "Input-Dependent Power Usage in GPUs" (2024), section IV, figures 3 to 6. Both
matrices follow one pattern with random numbers of their own; values are drawn with a mean of 0 and
a standard deviation of 2^10, for int8 2^5, where the paper says no other. fp8, which the paper does
not have, is drawn as int8 is: e4m3 ends at 448.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from advisor_power.operands.bits import width
from advisor_power.operands.grammar import OperandPair, parse_operands

LevelValue: TypeAlias = float

_NARROW = ("int8", "fp8")

_PARTS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


@dataclass(frozen=True, slots=True)
class Sweep:
    """One experiment of the paper."""

    takeaway: int
    levels: Callable[[str], Sequence[LevelValue]]
    """By type; of bits up to all that the type has."""
    text: str
    """The operands at a level, with `{x}` for it and `{sd}` for the usual deviation."""

    def pairs(self, dtype: str) -> dict[LevelValue, OperandPair]:
        """The operands of each level."""
        sd = 32 if dtype in _NARROW else 1024
        return {x: parse_operands(self.text.format(x=f"{x:g}", sd=sd)) for x in self.levels(dtype)}


def _parts(_: str) -> Sequence[LevelValue]:
    return _PARTS


def _bits(dtype: str) -> Sequence[LevelValue]:
    return tuple(sorted({round(part * width(dtype)) for part in _PARTS}))


def _spreads(dtype: str) -> Sequence[LevelValue]:
    return (1, 2, 4, 8, 16, 32) if dtype in _NARROW else (1, 8, 32, 128, 1024, 4096)


def _means(dtype: str) -> Sequence[LevelValue]:
    return (0, 8, 16, 32, 64, 120) if dtype in _NARROW else (0, 16, 64, 256, 1024, 4096)


def _counts(_: str) -> Sequence[LevelValue]:
    return (1, 2, 8, 32, 128, 512)


SWEEPS: tuple[Sweep, ...] = (
    Sweep(1, _spreads, "normal(0,{x})"),
    Sweep(2, _means, "normal({x},1)"),
    Sweep(3, _counts, "unique({x},0,{sd})"),
    Sweep(4, _bits, "unique(1,0,{sd})|flip({x})"),
    Sweep(5, _bits, "unique(1,0,{sd})|randomize(low,{x})"),
    Sweep(6, _bits, "unique(1,0,{sd})|randomize(high,{x})"),
    Sweep(7, lambda _: (0.0,), "normal(0,{sd})"),
    Sweep(8, _parts, "normal(0,{sd})|sort(rows,{x}); align=false"),
    Sweep(9, _parts, "normal(0,{sd})|sort(rows,{x})"),
    Sweep(10, _parts, "normal(0,{sd})|sort(columns,{x})"),
    Sweep(11, _parts, "normal(0,{sd})|sort(within-rows,{x})"),
    Sweep(12, _parts, "normal(0,{sd})|sparse({x})"),
    Sweep(13, _parts, "normal(0,{sd})|sort(rows,1)|sparse({x})"),
    Sweep(14, _bits, "normal(0,{sd})|clear(low,{x})"),
    Sweep(15, _bits, "normal(0,{sd})|clear(high,{x})"),
)
"""By takeaway."""

USUAL = SWEEPS[6]
"""Normal random numbers with the usual deviation."""
