"""Measured points to a model: its files, and heads that few windows tell."""

import functools
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic_pairs as made_up
from made_up_rows import solo_points, training_set

from advisor.core.gpu import NINE, UNCAPPED
from advisor.core.records import PairPoint
from advisor.decide.decision import Outlook, decide
from advisor.errors import ModelError, StoreError
from advisor.predict.profiles import make_profiles
from advisor.predict.sets import AnyWay
from advisor_advice.answers import ModelAdvice, to_wire
from advisor_cli.recommend import _show as show  # pyright: ignore[reportPrivateUsage]
from advisor_models.heads import KNOWN_HEADS
from advisor_models.model_predictor import ModelPredictor
from advisor_models.registry import Artefact, read_manifest, sha256, write_artefact
from advisor_training import learners as head_learners
from advisor_training.intervals import residuals_of
from advisor_training.learners import (
    HEAD_LEARNERS,
    MEMORY_POWER_LEARNER,
    extra_trees,
    fit,
    learners_for,
    leave_one_job_out,
)
from advisor_training.rows import Rows, flat, make_pairs, make_rows
from advisor_training.scoring import head_errors
from advisor_training.train import (
    Trained,
    TrainingSet,
    fit_model,
    forest_bytes,
    make_artefact,
    make_training_set,
    trees_files,
    write_model,
)

pytestmark = pytest.mark.figures

MADE_FROM = training_set()
ROWS = MADE_FROM.rows


@functools.cache
def fitted_once() -> Trained:
    """Fitted by the first test that asks, not by every process that collects this file."""
    return fit_model(ROWS)


def made() -> Artefact:
    return make_artefact(MADE_FROM, fitted_once(), datetime(2026, 1, 31, tzinfo=UTC))


@pytest.mark.slow
def test_trees_that_say_something_else_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    other: Any = fit(lambda: extra_trees().set_params(random_state=1), ROWS).by_head["power"]
    name = "advisor_training.train.forest_bytes"
    known = forest_bytes(other.regressor_)

    def always(_regressor: object) -> bytes:
        return known

    monkeypatch.setattr(name, always)
    asked = {"power": flat(ROWS.heads["power"].features)}
    trees_files({"power": other}, asked)
    with pytest.raises(ModelError, match=r"power\.trees differs from scikit-learn by"):
        trees_files({"power": fitted_once().regressors.by_head["power"]}, asked)


@pytest.mark.slow
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
    by_head = fitted_once().regressors.by_head
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


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="--out"):
        write_model(tmp_path / "file", lambda folder: write_artefact(folder, made()))


JOBS = {job.name: job for job in made_up.JOBS}
SPLITS = [*NINE, UNCAPPED]


def memory_w(point: PairPoint) -> float:
    """30 W, and 150 W for all of the bandwidth."""
    used = sum(JOBS[p.job].bandwidth * (p.rate or 0.0) / JOBS[p.job].rate for p in point.parts)
    return 30 + 150 * min(used, 1.0)


def with_memory(points: Iterable[PairPoint]) -> list[PairPoint]:
    return [replace(point, memory_power_w=memory_w(point)) for point in points]


def two_runs() -> list[PairPoint]:
    """All pairs in two runs; in the second, three windows of four have the memory's power."""
    first, second = made_up.pair_points(run="first"), made_up.pair_points(run="second")
    lacking = second[::4]
    return [*with_memory(first), *with_memory(p for p in second if p not in lacking), *lacking]


def rows_of(points: list[PairPoint]) -> Rows:
    pairs, _ = make_pairs(points, solo_points(), full=False)
    return make_rows(pairs, make_profiles(solo_points()), KNOWN_HEADS)


@functools.cache
def made_from() -> TrainingSet:
    return make_training_set(two_runs(), solo_points())


