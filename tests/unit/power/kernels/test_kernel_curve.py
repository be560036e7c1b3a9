"""Power over time out of readings that are means over a window: what was put in comes out."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.predict.profiles import Floats
from advisor_power.kernels.deconvolve import Curve, bin_edges, deconvolve, fault_of
from advisor_power.kernels.runs import PowerReading, Run, Sensor, Stitched, naive_curve, stitch

SENSOR = Sensor(window_s=0.025, delay_s=0.012, noise_w=2.0)
BASE_W = 120.0
LENGTH_S = 0.1


def readings(
    power_w: Callable[[Floats], Floats], count: int = 1200, noise_w: float = 2.0, seed: int = 0
) -> Stitched:
    """What a sensor would have read at random times of a run, with power known exactly."""
    random = np.random.default_rng(seed)
    tau = np.sort(random.uniform(0, LENGTH_S, count))
    step = 1e-4
    grid = np.arange(-SENSOR.window_s, LENGTH_S, step)
    watts = np.where(grid + step / 2 < 0, BASE_W, power_w(grid + step / 2))
    joules = np.concatenate([[0], np.cumsum(watts) * step])
    at = np.append(grid, grid[-1] + step)
    mean = (np.interp(tau, at, joules) - np.interp(tau - SENSOR.window_s, at, joules)) / (
        SENSOR.window_s
    )
    return Stitched(tau, mean + random.normal(0, noise_w, count), BASE_W)


def square(period_s: float, low_w: float = 200, high_w: float = 600) -> Callable[[Floats], Floats]:
    """High in the first half of each period."""
    return lambda t: np.where(np.mod(t + 1e-9, period_s) < period_s / 2, high_w, low_w)


def bin_means(power_w: Callable[[Floats], Floats], edges_s: Floats) -> Floats:
    ends: list[float] = edges_s.tolist()
    fine: list[Floats] = [np.linspace(a, b, 200, endpoint=False) for a, b in pairwise(ends)]
    return np.array([float(np.mean(power_w(part))) for part in fine])


def curve_of(stitched: Stitched, bin_s: float = 0.005) -> Curve:
    return deconvolve(stitched, SENSOR, np.linspace(0, LENGTH_S, round(LENGTH_S / bin_s) + 1))


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
    before = np.clip(SENSOR.window_s - tau, 0, None) / SENSOR.window_s
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
    assert curve.mean_w(0.0, 0.02)[0] == pytest.approx(250)
    assert curve.mean_w(0.0025, 0.01)[0] == pytest.approx((0.5 * 100 + 200) / 1.5)
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
    at = [(100 + tau + SENSOR.delay_s, watts) for tau, watts in tau_and_watts]
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
    found = stitch([run], SENSOR)
    assert found is not None
    # The window of the reading at -0.05 began before the lead of 0.06 s.
    assert found.base_w == pytest.approx(105)
    assert found.power_w.tolist() == [300, 400]
    assert found.tau_s == pytest.approx([0.01, 0.04])


def test_without_a_reading_before_a_run_nothing_is_stitched() -> None:
    assert stitch([run_with([(0.01, 300)])], SENSOR) is None


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
