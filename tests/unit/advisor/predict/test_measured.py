"""What was measured of a pair moves its predictions: towards it, and only as far as it tells."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from made_up_profiles import Physics, Scripted, profile
from store_points import point

from advisor.core.gpu import EQUAL, NINE, SHARINGS, UNCAPPED, Sharing, Split, without_limits
from advisor.core.objectives import NORMAL_90, Interval
from advisor.predict.measured import MeasuredPredictor, Window, Windows, windows_of
from advisor.predict.predictions import (
    CARD_SPREAD,
    RATE_SPREADS,
    CardPredictor,
    Prediction,
    Predictions,
    Predictor,
    card_factor,
    host_factor,
    observation_ratio,
    predicted_part,
    reference_logs,
)
from advisor.predict.profiles import P99_MEASURED, Profile, Serving
from advisor.wire.answers import CardPower, DriftedJob, DriftQuantity
from advisor_advice.conditions import DriftPredictor

A, B = profile("a"), profile("b")


EXPECTED = Scripted({EQUAL: (0.6, 0.6, 500.0)})


FAR = Split((10.0, 90.0))


def window(
    speed: float | None = 0.5, power_w: float | None = 500.0, split: Split = EQUAL, card: str = "X"
) -> Window:
    return Window(split, (None if speed is None else 100 * speed, 60.0), power_w, card)


def at(
    windows: Sequence[Window], split: Split = EQUAL, card: str | None = None, off: float = 0.1
) -> Prediction:
    known = replace(EXPECTED, off=off)
    (found,) = MeasuredPredictor(known, {("a", "b"): windows}, card).predict([A, B], [split])
    return found


def test_nothing_measured_changes_nothing() -> None:
    (expected,) = EXPECTED.predict([A, B], [EQUAL])
    assert (at([]), at([window(None, None)]).parts[0]) == (expected, expected.parts[0])


@given(st.floats(0.2, 1.0), st.floats(0.2, 1.0), st.integers(1, 6))
def test_between_what_was_expected_and_measured_and_nearer_with_each(
    measured: float, expected: float, count: int
) -> None:
    def speed(windows: int) -> float:
        known = Scripted({EQUAL: (expected, 0.6, 500.0)})
        predictor = MeasuredPredictor(known, {("a", "b"): [window(measured)] * windows})
        return predictor.predict([A, B], [EQUAL])[0].parts[0].speed.value

    low, high = sorted((measured, expected))
    assert low - 1e-9 <= speed(count) <= high + 1e-9
    assert abs(speed(count + 1) - measured) <= abs(speed(count) - measured) + 1e-9


def test_errors_fade_with_the_distance_of_the_share() -> None:
    """Half of a job's error at 50 % is its error at 70 %, hardly any of it at 10 %."""
    known = Scripted(dict.fromkeys(NINE, (0.6, 0.6, 500.0)))
    found = MeasuredPredictor(known, {("a", "b"): [window(0.3)]}).predict([A, B], NINE)
    moves = [math.log(0.6 / p.parts[0].speed.value) for p in found]
    assert (moves[:5], moves[4:]) == (sorted(moves[:5]), sorted(moves[4:], reverse=True))
    assert moves[0] < 0.25 * moves[4]


@pytest.mark.parametrize("other", [UNCAPPED, Split((50.0, 90.0))])
def test_limits_none_and_those_that_overlap_tell_nothing_of_each_other(other: Split) -> None:
    """The model of pairs knows two limits that add up to the GPU, the law of sets those beyond."""
    found, before = at([window(0.3, 400.0, other)]), at([])
    assert found.parts[0].speed.value == pytest.approx(before.parts[0].speed.value)
    assert found.power_w.high == pytest.approx(before.power_w.high)


def test_no_card_is_expected_to_draw_more_than_any_was_seen_to() -> None:
    known = Scripted({EQUAL: (0.6, 0.6, 500.0), Split((52.0, 48.0)): (0.6, 0.6, 690.0)})
    a, b = (replace(one, power_limit_w=700.0) for one in (A, B))
    predictor = MeasuredPredictor(known, {("a", "b"): [window(power_w=600.0)] * 4})
    (found,) = predictor.predict([a, b], [Split((52.0, 48.0))])
    assert 690 < found.power_w.value == found.power_w.high <= 1.015 * 700


