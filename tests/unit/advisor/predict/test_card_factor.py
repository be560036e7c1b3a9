"""What one card draws of what others of its model do, and predictions for it."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_profiles import Physics, profile
from store_points import point

from advisor.core.gpu import EQUAL
from advisor.core.objectives import NORMAL_90, Interval
from advisor.predict.card_factor import (
    CARD_SPREAD,
    RATE_SPREADS,
    CardFactor,
    CardPredictor,
    card_factor,
    host_factor,
    observation_ratio,
    reference_logs,
)
from advisor.predict.predictions import Prediction, Predictor
from advisor.predict.profiles import Profile

FACTOR = CardFactor(
    gpu_uuid="GPU-1", log_factor=math.log(0.9), log_stderr=0.01, references=3, observations=2
)


def test_without_anything_seen_there_is_no_factor() -> None:
    assert card_factor("GPU-1", {"GPU-2": {"fft": 0.03}}, {}) is None


@given(st.floats(-0.3, 0.3), st.integers(1, 50))
def test_factor_is_shrunk_and_more_jobs_shrink_it_less(log: float, jobs: int) -> None:
    found = [
        card_factor("GPU-1", {}, {("a", str(n)): [log] for n in range(count)})
        for count in (jobs, jobs + 1)
    ]
    few, more = (one for one in found if one)
    assert abs(few.log_factor) <= abs(more.log_factor) <= abs(log)
    assert few.log_factor * log >= 0
    assert more.log_stderr < few.log_stderr < CARD_SPREAD


def test_a_pair_counts_once() -> None:
    """A model that is wrong about a pair is wrong each time it is launched."""
    once = card_factor("GPU-1", {}, {("a", "b"): [0.1]})
    assert card_factor("GPU-1", {}, {("a", "b"): [0.1] * 9}) == once


def test_references_are_held_against_other_cards() -> None:
    """Where all cards draw 5 % more than the profiled one, such a card is a usual one."""
    cards = {f"GPU-{n}": {"fft": 0.05, "gemm": 0.05} for n in range(5)}
    found = card_factor("GPU-1", cards, {})
    assert found
    assert (found.log_factor, found.references) == (pytest.approx(0.0), 2)


def test_references_that_can_be_compared() -> None:
    known = profile("fft", gpu_uuids=frozenset({"GPU-profiled"}))
    fine = point(
        job="fft", gpu_model=known.gpu_model, gpu_uuid="GPU-1", share_percent=100.0, rate=100.0,
        power_w=440.0, flags=(),
    )  # fmt: skip
    profiles = {("fft", known.gpu_model): known}
    assert reference_logs([fine], profiles, known.gpu_model) == {
        "GPU-1": {"fft": pytest.approx(math.log(440 / 400))}
    }
    for other in (
        replace(fine, rate=97.0),
        replace(fine, power_w=690.0),
        replace(fine, power_w=None),
        replace(fine, share_percent=90.0),
        replace(fine, flags=("cpu-bound",)),
        replace(fine, flags=("degenerate-data",)),
        replace(fine, gpu_uuid="GPU-profiled"),
        replace(fine, gpu_model="NVIDIA H100"),
        replace(fine, job="gemm"),
    ):
        assert reference_logs([other], profiles, known.gpu_model) == {}


def test_a_host_counts_by_windows_of_the_job_there() -> None:
    """One window is shrunk, more of them less; with none ranges hold what hosts differ by."""
    known = profile("fft")
    here = point(job="fft", share_percent=100.0, rate=1.43 * known.whole_gpu_rate, flags=())
    others = (
        replace(here, share_percent=90.0), replace(here, flags=("cpu-steal",)),
        replace(here, rate_unit="images"),
    )  # fmt: skip
    (nothing, wide), (once, narrow), (twice, narrower) = (
        host_factor("launch-bound", known, windows) for windows in (others, [here], [here] * 2)
    )
    assert 0 == nothing < once < twice < math.log(1.43) < NORMAL_90 * wide
    assert wide > narrow > narrower > RATE_SPREADS["launch-bound"][1]
    assert host_factor("filling", known, ())[1] < 0.1


@given(st.floats(0.01, 1e4), st.floats(0, 1), st.floats(1, 9), st.floats(0.01, 2))
def test_a_range_that_is_spread_can_be_taken_back(
    value: float, low: float, high: float, spread: float
) -> None:
    known = Interval(value, low * value, high * value)
    wider = known.spread_by(spread**2)
    assert wider.low <= known.low * (1 + 1e-9)
    assert wider.high > known.high
    again = wider.spread_by(-(spread**2))
    assert (again.low, again.high) == (
        pytest.approx(known.low, abs=1e-6 * value), pytest.approx(known.high)
    )  # fmt: skip


def test_observations_that_can_be_compared() -> None:
    """At the expected rates and below the limit; else something else than the card differs."""
    profiles = (profile("a"), profile("b"))
    (expected,) = Physics().predict(profiles, [EQUAL])
    rates = [part.rate.value for part in expected.parts]
    power_w = expected.power_w.value
    assert observation_ratio(0.95 * power_w, rates, expected, 700.0) == pytest.approx(
        math.log(0.95)
    )
    assert observation_ratio(0.95 * power_w, [rates[0], 0.9 * rates[1]], expected, 700.0) is None
    assert observation_ratio(0.95 * power_w, rates, expected, power_w) is None
    assert observation_ratio(power_w, rates, expected, None) == 0.0


def on_card(known: Profile, **factor: float) -> Profile:
    (there,) = CardPredictor(Physics(), [known], replace(FACTOR, **factor)).brought([known])
    return there


def test_profile_on_a_card() -> None:
    """Power below the limit is scaled; at the limit the card is at it, too; rates stay."""
    known = profile("a", shares=(20, 50, 100), columns={"power_w": [200.0, 400.0, 695.0]})
    there = on_card(known)
    assert there.values["power_w"].tolist() == pytest.approx([180.0, 360.0, 695.0])
    assert np.array_equal(there.values["rate"], known.values["rate"])
    more = on_card(known, log_factor=math.log(1.8))
    assert more.values["power_w"].tolist() == pytest.approx([360.0, 700.0, 695.0])
    assert on_card(replace(known, gpu_uuids=frozenset({"GPU-1"}))).values is known.values


def predicted(factor: CardFactor, predictor: Predictor | None = None) -> tuple[Prediction, ...]:
    profiles: Sequence[Profile] = (profile("a"), profile("b"))
    usual = predictor or Physics()
    (before,) = usual.predict(profiles, [EQUAL])
    there = CardPredictor(usual, profiles, factor)
    (after,) = there.predict(there.brought(profiles), [EQUAL])
    return before, after


def test_prediction_on_a_card() -> None:
    before, after = predicted(FACTOR)
    # Two jobs with 250 W each at 50 %, of which 80 W are idle.
    assert (before.power_w.value, after.power_w.value) == pytest.approx((420.0, 370.0))
    assert [part.speed for part in after.parts] == [part.speed for part in before.parts]
    assert [part.solo_power_w for part in after.parts] == pytest.approx([360.0, 360.0])


@given(st.floats(-0.2, 0.05), st.floats(0.001, CARD_SPREAD), st.floats(0.01, 0.3))
def test_interval_moves_and_is_as_wide(log: float, stderr: float, off: float) -> None:
    """However well the card is known, a pair that was never measured is known no better."""
    factor = replace(FACTOR, log_factor=log, log_stderr=stderr)
    before, after = predicted(factor, Physics(off=off))
    ratio = after.power_w.value / before.power_w.value
    assert (ratio - 1) * log >= 0
    assert after.power_w.low == pytest.approx(before.power_w.low * ratio)
    assert after.power_w.high == pytest.approx(before.power_w.high * ratio)
