"""The predictor of power by data on made-up points, whose law is known."""

import dataclasses
import io
import json
import os
from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, strategies as st
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
from made_up_inputs import CONDITIONS, OUTPUTS, SMALL, MadeUpBench, case, here_filling, result
from reading import some
from workload_scripts import load

from advisor.core.job import InputData, Job
from advisor.errors import AdvisorError, InputError, ModelError
from advisor.formats.wire import RecordLines, read
from advisor.predict.profiles import Floats
from advisor.wire.power import FEATURES, InputFingerprint, InputPoint, InputQuery, Product
from advisor_cli.power.input import note_lines
from advisor_data import bundled
from advisor_data.bundled import (
    bundled_input_points,
    input_points_sha256,
    input_points_text,
    read_input_points,
)
from advisor_models.registry import MANIFEST
from advisor_power.data import predictor, with_fingerprint
from advisor_power.data.measuring import (
    REFERENCE_EVERY,
    InputCase,
    InputPower,
    InputRun,
    Matrices,
    case_of,
    fill_case,
    filled,
    input_lines,
    kept_inputs,
    measure_cases,
    newest_of,
    parse_shape,
    read_kept,
    reference_for,
    with_ratios,
    with_references,
)
from advisor_power.data.operands import (
    STORAGE,
    SWEEPS,
    Fingerprint,
    fill_pair,
    fingerprint,
    parse_operands,
)
from advisor_power.data.predictor import (
    COLUMNS,
    LEAST_PART,
    PARTS,
    POINTS,
    InputPredictor,
    by_feature_w,
    columns,
    evened,
    held_to,
    measured_cards,
    parts,
    with_features,
    with_sent_features,
)
from advisor_power.data.training import (
    METHODS,
    FittedPower,
    errors_of,
    fit_inputs,
    group_left_out,
    learnable,
    noise_floor,
    pattern_of,
    physics_alone,
    physics_and_trees,
    points_of,
    residuals_of,
    write_input_model,
)
from advisor_profiling.window import Step
from advisor_training.scoring import bounds_of, held


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
    assert 0.85 < held(residuals_of(fresh, physics_and_trees(learned)(fresh)), bounds) <= 1


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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of a card with a limit of 400 W."""
    made = tmp_path_factory.mktemp("model")
    made_up_model(made, limit_w=400.0)
    return made


def asked(**of: Any) -> InputQuery:
    return dataclasses.replace(
        InputQuery(features=USUAL, shape=(4096, 4096, 4096), dtype="bf16", units=66), **of
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
    assert (few.usual_ratio, few.most) == (pytest.approx(1), None)
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
    some = [replace(p, features=evened(p.features)) for p in trained.points[::17]]
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
    for left, words in ((few[:9], "no type has enough of the 9"), ([], "there are none")):
        with pytest.raises(InputError, match=words):
            fit_inputs(left)


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


PRODUCTS = st.lists(st.floats(0, 1), min_size=len(FEATURES), max_size=len(FEATURES)).map(product)


@given(PRODUCTS, WEIGHTS)
def test_power_is_never_negative_and_features_are_a_part_of_it(
    one: Product, weights: list[float]
) -> None:
    watts = parts([one])[0] * np.array(weights)
    assert (watts.shape, columns([one]).shape) == ((len(PARTS),), (1, len(COLUMNS)))
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
    known = measured_cards(
        [measured(34, 1980, 270), measured(132, 1725, 470), measured(132, 1380, 700)]
    )
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
    known = measured_cards([measured(132, 1725, 470)])
    if all(a <= 4 * b and b <= 4 * a for a, b in zip(shape, (64, 32, 16), strict=True)):
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

    monkeypatch.setattr(bundled.resources, "files", files)
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
    # A damaged one, such as this, is told, and no other model answers in its place.
    with pytest.raises(ModelError, match="input-model"):
        predictor.load_input_model(tmp_path / "home", "NVIDIA Z")


def test_a_model_of_another_gpu_goes_after_that_of_the_gpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What was measured here is of cards that are here; of others it says nothing."""
    monkeypatch.setattr(predictor, "BUNDLED", tmp_path / "bundled")
    home, own = tmp_path / "home", tmp_path / "home/input-model"
    made_up_model(own, groups=3, gpu_model="NVIDIA B")
    for gpu_model in ("NVIDIA A1", "NVIDIA B"):
        made_up_model(tmp_path / "bundled" / gpu_model, groups=3, gpu_model=gpu_model)
    assert (
        predictor.find_input_model(home),
        predictor.find_input_model(home, "NVIDIA B"),
        predictor.find_input_model(home, "a1"),
    ) == (own, own, tmp_path / "bundled/NVIDIA A1")
    for wanted, why in (
        ("NVIDIA C", "C has no inputs: there are measured ones of NVIDIA B, NVIDIA A1"),
        ("nvidia", "nvidia is a part of several names: NVIDIA A1, NVIDIA B"),
    ):
        with pytest.raises(InputError, match=why):
            predictor.load_input_model(home, wanted)


