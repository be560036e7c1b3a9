"""A fitted model as files: the graph that serving loads, and what stands next to it."""

import functools
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import joblib
import numpy as np
from onnx import ModelProto, compose
from skl2onnx import convert_sklearn  # pyright: ignore[reportUnknownVariableType]
from skl2onnx.common.data_types import FloatTensorType

from advisor.errors import ModelError, StoreError
from advisor.files.whole_files import PUBLIC_FILE, replace_file
from advisor.predict.features import Float32s
from advisor_models.heads import HEADS, Head
from advisor_models.manifest import MODEL, Manifest, sha256, write_manifest
from advisor_models.session import Port, Session
from advisor_models.trained_head import TrainedHead
from advisor_training.dataset.head_rows import flat
from advisor_training.dataset.rows import Rows
from advisor_training.learn.learners import Regressors

REGRESSORS = "model.joblib"
"""The regressors as scikit-learn has them, to train on and to look into: code, never served."""

LIBRARIES = ("numpy", "scikit-learn", "onnx", "skl2onnx")
"""What the graph hangs on."""

LARGEST_DIFFERENCE = 1e-5
"""Between the logarithms that the graph and scikit-learn give. The graph adds single-precision
numbers up, which differs by 1e-6; a row that takes another branch of a tree differs by far more."""


Heads: TypeAlias = Sequence[Head] | Sequence[TrainedHead]
"""What a graph predicts: names of heads and of their outputs are all that counts."""


def onnx_bytes(regressors: Regressors, heads: Heads = HEADS) -> bytes:
    """One graph of all regressors; the same regressors give the same bytes.

    An input for each head, with the head's name, shape (rows, features), single precision; an
    output for each head, shape (rows, 1).
    """
    return merged_graph({h.name: (regressors.by_head[h.name], h.output) for h in heads})


def merged_graph(regressors: Mapping[str, tuple[Any, str]]) -> bytes:
    """One graph of regressors, by the names of their inputs, each with the name of its output."""
    graphs = [_graph(regressor, name, out) for name, (regressor, out) in regressors.items()]
    graph = functools.reduce(
        lambda one, more: compose.merge_models(one, more, io_map=[], producer_name="advisor"),
        graphs,
    )
    # The libraries keep these in a set, so that their order changes with the hashes of a process.
    versions = sorted(graph.opset_import, key=lambda item: item.domain)
    del graph.opset_import[:]
    graph.opset_import.extend(versions)
    return graph.SerializeToString(deterministic=True)


def check_same(graph: bytes, regressors: Regressors, rows: Rows, heads: Heads = HEADS) -> float:
    """The largest difference between the graph and the regressors over all rows.

    Raises:
        ModelError: it is above `LARGEST_DIFFERENCE`.
    """
    asked = {head.name: flat(rows.heads[head.name].features) for head in heads}
    ports = [Port(h.name, h.output, asked[h.name].shape[1]) for h in heads]
    return check_graph(graph, ports, regressors.by_head, asked)


def check_graph(
    graph: bytes,
    ports: Sequence[Port],
    regressors: Mapping[str, Any],
    asked: Mapping[str, Float32s],
) -> float:
    """As `check_same`, of any regressors by the names of their inputs.

    Raises:
        ModelError: the difference is above `LARGEST_DIFFERENCE`.
    """
    found = Session(graph, ports)(asked)
    wanted = {name: regressors[name].predict(features) for name, features in asked.items()}
    largest = max(float(np.abs(found[name] - wanted[name]).max()) for name in asked)
    if largest > LARGEST_DIFFERENCE:
        raise ModelError(
            f"the ONNX graph differs from scikit-learn by {largest:.2g}",
            why=f"up to {LARGEST_DIFFERENCE:g} of a logarithm is rounding",
            fix="report this, with the versions of scikit-learn, skl2onnx and onnxruntime",
        )
    return largest


def write_artefact(
    folder: Path,
    regressors: Regressors,
    rows: Rows,
    manifest: Manifest,
    *,
    with_joblib: bool,
    more: Mapping[str, bytes] = MappingProxyType({}),
) -> Manifest:
    """Write a model; the manifest comes last, so that files half written are no model.

    Args:
        folder: Made when needed; other files in it stay.
        regressors: The model.
        rows: What it was fitted to; the graph is checked on them.
        manifest: All but `files`; its heads are what the graph predicts.
        with_joblib: Write the regressors, too.
        more: Other files that belong to the model, by name.

    Returns:
        The manifest as it was written.

    Raises:
        ModelError: the graph is not what scikit-learn says.
        StoreError: the files cannot be written.
    """
    contents = {MODEL: onnx_bytes(regressors, manifest.heads), **more}
    check_same(contents[MODEL], regressors, rows, manifest.heads)
    if with_joblib:
        contents[REGRESSORS] = _joblib_bytes(regressors)
    written = replace(manifest, files={name: sha256(data) for name, data in contents.items()})
    write_files(folder, contents, lambda: write_manifest(folder, written))
    if not with_joblib:
        # One of an older model would stand next to a manifest that does not know it.
        (folder / REGRESSORS).unlink(missing_ok=True)
    return written


def write_files(folder: Path, contents: Mapping[str, bytes], finish: Callable[[], None]) -> None:
    """Write the files of a model, then what makes them one.

    Args:
        folder: Made when needed; other files in it stay.
        contents: By name.
        finish: Writes the manifest.

    Raises:
        StoreError: they cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in contents.items():
            replace_file(folder / name, data, PUBLIC_FILE)
        finish()
    except OSError as error:
        raise StoreError(
            f"the model cannot be written to {folder}",
            why=error.strerror or str(error),
            fix="give another folder with --out",
        ) from error


def _graph(regressor: Any, name: str, output: str) -> ModelProto:
    """The graph of one regressor; what is inside is prefixed, so that several can be one."""
    graph: Any = convert_sklearn(
        regressor,
        name=name,
        initial_types=[(name, FloatTensorType([None, regressor.n_features_in_]))],
        final_types=[(output, FloatTensorType([None, 1]))],
    )
    return compose.add_prefix(graph, f"{name}_", rename_inputs=False, rename_outputs=False)


def _joblib_bytes(regressors: Regressors) -> bytes:
    content, by_head = io.BytesIO(), dict(regressors.by_head)
    joblib.dump(by_head, content, compress=3)  # pyright: ignore[reportUnknownMemberType]
    return content.getvalue()