def test_another_card_tells_less_of_power() -> None:
    """Cards differ by 3 % below their limit, and not in speed."""
    same, other = (at([window(power_w=450.0)], card=card) for card in ("X", "Y"))
    assert 450 < same.power_w.value < other.power_w.value < 500
    assert same.parts == other.parts
    assert same.power_w.high - same.power_w.low < other.power_w.high - other.power_w.low


def test_a_server_serves_no_more_than_its_demand_and_less_where_it_was_measured() -> None:
    served = Serving(offered_rate=100.0, rate_noise=None, latency_p99_ms=())
    server = profile("a", rates=[100.0] * 10, serving=served)
    known = Scripted({EQUAL: (1.0, 0.6, 500.0)}, off=0.02)

    def speed(measured: float) -> float:
        predictor = MeasuredPredictor(known, {("a", "b"): [window(measured)]})
        return predictor.predict([server, B], [EQUAL])[0].parts[0].speed.value

    assert speed(1.08) == 1.0
    assert speed(0.84) < 0.87


def test_where_every_window_served_all_a_server_is_sure_to() -> None:
    asked = Serving(offered_rate=100.0, rate_noise=None, latency_p99_ms=())
    server = profile("a", rates=[100.0] * 10, serving=asked)
    known = Scripted(dict.fromkeys(NINE, (1.0, 0.6, 500.0)), off=0.4)

    def low(split: Split, *measured: float) -> float:
        windows = [window(speed) for speed in measured]
        (found,) = MeasuredPredictor(known, {("a", "b"): windows}).predict([server, B], [split])
        return found.parts[0].speed.low

    assert low(EQUAL, 1.0, 0.99) == 1 - asked.tolerance
    assert low(EQUAL, 1.0, 0.9) < 1 - asked.tolerance
    assert low(FAR, 1.0) < 1 - asked.tolerance


@given(st.floats(0.5, 1.5), st.floats(0.3, 1.0), st.integers(1, 4))
def test_no_job_is_expected_to_do_more_than_alone(
    measured: float, expected: float, count: int
) -> None:
    """One that was faster beside others was slow alone: else work is counted that nobody does."""
    known = Scripted({EQUAL: (expected, 0.6, 500.0)}, off=0.2)
    windows = {("a", "b"): [window(measured)] * count}
    (found,) = MeasuredPredictor(known, windows).predict([A, B], [EQUAL])
    speed = found.parts[0].speed
    assert speed.low <= speed.value <= min(speed.high, 1.0)
    assert found.stp.value <= 2


def test_bounds_of_energy_get_closer_as_those_of_speeds_and_power_do() -> None:
    class WithFactors(Physics):
        def predict(self, profiles: Any, splits: Any) -> Predictions:
            found = super().predict(profiles, splits)
            return replace(found, efficiency_factors=np.tile([[0.9], [1.2]], len(splits)))

    windows = [window(0.5), window(0.5)]
    (before,) = WithFactors().predict([A, B], [EQUAL])
    (found,) = MeasuredPredictor(WithFactors(), {("a", "b"): windows}, "X").predict([A, B], [EQUAL])
    assert found.efficiency_factors
    assert before.efficiency_factors
    low, high = found.efficiency_factors
    assert 0.9 < low < 1 < high < 1.2


@given(st.permutations([window(0.5), window(0.4, 480.0, FAR), window(0.55, 510.0, card="Y")]))
def test_the_order_of_windows_and_of_jobs_makes_no_difference(windows: list[Window]) -> None:
    predictor = MeasuredPredictor(Scripted({EQUAL: (0.6, 0.6, 500.0)}), {("a", "b"): windows})
    forward, turned = (predictor.predict(pair, [EQUAL])[0] for pair in ([A, B], [B, A]))
    speeds = [part.speed.value for part in forward.parts]
    assert speeds == pytest.approx([part.speed.value for part in turned.parts[::-1]])
    assert speeds[0] < 0.58