@pytest.mark.parametrize("gpu_model", ["NVIDIA H100 80GB HBM3", "NVIDIA H200"])
def test_bundled_models_are_of_their_gpu_and_better_than_what_is_simple(gpu_model: str) -> None:
    """Expected of data whose pattern was left out; their points are among those bundled."""
    folder = predictor.find_input_model(Path("none"), gpu_model)
    assert folder
    manifest = InputPredictor(folder).manifest
    assert [card.gpu_model for card in manifest.known.cards] == [gpu_model]
    lines = bundled.input_points_text(bundled_input_points()).splitlines()
    assert set((folder / POINTS).read_bytes().splitlines()) <= set(lines)
    ours, median = (
        manifest.figures[f"{name}_power_mean_error_percent"] for name in ("model", "median")
    )
    assert ours <= min(3, 0.7 * median)


REFERENCE = reference_for(SMALL, "bf16")
CASES = [case(f"constant({n})") for n in range(20)]


def run(
    folder: Path, bench: MadeUpBench, cases: list[InputCase]
) -> tuple[dict[InputCase, AdvisorError], RecordLines[InputPower], list[Step]]:
    (folder / "filled").mkdir(exist_ok=True)
    keep, steps = input_lines(folder / "home", "GPU-1"), list[Step]()
    asked = InputRun(
        name="one",
        bench=cast("Any", bench),
        filling=here_filling(folder / "filled"),
        keep=keep,
    )
    refused = measure_cases(asked, cases, steps.append)
    assert not list((folder / "filled").iterdir())
    return refused, keep, steps


# order


@given(st.integers(1, 40))
def test_each_case_stands_between_references(count: int) -> None:
    order = [*with_references([case(f"constant({n})") for n in range(count)])]
    marks = [is_reference for _, is_reference in order]
    assert marks[0]
    assert marks[-1]
    assert sum(not mark for mark in marks) == count
    runs = "".join("r" if mark else "c" for mark in marks).split("r")
    assert max(map(len, runs)) <= REFERENCE_EVERY
    assert "rr" not in "".join("r" if mark else "c" for mark in marks)


def test_each_type_has_its_own_reference() -> None:
    order = [*with_references([case("zeros"), case("zeros", "fp16")])]
    assert [one.dtype for one, _ in order] == ["bf16"] * 3 + ["fp16"] * 3


def test_what_is_kept_is_not_measured_again(tmp_path: Path) -> None:
    """After Ctrl-C the rest follows; nothing is lost and nothing is there twice."""
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, MadeUpBench(stops_after=5), CASES[:6])
    _, keep, steps = run(tmp_path, bench := MadeUpBench(), CASES[:6])
    assert bench.measured == [
        REFERENCE.operands,
        *(c.operands for c in CASES[4:6]),
        *bench.measured[:1],
    ]
    assert [r.case for r in keep.read() if not r.is_reference] == CASES[:6]
    assert (steps[-1].done, steps[-1].total, steps[-1].eta_s) == (4, 4, 0)
    assert len(bench.measured) == 4
    run(tmp_path, bench := MadeUpBench(), CASES[:6])
    assert bench.measured == []


