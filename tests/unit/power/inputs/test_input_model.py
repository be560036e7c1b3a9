"""The predictor of power by data on made-up points, whose law is known."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_input_points import (
    GROUPS,
    LEVELS,
    USUAL,
    bent,
    made_up_model,
    point,
    points,
    power_w,
    references,
    switching,
    trained_on,
    zeros_alone,
)
from reading import some

from advisor.errors import InputError, ModelError
from advisor.predict.profiles import Floats
from advisor.wire.power import FEATURES, InputAsked, InputPoint, Product
from advisor_data import known
from advisor_data.known import (
    bundled_input_points,
    input_points_sha256,
    read_input_points,
)
from advisor_models.registry import MANIFEST
from advisor_power.data import predictor
from advisor_power.data.predictor import (
    COLUMNS,
    LEAST_PART,
    PARTS,
    POINTS,
    InputPredictor,
    by_feature_w,
    columns,
    held_to,
    known_of,
    parts,
)
from advisor_power.data.training import (
    METHODS,
    FittedPower,
    errors_of,
    fit_inputs,
    group_left_out,
    learnable,
    noise_floor,
    physics_alone,
    physics_and_trees,
    residuals_of,
    write_input_model,
)
from advisor_training.intervals import bounds_of, held


def error(fitted: FittedPower, tested: Sequence[InputPoint]) -> float:
    """Mean error of power at the rate and the clock that were measured."""
    return float(np.mean(np.abs(fitted(tested) / [p.power_w for p in tested] - 1)))


def left_out(of: Sequence[InputPoint], *names: str) -> dict[str, Floats]:
    return group_left_out(of, {name: METHODS[name] for name in names or METHODS})


@pytest.mark.slow
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
    assert error(physics_and_trees(learned), tested) < 0.7 * error(physics_alone(learned), tested)


def test_at_the_limit_the_error_is_of_speed_and_nothing_measured_is_looked_at() -> None:
    of = points(switching, limit_w=400.0)
    limited = [p for p in of if p.at_limit]
    assert len(of) / 4 < len(limited) < len(of)
    found = errors_of(of, left_out(of, "physics"))
    assert (found["speed_points"], found["power_points"]) == (len(limited), len(of) - len(limited))
    # The median of the speeds at the limit is worse by far: it is not that alone.
    rates = np.array([p.flop_per_s / p.units for p in limited])
    by_median = 100 * np.abs(float(np.median(rates)) / rates - 1).mean()
    assert found["physics_speed_mean_error_percent"] < min(3, 0.3 * by_median)


def test_types_have_laws_of_their_own() -> None:
    learned = points(switching) + points(zeros_alone, dtype="fp8")
    tested = points(switching, seed=1) + points(zeros_alone, seed=1, dtype="fp8")
    assert error(physics_alone(learned), tested) < 0.001


def test_real_tensors_are_tested_and_never_learned_from() -> None:
    """With another law in the real ones the error shows: they took no part."""
    real, odd = (points(law, seed=3, groups=3, real=True) for law in (switching, zeros_alone))
    found = trained_on(points(switching) + real).figures
    assert found["real_power_points"] == len(real)
    assert found["real_model_power_mean_error_percent"] < 1
    assert found["real_median_power_mean_error_percent"] > 1
    assert trained_on(points(switching) + odd).figures["real_model_power_mean_error_percent"] > 5


@pytest.mark.slow
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


# a model of power by data from points to its files and back, on made-up points


SHAPE = (4096, 4096, 4096)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of a card with a limit of 400 W."""
    made = tmp_path_factory.mktemp("model")
    made_up_model(made, limit_w=400.0)
    return made


def asked(**of: Any) -> InputAsked:
    return dataclasses.replace(
        InputAsked(features=USUAL, shape=SHAPE, dtype="bf16", units=66), **of
    )


