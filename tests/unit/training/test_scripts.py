"""Scripts of docs/measurements about the model."""

import itertools
import json
from pathlib import Path
from runpy import run_path
from typing import Any

import numpy as np
import pytest
import synthetic_pairs as made_up
from made_up_rows import full_solo_points

from advisor.core.objectives import DEFAULT_OBJECTIVE
from advisor_training.rows import Data, make_data

SCRIPT = run_path(str(Path(__file__).parents[3] / "docs/measurements/question.py"))
ASKED, MIN_SPEEDS, ORACLE = (SCRIPT[name] for name in ("ASKED", "MIN_SPEEDS", "ORACLE"))


@pytest.fixture(scope="module")
def found() -> list[Any]:
    pairs = itertools.combinations_with_replacement(made_up.JOBS[:4], 2)
    return list(SCRIPT["answers"](make_data(made_up.pair_points(pairs), full_solo_points())))


def test_nobody_saves_more_than_who_knows_all(found: list[Any]) -> None:
    """At any minimum speed, among those that keep it; one after the other saves nothing."""
    for least in MIN_SPEEDS:
        its = [a for a in found if a.min_speed == least]
        best = next(
            a for a in its if (a.chosen_by, a.objective) == (ORACLE, DEFAULT_OBJECTIVE)
        ).figures
        assert best.loses.value == 0
        for other in its:
            missed = other.figures.missed
            if missed is None or missed.value == 0:
                assert other.figures.saved.value <= best.saved.value + 1e-9
    exclusive = next(a for a in found if a.chosen_by == "exclusive").figures
    assert (exclusive.saved.value, exclusive.stp.value) == (0, 1)


def test_the_script_prints_a_cell_for_each_heading(found: list[Any]) -> None:
    lines = list(SCRIPT["table"]("Made-up GPU", found))
    assert len(lines) == len(found) + 3
    assert {line.count("|") for line in lines[1:]} == {len(SCRIPT["HEADINGS"]) + 1}


MODEL = Path(__file__).parents[3] / "docs/measurements/model"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return run_path(str(MODEL / "launches.py"))


@pytest.fixture(scope="module")
def launches() -> list[dict[str, Any]]:
    return json.loads((MODEL.parent / "launch-pairs.json").read_text("utf-8"))


def test_a_launch_at_safe_counts_is_compared(
    script: dict[str, Any], launches: list[dict[str, Any]]
) -> None:
    """Its power and both speeds, within bounds around what is expected."""
    predictor = script["ModelPredictor"](script["BUNDLED"])
    safe = next(o for o in launches if o["mode"] == "mps" and not o["jobs_at_unsafe_counts"])
    results = list(script["compared"](safe, predictor))
    assert [what for _, what, _, _ in results] == ["power", "speed", "speed"]
    assert results[0][3] == safe["power_w"]
    assert all(expected.low < expected.value < expected.high for _, _, expected, _ in results)


def test_wrong_results_and_launches_without_limits_are_left_out(
    script: dict[str, Any], launches: list[dict[str, Any]]
) -> None:
    predictor = script["ModelPredictor"](script["BUNDLED"])
    out = [o for o in launches if o["mode"] != "mps" or o["jobs_at_unsafe_counts"]]
    assert out
    assert all(not list(script["compared"](o, predictor)) for o in out)


PAPER = run_path(str(Path(__file__).parents[3] / "docs/measurements/paper.py"))
MADE_UP_GPU = made_up.GPU_MODEL

PAIRS = [(made_up.CLIMBER, made_up.SITTER), (made_up.HOG, made_up.CLIMBER),
         (made_up.HOG, made_up.MIDDLE), (made_up.MIDDLE, made_up.SLOW)]  # fmt: skip


@pytest.fixture(scope="module")
def data() -> Data:
    return make_data(made_up.pair_points(PAIRS), full_solo_points())


def test_percentages_are_averaged_and_the_rest_summed(data: Data) -> None:
    """Section 3.2, for a row whose jobs are known in closed form."""
    at = (data.rows.job_a == "climber") & (data.rows.job_b == "sitter") & (data.rows.share_a == 30)
    found = PAPER["paper_features"](data.rows.take(at), data)
    assert found.shape == (1, 9)
    names = [*PAPER["AVERAGED"], "tx", "rx", "rate", "slope"]
    by_name = dict(zip(names, found[0].tolist(), strict=True))
    assert by_name["sm_active_percent"] == pytest.approx((95 * 0.3 + 15 * 0.7) / 2)
    assert by_name["fp32_active_percent"] == 10
    assert (by_name["tx"], by_name["rx"]) == (20, 20)
    rates = 200 * made_up.CLIMBER.speed(30) + 900 * made_up.SITTER.speed(70)
    assert by_name["rate"] == pytest.approx(rates)
    slopes = [PAPER["slope"](data.profiles[name, MADE_UP_GPU]) for name in ("climber", "sitter")]
    assert slopes[0] == pytest.approx(2, rel=0.01), "200 steps per second over 100 %"
    assert by_name["slope"] == pytest.approx(sum(slopes))


def test_it_gives_back_the_sums_that_it_learned(data: Data) -> None:
    """Asked for rows that it has learned, full-grown trees know their sums and power."""
    nine = data.rows.take(data.rows.kind == "nine")
    found = PAPER["paper_learner"](data)(data.rows)(nine)
    np.testing.assert_allclose(
        found.speed[:, 0] * nine.solo_rate_a + found.speed[:, 1] * nine.solo_rate_b,
        nine.speed_a * nine.solo_rate_a + nine.speed_b * nine.solo_rate_b,
    )
    np.testing.assert_allclose(found.power_w, nine.power_w)
