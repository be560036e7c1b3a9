"""How `library_check.py` judges results: the part that needs no PyTorch, here on NumPy."""

import importlib.util
import itertools
import json
import runpy
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import workload_scripts
from hypothesis import given, settings, strategies as st

from advisor_power.sensor import steps_and_bursts, waves
from advisor_profiling.window import VirtualClock

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
    assert (64 if what == "unwritten" else 40) <= wrong_rows(product, left, right, "fp16") <= 64


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
    return [[int((~finite).sum()), *map(float, sums)]]


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
    assert cases.wrong_names(values, wanted, {"fft": "fp32", "sort": "fp32"}) == ["matmul", "sort"]


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


# The loader of jobs that wait for their input.


loader = workload_scripts.load("harness")
EVERY_S = 0.03


def test_batches_come_in_order_and_no_faster_than_the_storage() -> None:
    """Reading is instant here, so the time is that of the storage.

    It does not catch up on the time in which nobody took a batch.
    """
    begun_s = time.monotonic()
    batches = loader.prefetched(itertools.count().__next__, EVERY_S, 1)
    assert [next(batches) for _ in range(6)] == [0, 1, 2, 3, 4, 5]
    assert time.monotonic() - begun_s >= 5 * EVERY_S
    time.sleep(10 * EVERY_S)
    resumed_s = time.monotonic()
    for _ in range(loader.AHEAD + 3):
        next(batches)
    assert time.monotonic() - resumed_s >= 2 * EVERY_S


def test_processes_that_begin_together_do_not_wait_in_step() -> None:
    """Batches of two seeds come at other moments, no faster than the storage."""

    def gaps_s(seed: int) -> list[float]:
        batches = loader.prefetched(lambda: time.monotonic(), EVERY_S, seed)
        begun = [next(batches) for _ in range(13)][1:]
        return [later - earlier for earlier, later in itertools.pairwise(begun)]

    first, second = gaps_s(1), gaps_s(2)
    for gaps in (first, second):
        assert sum(gaps) >= 10 * EVERY_S
    assert max(abs(a - b) for a, b in zip(first, second, strict=True)) > 0.3 * EVERY_S


def test_a_fault_while_reading_ends_the_job() -> None:
    """A loader that fails is no loader that is slow for ever."""

    def fail() -> None:
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        next(loader.prefetched(fail, 0.0, 1))


def test_images_are_cut_at_random_and_the_same_for_the_same_seed() -> None:
    read, again, other = (loader.image_reader(3, 16, seed=seed) for seed in (5, 5, 6))
    first, second = read(), read()
    assert (first.shape, first.dtype) == ((3, 16, 16, 3), np.uint8)
    assert first.std() == pytest.approx(73.9, rel=0.1)
    assert [np.array_equal(first, image) for image in (second, again(), other())] == [
        False, True, False
    ]  # fmt: skip


# The line that docs/measurements/own/round_robin.py prints for a public table.


OWN = Path(__file__).parents[4] / "docs/measurements/own"


def test_line_has_rates_ratios_and_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(OWN), *sys.path])
    line = runpy.run_path(str(OWN / "round_robin.py"))["line"]
    # Where MPS did not run, its cells are empty, and rates alone are those of the other way.
    assert [
        line("GPU", "580.1", mps, (9e3, 1e3, 4800.0, 1200.0))
        for mps in ((9600.0, 2400.0, 1900.0, 1950.0), None)
    ] == [
        "| GPU | 580.1 | 9,600, 2,400 | 1,920 | 1,900, 1,950 | 0.97 | 4,800, 1,200 | 4.00 |",
        "| GPU | 580.1 | 9,000, 1,000 | 900 |  |  | 4,800, 1,200 | 4.00 |",
    ]


# The load of `advisor power sensor`: when it is on, without a GPU and in virtual time.


power_load = workload_scripts.load("power_load")


class VirtualLoad:
    """A load that takes the time of its units on a virtual clock; launches take time, too."""

    def __init__(self, clock: VirtualClock, unit_s: float, launch_s: float = 0.0) -> None:
        self.clock, self.unit_s, self.launch_s, self.busy_s = clock, unit_s, launch_s, 0.0

    def run(self, units: int) -> None:
        self.busy_s += units * self.unit_s
        self.clock.sleep(self.launch_s + units * self.unit_s)


def played(stage: Any, load: VirtualLoad) -> list[list[Any]]:
    said: list[dict[str, Any]] = []
    fields = {"name": stage.name, "length_s": stage.length_s, "on": stage.on}

    def now() -> float:
        load.clock.sleep(1e-6)  # a spin takes time
        return load.clock.now_s()

    power_load.run_stage(fields, load, said.append, now, load.clock.sleep)
    *lines, done = said
    assert done == {"done": stage.name}
    return [answer["line"] for answer in lines]


@settings(max_examples=10)
@given(seed=st.integers(0, 1000), unit_s=st.floats(5e-5, 5e-4))
def test_bursts_are_where_they_were_planned(seed: int, unit_s: float) -> None:
    bursts = steps_and_bursts(seed)[2]
    load = VirtualLoad(VirtualClock(), unit_s)
    (kind, name, begun_s), *ons = played(bursts, load)
    assert (kind, name, len(ons)) == ("stage", "bursts", len(bursts.on))
    for (_, first_s, last_s), (start_s, end_s) in zip(ons, bursts.on, strict=True):
        assert first_s - begun_s == pytest.approx(start_s, abs=1e-4)
        assert last_s - first_s == pytest.approx(end_s - start_s, abs=unit_s)
    assert load.clock.now_s() - begun_s >= bursts.length_s


def test_wave_keeps_its_period_although_each_launch_is_late() -> None:
    wave = waves(0.066, 1)[-1]
    load = VirtualLoad(VirtualClock(), 1e-4, launch_s=3e-5)
    (_, _, begun_s), *ons = played(wave, load)
    for (_, first_s, last_s), (start_s, end_s) in zip(ons, wave.on, strict=True):
        assert first_s - begun_s == pytest.approx(start_s, abs=3e-4)
        assert last_s - first_s == pytest.approx(end_s - start_s, abs=3e-4)
    on_s = sum(last_s - first_s for _, first_s, last_s in ons)
    assert load.busy_s == pytest.approx(on_s, rel=0.05)
