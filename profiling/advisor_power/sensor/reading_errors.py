"""How wrong common ways of reading the power of a kernel are.

Somebody runs a kernel twenty times and asks for its power. Four ways to read it:

- instant: one instant reading when the run ends;
- average: one reading of the average over a second then;
- counter: the energy counter at the start and a second later, less idle power for the rest of it;
- ours: the kernel is repeated, the sensor settles, and readings of a window of eight are averaged.

The truth is the power that the kernel draws when it has run for long.
"""

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from advisor.predict.profiles import Floats
from advisor.validity.sensor_record import (
    AVERAGE_SETTLE_S,
    PERIODS_IN_WINDOW,
    SensorRecord,
    power_timing,
)
from advisor.wire.power import ReadingError
from advisor_power.sensor.trace import (
    AVERAGE,
    ENERGY,
    FLAT,
    INSTANT,
    LoadStage,
    ReadingSeries,
    SpanS,
    Trace,
)

KERNELS_S = (30e-6, 100e-6, 300e-6, 1e-3, 3e-3, 10e-3, 30e-3)
WAYS = ("instant", "average", "counter", "ours")

_REPEATS, _GAPS_S = 3, (1.05, 1.25)
_COUNTED_S = 1.0


def run_stages(seed: int) -> tuple[LoadStage, ...]:
    """Runs of twenty kernels of each length, to be recorded after the stages of the record."""
    draw = random.Random(seed)
    *stages, last = [_runs(kernel_s, draw) for kernel_s in KERNELS_S]
    # The energy of the last run is counted for a second, as that of the others is.
    return (*stages, replace(last, length_s=last.length_s + 2 * _COUNTED_S))


def measured(trace: Trace, record: SensorRecord) -> list[ReadingError]:
    """The errors of real readings; empty where the recording has no such runs."""
    timing, instant = power_timing(record), trace.series.get(INSTANT)
    if instant is None:
        return []
    flat = trace.named(FLAT)[0]
    settle_s = AVERAGE_SETTLE_S if timing is None else timing.settle_s
    steady = instant.between(flat.begun_s + settle_s, flat.ended_s)
    truth_w = float(steady.values.mean())
    count = len(steady.values) // PERIODS_IN_WINDOW
    ours_w = steady.values[: count * PERIODS_IN_WINDOW].reshape(count, -1).mean(axis=1)
    found: list[ReadingError] = []
    for kernel_s in KERNELS_S:
        spans = [span for stage in trace.named(_name(kernel_s)) for span in stage.on]
        if not spans:
            continue
        ends_s = np.array([end_s for _, end_s in spans])
        # The reading that is shown when each run ends.
        ways = {
            name: _newest(trace.series[name], ends_s)
            for name in (INSTANT, AVERAGE)
            if name in trace.series
        }
        if (ticks := trace.series.get(ENERGY)) is not None:
            ways["counter"] = _counts(ticks, spans, instant)
        ways["ours"] = ours_w
        found += [_row(kernel_s, way, w / truth_w - 1) for way, w in ways.items() if len(w)]
    return found


def _row(kernel_s: float, way: str, relative: Floats) -> ReadingError:
    sizes = np.abs(relative)
    median, p95 = np.percentile(sizes, [50, 95])
    return ReadingError(kernel_s, way, float(median), float(p95), len(sizes))


def _counts(ticks: ReadingSeries, spans: Sequence[SpanS], instant: ReadingSeries) -> Floats:
    """Runs are more than a second apart, so the reading before each is of an idle card."""
    begins_s = np.array([begun_s for begun_s, _ in spans])
    lengths_s = np.array([ended_s - begun_s for begun_s, ended_s in spans])
    joules = _newest(ticks, begins_s + _COUNTED_S) - _newest(ticks, begins_s)
    idle_w = _newest(instant, begins_s)
    return (joules - idle_w * (_COUNTED_S - lengths_s)) / lengths_s


def _newest(series: ReadingSeries, times_s: Floats) -> Floats:
    places = np.searchsorted(series.times_s, times_s, side="right") - 1
    return series.values[np.maximum(places, 0)]


def _name(kernel_s: float) -> str:
    return f"runs {kernel_s:g}"


def _runs(kernel_s: float, draw: random.Random) -> LoadStage:
    end_s, spans = 0.0, list[SpanS]()
    for _ in range(_REPEATS):
        start_s = end_s + draw.uniform(*_GAPS_S)
        end_s = start_s + 20 * kernel_s
        spans.append((start_s, end_s))
    return LoadStage(_name(kernel_s), end_s, tuple(spans))
