"""What the intervals of a model hold of recorded launches."""

import json
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest

MODEL = Path(__file__).parents[4] / "docs/measurements/model"


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
