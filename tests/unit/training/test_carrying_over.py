"""A GPU model left out of training: who sees what, how much wider intervals get, the tables."""

import dataclasses
import itertools
import json
from html import unescape

import numpy as np
import pytest
import synthetic_pairs as made_up
import two_cards
from hypothesis import given
from hypothesis import strategies as st
from made_up_rows import spy
from retraining import few_trees

from advisor.errors import InputError
from advisor_models.registry import MOST_PAIRS, LogBounds, OtherGpu
from advisor_training.evaluation import (
    OTHER_GPU,
    OURS,
    Evaluation,
    leave_gpus_out,
    planned_fits,
    to_json,
)
from advisor_training.intervals import COVERAGE, Residuals, held, widening
from advisor_training.learners import BY_GPU_MODEL, PROTOCOLS, Fitted, Predicted, as_predicted
from advisor_training.reports import gpu_tables, said
from advisor_training.reports import page as to_html
from advisor_training.rows import Data, Rows, make_data
from advisor_training.train import (
    DRAWS,
    add_pairs,
    carry_over,
    fits,
    gpu_models,
    learn_other_gpu,
)

pytestmark = pytest.mark.figures

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
        found = list(leave_gpus_out(both, lambda: ticks.append(None)))
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
        assert len(carried.held_out) == sum(int(tested.of(job).sum()) for job in tested.jobs)
        assert set(carried.held_out.left_out.tolist()) == set(tested.jobs)
        assert all(name not in learned.gpu_model for learned, _ in seen)
        for learned, asked in seen:
            hidden = set(both.rows.jobs) - set(learned.jobs)
            assert all(hidden & {a, b} for a, b in zip(asked.job_a, asked.job_b, strict=True))
        seen.clear()


def test_by_gpu_model_both_ways(both: Data) -> None:
    seen: list[tuple[Rows, Rows]] = []
    PROTOCOLS[BY_GPU_MODEL].answer(both.rows, spy(seen), lambda: None)
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
    assert list(leave_gpus_out(one, lambda: None)) == []


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
    assert found.widening == {"speed": needed, "power": needed}
    assert found.pairs_to_par == 2


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
    found = [(of.left_out, of.learned_pairs, of.pairs) for of in by_gpu.gpus]
    assert found == sorted([(MODELS[0], 6, 10), (MODELS[1], 10, 6)])
    added = [(p.left_out, p.added_pairs) for p in by_gpu.gpu_curve]
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
    assert f"] on the {two_cards.OTHER_MODEL} (" in said(whole)[-1]


def test_one_gpu_model_is_said(by_gpu: Evaluation) -> None:
    """A whole evaluation says that it could not tell; a quick one did not try."""
    none = dataclasses.replace(by_gpu, gpus=(), gpu_curve=())
    assert "A GPU model and a job that were not learned from" not in to_html(none)
    whole = said(dataclasses.replace(none, quick=False))
    assert whole[-1].startswith("These pairs do not tell how good it is on another GPU model")
    assert whole[-1] not in said(none)
