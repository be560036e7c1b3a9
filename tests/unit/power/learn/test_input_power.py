"""The predictor of power by data on made-up points, whose law is known."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_up_input_points import (
    GROUPS,
    LEVELS,
    bent,
    point,
    points,
    switching,
    zeros_alone,
)

from advisor.errors import InputError
from advisor.predict.profiles import Floats
from advisor.wire.power import FEATURES, InputPoint
from advisor_data.known import input_points_text, read_input_points
from advisor_power.data.training import (
    METHODS,
    FittedPower,
    errors_of,
    fit_inputs,
    group_left_out,
    noise_floor,
    physics_alone,
    physics_and_trees,
    residuals_of,
)
from advisor_training.intervals import bounds_of, held


def error(fitted: FittedPower, tested: Sequence[InputPoint]) -> float:
    """Mean error of power at the rate and the clock that were measured."""
    return float(np.mean(np.abs(fitted(tested) / [p.power_w for p in tested] - 1)))


def left_out(of: Sequence[InputPoint], *names: str) -> dict[str, Floats]:
    return group_left_out(of, {name: METHODS[name] for name in names or METHODS})


def test_a_law_of_switching_is_found_and_no_baseline_can_say_it() -> None:
    of = points(switching)
    found = errors_of(of, left_out(of))
    assert found["physics_power_mean_error_percent"] < 0.1
    assert found["model_power_mean_error_percent"] < 0.5
    assert found["model_power_p90_error_percent"] < 1
    assert found["median_power_mean_error_percent"] > 5
    assert found["power_points"] == found["energy_points"] == GROUPS * LEVELS
    assert "speed_points" not in found


def test_trees_take_most_of_what_the_physics_cannot_say() -> None:
    learned, tested = points(bent, groups=60), points(bent, seed=1)
    by_trees = error(physics_and_trees(learned), tested)
    assert by_trees < 0.7 * error(physics_alone(learned), tested)


def test_at_the_limit_the_error_is_of_speed_and_nothing_measured_is_looked_at() -> None:
    of = points(switching, limit_w=400.0)
    limited = [p for p in of if p.at_limit]
    assert len(of) / 4 < len(limited) < len(of)
    found = errors_of(of, left_out(of, "physics"))
    assert (found["speed_points"], found["power_points"]) == (len(limited), len(of) - len(limited))
    # The median of the speeds at the limit is worse by far: it is not that alone.
    rates = np.array([p.flop_per_s / p.units for p in limited])
    by_median = 100 * np.mean(np.abs(np.median(rates) / rates - 1))
    assert found["physics_speed_mean_error_percent"] < min(3, 0.3 * by_median)


def test_types_have_laws_of_their_own() -> None:
    learned = points(switching) + points(zeros_alone, dtype="fp8")
    tested = points(switching, seed=1) + points(zeros_alone, seed=1, dtype="fp8")
    assert error(physics_alone(learned), tested) < 0.001


def test_real_tensors_are_tested_and_never_learned_from() -> None:
    """With another law in the real ones the error shows: they took no part."""
    real, odd = (points(law, seed=3, groups=3, real=True) for law in (switching, zeros_alone))
    found = fit_inputs(points(switching) + real).figures
    assert found["real_power_points"] == len(real)
    assert found["real_model_power_mean_error_percent"] < 1
    assert found["real_median_power_mean_error_percent"] > 1
    wrong = fit_inputs(points(switching) + odd).figures
    assert wrong["real_model_power_mean_error_percent"] > 5


def test_intervals_hold_what_they_promise_for_new_sweeps() -> None:
    noise = 0.02
    learned = points(switching, groups=16, noise=noise)
    (as_run_w, _, _) = left_out(learned, "model")["model"]
    bounds = bounds_of(residuals_of(learned, as_run_w))
    assert -0.1 < bounds["bf16"].low < 0 < bounds["bf16"].high < 0.1
    fresh = points(switching, seed=7, groups=40, noise=noise)
    residuals = residuals_of(fresh, physics_and_trees(learned)(fresh))
    assert 0.85 < held(residuals, bounds) <= 1


def test_noise_of_the_reference_is_the_floor() -> None:
    assert noise_floor(points(switching)) is None
    features = points(switching)[0].features
    drawn = np.exp(0.02 * np.random.default_rng(0).standard_normal(200))
    one = point(dict(features), switching, group="normal", is_reference=True)
    repeated = [dataclasses.replace(one, power_w=one.idle_w + 300 * float(s)) for s in drawn]
    # Of a normal distribution the mean distance is 0.8 of the deviation.
    assert noise_floor(repeated) == pytest.approx(0.016, rel=0.25)


@pytest.mark.parametrize("name", METHODS)
def test_no_method_looks_at_the_power_that_it_is_asked_for(name: str) -> None:
    fitted = METHODS[name](points(switching))
    tested = points(switching, seed=2)[:5]
    lied = [dataclasses.replace(p, power_w=1e6, reference_w=1.0) for p in tested]
    assert fitted(tested) == pytest.approx(fitted(lied))


def test_too_few_points_groups_or_cards_are_refused() -> None:
    with pytest.raises(InputError, match="7 points"):
        physics_alone(points(switching)[:7])
    with pytest.raises(InputError, match="one group"):
        left_out(points(switching)[:8])
    with pytest.raises(InputError, match="no point of fp8"):
        physics_alone(points(switching))(points(switching, dtype="fp8"))


def test_points_come_back_from_their_file_in_one_order(tmp_path: Path) -> None:
    of = points(switching)[:3]
    path = tmp_path / "points.jsonl"
    path.write_bytes(input_points_text(of) + b"\n")
    assert sorted(map(repr, read_input_points(path))) == sorted(map(repr, of))
    assert input_points_text(reversed(of)) == input_points_text(of)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"power_w": 90.0}, "power_w is 90 and idle_w 110"),
        ({"clock_mhz": 0.0}, "clock_mhz is 0"),
        ({"shape": [0, 1, 1]}, "shape is"),
        ({"features": {}}, "missing or unknown"),
        ({"features": dict.fromkeys(FEATURES, 1.5)}, "a_weight is 1.5"),
        ({"watts": 3}, "watts"),
        ({"power_w": "400"}, "power_w"),
    ],
)
def test_a_line_that_is_no_point_is_named(
    tmp_path: Path, change: dict[str, Any], what: str
) -> None:
    good = dataclasses.asdict(points(switching)[0])
    path = tmp_path / "points.jsonl"
    path.write_text(f"{json.dumps(good)}\n{json.dumps(good | change)}\n")
    with pytest.raises(InputError, match=what) as caught:
        read_input_points(path)
    assert "line 2" in str(caught.value)
