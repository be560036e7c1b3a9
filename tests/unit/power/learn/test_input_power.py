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
from advisor.wire.power import FEATURES, InputPoint
from advisor_data.known import input_points_text, read_input_points
from advisor_power.data.training import (
    METHODS,
    FittedPower,
    HeldOutInputs,
    RelativeErrors,
    errors_of,
    group_left_out,
    noise_floor,
    physics,
    physics_and_trees,
    real_left_out,
    relative_errors,
    residuals_of,
)
from advisor_training.intervals import bounds_of, held


def asked(fitted: FittedPower, tested: Sequence[InputPoint]) -> RelativeErrors:
    """Of power at the rate and the clock that were measured."""
    return relative_errors(fitted(tested), np.array([p.power_w for p in tested]))


def left_out(of: Sequence[InputPoint]) -> dict[str, HeldOutInputs]:
    return group_left_out(of, METHODS)


def power_left_out(of: Sequence[InputPoint]) -> dict[str, RelativeErrors]:
    return {name: errors_of(held_out)["power"] for name, held_out in left_out(of).items()}


def test_a_law_of_switching_is_found_and_no_baseline_can_say_it() -> None:
    found = power_left_out(points(switching))
    assert list(found) == ["model", "physics", "median", "two-metrics", "zeros"]
    assert found["physics"].mean < 0.001
    assert found["model"].mean < 0.005
    assert found["model"].p90 < 0.01
    for name in ("median", "two-metrics", "zeros"):
        assert found[name].mean > 10 * found["model"].mean
    assert {one.points for one in found.values()} == {GROUPS * LEVELS}


def test_trees_take_most_of_what_the_physics_cannot_say() -> None:
    learned, tested = points(bent, groups=60), points(bent, seed=1)
    by_trees = asked(physics_and_trees(learned), tested)
    assert by_trees.mean < 0.7 * asked(physics(learned), tested).mean


def test_at_the_limit_the_error_is_of_speed_and_nothing_measured_is_looked_at() -> None:
    of = points(switching, limit_w=400.0)
    limited = [p for p in of if p.at_limit]
    assert len(of) / 4 < len(limited) < len(of)
    found = errors_of(group_left_out(of, {"physics": physics})["physics"])
    assert (found["speed"].points, found["power"].points) == (len(limited), len(of) - len(limited))
    assert found["speed"].mean < 0.03
    # The median of the speeds at the limit is worse by far: it is not that alone.
    rates = np.array([p.flop_per_s / p.units for p in limited])
    assert found["speed"].mean < 0.3 * np.mean(np.abs(np.median(rates) / rates - 1))


def test_on_a_law_of_zeros_the_baseline_of_zeros_is_a_fair_one() -> None:
    found = power_left_out(points(zeros_alone))
    assert found["zeros"].mean < 0.5 * found["median"].mean
    assert found["model"].mean <= found["zeros"].mean


def test_types_have_laws_of_their_own() -> None:
    learned = points(switching) + points(zeros_alone, dtype="fp8")
    tested = points(switching, seed=1) + points(zeros_alone, seed=1, dtype="fp8")
    assert asked(physics(learned), tested).mean < 0.001


def test_real_tensors_are_tested_and_never_learned_from() -> None:
    real = points(switching, seed=3, groups=3, real=True)
    found = {n: e["power"] for n, e in real_left_out(points(switching) + real).items()}
    model, median = found["model"], found["median"]
    assert model.points == len(real)
    assert model.mean < 0.01 < median.mean
    # With another law in the real ones the error shows: they took no part.
    odd = points(zeros_alone, seed=3, groups=3, real=True)
    wrong = real_left_out(points(switching) + odd)["model"]["power"]
    assert wrong.mean > 0.05


def test_intervals_hold_what_they_promise_for_new_sweeps() -> None:
    noise = 0.02
    learned = points(switching, groups=16, noise=noise)
    found = left_out(learned)["model"]
    bounds = bounds_of(residuals_of(found.points, found.as_run_w))
    assert set(bounds) == {"bf16"}
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
        physics(points(switching)[:7])
    with pytest.raises(InputError, match="one group"):
        left_out(points(switching)[:8])
    with pytest.raises(InputError, match="no point of fp8"):
        physics(points(switching))(points(switching, dtype="fp8"))
    with pytest.raises(InputError, match="one is missing"):
        real_left_out(points(switching))


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