def test_other_conditions_are_measured_again(tmp_path: Path) -> None:
    run(tmp_path, MadeUpBench(), CASES[:1])
    whole = dataclasses.replace(CONDITIONS, units=132)
    _, keep, _ = run(tmp_path, bench := MadeUpBench(conditions=whole), CASES[:1])
    assert len(bench.measured) == 3
    assert newest_of(keep.read(), CASES, whole)[CASES[0]].conditions.units == 132


def test_refused_case_does_not_end_the_others(tmp_path: Path) -> None:
    refused, keep, _ = run(tmp_path, MadeUpBench(refuses=frozenset({CASES[0].operands})), CASES[:3])
    assert list(refused) == [CASES[0]]
    assert [r.case for r in keep.read() if not r.is_reference] == CASES[1:3]


def test_matrix_that_cannot_be_made_is_refused_alone(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="needs groups of 4"):
        fill_case(case_of("ones|prune(2:4)", (8, 8, 6), "bf16"), tmp_path / "x")


def test_killed_filling_is_explained() -> None:
    future: Future[Matrices] = Future()
    future.set_exception(BrokenProcessPool("gone"))
    with pytest.raises(InputError, match="for lack of memory"):
        filled(case(), future)


def test_card_without_power_is_no_result(tmp_path: Path) -> None:
    refused, keep, _ = run(tmp_path, MadeUpBench(without_power=True), CASES[:1])
    assert keep.read() == []
    assert "power was not read" in str(refused[CASES[0]])


# files


def test_files_hold_the_bytes_of_the_matrices(tmp_path: Path) -> None:
    """B column by column, whether its pattern is transposed or not."""
    for align in ("true", "false"):
        one = case(f"normal(0,1)|sort(rows,0.5); align={align}")
        made = fill_case(one, tmp_path / "x")
        a, b = fill_pair(one.pair, SMALL, "bf16")
        m, n, k = SMALL
        dtype = STORAGE["bf16"][1]
        read_a = np.fromfile(made.a_path, dtype).reshape(m, k)
        read_b = np.fromfile(some(made.b_path), dtype).reshape(n, k)
        assert (read_a == a.matrix.view(dtype)).all()
        assert (np.ascontiguousarray(b.matrix).view(dtype) == read_b.T).all()
        made.a_path.unlink()
        made.b_path.unlink()
        assert not list(tmp_path.iterdir())


def test_fingerprint_of_before_signs_were_counted_is_none(tmp_path: Path) -> None:
    keep = input_lines(tmp_path, "GPU-1")
    matrix = np.ones((8, 64), np.float32)
    found = replace(result(case(), 321.0), fingerprint=fingerprint(matrix, matrix.T, "fp32"))
    keep.add(found)
    assert keep.read() == [found]
    keep.path.write_text(keep.path.read_text().replace('"product_signs"', '"product_sins"'))
    assert keep.read() == [replace(found, fingerprint=None)]


# references


def test_ratio_follows_the_drift_of_the_reference() -> None:
    """A card that draws more from minute to minute: half way between two references."""
    results = [
        result(REFERENCE, 400, at_s=0, is_reference=True),
        result(case(), 205, at_s=10),
        result(REFERENCE, 420, at_s=20, is_reference=True),
    ]
    first, middle, last = with_ratios(results)
    assert some(middle.reference_ratio).value == pytest.approx(0.5)
    assert 0.0005 < (some(some(middle.reference_ratio).high) - 0.5) / 1.96 < 0.002
    assert some(first.reference_ratio).value == pytest.approx(400 / 420)
    assert last.reference_ratio is not None


