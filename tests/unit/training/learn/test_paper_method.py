"""The paper's formulation: its features by hand, and what it learns."""

import dataclasses

import numpy as np
import pytest
import synthetic_pairs as made_up
from made_up_rows import full_solo_points

from advisor.predict.profiles import Profile, make_profiles
from advisor_training.dataset.data import Data, make_data
from advisor_training.learn.paper_method import AVERAGED, paper_features, paper_learner, slope

MODEL = made_up.GPU_MODEL

PAIRS = [(made_up.CLIMBER, made_up.SITTER), (made_up.HOG, made_up.CLIMBER),
         (made_up.HOG, made_up.MIDDLE), (made_up.MIDDLE, made_up.SLOW)]  # fmt: skip


@pytest.fixture(scope="module")
def data() -> Data:
    return make_data(made_up.pair_points(PAIRS), full_solo_points())


def test_percentages_are_averaged_and_the_rest_summed(data: Data) -> None:
    """Section 3.2, for a row whose jobs are known in closed form."""
    at = (data.rows.job_a == "climber") & (data.rows.job_b == "sitter") & (data.rows.share_a == 30)
    found = paper_features(data.rows.take(at), data.profiles, "rates")
    assert found.shape == (1, 9)
    by_name = dict(zip([*AVERAGED, "tx", "rx", "rate", "slope"], found[0].tolist(), strict=True))
    climber, sitter = (data.profiles[name, MODEL] for name in ("climber", "sitter"))
    assert by_name["sm_active_percent"] == pytest.approx((95 * 0.3 + 15 * 0.7) / 2)
    assert by_name["fp32_active_percent"] == 10
    assert (by_name["tx"], by_name["rx"]) == (20, 20)
    rates = 200 * made_up.CLIMBER.speed(30) + 900 * made_up.SITTER.speed(70)
    assert by_name["rate"] == pytest.approx(rates)
    assert by_name["slope"] == pytest.approx(slope(climber) + slope(sitter))


def test_the_slope_of_a_job_whose_speed_is_its_share() -> None:
    """200 steps per second over 100 %: 2 for each 1 %."""
    profile = make_profiles(made_up.solo_points([made_up.CLIMBER]))["climber", MODEL]
    assert slope(profile) == pytest.approx(2, rel=0.01)


def test_speeds_are_relative_to_the_whole_gpu(data: Data) -> None:
    """For the normalised objective no unit of progress is left in the features."""
    faster: dict[tuple[str, str], Profile] = {
        key: dataclasses.replace(
            profile, values={**profile.values, "rate": 1000 * profile.values["rate"]}
        )
        for key, profile in data.profiles.items()
    }
    np.testing.assert_allclose(
        paper_features(data.rows, faster, "speeds"),
        paper_features(data.rows, data.profiles, "speeds"),
    )
    raw = paper_features(data.rows, faster, "rates")[:, -2:]
    np.testing.assert_allclose(
        raw, 1000 * paper_features(data.rows, data.profiles, "rates")[:, -2:]
    )


def test_it_gives_back_the_sums_that_it_learned(data: Data) -> None:
    """Asked for rows that it has learned, full-grown trees know their sums and power."""
    nine = data.rows.take(data.rows.kind == "nine")
    speeds = paper_learner(data.profiles, "speeds")(data.rows)(nine)
    np.testing.assert_allclose(speeds.speed.sum(axis=1), nine.speed_a + nine.speed_b)
    np.testing.assert_allclose(speeds.power_w, nine.power_w)
    rates = paper_learner(data.profiles, "rates")(data.rows)(nine)
    np.testing.assert_allclose(
        rates.speed[:, 0] * nine.solo_rate_a + rates.speed[:, 1] * nine.solo_rate_b,
        nine.speed_a * nine.solo_rate_a + nine.speed_b * nine.solo_rate_b,
    )


def test_uncapped_is_not_learned_from(data: Data) -> None:
    """The paper has nine splits: whatever uncapped was, its method is the same."""
    odd = dataclasses.replace(
        data.rows, power_w=np.where(data.rows.kind == "uncapped", 1.0, data.rows.power_w)
    )
    learn = paper_learner(data.profiles, "speeds")
    np.testing.assert_array_equal(
        learn(odd)(data.rows).power_w, learn(data.rows)(data.rows).power_w
    )
