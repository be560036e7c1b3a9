"""A fitted model as files."""

import functools
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic_pairs as made_up
from made_up_rows import solo_points, training_set

from advisor.core.split import NINE
from advisor.errors import ModelError, StoreError
from advisor.predict.profiles import make_profiles
from advisor_models.manifest import Artefact, read_artefact, sha256, write_artefact
from advisor_models.model_predictor import ModelPredictor
from advisor_training.learners import extra_trees, fit
from advisor_training.rows import flat
from advisor_training.train import (
    Trained,
    fit_model,
    forest_bytes,
    make_artefact,
    trees_files,
    write_model,
)

pytestmark = pytest.mark.figures

MADE_FROM = training_set()
ROWS = MADE_FROM.rows


@functools.cache
def trained() -> Trained:
    """Fitted by the first test that asks, not by every process that collects this file."""
    return fit_model(ROWS)


def made() -> Artefact:
    return make_artefact(MADE_FROM, trained(), datetime(2026, 1, 31, tzinfo=UTC))


def test_trees_that_say_something_else_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written that predicts something else than what was evaluated."""
    other: Any = fit(lambda: extra_trees().set_params(random_state=1), ROWS).by_head["power"]
    name = "advisor_training.train.forest_bytes"
    known = forest_bytes(other.regressor_)

    def always(_regressor: object) -> bytes:
        return known

    monkeypatch.setattr(name, always)
    asked = {"power": flat(ROWS.heads["power"].features)}
    trees_files({"power": other}, asked)
    with pytest.raises(ModelError, match=r"power\.trees differs from scikit-learn by"):
        trees_files({"power": trained().regressors.by_head["power"]}, asked)


def test_the_same_rows_give_the_same_bytes() -> None:
    """Fitted again, in whatever order the points came."""
    again = fit(extra_trees, ROWS).by_head
    for name, fitted in trained().regressors.by_head.items():
        assert forest_bytes(again[name].regressor_) == forest_bytes(fitted.regressor_)


def test_another_processor_gives_the_same_bytes() -> None:
    """NumPy's logarithms end with another bit without AVX-512; nothing hangs on it."""
    code = (
        "import hashlib, numpy\n"
        "from made_up_rows import training_set\n"
        "from advisor_training.train import forest_bytes\n"
        "from advisor_training.learners import extra_trees\n"
        "from advisor_training.learners import fit\n"
        "found = fit(extra_trees, training_set().rows).by_head\n"
        "files = [forest_bytes(each.regressor_) for each in found.values()]\n"
        "print(*(hashlib.sha256(file).hexdigest() for file in files))"
    )
    by_head = trained().regressors.by_head
    expected = [sha256(forest_bytes(each.regressor_)) for each in by_head.values()]
    without = {"NPY_DISABLE_CPU_FEATURES": " ".join(_features_of_numpy())}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **without, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == expected


def _features_of_numpy() -> list[str]:
    """What NumPy chose for this processor over what it needs everywhere."""
    found: Any = np.show_config(mode="dicts")
    return found["SIMD Extensions"].get("found", [])


def test_what_is_served_is_what_was_trained(tmp_path: Path) -> None:
    """Profiles through the written folder give what the regressors give for the rows."""
    write_artefact(tmp_path, made())
    profiles = make_profiles(solo_points())
    a, b = (profiles[name, made_up.GPU_MODEL] for name in ("hog", "slow"))
    served = ModelPredictor(tmp_path).predict([a, b], NINE)
    rows = ROWS.take((ROWS.job_a == "hog") & (ROWS.job_b == "slow") & (ROWS.kind == "nine"))
    expected = trained().regressors(rows)
    speeds = [[part.speed.value for part in p.parts] for p in served]
    np.testing.assert_allclose(speeds, expected.speed, rtol=1e-12)
    np.testing.assert_allclose([p.power_w.value for p in served], expected.power_w, rtol=1e-12)


def test_every_file_is_named_with_its_hash(tmp_path: Path) -> None:
    """What stands next to the manifest can be checked before it is used; other files stay."""
    folder, artefact = tmp_path / "new" / "folder", made()
    folder.mkdir(parents=True)
    (folder / "README.md").write_text("a card")
    write_model(folder, lambda folder: write_artefact(folder, artefact))
    assert read_artefact(folder) == artefact
    assert set(artefact.files) == {"speed.trees", "power.trees"}
    for name, data in artefact.files.items():
        assert artefact.manifest.files[name] == sha256(data)
    names = {"README.md", "manifest.json", "speed.trees", "power.trees"}
    assert {path.name for path in folder.iterdir()} == names


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="--out"):
        write_model(tmp_path / "file", lambda folder: write_artefact(folder, made()))
