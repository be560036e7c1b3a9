"""`advisor power kernel` on a real GPU: a matrix product, alone and again."""

import pytest
from real_gpu import GPU, run_json, the_gpu

from advisor.settings import read_settings
from advisor.validity.sensor_record import record_for
from advisor_data.known import known_sensors
from advisor_profiling.testbed import list_gpus

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

SIZE = ("--m", "8192", "--n", "8192", "--k", "8192")
PRODUCT = ("power", "kernel", "gemm", *SIZE, "--units", "34", "--gpu", GPU)
"""At a number of SMs where neither the power limit nor heat holds the clock back."""


@pytest.fixture
def record_is_there() -> None:
    gpu, home = the_gpu(), read_settings().home
    if record_for(gpu.uuid, gpu.model, gpu.driver or "", known_sensors(home)) is None:
        pytest.skip("there is no record of this card's sensors: run `advisor power sensor` first")


@pytest.mark.usefixtures("record_is_there")
def test_steady_power_of_a_product_repeats() -> None:
    one, other = (run_json(*PRODUCT, "--runs", "80", "--fresh") for _ in range(2))
    assert one["captured"]
    assert one["curve"] or "not to be believed" in one["no_curve"]
    first, second = (answer["ssp_power_w"]["value"] for answer in (one, other))
    assert first == pytest.approx(second, rel=0.01)
    assert one["before_w"] < first <= 1.05 * (the_gpu().power_limit_w or 1e9)
    stretch = one["stretch"]
    if memory := stretch["memory_power_w"]:
        assert 0 < memory["low"] <= memory["high"] < stretch["power_w"]["value"]
    else:
        assert stretch["no_memory_power"]
    if one["curve"] and one["difference"] and one["execution_ms"] >= 1:
        assert abs(one["difference"]["differ"]) <= 0.03


@pytest.mark.usefixtures("record_is_there")
def test_collective_is_captured_and_draws_less_than_the_limit() -> None:
    """The second process does as much as the first, or this would never end."""
    if len(list_gpus()) < 2:
        pytest.skip("a collective needs two GPUs")
    words = ("power", "kernel", "all-reduce", "--bytes", "64MiB", "--gpu", GPU)
    answer = run_json(*words, "--runs", "40", "--fresh")
    assert answer["captured"]
    assert answer["launch_bytes"] == 64 * 2**20
    assert answer["before_w"] < answer["stretch"]["power_w"]["value"] < the_gpu().power_limit_w
