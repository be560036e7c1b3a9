"""How far single readings are off a smooth curve, with and without steps of the method.

FinGraV judges its own steps so (V-B): a polynomial of degree four through all readings of all runs,
with and without synchronised clocks, with and without golden runs alone, and of few runs.
"""

from collections.abc import Sequence

import numpy as np

from advisor.predict.profiles import Floats
from advisor.wire.power import Scatter
from advisor_power.kernels.golden import LEAST_GOLDEN
from advisor_power.kernels.stitch import Sensor
from advisor_power.kernels.trace import Run

DEGREE = 4
FEW_RUNS = 50
_LEAST_READINGS = 2 * (DEGREE + 1)
_COMPARED = 50
"""Times at which two polynomials are compared."""


def scatter(usable: Sequence[Run], golden: Sequence[Run], sensor: Sensor) -> Scatter | None:
    """What each step of the method does to readings; None where there is too little to say so.

    Usable runs are not dropped; golden are those of them whose execution time is that of most.
    """
    readings = _readings(golden, sensor.delay_s)
    if len(golden) < LEAST_GOLDEN or len(readings) < _LEAST_READINGS:
        return None
    unsynchronised = _readings_since_launch(golden)
    few = golden[:FEW_RUNS] if len(golden) > FEW_RUNS else golden[:0]
    return Scatter(
        full_w=_scatter_w(readings),
        unsynchronised_w=_scatter_or_none(unsynchronised),
        unbinned_w=_scatter_or_none(_readings(usable, sensor.delay_s))
        if len(usable) > len(golden)
        else None,
        few_runs=len(few) or None,
        few_runs_differ=_differ(_readings(few, sensor.delay_s), readings) if few else None,
    )


def _readings(runs: Sequence[Run], delay_s: float) -> Floats:
    """Time since the start of the run and power, shape (readings, 2)."""
    return _within(runs, [run.starts_s[0] + delay_s for run in runs])


def _readings_since_launch(runs: Sequence[Run]) -> Floats:
    """The same by what the host knows without asking the GPU."""
    known = [(run, run.launched_s) for run in runs if run.launched_s is not None]
    return _within([run for run, _ in known], [launched_s for _, launched_s in known])


def _within(runs: Sequence[Run], starts_s: Sequence[float]) -> Floats:
    found = [
        (reading.at_s - start_s, reading.power_w)
        for run, start_s in zip(runs, starts_s, strict=True)
        for reading in run.readings
        if 0 < reading.at_s - start_s <= run.length_s
    ]
    return np.array(found, dtype=np.float64).reshape(-1, 2)


def _scatter_or_none(readings: Floats) -> float | None:
    return _scatter_w(readings) if len(readings) >= _LEAST_READINGS else None


def _scatter_w(readings: Floats) -> float:
    """Root mean square of what is left of readings beside their polynomial, W."""
    left = readings[:, 1] - _at(_polynomial(readings), readings[:, 0])
    freedom = len(readings) - (DEGREE + 1)
    return float(np.sqrt(left @ left / freedom))


def _differ(few: Floats, every: Floats) -> float | None:
    """Of two polynomials, over the times that both have readings of."""
    if len(few) < _LEAST_READINGS:
        return None
    begin = max(few[:, 0].min(), every[:, 0].min())
    end = min(few[:, 0].max(), every[:, 0].max())
    times = np.linspace(begin, end, _COMPARED, dtype=np.float64)
    one, other = (_at(_polynomial(readings), times) for readings in (few, every))
    return float(np.sqrt(np.mean((one - other) ** 2)) / np.mean(other))


def _polynomial(readings: Floats) -> np.polynomial.Polynomial:
    return np.polynomial.Polynomial.fit(readings[:, 0], readings[:, 1], DEGREE)


def _at(polynomial: np.polynomial.Polynomial, times_s: Floats) -> Floats:
    return np.asarray(polynomial(times_s), dtype=np.float64)
