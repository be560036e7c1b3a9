"""A model of power by data from points to its files and back, on made-up points."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from made_up_input_points import (
    USUAL,
    bent,
    made_up_model,
    points,
    power_w,
    references,
    switching,
    trained_on,
)

from advisor.errors import InputError, ModelError
from advisor.wire.power import FEATURES, InputAsked
from advisor_data.known import input_points_sha256, read_input_points
from advisor_models.manifest import MANIFEST
from advisor_power.data.predictor import POINTS, InputPredictor
from advisor_power.data.training import fit_inputs, learnable, write_input_model

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


def test_the_manifest_says_what_the_model_is_made_from(folder: Path) -> None:
    manifest = InputPredictor(folder).manifest
    made_from = read_input_points(folder / POINTS)
    facts = manifest.dataset
    assert (facts.sha256, facts.cards) == (input_points_sha256(made_from), ("GPU-1",))
    assert facts.points == len(made_from) == 14 * 8 + 4
    assert set(manifest.files) == {"bf16.trees", POINTS}
    assert manifest.created_at == "2026-11-23T10:00:00+00:00"  # of its newest point
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
    assert manifest.figures["reference_noise_percent"] == pytest.approx(0, abs=1e-9)
    assert set(manifest.libraries) == {"scikit-learn", "numpy"}


def test_below_the_limit_power_is_expected_and_at_it_speed(folder: Path) -> None:
    predictor = InputPredictor(folder)
    few = predictor.predict(asked())
    assert few.power_w.value == pytest.approx(power_w(switching, USUAL, 66, 1900.0), rel=0.02)
    assert (few.at_limit, few.clock_mhz, few.unmeasured) == (False, 1900.0, ())
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
    assert found.most is not None
    assert found.most.feature == "product_switching"
    assert found.most.difference_w == pytest.approx(
        power_w(switching, fewer, 66, 1900.0) - power_w(switching, USUAL, 66, 1900.0), rel=0.05
    )
    assert found.usual_ratio is not None
    assert found.usual_ratio < 1


def test_what_was_never_measured_is_said(folder: Path) -> None:
    predictor = InputPredictor(folder)
    assert predictor.predict(asked(shape=(2048, 1024, 16384))).unmeasured == ("shape",)
    assert predictor.predict(asked(units=50)).unmeasured == ("units",)
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


def test_the_order_of_points_does_not_matter(folder: Path, tmp_path: Path) -> None:
    again = [*references(limit_w=400.0), *reversed(points(limit_w=400.0))]
    trained = trained_on(again)
    assert write_input_model(tmp_path, trained) == InputPredictor(folder).manifest


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