def test_without_a_reference_of_its_session_and_type_there_is_no_ratio() -> None:
    results = [
        result(REFERENCE, at_s=0, is_reference=True, session="other"),
        result(reference_for(SMALL, "fp16"), at_s=1, is_reference=True),
        result(case(), at_s=2),
    ]
    assert with_ratios(results)[-1].reference_ratio is None


def test_reference_that_heat_held_back_is_none() -> None:
    """It draws less than its data let it, so that what is beside it would seem to draw more."""
    free = result(REFERENCE, 400, at_s=0, is_reference=True)
    hot = result(REFERENCE, 360, at_s=10, is_reference=True, throttle_reasons=("sw-thermal",))
    own = result(case(), 200, at_s=9)
    assert with_ratios([hot, own])[0].reference_ratio is None
    assert some(with_ratios([free, own, hot])[1].reference_ratio).value == pytest.approx(0.5)


def test_scatter_of_references_is_a_part_of_the_error() -> None:
    """Windows are read to a thousandth, and the same product draws 2 % more or less."""
    watts = (400, 408, 400, 408, 400)
    references = [
        result(REFERENCE, w, at_s=10 * place, is_reference=True) for place, w in enumerate(watts)
    ]
    *_, last = with_ratios([*references, result(case(), 200, at_s=41)])
    assert (some(some(last.reference_ratio).high) - 0.5) / 1.96 == pytest.approx(
        0.5 * 0.02, rel=0.1
    )


# cases


@given(st.tuples(*[st.integers(1, 2**31 - 1)] * 3))
def test_shape_is_read_in_both_spellings(shape: tuple[int, int, int]) -> None:
    for mark in ("x", "X", ","):
        assert parse_shape(mark.join(map(str, shape))) == shape


@pytest.mark.parametrize("text", ["", "4", "1x2x3x4", "1x-2x3", "axbxc", "1x2x", "1.5x2x3"])
def test_what_is_no_shape_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is no shape"):
        parse_shape(text)


def test_energy_is_power_over_work() -> None:
    """1000 products of 2 m n k operations a second at 400 W, of which 100 W is idle."""
    one = result(case())
    work = 2 * 32 * 16 * 64 * 1000
    assert (one.energy_pj, one.energy_above_idle_pj) == (
        pytest.approx(400e12 / work),
        pytest.approx(300e12 / work),
    )


def test_flags_say_what_is_wrong() -> None:
    assert result(case()).flags == ()
    wrong = dataclasses.replace(result(case()).outputs, nan=3, unwritten=1)
    found = result(case(), 690, outputs=wrong, throttle_reasons=("sw-thermal",))
    assert found.flags == ("non-finite-outputs", "wrong-outputs", "power-limit", "throttled")
    assert result(case(), throttle_reasons=("sw-power-cap",)).at_limit


def test_overflowing_cast_and_saturation_are_flagged_and_explained(tmp_path: Path) -> None:
    """Of the operands, before anything is computed."""
    odd = [case("constant(70000)", "fp16"), case("normal(0,100)", "int8")]
    _, keep, _ = run(tmp_path, MadeUpBench(), odd)
    notes = "\n".join(note_lines(keep.read()))
    assert "non-finite-operands: matrices hold NaN or infinity" in notes
    assert "saturated-operands: values were beyond the range of int8" in notes


def test_text_of_a_case_has_the_hash_of_its_files(tmp_path: Path) -> None:
    """The text is the key of a result, and what a file holds may change."""
    file = tmp_path / "w.npy"
    np.save(file, np.ones((8, 8), np.float32))
    first = case_of(f'file("{file}")', (8, 8, 8), "bf16")
    assert "sha256=" in first.operands
    np.save(file, np.zeros((8, 8), np.float32))
    assert case_of(f'file("{file}")', (8, 8, 8), "bf16") != first


# which results a model of power by data learns from, and fingerprints of what is asked


def found_print(text: str) -> Fingerprint:
    a, b = fill_pair(parse_operands(text), SMALL, "bf16")
    return fingerprint(a.matrix, b.matrix, "bf16")