def test_a_tail_is_what_it_was_at_that_split() -> None:
    seen = [replace(window(), latencies_p99_ms=(ms, None)) for ms in (20.0, 30.0, 90.0)]
    first, second = at(seen).parts
    assert (first.latency_p99_ms, second.latency_p99_ms) == (P99_MEASURED.times(30.0), None)
    assert [part.latency_p99_ms for part in at(seen, FAR).parts] == [None, None]
    turned = MeasuredPredictor(Scripted({EQUAL: (0.6, 0.6, 500.0)}), {("a", "b"): seen})
    (found,) = turned.predict([B, A], [EQUAL])
    assert [part.latency_p99_ms for part in found.parts] == [None, P99_MEASURED.times(30.0)]


def test_a_job_beside_itself_is_the_same_both_ways() -> None:
    own = Window(Split((30.0, 70.0)), (20.0, 50.0), 500.0, "X")
    known = Scripted(
        {
            own.split: (0.3, 0.7, 500.0),
            Split(own.split.shares[::-1], own.split.sharing): (0.7, 0.3, 500.0),
        }
    )
    one, other = MeasuredPredictor(known, {("a", "a"): [own]}).predict(
        [A, A], [own.split, Split(own.split.shares[::-1], own.split.sharing)]
    )
    speeds = [part.speed.value for part in one.parts]
    assert speeds == pytest.approx([part.speed.value for part in other.parts[::-1]])
    assert speeds[0] < 0.25


C = profile("c")


SET = Window(without_limits("uncapped", 3), (50.0, 40.0, 30.0), 300.0, "X")


class OfSets:
    def predict(self, profiles: Sequence[Profile], splits: Sequence[Split]) -> Predictions:
        speed, power_w = Interval(0.6, 0.4, 0.9), Interval(400.0, 320.0, 500.0)
        parts = tuple(predicted_part(p, speed) for p in profiles)
        return Predictions.of([Prediction(split=s, parts=parts, power_w=power_w) for s in splits])


def of_set(profiles: Sequence[Profile], windows: Windows, *splits: Split) -> list[Prediction]:
    return [*MeasuredPredictor(OfSets(), windows).predict(profiles, splits)]


@given(st.permutations([(A, 0.5), (B, 0.4), (C, 0.3)]))
def test_a_window_of_a_set_moves_each_job_towards_its_own_rate(
    order: list[tuple[Profile, float]],
) -> None:
    (found,) = of_set([job for job, _ in order], {("a", "b", "c"): [SET]}, SET.split)
    assert 300 < found.power_w.value < 340
    assert found.power_w.high < 450
    for (_, measured), part in zip(order, found.parts, strict=True):
        assert measured < part.speed.value < measured + 0.1
        assert part.speed.low < measured < part.speed.high


def test_a_window_of_a_set_says_less_than_one_of_a_pair() -> None:
    """Sets were repeated on other hosts only; less still of jobs that their host holds up."""
    filling = profile("b", columns={"sm_active_percent": [95.0] * 10})
    widths = [
        math.log(part.speed.high / part.speed.low)
        for part in of_set([A, filling, C], {("a", "b", "c"): [SET]}, SET.split)[0].parts
    ]
    assert widths[0] > 1.2 * widths[1]
    pair = at([window(0.5)], off=0.25).parts[0].speed
    assert math.log(pair.high / pair.low) < widths[1]


def test_a_job_without_a_limit_hangs_on_the_limits_of_others() -> None:
    """What it did beside a job at 30 % says nothing of what it does beside one at 90 %."""
    near, far = (Split((100.0, 100.0, share)) for share in (30.0, 90.0))
    found = of_set([A, B, C], {("a", "b", "c"): [replace(SET, split=near)]}, near, far)
    assert found[0].parts[0].speed.value < 0.55
    assert found[1].parts[0].speed.value == pytest.approx(0.6, abs=0.01)


