"""When what a job does counts as having drifted from what is expected of it."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from advisor.core.objectives import Interval
from advisor.validity.drift import (
    MOST,
    SLACK,
    THRESHOLD,
    Compared,
    drifts_of,
    find_changes,
    find_drifts,
    widened,
)
from advisor.wire.answers import DriftedJob

ONE = Compared(
    job="job",
    gpu_model="GPU",
    gpu_uuid="GPU-1",
    quantity="rate",
    setting="job + other 50/50",
    observed=100.0,
    expected=Interval(100.0, 90.0, 110.0),
    at="",
)


def launches(ratios: Sequence[float], **fields: object) -> list[Compared]:
    return [
        replace(ONE, observed=100.0 * ratio, at=f"2026-11-22T{n:04d}", **fields)
        for n, ratio in enumerate(ratios)
    ]


def noisy(count: int, ratio: float, seed: int = 1) -> list[float]:
    draw = random.Random(seed)
    return [ratio * (1 + draw.gauss(0, 0.01)) for _ in range(count)]


def test_change_is_found_with_its_size_and_moment() -> None:
    (drift,) = find_drifts(launches([*noisy(20, 1.0), *noisy(10, 0.8)]))
    assert (drift.ratio, drift.since) == (pytest.approx(0.8, rel=0.02), "2026-11-22T0020")
    assert drift.observations == 10
    assert (drift.job, drift.gpu_uuid, drift.quantity) == ("job", "GPU-1", "rate")


@pytest.mark.parametrize(
    "ratios",
    [noisy(300, 1.09), [*noisy(20, 0.8), *noisy(20, 1.0)]],
    ids=["always as wrong", "towards the prediction"],
)
def test_what_is_no_drift(ratios: list[float]) -> None:
    assert find_drifts(launches(ratios)) == ()


def test_other_pair_with_another_error_is_no_drift() -> None:
    there = launches(noisy(20, 0.95))
    other = launches(noisy(40, 1.06), setting="job + third 30/70")[20:]
    assert find_drifts([*there, *other]) == ()


def test_change_back_ends_the_drift() -> None:
    away = [*noisy(20, 1.0), *noisy(10, 0.8)]
    assert find_drifts(launches(away))
    assert find_drifts(launches([*away, *noisy(10, 1.0, seed=2)])) == ()


@given(st.floats(0.01, 100))
def test_one_launch_never_trips(ratio: float) -> None:
    assert find_drifts(launches([*noisy(30, 1.0), ratio])) == ()


def test_all_partners_share_a_change() -> None:
    ratios = [*noisy(30, 1.0), *noisy(6, 0.8)]
    mixed = [replace(one, setting=f"job + {n % 5}") for n, one in enumerate(launches(ratios))]
    (drift,) = find_drifts(mixed)
    assert drift.since == "2026-11-22T0030"


def test_cards_and_quantities_are_apart() -> None:
    changed = launches([*noisy(20, 1.0), *noisy(10, 0.8)])
    steady = launches(noisy(30, 1.0), gpu_uuid="GPU-2")
    power = launches(noisy(30, 1.0), quantity="power")
    assert [(d.gpu_uuid, d.quantity) for d in find_drifts([*steady, *power, *changed])] == [
        ("GPU-1", "rate")
    ]


def test_new_software_is_named() -> None:
    before = launches(noisy(20, 1.0), software=("driver 580",))
    after = launches(noisy(30, 0.8), software=("driver 590", "cublas 13"))[20:]
    (drift,) = find_drifts([*before, *after])
    assert drift.software == ("cublas 13", "driver 590")
    assert "since cublas 13, driver 590" in drift.text
    (drift,) = find_drifts([*[replace(one, software=()) for one in before], *after])
    assert drift.software == ()


def test_what_cannot_be_compared_is_left_out() -> None:
    wide = launches([0.5, 1.5], expected=Interval(100.0, 0.0, 110.0))
    assert find_drifts([*launches([0.0] * 20), *wide]) == ()


values = st.lists(st.tuples(st.sampled_from(["a", "b"]), st.floats(-20, 20)), max_size=60)


@given(values)
def test_changes_are_in_order_and_mirrored(series: list[tuple[str, float]]) -> None:
    changes, off = find_changes(series)
    assert changes == sorted(set(changes))
    assert all(0 <= number < len(series) for number in changes)
    mirrored, other = find_changes([(setting, -value) for setting, value in series])
    assert (mirrored, other) == (changes, pytest.approx(-off))


def test_fewest_launches_that_trip() -> None:
    """As many as the bound of one residual takes to reach the threshold."""
    fewest = -(-THRESHOLD // (MOST - SLACK))
    steady = [("a", 0.0)] * 30
    off = [("a", 50.0)] * int(fewest)
    assert (find_changes([*steady, *off[1:]])[0], find_changes([*steady, *off])[0]) == ([], [30])


@given(st.floats(0.1, 10))
def test_widened_holds_the_drifted_bounds(ratio: float) -> None:
    found = widened(Interval(100.0, 90.0, 110.0), ratio)
    assert (found.value, found.low) == (100.0, pytest.approx(min(90.0, 90.0 * ratio)))
    assert found.high == pytest.approx(max(110.0, 110.0 * ratio))


def test_drifts_of_a_card_and_of_any() -> None:
    mild = DriftedJob(
        job="job", gpu_model="GPU", gpu_uuid="GPU-1", quantity="rate", ratio=0.9, since="",
        observations=9,
    )  # fmt: skip
    worse = replace(mild, gpu_uuid="GPU-2", ratio=1.3)
    other = replace(mild, gpu_model="other", ratio=3.0)
    known = [mild, worse, other, replace(mild, job="third", ratio=4.0)]
    assert drifts_of(known, ["job"], "GPU", "GPU-1") == {("job", "rate"): mild}
    assert drifts_of(known, ["job"], "GPU", None) == {("job", "rate"): worse}
