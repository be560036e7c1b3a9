"""What a launch adds up: paces, energy, how far off a prediction is, and the swapped record."""

from collections.abc import Callable, Collection
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.core.interval import Interval
from advisor.core.records import MARGIN, is_far
from advisor.core.telemetry import ENERGY_GPU, POWER_GPU, Readings, TelemetrySource
from advisor.errors import SourceError
from advisor.launch.meter import CardMeter, Metered, Moment, RateMeter
from advisor.launch.set_monitor import work_per_joule

RATES = st.floats(0.01, 1e6)
STEPS_S = st.floats(0.05, 2)


class Sensor:
    """A source whose readings a test sets; an error where it says so."""

    def __init__(self) -> None:
        self.power: float | None = None
        self.counter: float | None = None
        self.fails = False

    def read(self, names: Collection[str]) -> Readings:
        if self.fails:
            raise SourceError("the GPU fell off the bus")
        known = {POWER_GPU: self.power, ENERGY_GPU: self.counter}
        return {name: known[name] for name in names}

    @property
    def energy(self) -> Callable[[float], Metered | None]:
        """What adds it up: all until a time."""
        meter = CardMeter(cast("TelemetrySource", self))
        return lambda now_s: meter.add(meter.read(), Moment(now_s))


@given(RATES, st.lists(STEPS_S, min_size=2, max_size=60), st.sampled_from([None, 5.0]))
def test_steady_growth_is_its_rate(
    rate: float, steps_s: list[float], window_s: float | None
) -> None:
    """However the readings fall, and whether old ones are forgotten or not."""
    meter, now_s = RateMeter(window_s), 0.0
    for step_s in [0.0, *steps_s]:
        now_s += step_s
        meter.add(Moment(now_s), rate * now_s)
    assert meter.rate() == pytest.approx(rate)
    assert meter.span_s <= now_s


def test_readings_of_weeks_need_no_memory() -> None:
    """A launch may run for long."""
    for window_s, most in ((None, 2), (5.0, 30)):
        meter = RateMeter(window_s)
        for number in range(5000):
            meter.add(Moment(number * 0.25), number)
        assert len(meter._moves) <= most  # pyright: ignore[reportPrivateUsage]