def test_copies_under_one_limit_do_the_same_and_limits_may_be_in_any_order() -> None:
    free = replace(SET, rates=(50.0, 40.0, 30.0), latencies_p99_ms=(8.0, None, 4.0))
    (found,) = windows_of([A, A, A], {("a", "a", "a"): [free]})
    assert (found.rates, found.latencies_p99_ms) == ((40.0, 40.0, 40.0), (6.0, 6.0, 6.0))
    one = replace(free, split=Split((100.0, 30.0, 100.0)))
    assert {w.split.shares: w.rates for w in windows_of([A, A, A], {("a", "a", "a"): [one]})} == {
        (30.0, 100.0, 100.0): (40.0, 40.0, 40.0),
        (100.0, 30.0, 100.0): (40.0, 40.0, 40.0),
        (100.0, 100.0, 30.0): (40.0, 40.0, 40.0),
    }
    mixed = windows_of([B, A, A], {("a", "a", "b"): [replace(one, rates=(50.0, 20.0, 70.0))]})
    assert {w.split.shares: w.rates for w in mixed} == {
        (100.0, 30.0, 100.0): (70.0, 20.0, 50.0),
        (100.0, 100.0, 30.0): (70.0, 50.0, 20.0),
    }


@pytest.mark.parametrize("filling", [False, True])
def test_turns_make_no_job_faster_unless_they_spare_it_long_kernels(filling: bool) -> None:
    other = profile("b", columns={"sm_active_percent": [95.0 if filling else 20.0] * 10})
    two, turns = without_limits("uncapped", 2), without_limits("time-sliced", 3)
    known = Scripted({two: (0.5, 0.5, 450.0), turns: (1.0, 1.0, 1.0, 400.0)})
    windows = [Window(two, (50.0, 50.0), 500.0, "X")] * 3
    (found,) = MeasuredPredictor(known, {("a", "a"): windows}).predict([A, A, other], [turns])
    most = 1.0 if filling else 0.5
    assert [part.speed.value for part in found.parts] == pytest.approx([most, most, 1.0])
    assert found.power_w.value == 400.0


@given(st.floats(0.3, 1.0), st.floats(0.3, 1.0), st.sampled_from(SHARINGS[1:3]))
def test_no_job_is_faster_beside_more_than_beside_fewer(
    measured: float, expected: float, sharing: Sharing
) -> None:
    """Two of a were measured, three with b were not; under a limit on b they have none either."""
    two, four = without_limits(sharing, 2), without_limits(sharing, 4)
    b_held = Split((100.0, 100.0, 100.0, 50.0))
    speeds = [expected] * 4
    known = {two: (expected, expected, 450.0), four: (*speeds, 400.0), b_held: (*speeds, 400.0)}
    windows = [Window(two, (100 * measured, 100 * measured), 500.0, "X")] * 3
    predictor = MeasuredPredictor(Scripted(known), {("a", "a"): windows})
    (fewer,) = predictor.predict([A, A], [two])
    found, held = predictor.predict([A, A, A, B], [four, b_held])
    most = min(expected, fewer.parts[0].speed.value)
    assert [part.speed.value for part in found.parts] == [most, most, most, expected]
    assert found.power_w.value == fewer.power_w.value > 400
    assert held.parts[0].speed.value == (most if sharing == "uncapped" else expected)
    for part in found.parts:
        assert part.speed.low <= part.speed.value <= part.speed.high


def drift(quantity: DriftQuantity, ratio: float) -> DriftedJob:
    return DriftedJob(
        job="a", gpu_model="NVIDIA H200", gpu_uuid="GPU-1", quantity=quantity, ratio=ratio,
        since="2026-11-22", observations=8,
    )  # fmt: skip


def test_only_the_bounds_of_the_drifted_job_move() -> None:
    profiles = (profile("a"), profile("b"))
    (before,) = Physics().predict(profiles, [EQUAL])
    known = {("a", "rate"): drift("rate", 0.8), ("a", "power"): drift("power", 1.1)}
    (after,) = DriftPredictor(Physics(), known).predict(profiles, [EQUAL])
    a, b = after.parts
    assert a.speed.value == before.parts[0].speed.value
    assert a.speed.low == pytest.approx(0.8 * before.parts[0].speed.low)
    assert (a.speed.high, b) == (before.parts[0].speed.high, before.parts[1])
    assert after.power_w.high == pytest.approx(1.1 * before.power_w.high)
    assert after.efficiency_factors is None


