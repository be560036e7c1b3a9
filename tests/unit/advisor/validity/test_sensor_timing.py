"""Waits and windows by the record of a card's sensor."""

import dataclasses

import made_up_kernel
import pytest
from hypothesis import given, strategies as st

from advisor.errors import InputError
from advisor.validity.sensor_record import PowerChannel, PowerTiming, SensorRecord, power_timing
from advisor_profiling.window import WindowRules, rules_for

INSTANT = dataclasses.replace(made_up_kernel.INSTANT, period_ms=50.0, delay_ms=15.0)
AVERAGE = dataclasses.replace(INSTANT, name="average", period_ms=100.0, window_ms=980.0)


def record(*channels: PowerChannel) -> SensorRecord:
    return dataclasses.replace(made_up_kernel.record(energy=None), channels=channels)


def refused(channel: PowerChannel) -> PowerChannel:
    return dataclasses.replace(channel, accepted=False)


@pytest.mark.parametrize(
    ("channels", "settle_s"),
    [
        ((INSTANT, AVERAGE), 0.04),
        ((AVERAGE,), 0.995),
        ((refused(AVERAGE),), 1.1),
        ((refused(INSTANT), AVERAGE), None),
        ((), None),
    ],
)
def test_wait_is_that_of_the_channel_that_is_read(
    channels: tuple[PowerChannel, ...], settle_s: float | None
) -> None:
    """Instant where there is one, else the average; one that was not accepted says nothing."""
    timing = power_timing(record(*channels))
    assert (timing and timing.settle_s) == (settle_s and pytest.approx(settle_s))


def test_rules_are_as_ever_where_nothing_is_known() -> None:
    assert (rules_for(8.0), rules_for(0.5).settle_least_s) == (WindowRules(), 0.5)


@given(window_s=st.floats(0.1, 20), settle_s=st.floats(0, 3), shortest_s=st.floats(0.01, 4))
def test_rules_keep_to_the_sensor(window_s: float, settle_s: float, shortest_s: float) -> None:
    """No window is shorter than eight readings, and none of these is of the time before."""
    timing = PowerTiming(settle_s, shortest_s)
    if window_s < shortest_s:
        with pytest.raises(InputError, match="too short for the power sensor"):
            rules_for(window_s, timing)
        return
    rules = rules_for(window_s, timing)
    assert min(rules.least_s, rules.idle_s) >= shortest_s
    assert rules.least_s <= rules.most_s
    assert rules.settle_least_s - rules.sensor_lag_s == pytest.approx(shortest_s)
    assert rules.sensor_lag_s == settle_s + shortest_s / 8
    assert rules.settle_most_s > rules.settle_least_s
    assert rules.most_s == window_s