def kept_result(text: str = "normal(0,1)", watts: float = 400.0, **of: object) -> InputPower:
    return replace(result(case(text), watts), fingerprint=found_print(text), **of)


def test_a_result_becomes_a_point_that_a_file_holds(tmp_path: Path) -> None:
    (point,), left_out = points_of([kept_result("normal(0,1)|sparse(0.5)")])
    assert (left_out, set(point.features)) == ({}, set(FEATURES))
    assert 0.4 < point.features["a_zeros"] < 0.6
    assert (point.group, point.real, point.held_back) == ("normal|sparse", False, False)
    assert (point.power_w, point.idle_w, point.power_limit_w) == (400, 100, 700)
    m, n, k = SMALL
    assert point.flop_per_s == pytest.approx(kept_result().rate.value * 2 * m * n * k)
    path = tmp_path / "points.jsonl"
    path.write_bytes(input_points_text([point]))
    assert read_input_points(path) == (point,)


@pytest.mark.parametrize(
    ("of", "why"),
    [
        ({"fingerprint": None}, "has no fingerprint"),
        ({"idle_w": None}, "has no idle power"),
        ({"idle_w": 400.0}, "draws no more than the idle card"),
        ({"sm_clock_mhz": None}, "has no clock"),
        ({"settled": False}, "has the flag not-settled"),
        ({"outputs": replace(OUTPUTS, unwritten=1)}, "has the flag wrong-outputs"),
        ({"case": replace(case(), work="copy")}, "computed a copy, not a product"),
    ],
)
def test_what_cannot_be_learned_from_is_counted(of: dict[str, object], why: str) -> None:
    assert points_of([replace(kept_result(), **of)]) == ((), {why: 1})


def test_a_clock_that_was_held_back_is_told_by_the_rate() -> None:
    """Of others of the same kind; without such as it was read."""
    free = kept_result()
    slow = replace(free.rate, value=0.8 * free.rate.value)
    hot = kept_result("ones", rate=slow, throttle_reasons=("sw-thermal",), sm_clock_mhz=1500.0)
    found, _ = points_of([free, hot, replace(hot, throttle_reasons=("sw-power-cap",))])
    assert [(p.throttled, p.at_limit) for p in found] == [
        (False, False),
        (True, False),
        (False, True),
    ]
    assert [p.clock_mhz for p in found] == pytest.approx([1980, 0.8 * 1980, 0.8 * 1980])
    (alone,), _ = points_of([hot])
    assert alone.clock_mhz == 1500


def test_levels_of_a_sweep_have_one_pattern_and_sweeps_their_own() -> None:
    patterns = {s.takeaway: {pattern_of(pair) for pair in s.pairs("bf16").values()} for s in SWEEPS}
    assert {len(found) for found in patterns.values()} == {1}
    # 1, 2 and 7 are normal random numbers that differ in mean and spread alone.
    assert (
        len({name for found in patterns.values() for name in found}),
        patterns[5],
        patterns[8],
    ) == (len(SWEEPS) - 2, {"unique|randomize(low)"}, {"normal|sort(rows); align=false"})
    assert pattern_of(parse_operands("a=zeros; b=normal(0,1)")) == "a=zeros; b=normal"


def test_kept_results_of_all_cards_are_read_and_left_as_they_are(tmp_path: Path) -> None:
    for uuid in ("GPU-1", "GPU-2"):
        one = kept_result()
        input_lines(tmp_path, uuid).add(
            replace(one, conditions=replace(one.conditions, gpu_uuid=uuid))
        )
    path = input_lines(tmp_path, "GPU-2").path
    with path.open("ab") as file:
        file.write(b'{"case": ')  # another process is writing
    before = path.read_bytes()
    found, _ = points_of(kept_inputs(tmp_path))
    assert [p.gpu_uuid for p in found] == ["GPU-1", "GPU-2"]
    assert (path.read_bytes(), len(read_kept(path))) == (before, 1)
    assert kept_inputs(tmp_path / "none") == []


