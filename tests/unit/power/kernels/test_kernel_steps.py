"""The single steps: clocks, golden runs, steady executions, steady power, and what a plan costs."""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_kernel import INSTANT, MadeUpKernel, record
from reading import some

from advisor.errors import InputError, SourceError
from advisor.predict.profiles import Floats
from advisor.wire.power import StretchPower
from advisor_power.kernels.measure import (
    STRETCH_S,
    Curve,
    bin_edges,
    deconvolve,
    fault_of,
    golden,
    guidance,
    memory_settle_s,
    search_ssp,
    shortest_run,
    steady_execution,
    stretch_power,
)
from advisor_power.kernels.runs import (
    GaplessRun,
    PingPong,
    PowerReading,
    Run,
    Stitched,
    check_cost,
    check_resolution,
    fit_clock,
    make_plan,
    mean_of,
    naive_curve,
    runs_for,
    sigma_power_w,
    stitch,
)

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
    assert (found.runs, found.dropped) == ((1, 2, 4), 3)


def test_margins_are_those_of_table_i() -> None:
    assert [guidance(time_ms) for time_ms in (0.01, 0.03, 0.1, 0.5, 20.0, math.inf)] == [
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
    steady = some(found.executions)
    longer = power_w(2 * steady)
    assert abs(power_w(steady) - longer) <= 0.01 * longer
    half = steady // 2
    if half >= 4 and half in dict(found.tried):
        assert abs(power_w(half) - power_w(steady)) > 0.01 * power_w(steady)


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
    assert runs_for(replace(INSTANT, period_ms=5.0), bin_ms=5, within_w=5.01) == 8


@given(bin_ms=st.floats(0.5, 25), within_w=st.floats(0.5, 50))
def test_planned_runs_give_what_was_asked_for(bin_ms: float, within_w: float) -> None:
    runs = runs_for(INSTANT, bin_ms=bin_ms, within_w=within_w)
    plan = make_plan(INSTANT, bin_ms=bin_ms, run_s=0.1, runs=runs)
    assert plan.sigma_w <= within_w * (1 + 1e-9)
    assert (plan.sigma_end_w, plan.gpu_busy_s) == (
        pytest.approx(2 * plan.sigma_w),
        pytest.approx(runs * 0.1),
    )


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
    assert (found.value, found.low) == (10, pytest.approx(10 - 12.71))
    assert mean_of([3.0]).low is None
    with pytest.raises(ValueError, match="no values"):
        mean_of([])


# an operation without a gap for seconds


def stretched(**more: object) -> GaplessRun:
    """A flat operation of 400 W with 50 W of the memory's, in which something is different."""
    bench = MadeUpKernel(lambda _: 400.0)
    return replace(bench.stretch(1.1 + STRETCH_S), **more)  # pyright: ignore[reportArgumentType]


def powers(stretch: GaplessRun) -> StretchPower:
    """What a card without a record of its memory's sensor says."""
    return stretch_power(stretch, record())


def test_slow_sensors_are_read_once_they_have_settled() -> None:
    """The mean over a second rises at first: that is left out."""
    found = powers(stretched())
    assert (some(found.power_w).value, some(found.memory_power_w).value, found.no_memory_power) == (
        pytest.approx(400, rel=0.01),
        pytest.approx(50, rel=0.01),
        "",
    )
    slow = record(replace(INSTANT, name="memory", window_ms=1500.0))
    assert memory_settle_s(slow) == pytest.approx(1.512)


@pytest.mark.parametrize(
    ("memory", "said"),
    [
        ((), "does not read the power of its memory"),
        ((PowerReading(0.5, 0.0),), "reads 0, or more than that of the whole GPU"),
        (tuple(PowerReading(2 + n / 4, 900.0 + n) for n in range(6)), "reads 0, or more"),
        ((PowerReading(0.5, 50.0), PowerReading(2.5, 51.0)), "changed only 1 times: it is stuck"),
    ],
)
def test_sensor_of_the_memory_that_is_absent_zero_too_high_or_stuck(
    memory: tuple[PowerReading, ...], said: str
) -> None:
    found = powers(stretched(memory=memory))
    assert found.memory_power_w is None
    assert said in found.no_memory_power


def test_stretch_that_was_held_back_says_nothing() -> None:
    found = powers(stretched(dropped="clock held back: hw-thermal"))
    assert (found.power_w, found.memory_power_w, found.no_memory_power) == (
        None,
        None,
        "clock held back: hw-thermal",
    )


# power over time out of readings that are means over a window: what was put in comes out


BASE_W = 120.0
LENGTH_S = 0.1


def readings(
    power_w: Callable[[Floats], Floats], count: int = 1200, noise_w: float = 2.0, seed: int = 0
) -> Stitched:
    """What a sensor would have read at random times of a run, with power known exactly."""
    random = np.random.default_rng(seed)
    tau = np.sort(random.uniform(0, LENGTH_S, count))
    step, width_s = 1e-4, INSTANT.window_ms / 1000
    grid = np.arange(-width_s, LENGTH_S, step)
    watts = np.where(grid + step / 2 < 0, BASE_W, power_w(grid + step / 2))
    joules = np.concatenate([[0], np.cumsum(watts) * step])
    at = np.append(grid, grid[-1] + step)
    mean = (np.interp(tau, at, joules) - np.interp(tau - width_s, at, joules)) / width_s
    return Stitched(tau, mean + random.normal(0, noise_w, count), BASE_W)


def square(period_s: float, low_w: float = 200, high_w: float = 600) -> Callable[[Floats], Floats]:
    """High in the first half of each period."""
    return lambda t: np.where(np.mod(t + 1e-9, period_s) < period_s / 2, high_w, low_w)


def bin_means(power_w: Callable[[Floats], Floats], edges_s: Floats) -> Floats:
    ends: list[float] = edges_s.tolist()
    fine: list[Floats] = [np.linspace(a, b, 200, endpoint=False) for a, b in pairwise(ends)]
    return np.array([float(np.mean(power_w(part))) for part in fine])


def curve_of(stitched: Stitched, bin_s: float = 0.005) -> Curve:
    return deconvolve(stitched, INSTANT, np.linspace(0, LENGTH_S, round(LENGTH_S / bin_s) + 1))


@pytest.mark.parametrize("period_s", [0.01, 0.02, 0.025, 0.05])
def test_square_wave_is_recovered_within_five_percent(period_s: float) -> None:
    curve = curve_of(readings(square(period_s)))
    true = bin_means(square(period_s), curve.edges_s)
    error = (curve.power_w - true) / true
    assert float(np.sqrt(np.mean(error**2))) <= 0.05
    # Each level by itself, in the bins that are whole within it.
    for level in (200, 600):
        inside = np.isclose(true, level)
        if inside.any():
            assert np.mean(curve.power_w[inside]) == pytest.approx(level, rel=0.05)


@settings(max_examples=6)
@given(
    rise_s=st.floats(0.005, 0.1),
    end_w=st.floats(150, 700),
    seed=st.integers(0, 1000),
)
def test_band_holds_the_truth(rise_s: float, end_w: float, seed: int) -> None:
    def power_w(t: Floats) -> Floats:
        return np.asarray(end_w + (300 - end_w) * np.exp(-t / rise_s), dtype=np.float64)

    curve = curve_of(readings(power_w, count=400, seed=seed))
    inside = np.abs(curve.power_w - bin_means(power_w, curve.edges_s)) <= curve.band_w
    assert float(np.mean(inside)) >= 0.75


@settings(max_examples=6)
@given(level_w=st.floats(150, 700), base_w=st.floats(60, 140))
def test_flat_power_without_noise_comes_back_exactly(level_w: float, base_w: float) -> None:
    """However far it is from what was before."""
    tau = np.linspace(0.0005, LENGTH_S, 400)
    before = np.clip(INSTANT.window_ms / 1000 - tau, 0, None) / (INSTANT.window_ms / 1000)
    stitched = Stitched(tau, before * base_w + (1 - before) * level_w, base_w)
    assert curve_of(stitched).power_w == pytest.approx(np.full(20, level_w), rel=1e-3)


def test_band_is_of_the_readings_that_are_seen() -> None:
    """About as the square root of their number, and wider where they are noisier than recorded."""
    few, many = (curve_of(readings(square(0.02), n)).band_w.mean() for n in (300, 2700))
    assert 2 < few / many < 4.5
    quiet, loud = (curve_of(readings(square(0.02), noise_w=n)).band_w.mean() for n in (2.0, 20.0))
    assert loud > 4 * quiet


def test_mean_between_two_times_is_that_of_the_bins() -> None:
    edges = np.linspace(0, 0.02, 5)
    curve = Curve(edges, np.array([100.0, 200, 300, 400]), np.eye(4), np.ones(4))
    assert (curve.mean_w(0.0, 0.02)[0], curve.mean_w(0.0025, 0.01)[0]) == (
        pytest.approx(250),
        pytest.approx((0.5 * 100 + 200) / 1.5),
    )
    assert curve.mean_w(0.005, 0.01)[1] == pytest.approx(1.96)


@given(execution_s=st.floats(1e-4, 0.05), length=st.integers(4, 400))
def test_bins_begin_and_end_with_executions(execution_s: float, length: int) -> None:
    """Near the resolution; a bin is whole executions, or an execution whole bins."""
    edges = bin_edges(length * execution_s, execution_s, 0.005)
    width = float(edges[1] - edges[0])
    ratio = width / execution_s
    nearest = round(ratio) if ratio >= 1 else 1 / round(1 / ratio)
    assert ratio == pytest.approx(nearest, rel=1e-6)
    assert 0.6 * 0.005 <= width <= 2 * 0.005
    assert edges[-1] <= length * execution_s * (1 + 1e-6) or len(edges) == 2


def run_with(tau_and_watts: list[tuple[float, float]], length_s: float = 0.05) -> Run:
    """A run at 100 s; readings come a delay after the end of their window."""
    at = [(100 + tau + INSTANT.delay_ms / 1000, watts) for tau, watts in tau_and_watts]
    return Run(
        starts_s=(100.0,),
        ends_s=(100 + length_s,),
        lead_s=0.06,
        readings=tuple(PowerReading(at_s, watts) for at_s, watts in at),
    )


def test_stitching_takes_readings_by_their_window() -> None:
    """Before the run they say what was before; a window half before or beyond says neither."""
    run = run_with(
        [(-0.05, 999), (-0.03, 100), (-0.01, 110), (0.01, 300), (0.04, 400), (0.06, 999)]
    )
    found = some(stitch([run], INSTANT))
    # The window of the reading at -0.05 began before the lead of 0.06 s.
    assert (found.base_w, found.power_w.tolist(), found.tau_s) == (
        pytest.approx(105),
        [300, 400],
        pytest.approx([0.01, 0.04]),
    )


def test_without_a_reading_before_a_run_nothing_is_stitched() -> None:
    assert stitch([run_with([(0.01, 300)])], INSTANT) is None


def test_naive_curve_dates_readings_when_they_were_seen() -> None:
    run = run_with([(0.001, 300), (0.006, 320), (0.02, 400)])
    assert naive_curve([run], np.array([0.0, 0.01, 0.02, 0.05])) == [None, 310, 400]


@pytest.mark.parametrize(
    ("band_w", "limit_w", "differ", "said"),
    [
        ((451, 1048), 700, 0.002, ""),
        ((154, 170), 700, -0.053, "the energy counter says -5.3%, and 3% is allowed"),
        ((130, 1121), 700, None, "goes up to 1121 W, over 1.6 times the limit of 700 W"),
        ((130, 1121), None, None, ""),
        ((-27816, 30397), None, -0.206, "goes down to -27816 W, and the idle GPU draws 128 W"),
        ((127, 200), 700, None, "goes down to 127 W"),
    ],
)
def test_what_a_gpu_cannot_draw_is_no_curve(
    band_w: tuple[float, float], limit_w: float | None, differ: float | None, said: str
) -> None:
    """Bands as they were measured (docs/measurements/power/fingrav) and beside the bounds."""
    found = fault_of(band_w, 128.0, limit_w, differ)
    assert said in found
    assert bool(said) == bool(found)
