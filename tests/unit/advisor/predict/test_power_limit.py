"""Speeds under a lower power limit, and the limit that saves most energy."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st
from made_up_profiles import Physics, profile

from advisor.core.gpu import ALL_GPUS, EQUAL, UNCAPPED, Split, without_limits
from advisor.errors import InputError
from advisor.predict.predictions import (
    KEPT,
    LimitPredictor,
    limit_warnings,
    lower_limit,
    under_limit,
)
from advisor.predict.profiles import EXPONENT, FIXED, speed_left
from advisor.predict.sets import SetPredictor

POWERS_W = st.floats(300.0, 900.0)


@given(POWERS_W, POWERS_W, POWERS_W)
def test_two_limits_after_each_other_are_the_lower_one(a: float, b: float, wanted: float) -> None:
    low, high = sorted((a, b))
    once = speed_left(low, wanted, 700.0)
    assert once == pytest.approx(
        speed_left(high, wanted, 700.0) * speed_left(low, min(high, wanted), 700.0)
    )
    assert once == pytest.approx(1.0) if wanted <= low else once < 1


def test_only_shares_that_draw_more_are_slower_and_less_sure() -> None:
    known = profile("a")
    found = under_limit(known, 370.0)
    slower = ((370 - FIXED * 700) / (400 - FIXED * 700)) ** EXPONENT
    assert found.values["rate"][-1] == pytest.approx(slower * known.values["rate"][-1])
    assert found.values["power_w"].max() == 370
    below = known.values["power_w"] <= 370
    assert np.array_equal(found.values["rate"][below], known.values["rate"][below])
    assert found.doubt is not None
    assert found.doubt[0][-1] > found.doubt[0][0] == 0
    assert (found.power_limit_w, found.measured) == (370, known)


def test_limits_that_are_not_lower_change_nothing_and_those_far_below_are_refused() -> None:
    known = profile("a")
    assert under_limit(known, 700.4) is known
    for asked, limit_w, told in (
        (
            known,
            900.0,
            "a was profiled under 700 W, so this is for that limit: nothing was measured above",
        ),
        (
            profile("a", power_limit_w=None),
            300.0,
            "a was profiled under a power limit that was not read",
        ),
        (known, 500.0, "no job was measured at a power limit of 500 W"),
    ):
        found = under_limit(asked, limit_w)
        assert found.measured is asked
        assert (found.lowered_w is None) is (found.values is asked.values)
        assert told in "".join(limit_warnings([found, asked]))
    with pytest.raises(InputError, match="limits are known down to half of that") as refused:
        under_limit(known, 340.0)
    assert "advisor profile a" in str(refused.value.fix)


@pytest.mark.parametrize("predictor", [SetPredictor(), Physics()])
def test_jobs_together_slow_down_as_their_watts_say(predictor: SetPredictor | Physics) -> None:
    """Each for each 1 alone under the same limit; alone on a GPU none is slower than that."""
    jobs = [profile("a"), profile("b")]
    splits = [EQUAL, without_limits("exclusive", 2)]
    before = predictor.predict(jobs, splits)
    limited = LimitPredictor(predictor, jobs, 350.0)
    found = limited.predict(limited.brought, splits)
    assert found.power_w.max() <= 350 < before.power_w[0, 0]
    alone = speed_left(350.0, 400.0, 700.0)
    slower = speed_left(350.0, before.power_w[0, 0], 700.0) / alone
    assert found.speeds[0, :, 0] == pytest.approx(slower * before.speeds[0, :, 0])
    assert found.speeds[0, :, 1] == pytest.approx(before.speeds[0, :, 1])
    assert found.solo[0][:2] == pytest.approx((100 * alone, 350.0))


def test_each_of_two_gpus_has_its_own_watts_under_the_limit() -> None:
    """A job of two GPUs loses there what it does on one, and both draw the limit twice."""
    one = LimitPredictor(SetPredictor(), jobs := [profile("a"), profile("b")], 350.0)
    found = one.predict(one.brought, [UNCAPPED])
    two = LimitPredictor(SetPredictor(), [replace(jobs[0], gpus=2), *jobs[1:] * 2], 350.0)
    both = two.predict(two.brought, [Split((100.0,) * 3, "uncapped", (), (ALL_GPUS, 0, 1))])
    assert both.power_w[0, 0] == pytest.approx(2 * found.power_w[0, 0]) == 700
    assert both.speeds[0, 0, 0] == pytest.approx(found.speeds[0, 0, 0], rel=0.1)


def test_the_limit_that_saves_most_keeps_speeds_and_floors() -> None:
    jobs = [profile("a")]
    found = lower_limit(jobs, 690.0, [0.4])
    assert found
    left = speed_left(found.power_limit_w, 690.0, 700.0)
    assert left >= KEPT > speed_left(found.power_limit_w - 5, 690.0, 700.0)
    saved, longer = found.energy_saved, found.longer
    assert saved.value == pytest.approx(1 - found.power_limit_w / 690 / left)
    assert (longer.value, longer.low < longer.value < longer.high) == (1 / left - 1, True)
    assert saved.low < saved.value < saved.high
    higher = lower_limit(jobs, 690.0, [0.97])
    assert higher
    assert higher.power_limit_w > found.power_limit_w
    assert lower_limit(jobs, 690.0, [0.999]) is None


def test_no_limit_is_offered_where_it_saves_little_or_nothing_is_known() -> None:
    """A job of few watts, cards of two limits, an unknown limit, or no lower one left."""
    a = profile("a")
    assert lower_limit([a], 300.0, [0.4]) is None
    assert lower_limit([a, profile("b", power_limit_w=600.0)], 690.0, [0.4, 0.4]) is None
    assert lower_limit([profile("a", power_limit_w=None)], 690.0, [0.4]) is None
    assert lower_limit([under_limit(a, 350.0)], 350.0, [0.4]) is None
