"""The power of the memory over a window, and the faults of its sensor."""

from collections.abc import Collection

import pytest
from scripted import ScriptedSource

from advisor.core.telemetry import POWER_MEMORY, Channel, Readings
from advisor_profiling.window.clock import VirtualClock
from advisor_profiling.window.window import (
    MeasuredWindow,
    WindowInputs,
    WindowRules,
    measure,
    memory_power_w,
)

AVERAGE = (Channel(POWER_MEMORY, "mean", 1.0),)
READINGS = [(0.25 * n, 60.0 + 0.001 * n) for n in range(12)]


def test_only_means_of_the_window_alone_count() -> None:
    """The first second of readings is of the time before as well."""
    before = [(at_s, 500.0 + at_s if at_s < 11 else watts) for at_s, watts in late()]
    assert memory_power_w(before, AVERAGE, 10.0, 600.0) == pytest.approx(60.0075, abs=1e-6)
    assert memory_power_w(READINGS, (Channel(POWER_MEMORY),), 0.0, 600.0) == pytest.approx(
        60.0055, abs=1e-6
    )


def late() -> list[tuple[float, float]]:
    return [(10 + at_s, watts) for at_s, watts in READINGS]


@pytest.mark.parametrize(
    ("name", "readings", "power_w"),
    [
        ("absent", [(at_s, None) for at_s, _ in READINGS], 600.0),
        ("gone in between", [*READINGS[:-1], (2.75, None)], 600.0),
        ("zero", [*READINGS[:-1], (2.75, 0.0)], 600.0),
        ("stuck", [(at_s, 60.0) for at_s, _ in READINGS], 600.0),
        ("larger than the total", READINGS, 50.0),
        ("total unknown", READINGS, None),
        ("window too short", READINGS[:7], 600.0),
        ("nothing read", [], 600.0),
    ],
)
def test_a_faulty_sensor_says_nothing(
    name: str, readings: list[tuple[float, float | None]], power_w: float | None
) -> None:
    """None, never 0 and never a wrong number."""
    assert memory_power_w(readings, AVERAGE, 0.0, power_w) is None, name


class WithMemory(ScriptedSource):
    """A card whose memory draws a tenth, told as a mean over a second."""

    @property
    def channels(self) -> tuple[Channel, ...]:
        return (*super().channels, *AVERAGE)

    def read(self, names: Collection[str]) -> Readings:
        found = dict(super().read(names))
        if POWER_MEMORY in names:
            found[POWER_MEMORY] = 30.0 + 0.001 * self.clock.now_s()
        return found


def window(source: ScriptedSource, rules: WindowRules) -> MeasuredWindow:
    counts = [lambda: int(100 * source.clock.now_s())]
    return measure(WindowInputs(counts=counts, source=source, clock=source.clock), rules)


def test_a_window_carries_it_where_the_card_has_it() -> None:
    found = window(WithMemory(VirtualClock(), lambda _: 300.0), WindowRules(least_s=3.0))
    assert found.memory_power_w == pytest.approx(30, abs=0.01)
    # A mean over a second in a window of a second is of what was before.
    short = WindowRules(least_s=1.0, most_s=1.0)
    assert window(WithMemory(VirtualClock(), lambda _: 300.0), short).memory_power_w is None
    without = window(ScriptedSource(VirtualClock(), lambda _: 300.0), WindowRules())
    assert without.memory_power_w is None
