"""docs/measurements/degenerate_by_data.py on a card that is made up."""

import dataclasses
import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
from made_up_input_points import CLOCK_MHZ, IDLE_W, points, references, trained_on
from made_up_inputs import OUTPUTS, case, result
from simple_pairs import solo

from advisor.core.records import SoloPoint

MEASUREMENTS = Path(__file__).parents[2] / "docs/measurements"


@pytest.fixture(scope="module")
def script() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(MEASUREMENTS), *sys.path])
        return importlib.import_module("degenerate_by_data")


@pytest.fixture(scope="module")
def model(script: Any) -> Any:
    """Of random numbers, and of products of which the sums do not switch."""
    usual, *_ = measured = [*references(), *points(groups=6)]
    still = {**usual.features, "product_switching": 0.0, "sum_switching": 0.0}
    return script.Learned(trained_on(measured), usual, dataclasses.replace(usual, features=still))


def job(power_w: float | None, **of: Any) -> SoloPoint:
    """Keeps the tensor cores of 66 of 132 SMs busy all the time."""
    values: dict[str, Any] = {
        "share_percent": 50.0,
        "units_granted": 66,
        "units_total": 132,
        "tensor_active_percent": 36.6,
        "sm_clock_mhz": CLOCK_MHZ,
        "idle_power_w": IDLE_W,
        "power_w": power_w,
    }
    return solo(**{**values, **of})


def test_job_is_judged_by_what_its_operations_take(script: Any, model: Any) -> None:
    usual_w = model.above_idle_w(script._as_product(job(0.0), model), model.usual)
    right, wrong = (job(IDLE_W + part * usual_w) for part in (1.0, 0.6))
    assert model.part(script._as_product(right, model)) == pytest.approx(1.0)
    assert model.part(script._as_product(wrong, model)) == pytest.approx(0.6)


def test_data_that_switch_less_are_expected_to_draw_less(script: Any, model: Any) -> None:
    product = script._as_product(job(400.0), model)
    assert model.above_idle_w(product, model.nan) < 0.8 * model.above_idle_w(product, model.usual)


@pytest.mark.parametrize(
    "missing", ["power_w", "idle_power_w", "sm_clock_mhz", "units_total", "tensor_active_percent"]
)
def test_point_without_a_counter_is_not_judged(script: Any, missing: str) -> None:
    assert script._has_counters(job(400.0))
    assert not script._has_counters(dataclasses.replace(job(400.0), **{missing: None}))


def test_results_that_were_read_are_believed(script: Any) -> None:
    point = job(400.0, job="bert-train", units_granted=92)
    assert script._truth(point, {"bert-train"}) == "wrong"
    assert script._truth(dataclasses.replace(point, results="right"), {"bert-train"}) == "right"
    assert script._truth(dataclasses.replace(point, results="differ"), set()) == "wrong"


def test_products_are_told_apart(script: Any) -> None:
    unwritten = dataclasses.replace(OUTPUTS, unwritten=8)
    assert "unwritten" in script._kind(result(case("normal(0,1)"), outputs=unwritten))
    assert "NaN: 0.5" in script._kind(result(case("normal(0,1)|spoil(nan,0.5)")))
    assert script._kind(result(case("zeros"))) is None
