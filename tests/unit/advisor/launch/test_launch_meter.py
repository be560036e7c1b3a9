"""Energy of a launch from taking its GPU, with its starts told apart, on a clock of its own."""

from collections.abc import Collection
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_jobs import Clock, Meter

from advisor.core.telemetry import ENERGY_GPU, POWER_GPU, Readings, TelemetrySource
from advisor.launch.meter import LaunchMeter, timed


class PowerAlone(Meter):
    def read(self, names: Collection[str]) -> Readings:
        found = super().read(names)
        known = {ENERGY_GPU: None, POWER_GPU: 400.0}
        return {name: known.get(name, value) for name, value in found.items()}


@pytest.mark.parametrize(("step_s", "known"), [(1.0, True), (30.0, False)])
def test_without_a_counter_it_is_known_where_it_was_looked_at(step_s: float, known: bool) -> None:
    """Power is integrated between looks; a gap of 10 s and more stays one."""
    clock = Clock()
    meter = LaunchMeter(cast("TelemetrySource", PowerAlone(clock)), clock.monotonic)
    with meter.starting():
        for _ in range(round(60 / step_s)):
            clock.sleep(step_s)
            meter.look()
    assert meter.joules == (pytest.approx(60 * 400) if known else None)
    assert meter.starts_j == (pytest.approx(60 * 400) if known else None)


STOPS_S = st.lists(st.floats(0, 2), max_size=20)


class Host:
    def __init__(self, before_s: list[float], after_s: list[float]) -> None:
        self.now_s, self.reads = 100.0, 0
        self._before_s, self._after_s = iter(before_s), iter(after_s)

    def read(self) -> float:
        self.reads += 1
        self.now_s += next(self._before_s, 0.0)
        counted = 400 * self.now_s
        self.now_s += next(self._after_s, 0.0)
        return counted


@given(STOPS_S, STOPS_S)
def test_the_moment_is_known_as_well_as_it_says(
    before_s: list[float], after_s: list[float]
) -> None:
    host = Host(before_s, after_s)
    counted, moment = timed(host.read, lambda: host.now_s)
    assert abs(counted / 400 - moment.at_s) <= moment.slack_s + 1e-9
    assert host.reads <= 5
    assert moment.slack_s <= (before_s or [0.0])[0] / 2 + (after_s or [0.0])[0] / 2 + 1e-9


@pytest.mark.parametrize(
    ("stops_s", "reads", "slack_s"),
    [([0.004] * 9, 1, 0.002), ([0.3], 2, 0.0), ([0.3, 0.03, 0.3, 0.3, 0.3], 5, 0.015)],
)
def test_it_is_read_again_while_that_helps(
    stops_s: list[float], reads: int, slack_s: float
) -> None:
    host = Host(stops_s, [])
    _, moment = timed(host.read, lambda: host.now_s)
    assert (host.reads, moment.slack_s) == (reads, pytest.approx(slack_s))
    assert moment.is_known
