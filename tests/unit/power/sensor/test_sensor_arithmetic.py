"""Periods, windows and the stimulus: arithmetic on made-up readings whose truth is known."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor_power.sensor.analysis import period_of
from advisor_power.sensor.fit import level_times, noise_w, window_parts
from advisor_power.sensor.reading_errors import run_stages
from advisor_power.sensor.trace import (
    LOCKED_WAVE,
    LONGEST_S,
    WAVE,
    ReadingSeries,
    planned_s,
    steps_and_bursts,
    waves,
)

seeds = st.integers(0, 2**32 - 1)


@given(
    period_s=st.floats(0.005, 0.5),
    missed=st.floats(0, 0.35),
    jitter=st.floats(0, 0.05),
    seed=seeds,
)
def test_period_is_found_although_changes_are_missed(
    period_s: float, missed: float, jitter: float, seed: int
) -> None:
    """Updates to the same value show no change, and polling sees each a little late."""
    draw = np.random.default_rng(seed)
    times_s = period_s * np.arange(400.0)
    seen = times_s[draw.uniform(size=400) >= missed]
    found = period_of(seen + draw.uniform(0, jitter * period_s, len(seen)))
    assert found is not None
    assert found.regular
    assert found.period_s == pytest.approx(period_s, rel=0.005)


def test_changes_at_random_have_no_period() -> None:
    """A channel that flickers is not taken for a slow one."""
    times_s = np.cumsum(np.random.default_rng(1).exponential(0.05, 500))
    found = period_of(times_s)
    assert found is not None
    assert not found.regular


@pytest.mark.parametrize("changes", [0, 1, 30])
def test_too_few_changes_have_no_period(changes: int) -> None:
    assert period_of(np.arange(float(changes))) is None


@given(
    lengths=st.lists(st.floats(0.001, 1), min_size=4, max_size=12),
    window_s=st.floats(0.002, 1.5),
    seed=seeds,
)
def test_parts_of_a_window_are_those_of_a_fine_sum(
    lengths: list[float], window_s: float, seed: int
) -> None:
    edges = [*itertools.accumulate(lengths, initial=0.0)]
    edges[-1] += 5
    edges[0] -= 5
    spans = list(itertools.pairwise(edges))
    levels = [level_times(spans[0::2]), level_times(spans[1::2])]
    end_s = float(np.random.default_rng(seed).uniform(0, edges[-1]))
    (parts,) = window_parts(levels, np.array([end_s]), window_s)
    assert parts.sum() == pytest.approx(1)
    moments = end_s - window_s * (np.arange(20_000) + 0.5) / 20_000
    first = sum(((moments >= a) & (moments < b)).mean() for a, b in spans[0::2])
    assert parts[0] == pytest.approx(first, abs=1e-3)


@given(slope=st.floats(-5, 5), seed=seeds)
def test_noise_is_not_the_warming_of_a_card(slope: float, seed: int) -> None:
    """A load whose power rises slowly has the noise of its readings, not that of the slope."""
    times_s = 0.066 * np.arange(60.0)
    noise = np.random.default_rng(seed).normal(0, 2, 60)
    steady, rising = (
        noise_w(ReadingSeries(times_s, 500 + noise + k * times_s)) for k in (0, slope)
    )
    assert steady is not None
    assert rising == pytest.approx(steady)
    assert 1 < steady < 3.2
    assert noise_w(ReadingSeries(times_s[:7], noise[:7])) is None


@given(period_s=st.floats(0.01, 0.5), seed=seeds)
def test_stages_are_as_long_as_promised(period_s: float, seed: int) -> None:
    """Loads are in order and inside their stages; all of it, runs included, takes four minutes."""
    stages = (*steps_and_bursts(seed), *waves(period_s, seed))
    for stage in (*stages, *run_stages(seed)):
        edges = [edge for span in stage.on for edge in span]
        assert edges == sorted(edges)
        assert all(0 <= edge <= stage.length_s + 1e-9 for edge in edges)
    assert planned_s(stages) <= 0.9 * LONGEST_S
    assert planned_s((*waves(0.1, seed), *steps_and_bursts(seed), *run_stages(seed))) <= LONGEST_S


@given(period_s=st.floats(0.01, 0.5), seed=seeds)
def test_locked_waves_begin_at_every_phase(period_s: float, seed: int) -> None:
    """Twenty waves of the sensor's own period, half of the time on, at phases all over it."""
    made = waves(period_s, seed)
    locked = [stage for stage in made if stage.name == LOCKED_WAVE]
    others = [stage for stage in made if stage.name == WAVE]
    assert (len(locked), len(others)) == (20, 3)
    phases = [stage.on[0][0] / period_s for stage in locked]
    assert max(phases) - min(phases) > 0.5
    for stage in locked:
        on_s = sum(b - a for a, b in stage.on)
        assert on_s == pytest.approx(len(stage.on) * period_s / 2)
        starts = [a for a, _ in stage.on]
        assert np.diff(starts) == pytest.approx(period_s)
    assert steps_and_bursts(seed) == steps_and_bursts(seed)
    assert steps_and_bursts(seed) != steps_and_bursts(seed + 1)
