"""The trees of one head: plain numbers in a file, walked all at once.

A file has nothing but nodes, ten bytes each: those of all trees level by level, the roots first.
The children of the first node that branches stand behind all roots, the left one before the right
one, those of the next one behind these, and so on. So no file can name a node that is not there:

    np.fromfile("speed.trees", [("feature", "<i2"), ("number", "<f8")])
"""

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from advisor.errors import ModelError
from advisor.predict.features import Float32s
from advisor.predict.profiles import Floats
from advisor_models.manifest import RETRAIN, trees_file

NODE: Final = np.dtype([("feature", "<i2"), ("number", "<f8")])
"""A row goes left where its feature is at most the number; of a leaf the number is the answer."""

LEAF = -1
"""In place of the feature."""

MOST_LEVELS = 500
"""Of a tree; the bundled ones have 26. More would only be there to take time."""

LARGEST = 50.0
"""Of an answer, which is the logarithm of a ratio."""

_STRIDE = 6
"""Levels between two looks at which rows have arrived: looking takes as long as one level."""

_Places: TypeAlias = npt.NDArray[np.intp]


class Forest:
    """Trees whose mean is the answer; safe to share between threads.

    Args:
        name: Of the head.
        data: The file.
        columns: Features of a row.
        retrain: What to do where it cannot be used.

    Raises:
        ModelError: the file has no trees for so many columns.
    """

    def __init__(self, name: str, data: bytes, columns: int, retrain: str = RETRAIN) -> None:
        fault = None if data and len(data) % NODE.itemsize == 0 else "it is cut off"
        nodes = np.frombuffer(b"" if fault else data, NODE)
        if fault := fault or _fault(nodes, columns):
            raise ModelError(f"{trees_file(name)} has no trees", why=fault, fix=retrain)
        inner = nodes["feature"] != LEAF
        places = np.arange(len(nodes))
        self._trees = _roots(inner)
        self._columns = columns
        # A row that has arrived stays: nothing is above infinity.
        self._left: _Places = np.where(inner, _left(inner), places)
        self._features = np.where(inner, nodes["feature"], 0).astype(np.intp)
        self._thresholds: Floats = np.where(inner, nodes["number"], np.inf)
        self._answers: Floats = nodes["number"].astype(np.float64)

    def __call__(self, rows: Float32s) -> list[float]:
        """The mean over all trees for each row.

        Args:
            rows: Shape (n, columns).
        """
        values = rows.astype(np.float64).ravel()
        node = np.broadcast_to(np.arange(self._trees), (len(rows), self._trees)).flatten()
        row = np.repeat(np.arange(len(rows)) * self._columns, self._trees)
        arrived, on_the_way = node, np.arange(len(node))
        while len(on_the_way):
            for _ in range(_STRIDE):
                above = values.take(row + self._features.take(node)) > self._thresholds.take(node)
                node = self._left.take(node) + above
            arrived[on_the_way] = node
            (moving,) = np.nonzero(self._left.take(node) != node)
            node, row, on_the_way = node[moving], row[moving], on_the_way[moving]
        return self._answers.take(arrived).reshape(len(rows), self._trees).mean(axis=1).tolist()


def _fault(nodes: npt.NDArray[np.void], columns: int) -> str | None:
    """What is wrong with nodes; None: nothing."""
    features, numbers = nodes["feature"], nodes["number"]
    inner = features != LEAF
    if features.min() < LEAF or features.max() >= columns:
        return f"its features go from {features.min()} to {features.max()}, and {columns} are known"
    if not np.isfinite(numbers).all():
        return "a number is not finite"
    if not inner.all() and np.abs(numbers[~inner]).max() > LARGEST:
        return f"an answer is beyond {LARGEST:g}, which is the logarithm of no ratio"
    return _broken(inner)


def _broken(inner: npt.NDArray[np.bool_]) -> str | None:
    """Why nodes make no trees: the levels must end, and end with the last node."""
    begin, end = 0, _roots(inner)
    for _ in range(MOST_LEVELS):
        if begin >= end:
            break
        begin, end = end, end + 2 * int(inner[begin:end].sum())
    whole = begin == end == len(inner)
    return None if whole else f"its {len(inner)} nodes are no trees of up to {MOST_LEVELS} levels"


def _roots(inner: npt.NDArray[np.bool_]) -> int:
    """How many trees: every node but the roots is one of two children."""
    return len(inner) - 2 * int(inner.sum())


def _left(inner: npt.NDArray[np.bool_]) -> _Places:
    """Place of the left child of each node that branches."""
    return _roots(inner) + 2 * (np.cumsum(inner) - 1)
