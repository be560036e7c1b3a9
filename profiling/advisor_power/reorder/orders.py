"""An order of hidden units in which neighbours along the contraction differ in fewer bits.

Greedy nearest neighbour, as for the travelling salesman: from the unit nearest to all others,
always on to the unit that is left whose column differs in fewest bits. On normal, low-rank, scaled
and sparse weights that lowered switching by more than sorting columns by their means
(docs/decisions.md).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.errors import InputError
from advisor_power.operands.bits import Matrix

Order = NDArray[np.int64]
"""Which unit of the old order comes at each place of the new one."""

MOST_PRODUCTS = 5e11
"""Of bits, to find an order: some seconds. Of wide layers that is a part of the rows."""

MOST_UNITS = 32768
"""Distances of each two: 4 GiB."""

_AT_ONCE = 64
"""Rows whose bits are numbers at the same time."""


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """An order, and what it does.

    Attributes:
        before: Bits of the weight out of hidden units that differ between neighbours along the
            contraction, as a part of all; counted, not sampled.
        after: The same in the new order.
    """

    order: Order
    before: float
    after: float

    @property
    def change(self) -> float:
        """Relative; below 0 where fewer bits switch."""
        return self.after / self.before - 1 if self.before else 0.0


def find_order(down: Matrix) -> Found:
    """An order for the columns of a weight; the old one where none is better.

    Args:
        down: (outputs, hidden units).

    Raises:
        InputError: there are too many hidden units.
    """
    bits = bits_of(down)
    outputs, units = down.shape
    if units > MOST_UNITS:
        raise InputError(
            f"{units} hidden units",
            why="distances of each two of them would not fit into memory",
            fix=f"layers of {MOST_UNITS} hidden units at most are put into another order",
        )
    rows = min(outputs, max(_AT_ONCE, int(MOST_PRODUCTS / (units**2 * _width(bits)))))
    chosen = np.arange(rows, dtype=np.int64) * outputs // rows
    order = _nearest_neighbours(distances(bits[chosen]))
    same: Order = np.arange(units, dtype=np.int64)
    before, after = switching(bits, same), switching(bits, order)
    return Found(order, before, after) if after < before else Found(same, before, before)


def bits_of(matrix: Matrix) -> NDArray[Any]:
    """The bits of numbers, which need not begin at a multiple of their size."""
    return matrix.view(np.dtype(f"u{matrix.dtype.itemsize}"))


def switching(bits: NDArray[Any], order: Order) -> float:
    """Bits that differ between neighbouring columns in an order, as a part of all."""
    count = sum(
        int(np.bitwise_count(row[:, 1:] ^ row[:, :-1]).sum(dtype=np.int64))
        for begin in range(0, len(bits), _AT_ONCE)
        for row in [bits[begin : begin + _AT_ONCE][:, order]]
    )
    return count / max(1, bits.shape[0] * (bits.shape[1] - 1) * _width(bits))


def distances(bits: NDArray[Any]) -> NDArray[np.float32]:
    """Bits that differ between each two columns, shape (columns, columns)."""
    count, places = bits.shape[1], np.arange(_width(bits), dtype=bits.dtype)
    both = np.zeros((count, count), np.float32)
    for begin in range(0, len(bits), _AT_ONCE):
        columns = bits[begin : begin + _AT_ONCE].T
        ones = (columns[:, :, None] >> places & bits.dtype.type(1)).reshape(count, -1)
        numbers = ones.astype(np.float32)
        both += numbers @ numbers.T
    ones = both.diagonal().copy()
    both *= -2
    both += ones[:, None]
    both += ones[None, :]
    return both


def _nearest_neighbours(distance: NDArray[np.float32]) -> Order:
    """Greedy; the first unit is the one nearest to all others."""
    count = len(distance)
    left = np.zeros(count, np.float32)
    order = np.empty(count, np.int64)
    at = int(distance.sum(axis=1).argmin())
    for place in range(count):
        order[place] = at
        left[at] = np.inf
        at = int((distance[at] + left).argmin())
    return order


def _width(bits: NDArray[Any]) -> int:
    return 8 * bits.dtype.itemsize