# What one card draws of what others of its model do, and predictions for it.


FACTOR = CardPower(
    gpu_uuid="GPU-1", power_factor=Interval(0.9, 0.885, 0.915), references=3, observations=2
)


def test_without_anything_seen_there_is_no_factor() -> None:
    assert card_factor("GPU-1", {"GPU-2": {"fft": 0.03}}, {}) is None


@given(st.floats(-0.3, 0.3), st.integers(1, 50))
def test_factor_is_shrunk_and_more_jobs_shrink_it_less(log: float, jobs: int) -> None:
    found = [
        card_factor("GPU-1", {}, {("a", str(n)): [log] for n in range(count)})
        for count in (jobs, jobs + 1)
    ]
    few, more = ((math.log(one.power_factor.value), one.log_stderr) for one in found if one)
    assert abs(few[0]) <= abs(more[0]) <= abs(log) + 1e-12
    assert few[0] * log >= 0
    assert more[1] < few[1] < CARD_SPREAD


def test_a_pair_counts_once() -> None:
    """A model that is wrong about a pair is wrong each time it is launched."""
    once = card_factor("GPU-1", {}, {("a", "b"): [0.1]})
    assert card_factor("GPU-1", {}, {("a", "b"): [0.1] * 9}) == once


def test_references_are_held_against_other_cards() -> None:
    """Where all cards draw 5 % more than the profiled one, such a card is a usual one."""
    found = card_factor("GPU-1", {f"GPU-{n}": {"fft": 0.05, "gemm": 0.05} for n in range(5)}, {})
    assert found
    assert (found.power_factor.value, found.references) == (pytest.approx(1.0), 2)


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
    (expected,) = Physics().predict((profile("a"), profile("b")), [EQUAL])
    rates = [part.rate.value for part in expected.parts]
    power_w = expected.power_w.value
    assert observation_ratio(0.95 * power_w, rates, expected, 700.0) == pytest.approx(
        math.log(0.95)
    )
    assert observation_ratio(0.95 * power_w, [rates[0], 0.9 * rates[1]], expected, 700.0) is None
    assert observation_ratio(0.95 * power_w, rates, expected, power_w) is None
    assert observation_ratio(power_w, rates, expected, None) == 0.0


def on_card(known: Profile, card: CardPower = FACTOR) -> Profile:
    (there,) = CardPredictor(Physics(), [known], card).brought
    return there


def test_profile_on_a_card() -> None:
    """Power below the limit is scaled; at the limit the card is at it, too; rates stay."""
    known = profile("a", shares=(20, 50, 100), columns={"power_w": [200.0, 400.0, 695.0]})
    there = on_card(known)
    assert there.values["power_w"].tolist() == pytest.approx([180.0, 360.0, 695.0])
    assert np.array_equal(there.values["rate"], known.values["rate"])
    more = on_card(known, replace(FACTOR, power_factor=Interval(1.8, 1.77, 1.83)))
    assert more.values["power_w"].tolist() == pytest.approx([360.0, 700.0, 695.0])
    assert on_card(replace(known, gpu_uuids=frozenset({"GPU-1"}))).values is known.values


def predicted(factor: CardPower, predictor: Predictor | None = None) -> tuple[Prediction, ...]:
    profiles: Sequence[Profile] = (profile("a"), profile("b"))
    usual = predictor or Physics()
    (before,) = usual.predict(profiles, [EQUAL])
    there = CardPredictor(usual, profiles, factor)
    (after,) = there.predict(there.brought, [EQUAL])
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
    factor = Interval.sure(math.exp(log)).spread_by(stderr**2)
    before, after = predicted(replace(FACTOR, power_factor=factor), Physics(off=off))
    ratio = after.power_w.value / before.power_w.value
    assert (ratio - 1) * log >= 0
    assert after.power_w.low == pytest.approx(before.power_w.low * ratio)
    assert after.power_w.high == pytest.approx(before.power_w.high * ratio)
