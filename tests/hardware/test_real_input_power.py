"""`advisor power input` on a real GPU: zeros draw less than random numbers, and outputs are right."""

from typing import Any

import pytest
from real_gpu import GPU, run_json, the_gpu

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

SHAPE = ("--shape", "4096x4096x4096")
UNITS = 66
"""Safe, and below the power limit."""


def measured(*words: str) -> list[dict[str, Any]]:
    answer = run_json("power", "input", *words, *SHAPE, "--gpu", GPU, "--fresh")
    assert answer["refused"] == []
    found: list[dict[str, Any]] = answer["inputs"]
    return found


def test_zeros_draw_less_than_random_numbers_below_the_limit() -> None:
    """By a tenth at least; counter and instant power agree, and nothing is NaN."""
    random, zeros = measured("normal(0,1)", "zeros", "--units", str(UNITS))
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


@pytest.mark.parametrize("dtype", ["fp16", "fp8", "int8", "tf32", "fp32"])
def test_every_type_is_computed_right(dtype: str) -> None:
    """Each by its own kernel, in a graph, within its own rounding."""
    (found,) = measured("normal(0,8)", "--dtype", dtype, "--units", str(UNITS), "--window", "1")
    assert found["outputs"]["right"], found["outputs"]
    assert found["outputs"]["compared"] > 0
    assert found["rate"]["value"] > 0