@pytest.fixture(scope="module")
def trained() -> Trained:
    """With five jobs, which are too few but for tests."""
    learners = (*HEAD_LEARNERS, MEMORY_POWER_LEARNER)
    return fit_model(made_from().rows, blind=made_from().blind, learners=learners)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, trained: Trained) -> Path:
    folder = tmp_path_factory.mktemp("memory")
    made = make_artefact(made_from(), trained, datetime(2026, 1, 31, tzinfo=UTC))
    write_artefact(folder, made)
    return folder


@pytest.mark.slow
def test_the_model_that_learned_it_predicts_it_with_intervals(folder: Path) -> None:
    manifest = read_manifest(folder)
    assert [head.name for head in manifest.heads] == ["speed", "power", "memory_power"]
    assert manifest.figures["memory_power_coverage_percent"] > 50
    predictor, profiles = ModelPredictor(folder), make_profiles(solo_points())
    a, b = (profiles[name, made_up.GPU_MODEL] for name in ("hog", "slow"))
    found = [p.memory_power_w for p in predictor.predict([a, b], SPLITS)]
    rows = made_from().rows
    rows = rows.take((rows.job_a == "hog") & (rows.job_b == "slow") & (rows.run == "first"))
    assert all(each and each.low < each.value < each.high for each in found)
    values = [each.value for each in found if each]
    np.testing.assert_allclose(values, rows.memory_power_w, rtol=0.15)


@pytest.mark.slow
def test_other_heads_say_the_same_with_and_without_it(trained: Trained) -> None:
    two = fit_model(made_from().rows, blind=made_from().blind)
    assert [learner.head.name for learner in two.learners] == ["speed", "power"]
    others = {n: v for n, v in trained.figures.items() if "memory" not in n}
    assert others == two.figures
    assert np.isfinite([*trained.figures.values()]).all()


def test_too_few_jobs_are_no_head(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = made_from().rows
    assert learners_for(rows) == HEAD_LEARNERS
    monkeypatch.setattr(head_learners, "FEWEST_JOBS", 5)
    assert learners_for(rows) == (*HEAD_LEARNERS, MEMORY_POWER_LEARNER)
    few = (rows.take(rows.run == "first"), rows.take(rows.kind != "uncapped"))
    for some in (*few, rows_of(made_up.pair_points())):
        assert learners_for(some) == HEAD_LEARNERS


@pytest.mark.slow
def test_nothing_to_learn_from_expects_nothing() -> None:
    """Leaving out the only job with a reading is no error, and no figure comes of it."""
    points = made_up.pair_points()
    read = [p for p in points if "hog" in p.jobs]
    rows = rows_of([*with_memory(read), *(p for p in points if "hog" not in p.jobs)])
    learners = [MEMORY_POWER_LEARNER, *HEAD_LEARNERS]
    held_out = leave_one_job_out(rows, lambda some: fit(extra_trees, some, learners))
    held_out = held_out.take(held_out.left_out == "hog")
    assert np.isnan(held_out.heads["memory_power"]).all()
    assert len(residuals_of(rows, held_out, MEMORY_POWER_LEARNER)) == 0
    assert head_errors(rows, held_out, MEMORY_POWER_LEARNER).size == 0


def test_answers_have_it_where_the_model_has(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    predictor, profiles = ModelPredictor(folder), make_profiles(solo_points())
    jobs = [profiles[name, made_up.GPU_MODEL] for name in ("climber", "sitter")]
    found = decide(Outlook(jobs, AnyWay(predictor)))
    half = next(option for option in found.options if option.name == "50/50")
    given = ModelAdvice(
        decision=replace(found, choice=half), manifest=predictor.manifest, warnings=(), reasons=()
    )
    told = {option.split: option.memory_power_w for option in to_wire(given, every=True).candidates}
    assert told.pop("exclusive") is None
    assert all(each and each.low < each.value < each.high for each in (told[str(s)] for s in NINE))
    show(given, ["why"])
    assert "of it the memory" in capsys.readouterr().out
