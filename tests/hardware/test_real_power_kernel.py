"""`advisor power kernel` on a real GPU: a matrix product, alone and again."""

import pytest
from real_gpu import GPU, run_json, the_gpu

from advisor.settings import read_settings
from advisor.validity.sensor_record import record_for, stored_records

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

PRODUCT = ("power", "kernel", "gemm", "--m", "8192", "--n", "8192", "--k", "8192", "--gpu", GPU)


@pytest.fixture
def record_is_there() -> None:
    gpu, home = the_gpu(), read_settings().home
    if record_for(gpu.uuid, gpu.model, gpu.driver or "", stored_records(home)) is None:
        pytest.skip("there is no record of this card's sensors: run `advisor power sensor` first")


@pytest.mark.usefixtures("record_is_there")
def test_steady_power_of_a_product_repeats() -> None:
    """Within 1 %, below the limit of the card; curve and counter agree where both say something."""
    one, other = (run_json(*PRODUCT, "--runs", "80", "--fresh") for _ in range(2))
    assert one["captured"]
    assert one["curve"], one["no_curve"]
    first, second = (answer["ssp_power_w"]["value"] for answer in (one, other))
    assert first == pytest.approx(second, rel=0.01)
    assert one["before_w"] < first <= 1.05 * (the_gpu().power_limit_w or 1e9)
    if one["difference"] and one["execution_ms"] >= 1:
        assert abs(one["difference"]["differ"]) <= 0.03
