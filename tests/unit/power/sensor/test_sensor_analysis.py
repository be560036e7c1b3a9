"""Recordings of made-up sensors are analysed: what was put in comes out, and faults are named."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
from synthetic_sensor import AVERAGE, FADING, INSTANT, MEMORY, MadeUpCard, MadeUpSensor

from advisor.errors import InputError
from advisor.validity.sensor_record import PowerChannel, SensorRecord
from advisor_power.sensor.analysis import record_of
from advisor_power.sensor.trace import read_trace, steps_and_bursts, waves

pytestmark = pytest.mark.figures

Analyse = Callable[[MadeUpCard], SensorRecord]


@pytest.fixture
def analyse(tmp_path: Path) -> Analyse:
    """Writes the recording of a card, reads it back and analyses it."""
    return lambda card: record_of(read_trace(card.write(tmp_path / "recording.jsonl")), "replay")


def only(sensor: MadeUpSensor) -> dict[str, MadeUpSensor]:
    return {"instant": sensor}


def channel_of(record: SensorRecord, name: str) -> PowerChannel:
    channel = record.channel(name)
    assert channel is not None, record.reasons
    return channel


def test_all_channels_of_a_card_are_found(analyse: Analyse) -> None:
    record = analyse(MadeUpCard())
    assert record.reasons == record.absent == ()
    for name, sensor in {"instant": INSTANT, "average": AVERAGE, "memory": MEMORY}.items():
        channel = channel_of(record, name)
        assert channel.accepted
        assert channel.period_ms == pytest.approx(1000 * sensor.period_s, rel=0.001)
        assert channel.window_ms == pytest.approx(1000 * sensor.window_s, rel=0.02)
        assert channel.delay_ms == pytest.approx(1000 * sensor.delay_s, abs=5)
        assert channel.noise_w == pytest.approx(sensor.noise_w, rel=0.5)
    assert channel_of(record, "instant").window_ms == pytest.approx(25, abs=0.5)
    assert channel_of(record, "instant").delay_ms == pytest.approx(12, abs=0.5)
    assert record.energy is not None
    assert record.energy.covers_everything
    assert record.energy.period_ms == pytest.approx(100, rel=0.001)


@pytest.mark.parametrize(
    ("sensor", "seed"),
    [
        (MadeUpSensor(0.05, 0.045, 0.004, 5.0), 3),
        (MadeUpSensor(0.066, 0.066, 0.09, 2.0), 4),
        (MadeUpSensor(0.1, 0.3, 0.05, 1.0), 5),
        (MadeUpSensor(0.066, 0.006, 0.03, 2.0), 6),
    ],
)
def test_window_and_delay_come_back(analyse: Analyse, sensor: MadeUpSensor, seed: int) -> None:
    """Sensors that look at a tenth, a quarter or all of the time, with and without delay."""
    channel = channel_of(analyse(MadeUpCard(only(sensor), seed=seed)), "instant")
    assert channel.accepted
    # Readings are from a grid of 0.2 ms; 1 ms is half of what a record asks for.
    assert channel.window_ms == pytest.approx(1000 * sensor.window_s, rel=0.02, abs=1)
    assert channel.delay_ms == pytest.approx(1000 * sensor.delay_s, abs=1)


@pytest.mark.parametrize(
    ("sensor", "response", "delay_ms", "spread_ms", "settle_s"),
    [
        (MadeUpSensor(0.1, 0.026, 0.018, 3.0, spread_s=0.03), "mean", 18, 30, 0.059),
        (FADING, "exponential", 14, 18, 0.014 + 0.009 + 0.065),
    ],
)
def test_delay_that_varies_and_the_form_of_forgetting_are_found(
    analyse: Analyse,
    sensor: MadeUpSensor,
    response: str,
    delay_ms: float,
    spread_ms: float,
    settle_s: float,
) -> None:
    """A driver shows values of any age; the instant reading of an H100 or H200 fades."""
    whole = (*steps_and_bursts(1), *waves(sensor.period_s, 1))
    channel = channel_of(analyse(MadeUpCard(only(sensor), stages=whole)), "instant")
    assert channel.accepted
    assert channel.response == response
    assert channel.window_ms == pytest.approx(26, abs=2)
    assert channel.delay_ms == pytest.approx(delay_ms, abs=2)
    assert channel.delay_spread_ms == pytest.approx(spread_ms, abs=4)
    assert channel.settle_s == pytest.approx(settle_s, abs=0.006)


def test_delay_that_may_be_anything_is_refused(analyse: Analyse) -> None:
    """Nearly any reading of a wave could be explained."""
    sensor = MadeUpSensor(0.066, 0.025, 0.03, 2.0, spread_s=0.05)
    record = analyse(MadeUpCard(only(sensor), seed=2))
    assert not channel_of(record, "instant").accepted
    assert any("its delay varies by" in reason for reason in record.reasons)


def test_counter_that_adds_up_what_a_sensor_sees_is_found(analyse: Analyse) -> None:
    record = analyse(MadeUpCard(only(INSTANT), counter="samples"))
    assert record.energy is not None
    assert record.energy.coverage_spread > 0.05
    assert record.energy.covers_everything is False


def test_channels_that_are_not_there_are_named(analyse: Analyse) -> None:
    """A card without memory power and counter has them in `absent`, never as 0."""
    record = analyse(MadeUpCard(only(INSTANT), counter="none"))
    assert record.absent == ("average", "memory", "energy")
    assert record.energy is None
    assert record.accepted
    assert "memory: the card does not have it, or it reads 0" in record.reasons


@pytest.mark.parametrize(
    ("name", "sensor", "says"),
    [
        (
            "memory",
            MadeUpSensor(0.1, 1.0, 0.02, 0.0, (75.0, 75.0, 75.0, 75.0)),
            "it always reads 75 W",
        ),
        ("average", MadeUpSensor(4.0, 1.0, 0.02, 1.0), "too rarely to be fitted"),
    ],
)
def test_channel_that_is_stuck_or_changes_too_rarely_is_absent(
    analyse: Analyse, name: str, sensor: MadeUpSensor, says: str
) -> None:
    record = analyse(MadeUpCard({"instant": INSTANT, name: sensor}))
    assert name in record.absent
    assert any(reason.startswith(f"{name}: ") and says in reason for reason in record.reasons)


def test_period_that_changes_in_mid_run_is_refused(analyse: Analyse) -> None:
    record = analyse(MadeUpCard(only(INSTANT), later_period_s=0.1))
    assert not channel_of(record, "instant").accepted
    assert any("its period changed from 66.0 to 100.0 ms" in reason for reason in record.reasons)


def throttled_once(second: int) -> tuple[list[str], list[int]]:
    return ["sw-power-cap"] if second == 40 else [], [1]


def with_a_neighbour(second: int) -> tuple[list[str], list[int]]:
    return [], [1, 2] if 50 <= second < 55 else [1]


@pytest.mark.parametrize(
    ("looks", "says"),
    [
        (throttled_once, "throttled (sw-power-cap)"),
        (with_a_neighbour, "another process computed on the GPU"),
    ],
)
def test_disturbed_recording_is_refused(
    analyse: Analyse, looks: Callable[[int], tuple[list[str], list[int]]], says: str
) -> None:
    record = analyse(MadeUpCard(only(INSTANT), looks=looks))
    assert not record.accepted
    assert says in record.reasons[0]
    assert record.energy is not None
    assert record.energy.covers_everything is None


def test_recording_that_nobody_watched_is_refused(tmp_path: Path) -> None:
    file = MadeUpCard(only(INSTANT)).write(tmp_path / "r.jsonl")
    trace = read_trace(file)
    for looks in ((), trace.looks[:50]):
        record = record_of(dataclasses.replace(trace, looks=looks), "replay")
        assert record.reasons[0] == "the state of the card was not watched all the time"
        assert not record.accepted


def test_process_that_only_passes_is_no_neighbour(analyse: Analyse) -> None:
    """Those that start on another GPU show on all of them for some seconds, one after the other."""

    def passing(second: int) -> tuple[list[str], list[int]]:
        return [], [1, second // 3] if 40 <= second < 55 else [1]

    assert analyse(MadeUpCard(only(INSTANT), looks=passing)).accepted


def test_recording_that_was_stopped_is_not_accepted(analyse: Analyse) -> None:
    record = analyse(MadeUpCard(only(INSTANT), ends_at_s=50))
    assert record.reasons[0] == "the recording was stopped before its end"
    assert not record.accepted
    assert channel_of(record, "instant").window_ms == pytest.approx(25, abs=0.5)


@pytest.mark.parametrize("ends_at_s", [2, 6, 8.1])
def test_recording_that_ends_too_early_says_so(analyse: Analyse, ends_at_s: float) -> None:
    with pytest.raises(InputError, match="ends before its bursts"):
        analyse(MadeUpCard(only(INSTANT), ends_at_s=ends_at_s))


def test_recording_without_waves_is_not_accepted(analyse: Analyse) -> None:
    record = analyse(MadeUpCard(only(INSTANT), stages=steps_and_bursts(1)))
    assert not record.accepted
    assert "instant: no square waves were recorded to check it with" in record.reasons


def test_sensor_that_is_no_window_is_refused(analyse: Analyse, tmp_path: Path) -> None:
    """Readings that do not follow from any window of the load fail on the waves."""
    card = MadeUpCard(only(INSTANT))
    path = card.write(tmp_path / "other.jsonl")
    trace = read_trace(path)
    series = trace.series["instant"]
    begun_s, ended_s = trace.named("wave")[0].begun_s, trace.named("wave")[-1].ended_s
    late = (series.times_s > begun_s) & (series.times_s < ended_s)
    shifted = dataclasses.replace(series, times_s=series.times_s + 0.01 * late)
    record = record_of(dataclasses.replace(trace, series={"instant": shifted}), "replay")
    assert not record.accepted
    assert any("square waves are predicted" in reason for reason in record.reasons)
