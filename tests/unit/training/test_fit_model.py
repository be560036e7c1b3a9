"""Measured points to a model: its files, and heads that few windows tell."""

import dataclasses
import functools
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic_pairs as made_up
import two_cards
from hypothesis import given, strategies as st
from made_up_rows import solo_points, spy, training_set
from retraining import few_trees

from advisor.core.gpu import NINE, UNCAPPED
from advisor.core.records import PairPoint
from advisor.decide.decision import Outlook, decide
from advisor.errors import InputError, ModelError, StoreError
from advisor.predict.profiles import make_profiles
from advisor.predict.sets import OptionPredictor
from advisor_advice.answers import ModelAdvice
from advisor_cli.recommend import _show as show  # pyright: ignore[reportPrivateUsage]
from advisor_models.model_predictor import ALL_HEADS, ModelPredictor
from advisor_models.registry import (
    MOST_PAIRS,
    Artefact,
    LogBounds,
    OtherGpu,
    read_artefact,
    sha256,
    write_artefact,
)
from advisor_training import learners as head_learners
from advisor_training.evaluation import (
    OTHER_GPU,
    OURS,
    Evaluation,
    leave_gpus_out,
    planned_fits,
    to_json,
)
from advisor_training.learners import (
    BY_GPU_MODEL,
    HEAD_LEARNERS,
    MEMORY_POWER_LEARNER,
    PROTOCOLS,
    Fitted,
    Predicted,
    as_predicted,
    extra_trees,
    fit,
    learners_for,
    leave_job_out,
    leave_out,
)
from advisor_training.reports import gpu_tables, page as to_html, said
from advisor_training.rows import Data, Rows, flat, make_data, make_measurements, make_rows
from advisor_training.scoring import COVERAGE, Residuals, head_errors, held, residuals_of, widening
from advisor_training.train import (
    DRAWS,
    Trained,
    TrainingSet,
    add_pairs,
    carry_over,
    fit_model,
    fits,
    forest_bytes,
    gpu_models,
    learn_other_gpu,
    make_artefact,
    make_training_set,
    trees_files,
    write_into,
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
    asked = {"power": flat(ROWS.heads["power"][..., 1:]).astype(np.float32)}
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
        write_into(tmp_path / "file", lambda folder: write_artefact(folder, made()))


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
    pairs, _ = make_measurements(points, solo_points(), full=False)
    return make_rows(pairs, make_profiles(solo_points()), ALL_HEADS)


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
    write_artefact(folder, make_artefact(made_from(), trained, datetime(2026, 1, 31, tzinfo=UTC)))
    return folder


@pytest.mark.slow
def test_the_model_that_learned_it_predicts_it_with_intervals(folder: Path) -> None:
    manifest = read_artefact(folder).manifest
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
    assert {n: v for n, v in trained.figures.items() if "memory" not in n} == two.figures
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
    held_out = leave_job_out(rows, lambda some: fit(extra_trees, some, learners))
    held_out = held_out.take(held_out.left_out == "hog")
    assert np.isnan(held_out.heads["memory_power"]).all()
    assert len(residuals_of(rows, held_out, MEMORY_POWER_LEARNER)) == 0
    assert head_errors(rows, held_out, MEMORY_POWER_LEARNER).size == 0


def test_answers_have_it_where_the_model_has(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    predictor, profiles = ModelPredictor(folder), make_profiles(solo_points())
    jobs = [profiles[name, made_up.GPU_MODEL] for name in ("climber", "sitter")]
    found = decide(Outlook(jobs, OptionPredictor(predictor)))
    half = next(option for option in found.options if option.name == "50/50")
    given = ModelAdvice(
        decision=replace(found, choice=half), manifest=predictor.manifest, warnings=(), reasons=()
    )
    told = {option.split: option.memory_power_w for option in given.to_wire(every=True).candidates}
    assert told.pop("exclusive") is None
    assert all(each and each.low < each.value < each.high for each in (told[str(s)] for s in NINE))
    show(given, ["why"])
    assert "of it the memory" in capsys.readouterr().out


MODELS = [made_up.GPU_MODEL, two_cards.OTHER_MODEL]


def data_of(*cards: tuple[two_cards.Pairs, two_cards.Solos]) -> Data:
    pairs, solos = zip(*cards, strict=True)
    return make_data([*itertools.chain(*pairs)], [*itertools.chain(*solos)])


@pytest.fixture(scope="module")
def both() -> Data:
    return data_of(two_cards.known(made_up.JOBS[:4]), two_cards.slower_memory(two_cards.JOBS[:3]))


@pytest.fixture(scope="module")
def one() -> Data:
    return data_of(two_cards.known())


@pytest.fixture(scope="module")
def ticks() -> list[None]:
    return []


@pytest.fixture(scope="module")
def by_gpu(both: Data, evaluation: Evaluation, ticks: list[None]) -> Evaluation:
    """The small evaluation, with the figures of two GPU models."""
    with few_trees():
        found = list(leave_gpus_out(both, lambda left_out, done, total: ticks.append(None)))
    return dataclasses.replace(
        evaluation,
        gpus=tuple(figures for figures, _ in found),
        gpu_curve=tuple(point for _, points in found for point in points),
    )


def test_neither_the_gpu_model_nor_the_job_is_learned_from(both: Data) -> None:
    seen: list[tuple[Rows, Rows]] = []
    for name in MODELS:
        mask = both.rows.gpu_model == name
        carried = carry_over(both.rows, mask, name, spy(seen))
        tested = both.rows.take(mask)
        assert len(carried.held_out.row) == sum(int(tested.of(job).sum()) for job in tested.jobs)
        assert set(carried.held_out.left_out.tolist()) == set(tested.jobs)
        assert all(name not in learned.gpu_model for learned, _ in seen)
        for learned, asked in seen:
            hidden = set(both.rows.jobs) - set(learned.jobs)
            assert all(hidden & {a, b} for a, b in zip(asked.job_a, asked.job_b, strict=True))
        seen.clear()


def test_by_gpu_model_both_ways(both: Data) -> None:
    seen: list[tuple[Rows, Rows]] = []
    leave_out(both.rows, spy(seen), PROTOCOLS[BY_GPU_MODEL].draws(both.rows))
    assert {frozenset(b.gpu_model): {*a.gpu_model} for a, b in seen} == {
        frozenset({name}): set(MODELS) - {name} for name in MODELS
    }


def test_pairs_are_added_one_draw_after_the_other(both: Data) -> None:
    seen: list[tuple[Rows, Rows]] = []
    mask = both.rows.gpu_model == MODELS[1]
    rest = set(both.rows.pair[~mask].tolist())
    found = list(add_pairs(both.rows, mask, spy(seen)))
    assert [(pairs, len(held_out)) for pairs, held_out in found] == [(0, 1), (2, 5), (5, 5)]
    parts = [set(learned.pair.tolist()) - rest for learned, _ in seen]
    assert [len(part) for part in parts] == [0, *[2] * DRAWS, *[5] * DRAWS]
    for part, (_, asked) in zip(parts, seen, strict=True):
        assert part.isdisjoint(asked.pair)
        assert part | set(asked.pair.tolist()) == set(both.rows.pair[mask].tolist())
    assert all(few <= many for few, many in zip(parts[1:6], parts[6:], strict=True))
    assert len({frozenset(part) for part in parts[6:]}) > 1


def test_one_gpu_model_tells_nothing_of_another(one: Data) -> None:
    seen: list[tuple[Rows, Rows]] = []
    stated = OtherGpu({"speed": 2.0, "power": 1.5}, (), MOST_PAIRS)
    assert (learn_other_gpu(one.rows, spy(seen)), seen) == (stated, [])
    assert (gpu_models(one.rows), fits(one.rows)) == ([], 0)
    assert (OTHER_GPU, OURS) not in planned_fits(one, quick=False)
    assert list(leave_gpus_out(one)) == []


def test_what_the_smaller_part_says_counts(both: Data) -> None:
    """The GPU model with most pairs is not left out, since little would be left to learn from."""
    found = learn_other_gpu(both.rows, spy([]))
    assert found.left_out == (two_cards.OTHER_MODEL,)
    assert (found.widening, found.pairs_to_par) == ({"speed": 1, "power": 1}, 0)


def test_a_wrong_learner_needs_wider_intervals_and_pairs(both: Data) -> None:
    """It is right where it learned from the GPU model, and off by a tenth where it did not."""

    def learn(rows: Rows) -> Fitted:
        known = sorted(set(rows.gpu_model.tolist()))

        def predict(asked: Rows) -> Predicted:
            off = np.where(np.isin(asked.gpu_model, known), 1.0, 1.1)
            speeds = np.column_stack([asked.speed_a, asked.speed_b])
            return as_predicted(speeds * off[:, None], asked.power_w * off)

        return predict

    found = learn_other_gpu(both.rows, learn)
    # Residuals of log 1.1 against bounds that are 1 % at least.
    needed = pytest.approx(np.log(1.1) / 0.01, abs=1e-3)
    assert (found.widening, found.pairs_to_par) == ({"speed": needed, "power": needed}, 2)


values = st.lists(st.floats(-2, 2), min_size=1, max_size=60)


@given(values=values, jobs=st.integers(1, 6), low=st.floats(-1, 0), high=st.floats(0, 1))
def test_widened_bounds_hold_what_is_promised(
    values: list[float], jobs: int, low: float, high: float
) -> None:
    residuals = Residuals(
        np.array(values),
        np.array([f"job {n % jobs}" for n in range(len(values))]),
        np.full(len(values), "other"),
        np.full(len(values), "50"),
    )
    bounds = LogBounds(min(low, -0.01), max(high, 0.01))
    factor = widening(residuals, {"50": bounds})
    assert factor >= 1
    # A hair more: what lies on the bound is within it, and a product is rounded.
    assert held(residuals, {"50": bounds.wider(factor * (1 + 1e-12))}) >= COVERAGE - 1e-9
    if factor > 1:
        assert held(residuals, {"50": bounds.wider(max(1.0, factor * (1 - 1e-9)))}) < COVERAGE


def test_share_without_an_interval() -> None:
    lonely = Residuals(np.zeros(1), np.array(["a"]), np.array(["b"]), np.array(["37.5"]))
    with pytest.raises(InputError, match="at a share whose error is known"):
        held(lonely, {"50": LogBounds(-1, 1)})


@pytest.mark.slow
def test_figures_of_each_direction(both: Data, by_gpu: Evaluation, ticks: list[None]) -> None:
    found = [(of["left_out"], of["learned_pairs"], of["pairs"]) for of in by_gpu.gpus]
    assert found == sorted([(MODELS[0], 6, 10), (MODELS[1], 10, 6)])
    added = [(p["left_out"], p["added_pairs"]) for p in by_gpu.gpu_curve]
    assert added == [(model, n) for model in sorted(MODELS) for n in (0, 2, 5)]
    assert len(ticks) == fits(both.rows) == planned_fits(both, quick=False)[OTHER_GPU, OURS]


def test_tables_page_and_json(by_gpu: Evaluation) -> None:
    first, second = gpu_tables(by_gpu)
    assert [row[0] for row in first.rows] == sorted(MODELS)
    assert len(second.rows) == len(by_gpu.gpu_curve)
    assert first.title in unescape(to_html(by_gpu))
    values = json.loads(to_json(by_gpu))
    assert set(values["gpus"][0]) == {
        "left_out", "learned_pairs", "pairs", "fractions", "errors", "held", "widening",
    }  # fmt: skip
    assert set(values["gpu_curve"][0]) == {
        "left_out", "added_pairs", "draws", "fractions", "errors", "held",
    }  # fmt: skip
    whole = dataclasses.replace(by_gpu, quick=False)
    assert f"] on the {two_cards.OTHER_MODEL} (" in [*said(whole)][-1]


def test_one_gpu_model_is_said(by_gpu: Evaluation) -> None:
    """A whole evaluation says that it could not tell; a quick one did not try."""
    none = dataclasses.replace(by_gpu, gpus=(), gpu_curve=())
    assert "A GPU model and a job that were not learned from" not in to_html(none)
    whole = [*said(dataclasses.replace(none, quick=False))]
    assert whole[-1].startswith("These pairs do not tell how good it is on another GPU model")
    assert whole[-1] not in said(none)
