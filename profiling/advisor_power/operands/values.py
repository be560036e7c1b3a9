"""Values before they are rounded to a type: where they come from and how they are arranged."""

import functools
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from advisor.predict.features import Float32s

Shape: TypeAlias = tuple[int, int]


def _normal(random: np.random.Generator, shape: Shape, mean: float, sd: float) -> Float32s:
    drawn = random.standard_normal(shape, dtype=np.float32)
    with np.errstate(over="ignore"):
        return drawn * np.float32(sd) + np.float32(mean)


def _uniform(random: np.random.Generator, shape: Shape, low: float, high: float) -> Float32s:
    return (low + random.random(shape, dtype=np.float32) * (high - low)).astype(np.float32)


def _unique(
    random: np.random.Generator, shape: Shape, n: float, mean: float, sd: float
) -> Float32s:
    return _normal(random, (1, int(n)), mean, sd)[0][random.integers(0, int(n), shape)]


def _constant(_: np.random.Generator, shape: Shape, value: float) -> Float32s:
    return np.full(shape, value, dtype=np.float32)


def _sort(_: np.random.Generator, values: Float32s, order: str, fraction: float) -> Float32s:
    """The lowest part of all values comes first, in order; the others keep theirs."""
    if order == "columns":
        return _sort(_, values.T, "rows", fraction).T
    lines = values if order == "within-rows" else values.reshape(1, -1)
    count = int(fraction * lines.shape[1])
    ranks = np.argsort(lines, axis=1, kind="stable")
    rest = np.sort(ranks[:, count:], axis=1)
    taken = np.concatenate([ranks[:, :count], rest], axis=1)
    return np.take_along_axis(lines, taken, axis=1).reshape(values.shape)


def _spoil(random: np.random.Generator, values: Float32s, to: str, fraction: float) -> Float32s:
    return _replaced(random, values, fraction, float(to))


def _replaced(
    random: np.random.Generator, values: Float32s, fraction: float, value: float
) -> Float32s:
    chosen = random.permutation(values.size)[: round(fraction * values.size)]
    flat = values.ravel().copy()
    flat[chosen] = value
    return flat.reshape(values.shape)


def _prune(_: np.random.Generator, values: Float32s, ratio: str) -> Float32s:
    """In each group of m along a row all but the n largest become 0, as for sparse tensor cores."""
    kept, of = map(int, ratio.split(":"))
    groups = values.reshape(-1, of)
    smallest = np.argsort(np.abs(groups), axis=1, kind="stable")[:, : of - kept]
    pruned = groups.copy()
    np.put_along_axis(pruned, smallest, np.float32(0), axis=1)
    return pruned.reshape(values.shape)


def _permute(_: np.random.Generator, values: Float32s, lines: str, key: float) -> Float32s:
    axis = 0 if lines == "rows" else 1
    order = np.random.default_rng(int(key)).permutation(values.shape[axis])
    return np.take(values, order, axis=axis)


def _scale(_: np.random.Generator, values: Float32s, factor: float) -> Float32s:
    with np.errstate(over="ignore", invalid="ignore"):
        return values * np.float32(factor)


def _shift(_: np.random.Generator, values: Float32s, by: float) -> Float32s:
    with np.errstate(over="ignore"):
        return values + np.float32(by)


SOURCES: dict[str, Callable[..., Float32s]] = {
    "normal": _normal,
    "uniform": _uniform,
    "unique": _unique,
    "constant": _constant,
    "zeros": functools.partial(_constant, value=0.0),
    "ones": functools.partial(_constant, value=1.0),
}
"""By name: (random, shape, arguments) -> values."""

ARRANGED: dict[str, Callable[..., Float32s]] = {
    "sort": _sort,
    "sparse": functools.partial(_replaced, value=0.0),
    "spoil": _spoil,
    "prune": _prune,
    "scale": _scale,
    "shift": _shift,
    "permute": _permute,
}
"""By name: (random, values, arguments) -> values."""
