"""What is expected at the power limit, held against the points that were measured."""

import importlib
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from advisor.predict.profiles import Profile, make_profile
from advisor_advice.power.other_data import other_data
from advisor_advice.site.known_profiles import ProfileSet
from advisor_data.files.bundled import bundled_solo_points
from advisor_power.model.find import load_input_model
from advisor_power.model.other_data import DataChange, with_data
from advisor_power.operands.of_job import fingerprint_of

POWER = Path(__file__).parents[2] / "docs/measurements/power"

pytestmark = pytest.mark.figures


@pytest.fixture(scope="module", autouse=True)
def scripts() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(POWER), *sys.path])
        yield


def script(name: str) -> Any:
    return importlib.import_module(name)


def test_other_data_hardly_move_power_at_the_limit() -> None:
    """Nearer than the power with random numbers, and than half of the change taken off."""
    at_limit = script("data_at_limit")
    rows = list(at_limit.rows(*at_limit.points_of(POWER / "data-pairs", "h100")))
    as_it_is, less_half, expected = (
        statistics.fmean(abs(row.power[place]) for row in rows) for place in range(3)
    )
    assert len(rows) == 20
    assert expected < 0.01 < as_it_is < less_half
    assert sum(row.within for row in rows) >= 15


def test_clock_of_a_pair_is_told_by_both_jobs_alone() -> None:
    pair_clock = script("pair_clock")
    found = list(pair_clock.at_limit())
    off_mhz = [pair_clock.expected_mhz(one) - one.point.sm_clock_mhz for one in found]
    assert len(off_mhz) > 800
    assert np.abs(off_mhz).mean() < 60
    assert np.percentile(np.abs(off_mhz), 90) < 130


def test_products_that_heat_holds_back_follow_the_energy_of_their_work(
    capsys: pytest.CaptureFixture[str],
) -> None:
    script("held_back_products").main()
    assert "22 products: median 2.7" in capsys.readouterr().out


def test_mean_of_the_pairs_that_nothing_held_back(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As docs/input-power.md has it, from rows of two tables."""
    monkeypatch.setattr(sys, "argv", ["", "sorting | 26/26 |", "+ triad | 26/50 |"])
    script("mean_of_rows").main()
    said = capsys.readouterr().out
    assert said.startswith("7 rows\nprofile: 4.9 % [2.8 7.2]\ncorrected: 1.6 % [0.9 2.3]\n")


def zeros_of_product(gpu_model: str, folder: Path) -> tuple[Profile, DataChange]:
    """What zeros are expected to change in a product of random numbers."""
    points = [p for p in bundled_solo_points({"matmul-bf16"}) if p.gpu_model == gpu_model]
    profile = make_profile(points)
    zeros = {"matmul-bf16": fingerprint_of("bf16", "zeros")}
    model = load_input_model(folder, gpu_model)
    (change,) = other_data(ProfileSet((profile,), ("matmul-bf16",)), zeros, model).changes
    return profile, change


def test_zeros_save_no_more_than_products_draw(tmp_path: Path) -> None:
    """Tensor cores of an H200 seem to compute more than they do; zeros draw 250 W at 34 SMs."""
    profile, change = zeros_of_product("NVIDIA H200", tmp_path)
    assert with_data(profile, change).at([26])["power_w"] == pytest.approx(250, rel=0.05)


@pytest.mark.parametrize(
    ("gpu_model", "measured_w", "speed"),
    [("NVIDIA H100 80GB HBM3", -218, 1.25), ("NVIDIA H200", -270, 1.23)],
)
def test_zeros_on_the_whole_gpu_are_held_back_below_the_limit(
    gpu_model: str, measured_w: float, speed: float, tmp_path: Path
) -> None:
    """As products of 4096 were measured (docs/measurements); the profile is of one of 8192."""
    _, change = zeros_of_product(gpu_model, tmp_path)
    assert change.whole_gpu_w.low <= measured_w <= change.whole_gpu_w.high
    assert change.whole_gpu_speed.value == pytest.approx(speed, abs=0.03)
