"""A fitted model as files: the trees that serving walks, and what stands next to them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from advisor.errors import ModelError, StoreError
from advisor.predict.features import Float32s
from advisor_models.forest import LEAF, NODE, Forest, read_trees
from advisor_models.manifest import trees_file

LIBRARIES = ("numpy", "scikit-learn")
"""What the trees hang on."""

LARGEST_DIFFERENCE = 1e-12
"""Between the logarithms of the file and of scikit-learn, which adds up in another order."""


def trees_files(fitted: Mapping[str, Any], asked: Mapping[str, Float32s]) -> dict[str, bytes]:
    """The trees of all heads by name of their file, which say on rows what scikit-learn says.

    `fitted` are the estimators of the heads.

    Raises:
        ModelError: it does not.
    """
    regressors = {name: estimator.regressor_ for name, estimator in fitted.items()}
    found = {name: forest_bytes(regressor) for name, regressor in regressors.items()}
    for name, data in found.items():
        _check_same(name, data, regressors[name], asked[name])
    return {trees_file(name): data for name, data in found.items()}


def forest_bytes(regressor: Any) -> bytes:
    """The trees of a regressor, as `advisor_models.forest` has them."""
    trees = [one.tree_ for one in regressor.estimators_]
    roots = np.cumsum([0, *(tree.node_count for tree in trees[:-1])])
    left, right = (
        np.concatenate(
            [getattr(tree, side) + root for tree, root in zip(trees, roots, strict=True)]
        )
        for side in ("children_left", "children_right")
    )
    leaf = np.concatenate([tree.children_left for tree in trees]) < 0
    nodes = np.empty(len(leaf), NODE)
    nodes["feature"] = np.where(leaf, LEAF, np.concatenate([tree.feature for tree in trees]))
    answers = np.concatenate([tree.value[:, 0, 0] for tree in trees])
    nodes["number"] = np.where(leaf, answers, np.concatenate([tree.threshold for tree in trees]))
    levels = [roots]
    while len(inner := levels[-1][~leaf[levels[-1]]]):
        levels.append(np.column_stack([left[inner], right[inner]]).ravel())
    return nodes[np.concatenate(levels)].tobytes()


def _check_same(name: str, data: bytes, regressor: Any, asked: Float32s) -> float:
    """The largest difference between a file of trees and the regressor over all rows.

    Raises:
        ModelError: it is above `LARGEST_DIFFERENCE`.
    """
    (found,) = Forest(read_trees(name, data, asked.shape[1]))(asked)
    largest = float(np.abs(found - regressor.predict(asked)).max())
    if largest > LARGEST_DIFFERENCE:
        raise ModelError(
            f"{trees_file(name)} differs from scikit-learn by {largest:.2g}",
            why=f"up to {LARGEST_DIFFERENCE:g} of a logarithm is rounding",
            fix="report this, with the version of scikit-learn",
        )
    return largest


def write_model(folder: Path, write: Callable[[Path], None]) -> None:
    """Make a folder and write a model into it.

    Raises:
        StoreError: it cannot be written.
    """
    with StoreError.instead_of(
        OSError, f"the model cannot be written to {folder}", fix="give another folder with --out"
    ):
        folder.mkdir(parents=True, exist_ok=True)
        write(folder)