ASKED = InputQuery(operands="normal(0,1)|sparse(0.5)", shape=SMALL, dtype="bf16")


def test_operands_get_the_fingerprint_that_a_measurement_gets() -> None:
    (point,), _ = points_of([kept_result(ASKED.operands or "")])
    filled = with_features(ASKED)
    assert filled.features == point.features
    assert filled.operands == "a=normal(0,1)|sparse(0.5); b=normal(0,1)|sparse(0.5); " + (
        "align=true; seed=0"
    )
    assert with_features(replace(filled, operands=None)).features == point.features


@pytest.mark.parametrize(
    ("of", "what"),
    [
        ({"operands": None}, "operands or a fingerprint"),
        ({"features": dict.fromkeys(FEATURES, 0.5)}, "operands or a fingerprint"),
        ({"operands": None, "features": {"a_weight": 0.5}}, "missing or unknown"),
        ({"operands": None, "features": dict.fromkeys(FEATURES, float("nan"))}, "from 0 to 1"),
        ({"operands": "nothing"}, "nothing"),
        ({"dtype": "fp8_e5m2"}, "do not compute in fp8_e5m2"),
        ({"shape": (4097, 4096, 4096)}, "too large"),
        ({"shape": (1, 1, 2**31 - 1)}, "too large"),
        ({"shape": (17, 3, 5), "dtype": "int8"}, "multiples of 8"),
    ],
)
def test_what_cannot_be_sent_is_refused(of: dict[str, object], what: str) -> None:
    with pytest.raises(InputError, match=what):
        with_sent_features(replace(ASKED, **of))


def test_no_file_of_the_service_can_be_named(tmp_path: Path) -> None:
    np.save(tmp_path / "w.npy", np.ones((64, 64), np.float32))
    text = f'a=normal(0,1); b=file("{tmp_path}/w.npy")'
    asked = InputQuery(operands=text, shape=(16, 64, 64), dtype="fp32")
    assert with_features(asked).features is not None
    with pytest.raises(InputError, match="a file cannot be named here"):
        with_sent_features(asked)


# the fingerprint of what a job's file says that its matrices hold


QUIET = Job(name="a", command=("a",), input=InputData(dtype="bf16"))


def test_job_that_says_nothing_keeps_its_identity() -> None:
    """That of before it could be said."""
    assert QUIET.job_hash == "3b05c91d3bcd6a3c"
    assert with_fingerprint(QUIET) is QUIET


def test_job_that_says_its_data_has_a_fingerprint() -> None:
    telling = dataclasses.replace(QUIET, input=InputData(dtype="bf16", data="zeros"))
    assert telling.job_hash != QUIET.job_hash
    found = read(InputFingerprint, some(with_fingerprint(telling).input_fingerprint))
    assert (
        set(found.features),
        found.dtype,
        found.features["a_zeros"],
        found.features["a_weight"],
    ) == (set(FEATURES), "bf16", 1.0, 0.0)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (InputData(data="zeros"), "without a type"),
        (InputData(dtype="bf17", data="zeros"), "do not compute in bf17"),
        (InputData(dtype="bf16", data="nonsense(1)"), "nonsense"),
        (InputData(dtype="bf16", data='file("none.npy")'), "none.npy"),
    ],
)
def test_data_that_cannot_be_meant(data: InputData, said: str) -> None:
    with pytest.raises(InputError, match=said):
        with_fingerprint(dataclasses.replace(QUIET, input=data))


# The workload that multiplies matrices: its commands and answers, and its checks of outputs.


@pytest.fixture(scope="module")
def script() -> Any:
    return load("input_power")


