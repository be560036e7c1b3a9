"""How well forms of a power sensor predict square waves that they were not fitted to.

    .venv/bin/python docs/measurements/power/sensor_clock.py

Of bundled recordings: forms are fitted to the locked waves; the others are predicted, no delay is
chosen for a reading, and none is left out. Errors are of the mean that was read.
"""

import itertools
from collections.abc import Sequence

import numpy as np

from advisor.predict.profiles import Floats
from advisor.validity.sensor_record import Response
from advisor_data.bundled import bundled_sensors
from advisor_power.sensor import (
    LOCKED_WAVE,
    WAVE,
    RecordedStage,
    Trace,
    bundled_trace,
    level_times,
    window_parts,
)

CLOCKS_MS = (20, 10, 12, 15, 17, 18, 19, 21, 22, 25, 30, 33, 40, 50)


def main() -> None:
    """Print the table."""
    print("| card | form | rms, % | median | 90 % within |\n| --- | --- | --- | --- | --- |")
    for record in bundled_sensors():
        trace = bundled_trace(record)
        tell(trace, "mean", 0)
        for clock_ms in (0, *CLOCKS_MS):
            tell(trace, "exponential", clock_ms)


def tell(trace: Trace, response: Response, clock_ms: float) -> None:
    """A line: the errors of the form that suits the locked waves best."""
    locked, others = trace.named(LOCKED_WAVE), trace.named(WAVE)
    steps_s = np.arange(0.02, 0.04, 0.004), np.arange(0, 0.01 if clock_ms else 0.04, 0.002)
    clocks_s = [clock_ms / 1000 * (1 + part) for part in (-1e-5, 0, 1e-5)] if clock_ms else [0.0]
    ticks_s = np.arange(0, clock_ms / 1000, 1e-3) if clock_ms else [0.0]
    tried = itertools.product(*steps_s, clocks_s, ticks_s)
    best = min(tried, key=lambda place: off(trace, locked, response, *place).mean())
    found = 100 * off(trace, others, response, *best)
    rms, median, most = np.sqrt(np.mean(found**2)), np.median(found), np.quantile(found, 0.9)
    form = f"{response}, " + (f"clock of {clock_ms} ms" if clock_ms else "constant delay")
    print(f"| {trace.header.gpu_model} | {form} | {rms:.1f} | {median:.1f} | {most:.1f} |")


def off(
    trace: Trace, stages: Sequence[RecordedStage], response: Response,
    window_s: float, delay_s: float, clock_s: float, tick_s: float,
) -> Floats:  # fmt: skip
    """Relative error of each reading, by the powers of off and on that suit them best."""
    on = [span for stage in stages for span in stage.on]
    edges = [stages[0].begun_s, *(edge for span in on for edge in span), stages[-1].ended_s]
    levels = [level_times(list(zip(edges[::2], edges[1::2], strict=True))), level_times(on)]
    readings = trace.series["instant"].between(stages[0].begun_s + 0.12, stages[-1].ended_s)
    times_s = ends_s = readings.times_s - trace.stages[0].begun_s
    if clock_s:
        ends_s = tick_s + np.floor((times_s - tick_s) / clock_s) * clock_s
    ends_s = ends_s + trace.stages[0].begun_s - delay_s
    parts = window_parts(levels, ends_s, window_s, response)
    powers, *_ = np.linalg.lstsq(parts, readings.values)
    return np.abs(readings.values - parts @ powers) / readings.values.mean()


if __name__ == "__main__":
    main()