@pytest.mark.slow
def test_the_manifest_says_what_the_model_is_made_from(folder: Path) -> None:
    manifest = InputPredictor(folder).manifest
    made_from = read_input_points(folder / POINTS)
    facts = manifest.dataset
    assert (facts.sha256, facts.cards) == (input_points_sha256(made_from), ("GPU-1",))
    assert facts.points == len(made_from) == 14 * 8 + 4
    assert (set(manifest.files), manifest.created_at) == (
        {"bf16.trees", POINTS},
        "2026-11-23T10:00:00+00:00",
    )
    assert set(manifest.figures) == {
        "coverage_percent",
        "reference_noise_percent",
        *(f"{kind}_points" for kind in ("power", "speed", "energy")),
        *(
            f"{method}_{kind}_{of}_error_percent"
            for method in ("model", "physics", "median")
            for kind in ("power", "speed", "energy")
            for of in ("mean", "p90")
        ),
    }
    assert (manifest.figures["reference_noise_percent"], set(manifest.libraries)) == (
        pytest.approx(0, abs=1e-9),
        {"scikit-learn", "numpy"},
    )


def test_below_the_limit_power_is_expected_and_at_it_speed(folder: Path) -> None:
    predictor = InputPredictor(folder)
    few = predictor.predict(asked())
    assert (few.power_w.value, few.at_limit, few.clock_mhz, few.unmeasured) == (
        pytest.approx(power_w(switching, USUAL, 66, 1900.0), rel=0.02),
        False,
        1900.0,
        (),
    )
    assert few.usual_ratio == pytest.approx(1)
    assert few.most is None
    every = predictor.predict(asked(units=None))
    assert every.units == 132
    assert every.at_limit
    assert every.power_w.value == pytest.approx(400, rel=0.001)
    assert power_w(switching, USUAL, 132, every.clock_mhz) == pytest.approx(400, rel=0.02)
    assert every.work_per_s.value < 2 * few.work_per_s.value
    for one in (few, every):
        for found in (one.power_w, one.work_per_s, one.energy_j):
            assert found.low <= found.value <= found.high
        assert one.energy_j.value == pytest.approx(
            one.power_w.value * 2 * 4096**3 / one.work_per_s.value
        )


def test_the_feature_that_does_most_is_that_of_the_law(folder: Path) -> None:
    fewer = USUAL | {"product_switching": 0.1, "a_weight": 0.3}
    found = InputPredictor(folder).predict(asked(features=fewer))
    assert some(found.most).feature == "product_switching"
    assert some(found.most).difference_w == pytest.approx(
        power_w(switching, fewer, 66, 1900.0) - power_w(switching, USUAL, 66, 1900.0), rel=0.05
    )
    assert some(found.usual_ratio) < 1


def test_what_was_never_measured_is_said(folder: Path) -> None:
    predictor = InputPredictor(folder)
    assert (
        predictor.predict(asked(shape=(2048, 1024, 16384))).unmeasured,
        predictor.predict(asked(units=50)).unmeasured,
    ) == (("shape",), ("units",))
    odd = USUAL | {"sum_non_finite": 1.0, "zero_products": 1.0, "a_weight": 1.0}
    assert predictor.predict(asked(features=odd)).unmeasured == ("fingerprint",)
    with pytest.raises(InputError, match="no input of fp8 was measured on H"):
        predictor.predict(asked(dtype="fp8"))
    with pytest.raises(InputError, match="B200 has no inputs"):
        predictor.predict(asked(gpu_model="B200"))


def test_served_without_scikit_learn_it_says_the_same(folder: Path) -> None:
    """On a law that the physics cannot say, so that the trees have their part."""
    trained = trained_on([*points(bent), *references(bent)])
    write_input_model(folder / "bent", trained)
    predictor = InputPredictor(folder / "bent")
    some = trained.points[::17]
    told = [predictor.predict(asked(features=p.features, units=p.units)) for p in some]
    assert [one.power_w.value for one in told] == pytest.approx(
        trained.model(some).tolist(), rel=1e-4
    )