class Player:
    """Counts its steps; one command may fail."""

    def __init__(self, error: Exception | None = None, *, usable: bool = True) -> None:
        self.error, self.is_usable = error, usable
        self.running, self.steps, self.stopped = False, 0, 0

    def ready(self) -> dict[str, Any]:
        return {"units": 66}

    def load(self, command: dict[str, Any]) -> dict[str, Any]:
        if self.error is not None:
            raise self.error
        self.running = True
        return {"of": command}

    def step(self) -> None:
        self.steps += 1

    def stop(self) -> dict[str, Any]:
        self.running, self.stopped = False, self.stopped + 1
        return {}

    def usable(self) -> bool:
        return self.is_usable


def answers(script: Any, player: Player, lines: list[str | None]) -> list[dict[str, Any]]:
    said, waits = io.StringIO(), list[bool]()

    def next_line(*, wait: bool) -> str | None:
        waits.append(wait)
        return lines.pop(0)

    script.serve(player, SimpleNamespace(next=next_line), said)
    assert waits[0]  # nothing runs yet
    return [json.loads(line) for line in said.getvalue().splitlines()]


def test_runs_what_was_loaded_until_the_next_command(script: Any) -> None:
    player = Player()
    lines = [json.dumps({"load": {"x": 1}}), None, None, json.dumps({"stop": True}), ""]
    assert answers(script, player, lines) == [
        {"ready": {"units": 66}}, {"loaded": {"of": {"x": 1}}}, {"stopped": {}},
    ]  # fmt: skip
    assert (player.steps, player.running) == (2, False)


def test_one_pair_that_fails_is_refused(script: Any) -> None:
    player = Player(RuntimeError("CUDA out of memory. Tried"))
    _, said = answers(script, player, [json.dumps({"load": {}}), ""])
    assert said["refused"]["memory"]
    assert player.stopped == 1


def test_device_that_is_lost_ends_the_program(script: Any) -> None:
    player = Player(RuntimeError("an illegal memory access"), usable=False)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        answers(script, player, [json.dumps({"load": {}})])


def test_commands_are_asked_for_without_waiting(script: Any) -> None:
    """A line may come in parts, and several at once."""
    read, write = os.pipe()
    commands = script.Commands(read)
    assert commands.next(wait=False) is None
    os.write(write, b'{"a": 1}\n{"b"')
    assert commands.next(wait=False) == '{"a": 1}'
    assert commands.next(wait=False) is None
    os.write(write, b": 2}\n")
    assert commands.next(wait=True) == '{"b": 2}'
    os.close(write)
    assert commands.next(wait=True) == ""
    os.close(read)


# where PyTorch is installed


@pytest.fixture
def multiplier(script: Any) -> Any:
    pytest.importorskip("torch")
    return script.Player("cpu")


def loaded(multiplier: Any, script: Any, folder: Path, dtype: str, a: Any, b: Any) -> Any:
    torch: Any = pytest.importorskip("torch")
    for name, values in (("a", a), ("b", b)):
        (folder / name).write_bytes(bytes(values.contiguous().view(torch.uint8).flatten().tolist()))
    shape = (a.shape[0], b.shape[0], a.shape[1])
    asked = {"a": str(folder / "a"), "b": str(folder / "b"), "shape": shape, "dtype": dtype}
    return script.answer(multiplier, {"load": asked})["loaded"]["outputs"]


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp8", "int8", "tf32", "fp32"])
def test_products_are_right_and_nan_is_counted(
    multiplier: Any, script: Any, tmp_path: Path, dtype: str
) -> None:
    torch: Any = pytest.importorskip("torch")
    kind = script.torch_type(dtype)
    a, b = ((3 * torch.randn(size, 96)).round().to(kind) for size in (64, 48))
    found = loaded(multiplier, script, tmp_path, dtype, a, b)
    assert found["error"] <= found["allowed"]
    assert (found["nan"], found["infinite"], found["unwritten"], found["compared"]) == (
        0,
        0,
        0,
        8 * 48,
    )
    if dtype not in ("int8", "fp8"):
        a[0, 0] = float("nan")
        found = loaded(multiplier, script, tmp_path, dtype, a, b)
        assert (found["nan"], found["compared"]) == (48, 7 * 48)
