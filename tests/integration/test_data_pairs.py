"""docs/measurements/power/data_pairs.py on pairs that are made up."""

import dataclasses
import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
from made_up_input_points import made_up_model
from pair_points import pair_point

from advisor.formats.wire import write
from advisor.predict.profiles import make_profile
from advisor.settings import read_settings
from advisor_data import open_store
from advisor_data.files.bundled import bundled_solo_points
from advisor_power.model.other_data import operations_per_s
from advisor_power.model.predictor import InputPredictor
from advisor_power.operands.of_job import fingerprint_of

POWER = Path(__file__).parents[2] / "docs/measurements/power"
H200 = "NVIDIA H200"


@pytest.fixture(scope="module")
def script() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(POWER), *sys.path])
        return importlib.import_module("data_pairs")


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InputPredictor:
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("ADVISOR_DATABASE_URL", raising=False)
    made_up_model(tmp_path / "model", groups=6, gpu_model=H200)
    return InputPredictor(tmp_path / "model")


def test_correction_that_is_right_leaves_no_error(script: Any, model: InputPredictor) -> None:
    """The pair with zeros draws less by just what the model says of the product's operations."""
    random, zeros = (fingerprint_of("bf16", text) for text in ("normal(0,1)", "zeros"))
    alone = [
        dataclasses.replace(p, job=script.RANDOM, input_fingerprint=write(random))
        for p in bundled_solo_points({"matmul-bf16"})
        if p.gpu_model == H200
    ]
    profile = make_profile(alone)
    per_s = operations_per_s(profile, "bf16")
    assert per_s is not None
    energies = [model.energy_above_idle_j(f.features, "bf16", H200).value for f in (random, zeros)]
    saved_w = 0.5 * per_s * (energies[0] - energies[1])
    pair = {"job_2": "triad", "power_limit_w": 700.0, "rate_1": 0.5 * profile.whole_gpu_rate}
    points = [
        pair_point(10, 26, job_1=script.RANDOM, power_w=600.0, **pair),
        pair_point(10, 26, job_1="product-half-zeros", power_w=600.0 - saved_w, **pair),
        pair_point(26, 26, job_1="product-half-zeros", power_w=300.0, **pair),
    ]
    whole = next(p for p in alone if p.share_percent == 100)
    settings = read_settings()
    with open_store(settings.database_url, settings.home) as store:
        store.add([*alone, dataclasses.replace(whole, job="product-half-zeros", run="other")])
        store.add(points)
    (row,) = script.rows(settings, model, {"product-half-zeros": zeros})
    assert (row.pair, row.split) == (("product-half-zeros", "triad"), "10/26")
    assert row.profile[0] == pytest.approx(600 / (600 - saved_w) - 1)
    assert row.profile[0] > 0.05
    assert row.profile[1] == pytest.approx(0, abs=1e-6)
    assert row.model[1] < row.model[0]
    assert "held the clock back, 1 pairs, 1 splits |" in list(script.table([row]))[-1]
    *_, line = script.alone_table(settings, model, {"product-half-zeros": zeros})
    _, job, measured_w, expected_w, rate, expected_rate, *_ = line.split("|")
    # One of the repeats that the profile is the middle of.
    assert (job.strip(), float(rate)) == ("product-half-zeros", pytest.approx(1, abs=0.01))
    assert float(measured_w) == round(whole.power_w or 0)
    # Zeros save at the limit as much as the clock cannot rise for.
    assert float(expected_w) < float(measured_w) or float(expected_rate) > 1
