"""`advisor power input` on a real GPU: what data draw, and whether outputs are right."""

import pytest
from real_gpu import GPU, run_json, the_gpu

from advisor.settings import read_settings
from advisor_power.data.language import DTYPES
from advisor_power.data.measuring import case_of, filled, open_inputs
from advisor_power.gpu_worker import WorkerPlace

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

SIDE = 4096
UNITS = 34
"""Safe, and below the power limit."""


def test_zeros_draw_less_than_random_numbers_below_the_limit() -> None:
    shape = ("--shape", f"{SIDE}x{SIDE}x{SIDE}", "--units", str(UNITS), "--gpu", GPU)
    answer = run_json("power", "input", "normal(0,1)", "zeros", *shape, "--fresh")
    assert answer["refused"] == []
    random, zeros = answer["inputs"]
    for found in (random, zeros):
        assert found["conditions"]["units"] == UNITS
        assert found["outputs"]["right"], found["outputs"]
        assert found["outputs"]["finite"]
        assert "power-limit" not in found["flags"]
        assert found["counter_power_w"] == pytest.approx(found["power_w"]["value"], rel=0.03)
        assert found["idle_w"] < found["power_w"]["value"] < (the_gpu().power_limit_w or 1e9)
    assert random["reference_ratio"]["value"] == pytest.approx(1, abs=0.05)
    assert zeros["reference_ratio"]["value"] < 0.9
    assert zeros["fingerprint"]["zero_products"] == 1


def test_every_type_is_computed_right() -> None:
    cases = [case_of("normal(0,8)", (SIDE, SIDE, SIDE), dtype) for dtype in DTYPES]
    # Sums of products of these stay within the range of fp16, so that they can be compared.
    with open_inputs(read_settings(), WorkerPlace(gpu=GPU, units=UNITS), 1.0) as run:
        for case, future in run.filling(cases):
            outputs, window = run.bench.measure(case, filled(case, future))
            assert outputs.right, (case, outputs)
            assert outputs.finite, (case, outputs)
            assert outputs.compared > 0, case
            assert window.rates[0] is not None, case
