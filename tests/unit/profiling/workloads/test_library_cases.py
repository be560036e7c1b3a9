"""How `library_check.py` judges results: the part that needs no PyTorch, here on NumPy."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import workload_scripts
from hypothesis import given, settings
from hypothesis import strategies as st

cases = workload_scripts.load("library_check")

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="needs PyTorch, which the project does not"
)
Array = Any
ROWS, COLUMNS, INNER = 192, 256, 128


def uniform(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def wrong_rows(product: Array, left: Array, right: Array, dtype: str, offset: float = 0) -> int:
    def dot(matrix: Array, vector: Array) -> Array:
        return (matrix.astype(np.float64) * vector).sum(-1)

    bound = cases.product_tolerance(dtype, left.shape[-1], right.shape[-1])
    return cases.wrong_rows(dot, product, left, right, uniform(9, right.shape[-1]), bound, offset)


@given(
    seed=st.integers(0, 2**32 - 1),
    rows=st.integers(1, 64),
    columns=st.integers(1, 300),
    inner=st.integers(1, 300),
)
def test_rounding_to_fp16_is_right(seed: int, rows: int, columns: int, inner: int) -> None:
    left, right = uniform(seed, rows, inner), uniform(seed + 1, inner, columns)
    assert wrong_rows((left @ right).astype(np.float16), left, right, "fp16") == 0


@given(
    seed=st.integers(0, 1000),
    top=st.integers(0, ROWS - 64),
    side=st.integers(0, COLUMNS - 64),
    what=st.sampled_from(["unwritten", "zero", "stale", "half of the sum"]),
)
@settings(max_examples=20)
def test_one_wrong_tile_is_found(seed: int, top: int, side: int, what: str) -> None:
    """A tile that was not written, or summed in part, shows in most of its rows and no other."""
    left, right = uniform(seed, ROWS, INNER), uniform(seed + 1, INNER, COLUMNS)
    product = (left @ right).astype(np.float16)
    tile = np.s_[top : top + 64, side : side + 64]
    product[tile] = {
        "unwritten": np.nan,
        "zero": 0,
        "stale": uniform(seed + 2, 64, 64) * INNER**0.5,
        "half of the sum": (left[:, : INNER // 2] @ right[: INNER // 2])[tile],
    }[what]
    found = wrong_rows(product, left, right, "fp16")
    assert (64 if what == "unwritten" else 40) <= found <= 64


def test_batches_and_bias_are_checked_too() -> None:
    left, right = uniform(1, 3, 16, 32), uniform(2, 3, 32, 24)
    product = left @ right
    assert wrong_rows(product, left, right, "fp32") == 0
    product[1, 4:6] = product[0, 4:6]
    assert wrong_rows(product, left, right, "fp32") == 2
    bias = uniform(3, 24)
    found = left[0] @ right[0] + bias
    added = float(bias.astype(np.float64) @ uniform(9, 24))
    assert wrong_rows(found, left[0], right[0], "fp32", added) == 0
    assert wrong_rows(found, left[0], right[0], "fp32") == 16


@pytest.mark.parametrize("tiny", [False, True])
def test_names_are_unique(tiny: bool) -> None:
    names = [p.name for p in cases.products(tiny)]
    assert len(names) == len(set(names)) > 30


def prints(values: Array, seed: int = 1) -> list[Any]:
    finite = np.isfinite(values)
    kept = np.where(finite, values, 0).astype(np.float64)
    sums = (kept @ uniform(seed, values.size), abs(kept).sum(), (kept @ kept) ** 0.5)
    return [cases.ResultFingerprint(int((~finite).sum()), *map(float, sums))]


@given(seed=st.integers(0, 1000), size=st.integers(1, 5000))
def test_fingerprints_survive_rounding(seed: int, size: int) -> None:
    """The same result in a short type is the same."""
    values = uniform(seed, size)
    assert cases.same(prints(values.astype(np.float16)), prints(values), "fp16")


@given(seed=st.integers(0, 1000), begin=st.integers(0, 4500))
def test_fingerprints_show_what_is_missing(seed: int, begin: int) -> None:
    """One value that is not finite, or a tenth of them left out, is another result."""
    values = uniform(seed, 5000)
    right = prints(values)
    for wrong, count in ((np.nan, 1), (np.inf, 1), (0, 500)):
        broken = values.copy()
        broken[begin : begin + count] = wrong
        assert not cases.same(prints(broken), right, "bf16")
    assert not cases.same([], right, "bf16")


def test_wrong_operations_are_named_in_order() -> None:
    right = [[0, 1.0, 10.0, 5.0]]
    wanted = {"matmul": 0, "fft": right, "sort": right}
    values = {"matmul": 3, "fft": right, "sort": [[1, 1.0, 10.0, 5.0]]}
    names = cases.wrong_names(values, wanted, {"fft": "fp32", "sort": "fp32"})
    assert names == ["matmul", "sort"]


@needs_torch
def test_the_script_on_a_cpu(tmp_path: Path) -> None:
    """It agrees with its own reference, and not with another one."""
    file = tmp_path / "reference.json"
    written = run("--write", str(file))
    assert written["wrong"] == []
    assert len(written["operations"]) > 50
    reference = json.loads(file.read_text())
    reference["values"]["sort fp32"][0][1] += 1
    file.write_text(json.dumps(reference))
    again = run("--reference", str(file))
    assert (again["operations"], again["wrong"]) == (written["operations"], ["sort fp32"])
    assert again["libraries"] == run("--libraries", tiny=False)


def run(*options: str, tiny: bool = True) -> dict[str, Any]:
    small = ("--device", "cpu", "--tiny") if tiny else ()
    command = [sys.executable, cases.__file__, *options, *small]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])
