"""The load of `advisor power sensor`: when it is on, without a GPU and in virtual time."""

from typing import Any

import pytest
import workload_scripts
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor_power.sensor.trace import steps_and_bursts, waves
from advisor_profiling.window import VirtualClock

power_load = workload_scripts.load("power_load")


class VirtualLoad:
    """A load that takes the time of its units on a virtual clock; launches take time, too."""

    def __init__(self, clock: VirtualClock, unit_s: float, launch_s: float = 0.0) -> None:
        self.clock, self.unit_s, self.launch_s, self.busy_s = clock, unit_s, launch_s, 0.0

    def run(self, units: int) -> None:
        self.busy_s += units * self.unit_s
        self.clock.sleep(self.launch_s + units * self.unit_s)


def run(stage: Any, load: VirtualLoad) -> list[list[Any]]:
    said: list[dict[str, Any]] = []
    fields = {"name": stage.name, "length_s": stage.length_s, "on": stage.on}

    def now() -> float:
        load.clock.sleep(1e-6)  # a spin takes time
        return load.clock.now_s()

    power_load.run_stage(fields, load, said.append, now, load.clock.sleep)
    *lines, done = said
    assert done == {"done": stage.name}
    return [answer["line"] for answer in lines]


@settings(max_examples=10)
@given(seed=st.integers(0, 1000), unit_s=st.floats(5e-5, 5e-4))
def test_bursts_are_where_they_were_planned(seed: int, unit_s: float) -> None:
    bursts = steps_and_bursts(seed)[2]
    load = VirtualLoad(VirtualClock(), unit_s)
    (kind, name, begun_s), *ons = run(bursts, load)
    assert (kind, name, len(ons)) == ("stage", "bursts", len(bursts.on))
    for (_, first_s, last_s), (start_s, end_s) in zip(ons, bursts.on, strict=True):
        assert first_s - begun_s == pytest.approx(start_s, abs=1e-4)
        assert last_s - first_s == pytest.approx(end_s - start_s, abs=unit_s)
    assert load.clock.now_s() - begun_s >= bursts.length_s


def test_wave_keeps_its_period_although_each_launch_is_late() -> None:
    wave = waves(0.066, 1)[-1]
    load = VirtualLoad(VirtualClock(), 1e-4, launch_s=3e-5)
    (_, _, begun_s), *ons = run(wave, load)
    for (_, first_s, last_s), (start_s, end_s) in zip(ons, wave.on, strict=True):
        assert first_s - begun_s == pytest.approx(start_s, abs=3e-4)
        assert last_s - first_s == pytest.approx(end_s - start_s, abs=3e-4)
    on_s = sum(last_s - first_s for _, first_s, last_s in ons)
    assert load.busy_s == pytest.approx(on_s, rel=0.05)
