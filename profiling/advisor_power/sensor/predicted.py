"""What a record predicts that its sensor reads, beside what it read.

As in the check of a record, window and delay are those of the record, and the powers of the load
are those that suit the readings best: how readings move is predicted, not how high they are.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from advisor.predict.profiles import Floats
from advisor.validity.sensor_record import PowerChannel, SensorRecord
from advisor.wire.power import SensorCurve
from advisor_power.sensor.levels import LevelTimes, wave_levels, window_parts
from advisor_power.sensor.stimulus import FLAT, IDLE, WAVE
from advisor_power.sensor.trace import ReadingSeries, RecordedStage, SpanS, Trace

_BEFORE_STEP_S, _AFTER_STEP_S = 0.3, 0.7
"""Around the moment at which a flat load begins; after it the sensor has time to settle, too."""

_PERIODS_OF_WAVE = 8
_POINTS = 400


def predicted_curves(trace: Trace, record: SensorRecord) -> list[SensorCurve]:
    """A step and a square wave for each channel of a record, where they were recorded."""
    return [
        curve
        for channel in record.channels
        if (readings := trace.series.get(channel.name)) is not None
        for curve in _curves(trace, channel, readings)
    ]


def _curves(trace: Trace, channel: PowerChannel, readings: ReadingSeries) -> Iterator[SensorCurve]:
    step, waves = trace.named(IDLE, FLAT), trace.named(WAVE)
    if len(step) == 2 and step[1].on:
        begun_s = step[1].on[0][0]
        shown = (begun_s - _BEFORE_STEP_S, begun_s + channel.settle_s + _AFTER_STEP_S)
        yield from _curve("step", step, shown, channel, readings)
    if waves and len(waves[-1].on) > 1:
        wave = waves[-1]
        begun_s = max(wave.on[0][0], wave.begun_s + channel.settle_s)
        period_s = wave.on[1][0] - wave.on[0][0]
        shown = (begun_s, begun_s + _PERIODS_OF_WAVE * period_s)
        yield from _curve("wave", (wave,), shown, channel, readings)


def _curve(
    load: str,
    stages: Sequence[RecordedStage],
    shown: SpanS,
    channel: PowerChannel,
    readings: ReadingSeries,
) -> Iterator[SensorCurve]:
    """The stretch that is shown; nothing where too few readings tell the powers of the load."""
    levels = wave_levels(stages)
    known = readings.between(stages[0].begun_s + channel.settle_s, stages[-1].ended_s)
    seen = readings.between(*shown)
    if len(known.values) <= len(levels) or not len(seen.values):
        return
    powers_w, *_ = np.linalg.lstsq(_parts(levels, known.times_s, channel), known.values)
    times_s = np.linspace(*shown, _POINTS)
    yield SensorCurve(
        channel=channel.name,
        load=load,
        read_s=_plain(seen.times_s - shown[0]),
        read_w=_plain(seen.values),
        times_s=_plain(times_s - shown[0]),
        predicted_w=_plain(_parts(levels, times_s, channel) @ powers_w),
    )


def _parts(levels: Sequence[LevelTimes], times_s: Floats, channel: PowerChannel) -> Floats:
    ends_s = times_s - channel.delay_ms / 1000
    return window_parts(levels, ends_s, channel.window_ms / 1000, channel.response)


def _plain(values: Floats) -> tuple[float, ...]:
    return tuple(map(float, values))