def test_job_that_reports_seldom_has_a_rate() -> None:
    """One report in 30 s is no standstill, and a standstill is no report."""
    meter = RateMeter(5)
    for now_s in range(100):
        meter.add(Moment(now_s), 60 * (now_s // 30))
    assert meter.rate() == pytest.approx(2)
    for now_s in range(100, 400):
        meter.add(Moment(now_s), 180)
    assert (meter.rate() or 0) < 0.3


def test_a_standstill_that_is_longer_than_the_move_counts() -> None:
    """10 s at one a second, then 30 s of nothing: a quarter of that; 10 s of nothing are none."""
    for still_s, rate in ((10, 1.0), (11, 10 / 21), (30, 0.25)):
        meter = RateMeter()
        for now_s in range(11):
            meter.add(Moment(now_s), now_s)
        meter.add(Moment(10 + still_s), 10)
        assert meter.rate() == pytest.approx(rate)


def test_count_that_is_read_half_written_is_ignored() -> None:
    """One reading that went back is an accident; a count that stays back began again."""
    meter = RateMeter()
    for now_s, total in ((0, 0), (1, 255), (2, 0), (3, 768)):
        meter.add(Moment(now_s), total)
    assert meter.rate() == pytest.approx(256)
    for now_s, total in ((4, 10), (5, 20), (6, 30)):
        meter.add(Moment(now_s), total)
    assert meter.rate() == pytest.approx(10)


def test_nothing_is_known_before_the_total_moves() -> None:
    """No reading and no move are no rate of 0."""
    meter = RateMeter()
    assert (meter.rate(), meter.span_s) == (None, 0)
    meter.add(Moment(0), 0)
    meter.add(Moment(9), 0)
    assert meter.rate() is None


@given(st.lists(st.floats(0, 1000), min_size=1), st.floats(0, 1e9))
def test_counter_adds_up_from_wherever_it_stood(grown_j: list[float], first_j: float) -> None:
    """What the card drew before is nobody's here."""
    sensor = Sensor()
    energy, sensor.counter = sensor.energy, first_j
    assert energy(0) == Metered(0, 0, 0)
    for number, more_j in enumerate(grown_j, 1):
        sensor.counter += more_j
        energy(number)
    found = energy(len(grown_j))
    assert found is not None
    assert found.joules == pytest.approx(sensor.counter - first_j, abs=1e-3)


@given(st.floats(1, 1000), st.lists(STEPS_S, min_size=1))
def test_power_is_integrated_without_a_counter(power_w: float, steps_s: list[float]) -> None:
    """Energy is power times time."""
    sensor, now_s = Sensor(), 0.0
    energy, sensor.power = sensor.energy, power_w
    energy(0)
    for step_s in steps_s:
        now_s += step_s
        energy(now_s)
    found = energy(now_s)
    assert found is not None
    assert (found.joules, found.seconds) == (pytest.approx(power_w * now_s), pytest.approx(now_s))


def test_source_that_fails_for_a_while_is_bridged() -> None:
    """The counter went on; what was drawn until a reset of the driver is not known."""
    sensor = Sensor()
    energy = sensor.energy
    assert energy(0) is None
    sensor.power = 999
    for now_s, counter_j, fails, expected in (
        (1, 100, False, (0, 0)), (2, 150, False, (50, 1)), (40, 170, True, (50, 1)),
        (80, None, False, (50, 1)), (99, 190, False, (90, 98)), (100, 5, False, (90, 98)),
        (101, 15, False, (100, 99)),
    ):  # fmt: skip
        sensor.counter, sensor.fails = counter_j, fails
        found = energy(now_s)
        assert found is not None
        assert (found.joules, found.seconds) == expected


def test_silence_without_a_counter_is_of_no_energy_and_of_no_time() -> None:
    """Short of that the power is taken to have gone on."""
    sensor = Sensor()
    energy, sensor.power = sensor.energy, 100
    for now_s, fails, expected in (
        (0, False, (0, 0)), (1, False, (100, 1)), (5, True, (100, 1)), (9, False, (900, 9)),
        (19, False, (900, 9)), (20, False, (1000, 10)),
    ):  # fmt: skip
        sensor.fails = fails
        found = energy(now_s)
        assert found is not None
        assert (found.joules, found.seconds) == expected


@given(st.floats(0, 0.1), st.floats(0, 0.1), st.floats(0.5, 1000), st.floats(0, 1000))
def test_energy_of_all_is_known_to_a_hundredth_or_not_told(
    begun_s: float, ended_s: float, seconds: float, power_w: float
) -> None:
    """Whichever of the two readings nobody knows the moment of."""
    first = Metered(50, 5, 10, begun_s)
    last = Metered(50 + power_w * seconds, 5 + seconds, 10 + seconds, ended_s)
    told_j, off_s = last.since(first).whole_j(seconds), begun_s + ended_s
    if told_j is None:
        assert off_s > 0.0099 * seconds
    else:
        assert told_j == pytest.approx(power_w * seconds)
        assert off_s <= 0.0101 * seconds


@given(RATES, st.lists(st.tuples(STEPS_S, st.floats(0, 1), st.floats(-1, 1)), min_size=1))
def test_no_rate_is_further_off_than_what_is_known_of_its_moments(
    rate: float, looks: list[tuple[float, float, float]]
) -> None:
    """Readings at moments that are off by up to their slack; what a short time makes of that."""
    meter, now_s = RateMeter(), 0.0
    for step_s, slack_s, off in looks:
        now_s += 2 + step_s
        meter.add(Moment(now_s, slack_s), rate * (now_s + off * slack_s))
    found = meter.rate()
    assert found is None or found == pytest.approx(rate, rel=0.0301)


def test_rate_does_not_fall_while_nobody_knows_when_it_is_read() -> None:
    """Such a look is no standstill; in a longer time the same slack matters less."""
    meter = RateMeter()
    for now_s, slack_s in ((0.0, 0.0), (0.5, 0.01), (1.0, 0.3), (1.5, 0.3), (11.0, 0.3)):
        meter.add(Moment(now_s, slack_s), 100 * now_s)
        assert meter.rate() == (pytest.approx(100) if now_s else None)
    assert meter.span_s == 11


@given(st.floats(0.1, 1e6), st.floats(0.01, 3))
def test_far_is_outside_of_the_interval_and_of_the_margin(value: float, factor: float) -> None:
    """A narrow interval makes no alarm of a good prediction, and a wide one none of a poor one."""
    narrow, wide = Interval(value, value, value), Interval(value, 0, 10 * value)
    assert not is_far(value * factor, wide)
    if abs(factor - 1) > MARGIN + 1e-6:
        assert is_far(value * factor, narrow)
    if abs(factor - 1) < MARGIN - 1e-6:
        assert not is_far(value * factor, narrow)


def test_work_per_joule_needs_everything() -> None:
    """A sum without one of its parts would be a wrong one."""
    assert work_per_joule([0.5, 0.7], 600) == pytest.approx(0.002)
    assert work_per_joule([0.5, None], 600) is None
    assert work_per_joule([0.5, 0.7], None) is None
    assert work_per_joule([0.5, 0.7], 0) is None