@pytest.mark.slow
def test_the_order_of_points_does_not_matter(folder: Path, tmp_path: Path) -> None:
    again = [*references(limit_w=400.0), *reversed(points(limit_w=400.0))]
    assert write_input_model(tmp_path, trained_on(again)) == InputPredictor(folder).manifest


def test_a_pattern_of_nan_widens_no_interval() -> None:
    """What it draws is no matter of data that are numbers, unless there is nothing else."""
    some = [
        dataclasses.replace(p, features={**p.features, "sum_non_finite": 0.0}) for p in points()
    ]
    strange = [
        dataclasses.replace(
            p,
            group="normal|spoil(nan)",
            power_w=p.idle_w + 3 * (p.power_w - p.idle_w),
            features={**p.features, "sum_non_finite": 1.0},
        )
        for p in some[:8]
    ]
    usual = [dataclasses.replace(p, features=some[0].features) for p in strange]
    beside_nan, beside_numbers = (
        trained_on([*some, *odd]).bounds["bf16"].factors[1] for odd in (strange, usual)
    )
    assert beside_nan < 1.5 < 2 < beside_numbers
    alone = trained_on([*some[:8], *strange, *(dataclasses.replace(p, group="x") for p in strange)])
    assert alone.bounds["bf16"].factors[1] > 1


def test_types_with_too_few_points_are_left_out_and_named() -> None:
    few = points(dtype="fp8", groups=2)
    kept, left_out = learnable([*points(), *few[:9]])
    assert {p.dtype for p in kept} == {"bf16"}
    assert left_out == {"fp8 has fewer than 8 points beside each of its patterns": 9}
    with pytest.raises(InputError, match="no type has enough of the 9"):
        fit_inputs(few[:9])
    with pytest.raises(InputError, match="there are none"):
        fit_inputs([])


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"schema": 1}, "schema is 1, and this version reads 2"),
        ({"features": ["a_weight"]}, "other features"),
        ({"physics": ["always"]}, "other parts"),
        ({"columns": []}, "other columns"),
        ({"coverage": 1.0}, "coverage is 1.0"),
        ({"created_at": "soon"}, "created_at is 'soon'"),
        ({"files": {}}, r"bf16\.trees has no hash"),
        ({"files": {"bf16.trees": "x"}}, "no|not a SHA-256"),
        ({"types": []}, "no types"),
        ({"version": None}, "version"),
    ],
)
def test_a_manifest_of_something_else_is_refused(
    folder: Path, tmp_path: Path, change: dict[str, Any], what: str
) -> None:
    good = json.loads((folder / MANIFEST).read_text())
    (tmp_path / MANIFEST).write_text(json.dumps(good | change))
    with pytest.raises(ModelError, match=what) as caught:
        InputPredictor(tmp_path)
    assert "advisor power train" in str(caught.value)


