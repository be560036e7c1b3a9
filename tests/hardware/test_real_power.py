"""`advisor power` on a real GPU: a matrix product, the sensor, and what data draw."""

from pathlib import Path

import pytest
from real_gpu import GPU, nobody_computes, run_json, the_gpu

from advisor.settings import read_settings
from advisor.validity.sensor_record import SENSOR_RECORDS, record_for
from advisor_data.bundled import all_sensors
from advisor_power.data.measuring import case_of, filled, open_inputs
from advisor_power.data.operands import DTYPES
from advisor_power.gpu_worker import WorkerPlace
from advisor_profiling.testbed import list_gpus

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

# At a number of SMs where neither the power limit nor heat holds the clock back.
SIZE = "--m 8192 --n 8192 --k 8192 --units 34"
PRODUCT = ("power", "kernel", "gemm", *SIZE.split(), "--gpu", GPU)


@pytest.fixture
def record_is_there() -> None:
    gpu, home = the_gpu(), read_settings().home
    if record_for(gpu.uuid, gpu.model, gpu.driver or "", all_sensors(home)) is None:
        pytest.skip("there is no record of this card's sensors: run `advisor power sensor` first")


@pytest.mark.usefixtures("record_is_there")
def test_steady_power_of_a_product_repeats() -> None:
    """Runs whose powers agree within 1 % count as steady, so each value may be so far off.

    Executions that take another time ran at another clock.
    """
    answers = [run_json(*PRODUCT, "--runs", "80", "--fresh") for _ in range(2)]
    names = ("ssp_power_w", "ssp_execution", "execution_ms", "golden_runs", "dropped", "difference")
    shown = [{name: answer[name] for name in names} for answer in answers]
    powers_w = [answer["ssp_power_w"] for answer in answers]
    assert all(powers_w), shown
    lowest_w = max(power["low"] - 0.01 * power["value"] for power in powers_w)
    assert lowest_w <= min(power["high"] + 0.01 * power["value"] for power in powers_w), shown
    # By another instrument, over the same executions.
    for answer in [answer for answer in answers if answer["difference"]]:
        counted_j = answer["difference"]["counter"]["value"]
        assert answer["ssp_energy_j"]["value"] == pytest.approx(counted_j, rel=0.03), shown
    one = answers[0]
    assert one["captured"]
    assert one["curve"] or "not to be believed" in one["no_curve"]
    assert one["before_w"] < powers_w[0]["value"] <= 1.05 * (the_gpu().power_limit_w or 1e9)
    stretch = one["stretch"]
    if memory := stretch["memory_power_w"]:
        assert 0 < memory["low"] <= memory["high"] < stretch["power_w"]["value"]
    else:
        assert stretch["no_memory_power"]


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


# The sensor: about four minutes. No setting of the card is changed.


def test_sensor_of_this_card_is_found_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path))
    answer = run_json("power", "sensor", "--gpu", GPU)
    print(answer)
    assert answer["gpu_uuid"] == the_gpu().uuid
    assert answer["seconds"] <= 240
    assert answer["accepted"]
    named = {channel["name"] for channel in answer["channels"]} | set(answer["absent"])
    assert named >= {"instant", "average", "memory"}
    for channel in answer["channels"]:
        reasons = [r for r in answer["reasons"] if r.startswith(f"{channel['name']}: ")]
        assert channel["accepted"] != bool(reasons)
    (kept,) = SENSOR_RECORDS.read(tmp_path)
    assert kept.gpu_uuid == answer["gpu_uuid"]
    assert nobody_computes()
    (recording,) = (tmp_path / "sensors/recordings").glob("*.jsonl")
    assert run_json("power", "sensor", "--trace", str(recording))["channels"] == answer["channels"]


# What data draw, and whether outputs are right.


SIDE = 4096

UNITS = 34  # safe, and below the power limit


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
