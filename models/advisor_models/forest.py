"""The trees of a model: plain numbers in a file for each head, walked all at once.

A file has nothing but nodes, ten bytes each: those of all trees level by level, the roots first.
The children of the first node that branches stand behind all roots, the left one before the right
one, those of the next one behind these, and so on. So no file can name a node that is not there:

    np.fromfile("speed.trees", [("feature", "<i2"), ("number", "<f8")])
"""

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from advisor.errors import ModelError
from advisor.predict.features import Float32s
from advisor.predict.profiles import Floats
from advisor_models.registry import RETRAIN, trees_file

NODE: Final = np.dtype([("feature", "<i2"), ("number", "<f8")])
"""A row goes left where its feature is at most the number; of a leaf the number is the answer."""

LEAF = -1
"""In place of the feature."""

MOST_LEVELS = 500
"""Of a tree; the bundled ones have 26. More would only be there to take time."""

LARGEST = 50.0
"""Of an answer, which is the logarithm of a ratio."""


_Places: TypeAlias = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Trees:
    """The trees of one head, checked.

    Attributes:
        count: How many.
        columns: Features of a row.
        left: Place of each node's left child; of a leaf its own.
        features: Column that a node looks at.
        thresholds: A row goes right above it; of a leaf infinity, so that a row stays.
        answers: Of leaves.
    """

    count: int
    columns: int
    left: _Places
    features: _Places
    thresholds: Floats
    answers: Floats


def read_trees(name: str, data: bytes, columns: int, retrain: str = RETRAIN) -> Trees:
    """The trees of a file.

    Args:
        name: Of the head.
        data: The file.
        columns: Features of a row.
        retrain: What to do where it cannot be used.

    Raises:
        ModelError: the file has no trees for so many columns.
    """
    fault = None if data and len(data) % NODE.itemsize == 0 else "it is cut off"
    nodes = np.frombuffer(b"" if fault else data, NODE)
    if fault := fault or _fault(nodes, columns):
        raise ModelError(f"{trees_file(name)} has no trees", why=fault, fix=retrain)
    inner = nodes["feature"] != LEAF
    count = _roots(inner)
    return Trees(
        count=count,
        columns=columns,
        left=np.where(inner, count + 2 * (np.cumsum(inner) - 1), np.arange(len(nodes))),
        features=np.where(inner, nodes["feature"], 0).astype(np.intp),
        thresholds=np.where(inner, nodes["number"], np.inf),
        answers=nodes["number"].astype(np.float64),
    )


class Forest:
    """The trees of some heads, whose means are the answers; safe to share between threads.

    They are walked together: for ten splits NumPy's time is that of its calls, not of the nodes.
    """

    def __init__(self, *heads: Trees) -> None:
        begins = list(itertools.accumulate((len(trees.left) for trees in heads[:-1]), initial=0))
        self._heads = heads
        self._roots = [begin + np.arange(t.count) for begin, t in zip(begins, heads, strict=True)]
        lefts = [begin + trees.left for begin, trees in zip(begins, heads, strict=True)]
        self._left: _Places = np.concatenate(lefts)
        self._features: _Places = np.concatenate([trees.features for trees in heads])
        self._thresholds: Floats = np.concatenate([trees.thresholds for trees in heads])
        self._answers: Floats = np.concatenate([trees.answers for trees in heads])
        # The same numbers of splits are asked for again and again.
        self._starts = functools.lru_cache(maxsize=4)(self._at_the_roots)

    def __call__(self, *inputs: Float32s) -> list[list[float]]:
        """For each head the mean over its trees for each row.

        Args:
            inputs: For each head its rows, shape (n, columns).
        """
        counts = tuple(map(len, inputs))
        values = np.concatenate([rows.ravel() for rows in inputs], dtype=np.float64)
        answers = self._walk(values, *self._starts(counts))
        means: list[list[float]] = []
        end = 0
        for count, trees in zip(counts, self._heads, strict=True):
            begin, end = end, end + count * trees.count
            means.append(answers[begin:end].reshape(count, trees.count).mean(axis=1).tolist())
        return means

    def _at_the_roots(self, counts: Sequence[int]) -> tuple[_Places, _Places]:
        """Of each row and each root: the node, and where the row's values begin."""
        nodes: list[_Places] = []
        starts: list[_Places] = []
        begin = 0
        for count, trees, roots in zip(counts, self._heads, self._roots, strict=True):
            nodes.append(np.tile(roots, count))
            starts.append(begin + np.repeat(np.arange(count) * trees.columns, trees.count))
            begin += count * trees.columns
        return np.concatenate(nodes), np.concatenate(starts)

    def _walk(self, values: Floats, node: _Places, row: _Places) -> Floats:
        """The answer of each tree that begins at a node, for the row that begins at a value."""
        arrived, on_the_way = node.copy(), np.arange(len(node))
        while len(on_the_way):
            # Looking which rows have arrived takes as long as one level.
            for _ in range(6):
                above = values.take(row + self._features.take(node)) > self._thresholds.take(node)
                node = self._left.take(node) + above
            arrived[on_the_way] = node
            (moving,) = np.nonzero(self._left.take(node) != node)
            node, row, on_the_way = node[moving], row[moving], on_the_way[moving]
        return self._answers.take(arrived)


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
