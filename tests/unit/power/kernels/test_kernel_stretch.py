"""An operation without a gap for seconds."""

from dataclasses import replace

import pytest
from made_up_kernel import INSTANT, MadeUpKernel, record

from advisor.wire.power import StretchPower
from advisor_power.kernels.analyse import STRETCH_S, memory_settle_s, stretch_power
from advisor_power.kernels.runs import GaplessRun, PowerReading


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
    assert found.power_w is not None
    assert found.power_w.value == pytest.approx(400, rel=0.01)
    assert found.memory_power_w is not None
    assert found.memory_power_w.value == pytest.approx(50, rel=0.01)
    assert found.no_memory_power == ""
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
    assert (found.power_w, found.memory_power_w) == (None, None)
    assert found.no_memory_power == "clock held back: hw-thermal"
