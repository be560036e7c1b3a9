"""From runs to what is known of the operation: steady points, energy, curve and its resolution."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.errors import SourceError
from advisor.validity.sensor_record import PowerChannel, SensorRecord
from advisor.wire.power import CurveBin, Difference, Estimate, KernelPower, StretchPower
from advisor_power.kernels.deconvolve import Curve, bin_edges, deconvolve, fault_of
from advisor_power.kernels.estimates import around, mean_of
from advisor_power.kernels.golden import (
    LEAST_GOLDEN,
    Golden,
    golden,
    guidance,
    histogram,
)
from advisor_power.kernels.plan import sigma_power_w
from advisor_power.kernels.scatter import scatter
from advisor_power.kernels.steady import steady_execution
from advisor_power.kernels.stitch import end_powers, naive_curve, sensor_of, stitch
from advisor_power.kernels.trace import (
    Run,
    TraceBlock,
    duration_s,
    durations_ms,
    energy_by_difference,
    longest,
    start_s,
)

LOOKED_AT_S = 0.05
"""After what ran before has left the sensor."""


def analyse(
    blocks: Sequence[TraceBlock],
    record: SensorRecord,
    channel: PowerChannel,
    *,
    execution_ms: float,
    ssp_execution: int | None,
    resolution_ms: float,
    limit_w: float | None = None,
    after_idle: bool = True,
    stretch: StretchPower | None = None,
) -> KernelPower:
    """What blocks of runs say of the operation.

    Args:
        blocks: Long and short runs in turn.
        record: Of the card's sensors.
        channel: Its instant channel.
        execution_ms: Of one execution, as timed before; it chooses the row of Table I.
        ssp_execution: Executions of the shortest run that ends in steady power, if there is one.
        resolution_ms: Wanted width of the curve's bins.
        limit_w: Power limit of the GPU; None: not known.
        after_idle: Whether nothing was before the runs.
        stretch: What slow sensors said of it.

    Raises:
        SourceError: no run can be used.
    """
    every = [run for block in blocks for run in block.runs]
    usable = [run for run in every if not run.dropped]
    if not usable:
        raise _all_dropped(every)
    typical = _typical(usable, guidance(execution_ms).margin)
    runs, sse = typical.runs, typical.sse
    curve, before_w, no_curve = _curve(typical, channel, resolution_ms / 1000)
    difference = _difference(blocks, record, curve, runs, before_w, after_idle)
    if curve is not None:
        differ = None if isinstance(difference, str) else difference.differ
        idle_w = before_w if before_w is not None and after_idle else 0.0
        if fault := fault_of(_band_w(curve), idle_w, limit_w, differ):
            curve, no_curve = None, f"the curve that readings give is not to be believed: {fault}"
            if not isinstance(difference, str):
                difference = replace(difference, curve_j=None, differ=None)
    ssp_w = _ssp_power(runs, channel, ssp_execution)
    sse_w = curve and _execution_power(curve, runs, sse)
    return KernelPower(
        before_w=before_w,
        execution_ms=typical.execution_s * 1000,
        sse_execution=sse,
        sse_power_w=sse_w,
        ssp_execution=ssp_execution,
        ssp_power_w=ssp_w,
        settled_power_w=curve and _settled_power(curve, channel),
        sse_energy_j=sse_w and sse_w.times(duration_s(runs, sse)),
        ssp_energy_j=ssp_w and ssp_w.times(typical.execution_s),
        difference=None if isinstance(difference, str) else difference,
        no_difference=difference if isinstance(difference, str) else "",
        histogram=histogram(typical.times_ms),
        bin_low_ms=typical.golden.low_ms,
        bin_high_ms=typical.golden.high_ms,
        runs=len(every),
        golden_runs=len(runs),
        dropped=_dropped(every, typical.golden),
        resolution_ms=_width_ms(curve) if curve else resolution_ms,
        sigma_w=_sigma_w(curve, channel),
        curve=_points(curve, runs) if curve else (),
        no_curve=no_curve,
        stretch=stretch,
        scatter=scatter(usable, runs, sensor_of(channel)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Typical:
    """Runs whose executions take as long as those of most."""

    sse: int
    """First execution after which times fall no further, counted from 1."""
    times_ms: list[float]
    """Of an execution from there on, of every usable run."""
    golden: Golden
    runs: list[Run]
    """The golden ones."""
    execution_s: float
    """Their median."""


def _typical(usable: Sequence[Run], margin: float) -> _Typical:
    sse = steady_execution([durations_ms(run) for run in usable], margin)
    times_ms = [float(np.median(durations_ms(run)[sse - 1 :])) for run in usable]
    chosen = golden(times_ms, margin)
    return _Typical(
        sse=sse,
        times_ms=times_ms,
        golden=chosen,
        runs=[usable[place] for place in chosen.runs],
        execution_s=float(np.median([times_ms[place] for place in chosen.runs])) / 1000,
    )


def _curve(
    typical: _Typical, channel: PowerChannel, resolution_s: float
) -> tuple[Curve | None, float | None, str]:
    """The curve, power before the runs, and why there is no curve."""
    runs, sensor = typical.runs, sensor_of(channel)
    stitched = stitch(runs, sensor)
    if stitched is None:
        return None, None, "no reading fell before a run, so it is not known what was drawn then"
    if not typical.golden.enough:
        why = f"only {len(runs)} golden runs: it takes {LEAST_GOLDEN} (more with --runs)"
        return None, stitched.base_w, why
    length_s = float(np.median([run.length_s for run in longest(runs)]))
    edges_s = bin_edges(length_s, typical.execution_s, resolution_s)
    if len(stitched.tau_s) < len(edges_s):
        why = f"{len(stitched.tau_s)} readings are too few for {len(edges_s) - 1} bins"
        return None, stitched.base_w, f"{why}: more with --runs, or a longer --resolution-ms"
    return deconvolve(stitched, sensor, edges_s), stitched.base_w, ""


def _difference(
    blocks: Sequence[TraceBlock],
    record: SensorRecord,
    curve: Curve | None,
    runs: Sequence[Run],
    before_w: float | None,
    after_idle: bool,
) -> Difference | str:
    """The second instrument, or why it says nothing."""
    if record.energy is None:
        return "this card has no energy counter"
    # Runs begin at random, so that what a counter overlooks now and then is the same for all.
    if record.energy.covers_everything is False:
        return "the energy counter of this card does not add up everything that is drawn"
    if not after_idle:
        return "with another operation before the runs, idle power between them is not known"
    if before_w is None:
        return "no reading fell before a run, so it is not known what was drawn between runs"
    whole = [block for block in blocks if not any(run.dropped for run in block.runs)]
    counter = energy_by_difference(whole, before_w)
    if isinstance(counter, str):
        return counter
    short, long = min(b.executions for b in whole), max(b.executions for b in whole)
    found = Difference(first=short + 1, last=long, counter=counter)
    return found if curve is None else _compared(found, curve, runs)


def _compared(found: Difference, curve: Curve, runs: Sequence[Run]) -> Difference:
    """With what the curve says of the same executions."""
    short, long = found.first - 1, found.last
    begin_s, end_s = (start_s(runs, place) for place in (short, long))
    mean_w, _ = curve.mean_w(begin_s, min(end_s, float(curve.edges_s[-1])))
    curve_j = mean_w * (end_s - begin_s) / (long - short)
    return replace(found, curve_j=curve_j, differ=found.counter.value / curve_j - 1)


def _ssp_power(
    runs: Sequence[Run], channel: PowerChannel, ssp_execution: int | None
) -> Estimate | None:
    if ssp_execution is None:
        return None
    powers = end_powers([r for r in runs if r.executions >= ssp_execution], sensor_of(channel))
    return mean_of(powers) if powers else None


def _execution_power(curve: Curve, runs: Sequence[Run], execution: int) -> Estimate:
    """Power of one execution, counted from 1, by the curve."""
    begin_s = start_s(runs, execution - 1)
    end_s = min(begin_s + duration_s(runs, execution), float(curve.edges_s[-1]))
    return around(*curve.mean_w(begin_s, end_s))


def _settled_power(curve: Curve, channel: PowerChannel) -> Estimate | None:
    """In `LOOKED_AT_S` from when readings are of the operation alone."""
    begin_s, end_s = channel.settle_s, channel.settle_s + LOOKED_AT_S
    return around(*curve.mean_w(begin_s, end_s)) if end_s <= curve.edges_s[-1] else None


def _dropped(every: Sequence[Run], chosen: Golden) -> dict[str, int]:
    reasons = Counter(run.dropped for run in every if run.dropped)
    if chosen.dropped:
        reasons["other execution time"] = chosen.dropped
    return dict(reasons)


def _band_w(curve: Curve) -> tuple[float, float]:
    """Its ends."""
    low_w, high_w = curve.power_w - curve.band_w, curve.power_w + curve.band_w
    return float(low_w.min()), float(high_w.max())


def _width_ms(curve: Curve) -> float:
    return float(curve.edges_s[1] - curve.edges_s[0]) * 1000


def _sigma_w(curve: Curve | None, channel: PowerChannel) -> float | None:
    """At the mean number of readings per bin."""
    if curve is None:
        return None
    readings = float(curve.readings.mean())
    return sigma_power_w(channel.window_ms, _width_ms(curve), channel.noise_w, readings)


def _points(curve: Curve, runs: Sequence[Run]) -> tuple[CurveBin, ...]:
    raw_w, band_w = naive_curve(runs, curve.edges_s), curve.band_w
    return tuple(
        CurveBin(
            begin_ms=float(curve.edges_s[place]) * 1000,
            end_ms=float(curve.edges_s[place + 1]) * 1000,
            power_w=float(curve.power_w[place]),
            low_w=float(curve.power_w[place] - band_w[place]),
            high_w=float(curve.power_w[place] + band_w[place]),
            raw_w=raw_w[place],
            readings=int(curve.readings[place]),
        )
        for place in range(len(curve.power_w))
    )


def _all_dropped(runs: Sequence[Run]) -> SourceError:
    (reason, count), *_ = Counter(run.dropped for run in runs).most_common(1) or [("no run", 0)]
    return SourceError(
        f"none of {len(runs)} runs can be used",
        why=f"{count} of them: {reason}",
        fix="see what holds the card back (`nvidia-smi -q -d PERFORMANCE`), and run it again",
    )
