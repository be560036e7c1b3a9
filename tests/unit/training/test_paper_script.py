"""docs/measurements/paper.py: figures of the seed paper."""

from pathlib import Path
from runpy import run_path

import numpy as np
import pytest
import synthetic_pairs as made_up
from made_up_rows import full_solo_points

from advisor_training.rows import Data, make_data

PAPER = run_path(str(Path(__file__).parents[3] / "docs/measurements/paper.py"))
MADE_UP_GPU = made_up.GPU_MODEL

PAIRS = [(made_up.CLIMBER, made_up.SITTER), (made_up.HOG, made_up.CLIMBER),
         (made_up.HOG, made_up.MIDDLE), (made_up.MIDDLE, made_up.SLOW)]  # fmt: skip


@pytest.fixture(scope="module")
def data() -> Data:
    return make_data(made_up.pair_points(PAIRS), full_solo_points())


def test_percentages_are_averaged_and_the_rest_summed(data: Data) -> None:
    """Section 3.2, for a row whose jobs are known in closed form."""
    at = (data.rows.job_a == "climber") & (data.rows.job_b == "sitter") & (data.rows.share_a == 30)
    found = PAPER["paper_features"](data.rows.take(at), data)
    assert found.shape == (1, 9)
    names = [*PAPER["AVERAGED"], "tx", "rx", "rate", "slope"]
    by_name = dict(zip(names, found[0].tolist(), strict=True))
    assert by_name["sm_active_percent"] == pytest.approx((95 * 0.3 + 15 * 0.7) / 2)
    assert by_name["fp32_active_percent"] == 10
    assert (by_name["tx"], by_name["rx"]) == (20, 20)
    rates = 200 * made_up.CLIMBER.speed(30) + 900 * made_up.SITTER.speed(70)
    assert by_name["rate"] == pytest.approx(rates)
    slopes = [PAPER["slope"](data.profiles[name, MADE_UP_GPU]) for name in ("climber", "sitter")]
    assert slopes[0] == pytest.approx(2, rel=0.01), "200 steps per second over 100 %"
    assert by_name["slope"] == pytest.approx(sum(slopes))


def test_it_gives_back_the_sums_that_it_learned(data: Data) -> None:
    """Asked for rows that it has learned, full-grown trees know their sums and power."""
    nine = data.rows.take(data.rows.kind == "nine")
    found = PAPER["paper_learner"](data)(data.rows)(nine)
    np.testing.assert_allclose(
        found.speed[:, 0] * nine.solo_rate_a + found.speed[:, 1] * nine.solo_rate_b,
        nine.speed_a * nine.solo_rate_a + nine.speed_b * nine.solo_rate_b,
    )
    np.testing.assert_allclose(found.power_w, nine.power_w)
