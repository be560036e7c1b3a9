"""An operation without a gap for seconds, and how readings scatter."""

from dataclasses import replace

import numpy as np
import pytest
from made_up_kernel import INSTANT, MadeUpKernel, record

from advisor.wire.power import StretchPower
from advisor_power.kernels.scatter import scatter
from advisor_power.kernels.stitch import sensor_of
from advisor_power.kernels.stretch import (
    STRETCH_S,
    memory_settle_s,
    stretch_power,
)
from advisor_power.kernels.trace import GaplessRun, PowerReading, Run


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


SENSOR = replace(sensor_of(INSTANT), delay_s=0.0)


def runs(count: int, offset_s: float = 0.0, jitter_s: float = 0.0) -> list[Run]:
    """Power that rises by 100 W within 0.1 s, two readings in each run.

    Args:
        count: How many.
        offset_s: Readings are of the power so long before.
        jitter_s: The host launches up to so long before the GPU begins.
    """
    draw = np.random.default_rng(1)
    made: list[Run] = []
    for number in range(count):
        start_s = float(number)
        taus_s = [float(tau_s) for tau_s in draw.uniform(0.001, 0.1, 2)]
        made.append(
            Run(
                starts_s=(start_s,),
                ends_s=(start_s + 0.1,),
                lead_s=0.1,
                readings=tuple(
                    PowerReading(start_s + t, 300.0 + 1000.0 * (t - offset_s)) for t in taus_s
                ),
                launched_s=start_s - float(draw.uniform(0, jitter_s)),
            )
        )
    return made


def test_scatter_shows_what_synchronisation_and_binning_do() -> None:
    """Readings that lie on a line scatter by nothing; other runs and other clocks add to that."""
    golden = runs(60, jitter_s=0.03)
    found = scatter([*golden, *runs(20, offset_s=0.02)], golden, SENSOR)
    assert found is not None
    assert found.full_w == pytest.approx(0, abs=1e-6)
    assert found.unsynchronised_w is not None
    assert found.unsynchronised_w > 5
    assert found.unbinned_w is not None
    assert found.unbinned_w > 5
    assert found.few_runs == 50
    assert found.few_runs_differ == pytest.approx(0, abs=1e-6)


def test_too_few_golden_runs_say_nothing_of_scatter() -> None:
    assert scatter(runs(19), runs(19), SENSOR) is None
    unnoted = [replace(run, launched_s=None) for run in runs(30)]
    found = scatter(unnoted, unnoted, SENSOR)
    assert found is not None
    assert (found.unsynchronised_w, found.unbinned_w) == (None, None)
    assert (found.few_runs, found.few_runs_differ) == (None, None)
