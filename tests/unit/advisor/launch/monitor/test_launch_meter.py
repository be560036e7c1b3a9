"""Energy of a launch from taking its GPU, with its starts told apart, on a clock of its own."""

from collections.abc import Collection
from typing import cast

import pytest
from scripted_jobs import Clock, Meter

from advisor.core.telemetry import ENERGY_GPU, POWER_GPU, Readings, TelemetrySource
from advisor.launch.meter import LaunchMeter


def test_starts_are_part_of_the_whole() -> None:
    """Each set has one; what is between and after them is in the whole alone."""
    clock = Clock()
    meter = LaunchMeter(cast("TelemetrySource", Meter(clock)), clock.monotonic)
    for start_s in (3.0, 2.0):
        with meter.starting():
            clock.sleep(start_s)
        clock.sleep(10)
    assert meter.read() == pytest.approx(25 * 400)
    assert (meter.starts_s, meter.starts_j) == (5.0, pytest.approx(5 * 400))


class PowerAlone(Meter):
    """A card without an energy counter."""

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