@pytest.mark.parametrize("name", ["bf16.trees", POINTS])
def test_a_file_that_was_changed_is_refused(folder: Path, tmp_path: Path, name: str) -> None:
    for file in (MANIFEST, "bf16.trees", POINTS):
        (tmp_path / file).write_bytes((folder / file).read_bytes())
    with (tmp_path / name).open("ab") as file:
        file.write(b" ")
    with pytest.raises(ModelError, match="is not the file that was written"):
        InputPredictor(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(ModelError, match="cannot be read"):
        InputPredictor(tmp_path)


# physical power of a product, and the clock at which it stays within a limit


PART = st.floats(0, 1)
WEIGHTS = st.lists(st.floats(0, 2), min_size=len(PARTS), max_size=len(PARTS))


def product(features: Sequence[float], units: int = 66) -> Product:
    return Product(
        gpu_model="H",
        dtype="bf16",
        shape=(64, 32, 16),
        units=units,
        features=dict(zip(FEATURES, features, strict=True)),
        idle_w=100.0,
        flop_per_s=4e14,
        clock_mhz=1900.0,
    )


PRODUCTS = st.lists(PART, min_size=len(FEATURES), max_size=len(FEATURES)).map(product)


@given(PRODUCTS, WEIGHTS)
def test_power_is_never_negative_and_features_are_a_part_of_it(
    one: Product, weights: list[float]
) -> None:
    watts = parts([one])[0] * np.array(weights)
    assert watts.shape == (len(PARTS),)
    assert columns([one]).shape == (1, len(COLUMNS))
    assert (watts >= 0).all()
    of_features = sum(by_feature_w(one, weights).values())
    always = watts[
        [PARTS.index(n) for n in PARTS if n.startswith(("always", "units", "operation"))]
    ]
    assert of_features + always.sum() == pytest.approx(watts.sum())


@given(PRODUCTS, WEIGHTS, st.floats(110, 800))
def test_within_the_limit_at_the_highest_clock(
    one: Product, weights: list[float], limit_w: float
) -> None:
    def expected_w(products: Sequence[Product]) -> Floats:
        return 100 + parts(products) @ np.array(weights)

    (run,) = held_to(expected_w, [one], np.array([limit_w]))
    power_w, free_w = float(expected_w([run])[0]), float(expected_w([one])[0])
    assert run.flop_per_s / run.clock_mhz == pytest.approx(one.flop_per_s / one.clock_mhz)
    if free_w <= limit_w:
        assert run == one
    elif run.clock_mhz > 1.001 * LEAST_PART * one.clock_mhz:
        assert power_w == pytest.approx(limit_w, rel=1e-3)
        assert power_w <= limit_w * (1 + 1e-9)


def test_each_product_has_its_own_limit() -> None:
    def expected_w(products: Sequence[Product]) -> Floats:
        return np.array([100 + p.clock_mhz / 10 for p in products])

    some = [product([0.5] * len(FEATURES), units) for units in (1, 2, 3)]
    found = held_to(expected_w, some, np.array([200.0, 400.0, np.inf]))
    assert ([p.clock_mhz for p in found], [p.units for p in found]) == (
        pytest.approx([1000, 1900, 1900], rel=1e-5),
        [1, 2, 3],
    )


def measured(units: int, clock_mhz: float, power_w: float) -> InputPoint:
    """Of 1,000 operations in a cycle of an SM."""
    return InputPoint(
        gpu_model="H",
        gpu_uuid="GPU-1",
        measured_at="2026-11-24T10:00:00Z",
        dtype="bf16",
        shape=(64, 32, 16),
        units=units,
        expression="zeros",
        group="zeros",
        features=dict.fromkeys(FEATURES, 0.0),
        power_w=power_w,
        idle_w=100.0,
        flop_per_s=units * clock_mhz * 1e9,
        clock_mhz=clock_mhz,
        power_limit_w=700.0,
        at_limit=clock_mhz < 1980,
    )


def test_highest_clock_is_that_of_as_many_sms() -> None:
    """With tensor cores of all SMs busy it is lower, far from the power limit."""
    known = known_of([measured(34, 1980, 270), measured(132, 1725, 470), measured(132, 1380, 700)])
    for units, clock_mhz in ((34, 1980.0), (132, 1725.0)):
        found, unlike = known.product("bf16", (64, 32, 16), {}, units=units)
        assert (found.clock_mhz, unlike) == (clock_mhz, ())
        assert found.flop_per_s == pytest.approx(units * clock_mhz * 1e9)
    nearest, unlike = known.product("bf16", (64, 32, 16), {}, units=100)
    assert (nearest.clock_mhz, unlike) == (1725.0, ("units",))


@given(st.tuples(st.integers(10, 300), st.integers(5, 150), st.integers(2, 80)))
def test_a_shape_is_answered_where_no_side_is_over_four_times_off(
    shape: tuple[int, int, int],
) -> None:
    """Whichever side it is, up or down."""
    known = known_of([measured(132, 1725, 470)])
    near = all(a <= 4 * b and b <= 4 * a for a, b in zip(shape, (64, 32, 16), strict=True))
    if near:
        assert known.product("bf16", shape, {})[0].shape == shape
    else:
        with pytest.raises(InputError, match="is unlike all that were measured in bf16"):
            known.product("bf16", shape, {})


# measured inputs that come with the package, and the model that is made of them


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where the bundled files of a made-up installation lie."""

    def files(_: str) -> Path:
        return tmp_path

    monkeypatch.setattr(known.resources, "files", files)
    (tmp_path / "bundled").mkdir()
    return tmp_path / "bundled"


def test_bundled_points_are_those_of_the_model(package: Path) -> None:
    """The file next to a model can be bundled as it is, and has the digest of its manifest."""
    assert bundled_input_points() == ()
    made_up_model(package / "model", groups=3)
    (package / "inputs.jsonl").write_bytes((package / "model" / POINTS).read_bytes())
    manifest = InputPredictor(package / "model").manifest
    found = bundled_input_points()
    assert len(found) == manifest.dataset.points
    assert input_points_sha256(found) == manifest.dataset.sha256
    other = dataclasses.replace(found[0], power_w=found[0].power_w + 1)
    assert input_points_sha256([other, *found[1:]]) != manifest.dataset.sha256


def test_the_model_of_the_host_goes_before_the_bundled_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(predictor, "BUNDLED", tmp_path / "bundled")
    assert predictor.find_input_model(tmp_path / "home") is None
    for folder in ("bundled/nvidia-z", "bundled/nvidia-b", "home/input-model"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "manifest.json").touch()
        assert predictor.find_input_model(tmp_path / "home") == tmp_path / folder
        named = "home/input-model" if folder.startswith("home") else "bundled/nvidia-z"
        assert predictor.find_input_model(tmp_path / "home", "NVIDIA Z") == tmp_path / named


def test_a_model_of_another_gpu_goes_after_that_of_the_gpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What was measured here is of cards that are here; of others it says nothing."""
    monkeypatch.setattr(predictor, "BUNDLED", tmp_path / "bundled")
    home, own = tmp_path / "home", tmp_path / "home/input-model"
    made_up_model(own, groups=3, gpu_model="NVIDIA B")
    for folder in ("bundled/nvidia-a", "bundled/nvidia-b"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "manifest.json").touch()
    assert (
        predictor.find_input_model(home),
        predictor.find_input_model(home, "NVIDIA B"),
        predictor.find_input_model(home, "NVIDIA A"),
    ) == (own, own, tmp_path / "bundled/nvidia-a")
    # Of neither: the answer is that of the host, which says what was measured here.
    assert predictor.find_input_model(home, "NVIDIA C") == own
    with pytest.raises(InputError, match="NVIDIA C has no inputs: there are measured ones of"):
        predictor.load_input_model(home, "NVIDIA C").manifest.known.card("NVIDIA C")


def test_a_damaged_model_of_the_host_is_not_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whoever loads it is told what is wrong, in place of an answer by another model."""
    monkeypatch.setattr(predictor, "BUNDLED", tmp_path / "bundled")
    for folder in ("bundled/nvidia-a", "home/input-model"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "manifest.json").touch()
    with pytest.raises(ModelError, match="input-model"):
        predictor.load_input_model(tmp_path / "home", "NVIDIA A")


@pytest.mark.parametrize("gpu_model", ["NVIDIA H100 80GB HBM3", "NVIDIA H200"])
def test_bundled_models_are_of_their_gpu_and_better_than_what_is_simple(gpu_model: str) -> None:
    """Expected of data whose pattern was left out; their points are among those bundled."""
    folder = predictor.bundled_folder(gpu_model)
    manifest = InputPredictor(folder).manifest
    assert [card.gpu_model for card in manifest.known.cards] == [gpu_model]
    bundled = known.input_points_text(bundled_input_points()).splitlines()
    assert set((folder / POINTS).read_bytes().splitlines()) <= set(bundled)
    ours, median = (
        manifest.figures[f"{name}_power_mean_error_percent"] for name in ("model", "median")
    )
    assert ours <= min(3, 0.7 * median)
