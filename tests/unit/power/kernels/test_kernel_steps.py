"""The single steps: clocks, golden runs, steady executions, steady power, and what a plan costs."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_kernel import INSTANT

from advisor.errors import InputError, SourceError
from advisor_power.kernels.analyse import (
    golden,
    guidance,
    search_ssp,
    shortest_run,
    steady_execution,
)
from advisor_power.kernels.plan import (
    check_cost,
    check_resolution,
    make_plan,
    readings_needed,
    runs_for,
    sigma_power_w,
)
from advisor_power.kernels.runs import PingPong, fit_clock, mean_of

TIMES_MS = st.lists(st.floats(0.01, 100), min_size=1, max_size=60)


# clocks


@given(
    offset_s=st.floats(-1e4, 1e4),
    drift=st.floats(-1e-4, 1e-4),
    trips_us=st.lists(st.floats(5, 500), min_size=20, max_size=60),
    seed=st.integers(0, 2**16),
)
def test_clock_is_off_by_no_more_than_it_says(
    offset_s: float, drift: float, trips_us: list[float], seed: int
) -> None:
    random = np.random.default_rng(seed)
    pings: list[PingPong] = []
    for gpu_s, trip_us in zip(np.linspace(0, 10, len(trips_us)), trips_us, strict=True):
        host_s, part = offset_s + float(gpu_s) * (1 + drift), float(random.uniform())
        trip_s = trip_us * 1e-6
        pings.append(PingPong(host_s - part * trip_s, float(gpu_s), host_s + (1 - part) * trip_s))
    clock = fit_clock(pings)
    for gpu_s in (0.0, 5.0, 10.0):
        off = abs(clock.host_s(gpu_s) - (offset_s + gpu_s * (1 + drift)))
        assert off <= 3 * clock.error_s + 1e-9
    assert clock.error_s <= 500e-6 * 2


def test_one_slow_answer_moves_nothing() -> None:
    """Of round trips the shortest count."""
    quick = [PingPong(100 + t, t, 100 + t + 1e-5) for t in np.linspace(0, 1, 20).tolist()]
    slow = [PingPong(100 + t, t + 0.009, 100 + t + 0.01) for t in (0.1, 0.9)]
    clock = fit_clock([*quick, *slow])
    assert clock.host_s(0.5) == pytest.approx(100.5, abs=1e-5)
    assert clock.error_s < 2e-5


def test_clock_without_an_answer_is_an_error() -> None:
    for pings in ([], [PingPong(2.0, 1.0, 1.0)]):
        with pytest.raises(SourceError, match="cannot be compared"):
            fit_clock(pings)


# golden runs


@given(times=TIMES_MS, margin=st.floats(0.001, 0.2))
def test_golden_runs_agree_and_no_other_bin_has_more(times: list[float], margin: float) -> None:
    found = golden(times, margin)
    chosen = [times[place] for place in found.runs]
    assert max(chosen) <= min(chosen) * (1 + margin) * (1 + 1e-12)
    assert (min(chosen), max(chosen)) == (found.low_ms, found.high_ms)
    assert len(found.runs) + found.dropped == len(times)
    for low in times:
        assert len(chosen) >= sum(low <= time <= low * (1 + margin) for time in times)


def test_outliers_are_dropped_and_counted() -> None:
    """The slow mode of two is left out, whichever came first."""
    found = golden([1.3, 1.0, 1.01, 1.31, 1.005, 5.0], 0.02)
    assert found.runs == (1, 2, 4)
    assert found.dropped == 3


def test_margins_are_those_of_table_i() -> None:
    rows = [guidance(time_ms) for time_ms in (0.01, 0.03, 0.1, 0.5, 20.0, math.inf)]
    assert [(r.runs, r.margin) for r in rows] == [
        (400, 0.05), (400, 0.05), (200, 0.05), (200, 0.02), (200, 0.02), (200, 0.02),
    ]  # fmt: skip


# steady executions and power


RUN = [2.0, 1.5, 1.1, 1.0, 1.01, 1.0, 1.0]
"""Three warm-up executions, as from idle."""


@pytest.mark.parametrize(
    ("runs", "first"),
    [
        ([RUN, RUN, [2.1, 1.4, 1.2, 1.0, 1.0, 1.6, 1.0]], 4),  # one slow one changes nothing
        ([RUN, RUN[:5]], 4),  # compared as far as both go
        ([[1.0, 1.0]], 1),
        ([[1.0, 1.2, 1.3, 1.4]], 1),  # a clock that falls under load is no warm-up
    ],
)
def test_steady_execution_is_the_first_after_which_times_fall_no_further(
    runs: list[list[float]], first: int
) -> None:
    assert steady_execution(runs, 0.02) == first


@given(rise=st.floats(0.002, 0.3), start=st.integers(4, 32))
def test_ssp_is_where_two_neighbouring_lengths_agree(rise: float, start: int) -> None:
    """Power that rises to a level: from the found length on, twice as long changes under 1 %."""

    def power_w(executions: int) -> float:
        return 500 * (1 - 0.3 * math.exp(-executions * 0.0015 / rise))

    found = search_ssp(power_w, start, 4, 10_000)
    assert found.executions is not None
    longer = power_w(2 * found.executions)
    assert abs(power_w(found.executions) - longer) <= 0.01 * longer
    half = found.executions // 2
    if half >= 4 and half in dict(found.tried):
        assert abs(power_w(half) - power_w(found.executions)) > 0.01 * power_w(found.executions)


def test_ends_of_the_search_for_ssp() -> None:
    """Power that never settles has none; flat power is steady in the shortest run allowed."""
    found = search_ssp(lambda executions: 100.0 * executions, 4, 4, 100)
    assert found.executions is None
    assert max(executions for executions, _ in found.tried) <= 100
    assert search_ssp(lambda _: 300.0, 64, 10, 1000).executions == 16
    assert (shortest_run(0.002, 0.0251), shortest_run(0.05, 0.025)) == (38, 4)


# plan


def test_resolution_is_that_of_the_formula() -> None:
    """sqrt(2) * (W / delta) * sigma_R / sqrt(m), at W = 25 ms and 2 W."""
    assert sigma_power_w(25, 5, 2, 1) == pytest.approx(14.14, abs=0.01)
    assert sigma_power_w(25, 1, 2, 1) == pytest.approx(70.7, abs=0.1)
    assert readings_needed(25, 5, 2, 5.01) == 8


@given(bin_ms=st.floats(0.5, 25), within_w=st.floats(0.5, 50))
def test_planned_runs_give_what_was_asked_for(bin_ms: float, within_w: float) -> None:
    runs = runs_for(INSTANT, bin_ms=bin_ms, within_w=within_w)
    plan = make_plan(INSTANT, bin_ms=bin_ms, run_s=0.1, runs=runs)
    assert plan.sigma_w <= within_w * (1 + 1e-9)
    assert plan.sigma_end_w == pytest.approx(2 * plan.sigma_w)
    assert plan.gpu_busy_s == pytest.approx(runs * 0.1)


@pytest.mark.parametrize(
    ("bin_ms", "said"),
    [
        (0.001, "cannot be resolved"),
        (0.0, "cannot be resolved"),
        (math.nan, "cannot be resolved"),
        (26, "longer than the 25 ms window"),
    ],
)
def test_what_no_number_of_readings_resolves_is_refused(bin_ms: float, said: str) -> None:
    with pytest.raises(InputError, match=said):
        check_resolution(INSTANT, bin_ms)
    check_resolution(INSTANT, 25)


def test_a_plan_that_takes_too_long_says_what_fits() -> None:
    runs = runs_for(INSTANT, bin_ms=1, within_w=5)
    plan = make_plan(INSTANT, bin_ms=1, run_s=0.1, runs=runs)
    with pytest.raises(InputError, match=r"take 3\d.\d minutes, and 10 are allowed.* runs fit"):
        check_cost(plan, INSTANT, bin_ms=1, most_s=600)
    check_cost(plan, INSTANT, bin_ms=1, most_s=plan.seconds)


# estimates


def test_mean_has_the_interval_of_student() -> None:
    """Two values 2 apart: 12.71 standard errors of 1; one value has no interval."""
    found = mean_of([9.0, 11.0])
    assert found.value == 10
    assert found.low == pytest.approx(10 - 12.71)
    assert mean_of([3.0]).low is None
    with pytest.raises(ValueError, match="no values"):
        mean_of([])
