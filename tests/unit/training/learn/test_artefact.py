"""A fitted model as files."""

import functools
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
import synthetic_pairs as made_up
from made_up_rows import solo_points, training_set

from advisor.core.split import NINE
from advisor.errors import ModelError, StoreError
from advisor.predict.profiles import make_profiles
from advisor_models.manifest import Manifest, read_artefact, sha256
from advisor_models.onnx_predictor import OnnxPredictor
from advisor_training.dataset.head_rows import flat
from advisor_training.described import make_manifest
from advisor_training.learn.artefact import (
    LARGEST_DIFFERENCE,
    check_same,
    onnx_bytes,
    write_artefact,
)
from advisor_training.learn.learners import Regressors, extra_trees, fit
from advisor_training.train import Trained, fit_model

pytestmark = pytest.mark.figures

MADE_FROM = training_set()
ROWS = MADE_FROM.rows


@functools.cache
def trained() -> Trained:
    """Fitted by the first test that asks, not by every process that collects this file."""
    return fit_model(ROWS)


def write(folder: Path, *, with_joblib: bool = False) -> Manifest:
    """The model in a folder."""
    manifest = make_manifest(MADE_FROM, trained(), datetime(2026, 1, 31, tzinfo=UTC))
    return write_artefact(folder, trained().regressors, ROWS, manifest, with_joblib=with_joblib)


def test_the_graph_says_what_the_trees_say() -> None:
    """All rows take the same branches in both; only rounding differs."""
    assert (
        0
        < check_same(onnx_bytes(trained().regressors), trained().regressors, ROWS)
        < LARGEST_DIFFERENCE
    )


def test_a_graph_of_other_trees_is_refused() -> None:
    """Nothing is written that predicts something else than what was evaluated."""
    other = fit(lambda: extra_trees().set_params(random_state=1), ROWS)
    with pytest.raises(ModelError, match="the ONNX graph differs from scikit-learn"):
        check_same(onnx_bytes(other), trained().regressors, ROWS)
    half = Regressors({**trained().regressors.by_head, "power": other.by_head["power"]})
    with pytest.raises(ModelError):
        check_same(onnx_bytes(half), trained().regressors, ROWS)


def test_the_same_rows_give_the_same_bytes() -> None:
    """Fitted again, in whatever order the points came."""
    assert onnx_bytes(fit(extra_trees, ROWS)) == onnx_bytes(trained().regressors)


def test_other_hashes_of_a_process_give_the_same_bytes() -> None:
    """What libraries keep in sets comes in another order in another process."""
    code = (
        "import hashlib, numpy as np\n"
        "from sklearn.ensemble import ExtraTreesRegressor as Trees\n"
        "from advisor_training.learn.artefact import onnx_bytes\n"
        "from advisor_training.learn.learners import Regressors\n"
        "x = np.arange(40, dtype=np.float32).reshape(20, 2)\n"
        "trees = Trees(2, random_state=0).fit(x, x[:, 0])\n"
        "both = Regressors({'speed': trees, 'power': trees})\n"
        "print(hashlib.sha256(onnx_bytes(both)).hexdigest())"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")  # with these the order differs, if nothing is done about it
    }
    assert len(found) == 1


def test_what_is_served_is_what_was_trained(tmp_path: Path) -> None:
    """Profiles through the written folder give what the regressors give for the rows."""
    write(tmp_path)
    profiles = make_profiles(solo_points())
    a, b = (profiles[name, made_up.GPU_MODEL] for name in ("hog", "slow"))
    served = OnnxPredictor(tmp_path).predict([a, b], NINE)
    rows = ROWS.take((ROWS.job_a == "hog") & (ROWS.job_b == "slow") & (ROWS.kind == "nine"))
    expected = trained().regressors(rows)
    speeds = [[part.speed.value for part in p.parts] for p in served]
    np.testing.assert_allclose(speeds, expected.speed, rtol=1e-5)
    np.testing.assert_allclose([p.power_w.value for p in served], expected.power_w, rtol=1e-5)


def test_every_file_is_named_with_its_hash(tmp_path: Path) -> None:
    """What stands next to the manifest can be checked before it is used."""
    written = write(tmp_path / "new" / "folder", with_joblib=True)
    artefact = read_artefact(tmp_path / "new" / "folder")
    assert artefact.manifest == written
    assert set(artefact.files) == {"model.onnx", "model.joblib"}
    for name, data in artefact.files.items():
        assert written.files[name] == sha256(data)


def test_the_trees_can_be_looked_into(tmp_path: Path) -> None:
    """The joblib file holds the two regressors of scikit-learn."""
    write(tmp_path, with_joblib=True)
    loaded: Any = joblib.load(tmp_path / "model.joblib")  # pyright: ignore[reportUnknownMemberType]
    features = flat(ROWS.heads["power"].features)
    np.testing.assert_array_equal(
        loaded["power"].predict(features), trained().regressors.by_head["power"].predict(features)
    )


def test_no_joblib_stays_from_an_older_model(tmp_path: Path) -> None:
    """A file that the manifest does not know would be of another model; other files stay."""
    write(tmp_path, with_joblib=True)
    (tmp_path / "README.md").write_text("a card")
    write(tmp_path, with_joblib=False)
    assert {path.name for path in tmp_path.iterdir()} == {
        "README.md",
        "manifest.json",
        "model.onnx",
    }


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """One line for the reader, with what to do."""
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="--out"):
        write(tmp_path / "file")
