"""Measures one operation: finds how long a run must be, then makes long and short runs in turn.

Runs are kept on disk: what is done survives Ctrl-C, and is not done again.

Power over time comes from readings that are means over a window: Tikhonov, with an honest band.

A reading at tau is `1/W * integral of P over [tau - W, tau]`, or of an exponential response; P
before the run is known.
With P constant within bins that is a linear system. Its plain solution is the recursion
`P(tau) = W R'(tau) + P(tau - W)`, which multiplies noise by the window over the bin and adds it up
once per window, so differences of neighbouring bins are held down (Tikhonov, first differences), by
as much as generalised cross validation says (Golub, Heath, Wahba, 1979). Where the delay of
the sensor varies, a reading is taken for the mean of what it would be at each delay, and counts the
less the more these differ: near a step of power it says little of when the step was.
"""

import math
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import numpy as np

from advisor.core.gpu import Gpu
from advisor.errors import InputError, SourceError, StoreError
from advisor.files import open_home
from advisor.formats.wire import RecordLines, read, slug, write
from advisor.predict.profiles import Floats
from advisor.validity.sensor_record import AVERAGE_SETTLE_S, PowerChannel, SensorRecord
from advisor.wire.power import CurveBin, Difference, Estimate, Histogram, KernelReport, StretchPower
from advisor_data.bundled import KERNEL_REPORTS
from advisor_power.gpu_worker import Conditions, Step
from advisor_power.kernels.runs import (
    IDLE,
    STANDARD_ERRORS_95,
    GaplessRun,
    KernelPlan,
    KernelReady,
    LiveKernelBench,
    Run,
    Sensors,
    Stitched,
    TraceBlock,
    WantedKernel,
    around,
    check_resolution,
    duration_s,
    durations_ms,
    end_powers,
    energy_by_difference,
    least_gap_s,
    make_plan,
    mean_of,
    naive_curve,
    sigma_power_w,
    start_s,
    stitch,
)
from advisor_power.sensor.analysis import level_times, window_parts
from advisor_profiling.window import FEWEST_READINGS, Clock as LiveClock

# Of the power limit: bands of operations at it went up to 1.5 times (docs/measurements).
_MOST_OF_LIMIT = 1.6

# Part by which curve and energy counter may differ.
_MOST_DIFFER = 0.03


# Of each bin, in which power is taken as constant: in whole bins it is not, and what a window that
# begins within a bin sees of that would be taken for a difference between bins.
_PARTS = 4

_DELAYS = 8  # of those within the spread, how many are looked at
_LONG_BEFORE_S = 100.0  # power is that of before the runs since then: longer than any window


@dataclass(frozen=True, slots=True)
class Curve:
    """Power in bins since the start of a run.

    Attributes:
        edges_s: Of the bins, shape (bins + 1,).
        power_w: Mean of each bin, shape (bins,).
        covariance: Of these means, W^2, shape (bins, bins).
        readings: Windows that ended in each bin, shape (bins,).
    """

    edges_s: Floats
    power_w: Floats
    covariance: Floats
    readings: Floats

    @property
    def band_w(self) -> Floats:
        """Half of the 95 % interval of each bin."""
        return STANDARD_ERRORS_95 * np.sqrt(np.diag(self.covariance))

    def mean_w(self, begin_s: float, end_s: float) -> tuple[float, float]:
        """Mean power between two times, and half of its 95 % interval."""
        bins = [level_times([bin_s]) for bin_s in pairwise(self.edges_s.tolist())]
        weights = window_parts(bins, np.array([end_s]), end_s - begin_s)[0]
        sigma = float(np.sqrt(weights @ self.covariance @ weights))
        return float(weights @ self.power_w), STANDARD_ERRORS_95 * sigma


def fault_of(
    band_w: tuple[float, float], idle_w: float, limit_w: float | None, differ: float | None
) -> str:
    """Why a curve is no result; "": it is one.

    Readings that are few, or late by another time each, can be explained by power that swings by
    thousands of watts.

    Args:
        band_w: The lowest and the highest power within its 95 % band.
        idle_w: The least that the GPU draws.
        limit_w: Its power limit; None: not known.
        differ: By which part energy by the counter is off that of the curve; None: not compared.
    """
    low_w, high_w = band_w
    limit_w, off = math.inf if limit_w is None else limit_w, differ or 0.0
    reasons = {
        f"its band goes down to {low_w:.0f} W, and the idle GPU draws {idle_w:.0f} W": (
            low_w < idle_w
        ),
        f"its band goes up to {high_w:.0f} W, over {_MOST_OF_LIMIT:g} times the limit of "
        f"{limit_w:.0f} W": high_w > _MOST_OF_LIMIT * limit_w,
        f"the energy counter says {off:+.1%}, and {_MOST_DIFFER:.0%} is allowed": (
            abs(off) > _MOST_DIFFER
        ),
    }
    return next((why for why, is_so in reasons.items() if is_so), "")


def bin_edges(length_s: float, execution_s: float, resolution_s: float) -> Floats:
    """Bins near the resolution that begin and end with executions.

    Executions longer than the resolution are cut into equal bins, shorter ones are put together.
    """
    if execution_s >= resolution_s:
        width = execution_s / int(execution_s / resolution_s)
    else:
        width = execution_s * round(resolution_s / execution_s)
    count = max(1, int(length_s / width + 1e-6))
    return np.linspace(0.0, count * width, count + 1, dtype=np.float64)


def deconvolve(stitched: Stitched, sensor: PowerChannel, edges_s: Floats) -> Curve:
    """The power in each bin, by readings of golden runs; edges begin with 0, shape (bins + 1,)."""
    bins = len(edges_s) - 1
    parts_s = np.interp(np.arange(bins * _PARTS + 1) / _PARTS, np.arange(bins + 1), edges_s)
    inside = stitched.tau_s <= edges_s[-1] - sensor.late_s
    tau_s, power_w = stitched.tau_s[inside], stitched.power_w[inside]
    late = (np.arange(_DELAYS) + 0.5) / _DELAYS - 0.5 if sensor.late_s else np.zeros(1)
    ends_s = tau_s + sensor.delay_spread_ms / 1000 * late[:, None]
    spans_s = (-_LONG_BEFORE_S, 0.0), *pairwise(parts_s.tolist())
    levels = [level_times([span_s]) for span_s in spans_s]
    parts = window_parts(levels, ends_s.ravel(), sensor.window_ms / 1000, sensor.response)
    parts = parts.reshape(*ends_s.shape, len(levels))
    matrices, before_w = parts[:, :, 1:], stitched.base_w * parts[:, :, 0]
    matrix, wanted = matrices.mean(axis=0), power_w - before_w.mean(axis=0)
    solution, covariance = _solve(matrix, wanted, sensor.noise_w)
    # Readings are weighed anew by the curve that came out.
    for _ in range(3 if sensor.late_s else 0):
        scatter_w = np.std(matrices @ solution + before_w, axis=0)
        weight = sensor.noise_w / np.hypot(sensor.noise_w, scatter_w)
        solution, covariance = _solve(matrix * weight[:, None], wanted * weight, sensor.noise_w)
    means = np.kron(np.eye(bins), np.full((1, _PARTS), 1 / _PARTS))
    counts, _ = np.histogram(tau_s, edges_s)
    return Curve(edges_s, means @ solution, means @ covariance @ means.T, counts.astype(np.float64))


def _solve(matrix: Floats, wanted: Floats, noise_w: float) -> tuple[Floats, Floats]:
    """Least squares with differences held down, and the covariance of the solution.

    Both quadratic forms are made diagonal at once, so that each strength costs next to nothing:
    `matrix.T @ matrix + s * scale * smooth` is `inv(V).T @ diag(1 + (s - 1) * share) @ inv(V)`.
    """
    differences = np.diff(np.eye(matrix.shape[1]), axis=0)
    normal, smooth = matrix.T @ matrix, differences.T @ differences
    smooth = smooth * (float(np.trace(normal)) / float(np.trace(smooth)))
    half = np.linalg.inv(np.linalg.cholesky(normal + smooth))
    share, turned = np.linalg.eigh(half @ smooth @ half.T)
    basis = half.T @ turned
    projected, right = matrix @ basis, basis.T @ (matrix.T @ wanted)

    def residual_and_freedom(strength: float) -> tuple[float, float]:
        weight = 1 / (1 + (strength - 1) * share)
        residual = wanted - projected @ (weight * right)
        freedom = len(wanted) - float(np.sum(weight * (1 - share)))
        return float(residual @ residual), max(freedom, 1.0)

    def cross_validation(strength: float) -> float:
        residual, freedom = residual_and_freedom(strength)
        return residual / freedom**2

    # The weight of neighbouring differences against that of the readings.
    best = min(np.logspace(-6, 4, 41).tolist(), key=cross_validation)
    weight = 1 / (1 + (best - 1) * share)
    residual, freedom = residual_and_freedom(best)
    # The larger of what the sensor does on a steady load and of what is really seen here.
    noise = max(noise_w**2, residual / freedom)
    # Bayesian covariance (Wahba, 1983): it holds the bias of smoothing, too.
    return basis @ (weight * right), noise * (basis * weight) @ basis.T


# With fewer runs a curve would show single runs, not the operation.
_LEAST_GOLDEN = 20


# FinGraV, Table I: up to which execution time, ms, how many runs and which `golden` margin.
_TABLE_I = ((0.05, (400, 0.05)), (0.2, (200, 0.05)), (math.inf, (200, 0.02)))


def guidance(execution_ms: float) -> tuple[int, float]:
    """Runs and margin by Table I; an execution below its 25 us takes the first row."""
    return next((row for up_to_ms, row in _TABLE_I if execution_ms < up_to_ms), _TABLE_I[-1][1])


def golden(times_ms: Sequence[float], margin: float) -> list[int]:
    """Positions of the runs of the bin of times with most runs in it; of equal bins the fastest.

    The longest time of a bin is at most this part above its shortest. There is a run at least.
    """
    order = np.argsort(times_ms, kind="stable")
    ordered = np.asarray(times_ms)[order]
    # A bin begins at each time; how far it reaches is found at once for all of them.
    ends = np.searchsorted(ordered, ordered * (1 + margin), side="right")
    begin = int(np.argmax(ends - np.arange(len(ordered))))
    return sorted(map(int, order[begin : ends[begin]]))


# Two run lengths whose power differs by less than this part are the same.
_STEADY_WITHIN = 0.01


def steady_execution(times_ms: Sequence[Sequence[float]], margin: float) -> int:
    """SSE: the first execution, counted from 1, after which times fall no further.

    Args:
        times_ms: Of each run, the time of each execution; runs may differ in length.
        margin: Times that differ by less than this part are the same.
    """
    shortest = min(len(times) for times in times_ms)
    medians = np.median([times[:shortest] for times in times_ms], axis=0)
    least_left = np.minimum.accumulate(medians[::-1])[::-1]
    return int(np.argmax(medians <= (1 + margin) * least_left)) + 1


def shortest_run(execution_s: float, window_s: float) -> int:
    """Executions of the shortest run that is tried."""
    # Four, as FinGraV begins with, and three windows of the sensor with the spread of its delay:
    # readings of its end are of it alone.
    return max(4, math.ceil(3 * window_s / execution_s))


def search_ssp(
    power_w: Callable[[int], float], start: int, least: int, most: int
) -> tuple[int | None, dict[int, float]]:
    """Double the length of runs until two neighbours agree, or halve it for as long as they do.

    Args:
        power_w: Mean power at the end of runs of so many executions, W.
        start: Executions of the first runs.
        least: Executions of the shortest runs that the sensor can tell anything about.
        most: Executions of the longest runs that may be tried.

    Returns:
        Executions of the shortest run that ends in steady power, None where none was long enough;
        and the power at the end of each length that was tried, W.
    """
    tried: dict[int, float] = {}

    def agree(short: int, long: int) -> bool:
        for length in (short, long):
            if length not in tried:
                tried[length] = power_w(length)
        return abs(tried[short] - tried[long]) <= _STEADY_WITHIN * abs(tried[long])

    length = start
    while not agree(length, 2 * length):
        length *= 2
        if 2 * length > most:
            return None, tried
    while length == start or length < start:
        shorter = length // 2
        if shorter < least or not agree(shorter, length):
            break
        length = start = shorter
    return length, tried


STRETCH_S = 2.0
"""After the memory's sensor has settled: eight readings, at four a second."""


def stretch_power(stretch: GaplessRun, record: SensorRecord) -> StretchPower:
    """Power of the whole GPU and of its memory, once the sensor of that has settled."""
    begin_s = stretch.begin_s + memory_settle_s(record)
    power = [r.power_w for r in stretch.readings if begin_s <= r.at_s <= stretch.end_s]
    power_w = mean_of(power) if power and not stretch.dropped else None
    memory_w = _memory_w(stretch, begin_s, power_w)
    return StretchPower(
        power_w=power_w,
        memory_power_w=None if isinstance(memory_w, str) else memory_w,
        no_memory_power=memory_w if isinstance(memory_w, str) else "",
        execution_ms=stretch.execution_s * 1000,
        seconds=stretch.end_s - stretch.begin_s,
        tensor_active_percent=stretch.counters.tensor_active_percent,
        dram_active_percent=stretch.counters.dram_active_percent,
        power_capped=stretch.power_capped,
    )


def memory_settle_s(record: SensorRecord) -> float:
    """After the beginning of a load the memory's reading is of that load alone."""
    channel = record.channel("memory")
    channel_s = channel.settle_s if channel is not None and channel.accepted else 0.0
    return max(channel_s, AVERAGE_SETTLE_S)


def _memory_w(stretch: GaplessRun, begin_s: float, power_w: Estimate | None) -> Estimate | str:
    """Its mean, or why there is none.

    Bounds are its lowest and highest reading: their windows overlap, so that there is no error.
    """
    if power_w is None:
        return stretch.dropped or "the instant power of the GPU did not change in the stretch"
    if not stretch.memory:
        return "this card does not read the power of its memory"
    inside = [r.power_w for r in stretch.memory if begin_s <= r.at_s <= stretch.end_s]
    if not all(0 < r.power_w < power_w.value for r in stretch.memory):
        return "the power of the memory reads 0, or more than that of the whole GPU"
    if len(inside) < FEWEST_READINGS:
        return f"the power of the memory changed only {len(inside)} times: it is stuck"
    return Estimate(sum(inside) / len(inside), min(inside), max(inside))


# Stretch of settled power, once the operation before has left the sensor.
_LOOKED_AT_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class _RunLengths:
    """How long a run is, found before the blocks.

    Attributes:
        execution_s: As timed then.
        executions: Of a long run.
        ssp_execution: Of the shortest run that ends in steady power; None: none was found, or
            looked for.
        stretch: Without a gap for seconds; None where another operation is before the runs.
    """

    execution_s: float
    executions: int
    ssp_execution: int | None
    stretch: StretchPower | None


def analyse(
    blocks: Sequence[TraceBlock],
    sensors: Sensors,
    wanted: WantedKernel,
    gpu: Gpu,
    ready: KernelReady,
    lengths: _RunLengths,
    seconds: float,
) -> KernelReport:
    """The report of an operation, from blocks of long and short runs that took so many seconds.

    Raises:
        SourceError: no run can be used.
    """
    (record, channel), after_idle = sensors, wanted.before == IDLE
    every = [run for block in blocks for run in block.runs]
    usable = [run for run in every if not run.dropped]
    if not usable:
        dropped_for = Counter(run.dropped for run in every)
        reason, count = next(iter(dropped_for.most_common(1)), ("no run", 0))
        raise SourceError(
            f"none of {len(every)} runs can be used",
            why=f"{count} of them: {reason}",
            fix="see what holds the card back (`nvidia-smi -q -d PERFORMANCE`), and run it again",
        )
    _, margin = guidance(lengths.execution_s * 1000)
    sse = steady_execution([durations_ms(run) for run in usable], margin)
    times_ms = [float(np.median(durations_ms(run)[sse - 1 :])) for run in usable]
    chosen = golden(times_ms, margin)
    runs, golden_ms = [usable[place] for place in chosen], [times_ms[place] for place in chosen]
    execution_s = float(np.median(golden_ms)) / 1000
    curve, before_w, no_curve = _curve(runs, execution_s, channel, wanted.resolution_ms / 1000)
    difference = _difference(blocks, record, curve, runs, before_w, after_idle)
    if curve is not None:
        differ = None if isinstance(difference, str) else difference.differ
        idle_w = before_w if before_w is not None and after_idle else 0.0
        band_w = curve.power_w - curve.band_w, curve.power_w + curve.band_w
        ends_w = float(band_w[0].min()), float(band_w[1].max())
        if fault := fault_of(ends_w, idle_w, gpu.power_limit_w, differ):
            curve, no_curve = None, f"the curve that readings give is not to be believed: {fault}"
            if not isinstance(difference, str):
                difference = replace(difference, curve_j=None, differ=None)
    settled_s = channel.settle_s, channel.settle_s + _LOOKED_AT_S
    sse_w = curve and _execution_power(curve, runs, sse)
    ssp_w = None
    if (first := lengths.ssp_execution) is not None:
        powers = end_powers([run for run in runs if run.executions >= first], channel)
        ssp_w = mean_of(powers) if powers else None
    ssp_j = ssp_w and ssp_w.times(execution_s)
    dropped = Counter(run.dropped for run in every if run.dropped)
    if others := len(usable) - len(runs):
        dropped["other execution time"] = others
    counts, edges = np.histogram(times_ms, bins=20)
    return KernelReport(
        gpu_model=gpu.model,
        gpu_uuid=gpu.uuid,
        driver=gpu.driver or "",
        measured_at=LiveClock().utc(),
        units=ready.units,
        operation=ready.operation,
        launches=ready.launches,
        captured=ready.captured,
        launch_flop=ready.launch_flop,
        launch_bytes=ready.launch_bytes,
        libraries=ready.libraries,
        before=wanted.before,
        window_ms=channel.window_ms,
        delay_ms=channel.delay_ms,
        noise_w=channel.noise_w,
        period_ms=channel.period_ms,
        gpu_busy_s=sum(run.length_s + wanted.lead_s for run in every),
        seconds=seconds,
        before_w=before_w,
        execution_ms=execution_s * 1000,
        sse_execution=sse,
        sse_power_w=sse_w,
        ssp_execution=lengths.ssp_execution,
        ssp_power_w=ssp_w,
        settled_power_w=around(*curve.mean_w(*settled_s))
        if curve and settled_s[1] <= curve.edges_s[-1]
        else None,
        sse_energy_j=sse_w and sse_w.times(duration_s(runs, sse)),
        ssp_energy_j=ssp_j,
        launch_energy_j=ssp_j and ssp_j.times(1 / ready.launches),
        difference=None if isinstance(difference, str) else difference,
        no_difference=difference if isinstance(difference, str) else "",
        histogram=Histogram(tuple(map(float, edges)), tuple(map(int, counts))),
        bin_low_ms=min(golden_ms),
        bin_high_ms=max(golden_ms),
        runs=len(every),
        golden_runs=len(runs),
        dropped=dict(dropped),
        resolution_ms=_width_ms(curve) if curve else wanted.resolution_ms,
        sigma_w=curve
        and sigma_power_w(
            channel.window_ms, _width_ms(curve), channel.noise_w, float(curve.readings.mean())
        ),
        curve=_points(curve, runs) if curve else (),
        no_curve=no_curve,
        stretch=lengths.stretch,
    )


def _curve(
    runs: Sequence[Run], execution_s: float, channel: PowerChannel, resolution_s: float
) -> tuple[Curve | None, float | None, str]:
    """The curve of golden runs, power before them, and why there is no curve."""
    stitched = stitch(runs, channel)
    if stitched is None:
        return None, None, "no reading fell before a run, so it is not known what was drawn then"
    if len(runs) < _LEAST_GOLDEN:
        why = f"only {len(runs)} golden runs: it takes {_LEAST_GOLDEN} (more with --runs)"
        return None, stitched.base_w, why
    most = max(run.executions for run in runs)
    length_s = float(np.median([run.length_s for run in runs if run.executions == most]))
    edges_s = bin_edges(length_s, execution_s, resolution_s)
    if len(stitched.tau_s) < len(edges_s):
        why = f"{len(stitched.tau_s)} readings are too few for {len(edges_s) - 1} bins"
        return None, stitched.base_w, f"{why}: more with --runs, or a longer --resolution-ms"
    return deconvolve(stitched, channel, edges_s), stitched.base_w, ""


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
    difference = Difference(first=short + 1, last=long, counter=counter)
    if curve is None:
        return difference
    # What the curve says of the same executions.
    begin_s, end_s = (start_s(runs, place) for place in (short, long))
    mean_w, _ = curve.mean_w(begin_s, min(end_s, float(curve.edges_s[-1])))
    curve_j = mean_w * (end_s - begin_s) / (long - short)
    return replace(difference, curve_j=curve_j, differ=counter.value / curve_j - 1)


def _execution_power(curve: Curve, runs: Sequence[Run], execution: int) -> Estimate:
    """Power of one execution, counted from 1, by the curve."""
    begin_s = start_s(runs, execution - 1)
    end_s = min(begin_s + duration_s(runs, execution), float(curve.edges_s[-1]))
    return around(*curve.mean_w(begin_s, end_s))


def _width_ms(curve: Curve) -> float:
    return float(curve.edges_s[1] - curve.edges_s[0]) * 1000


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


BLOCK_RUNS = 20  # between two ticks of the counter: some seconds, of which a tick is 0.1
_LONGEST_RUN_S = 2.0  # power that still changes after so long has no steady state

_LEAST_READINGS = 6
_CERTAIN_WITHIN = _STEADY_WITHIN / 3  # standard error over mean at which lengths can be compared
_MOST_CERTAIN_RUNS = 20  # for a mean that is certain

_FRESH = "remove it, or measure again with --fresh"


Report = Callable[[Step], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class _KernelConditions:
    """Conditions of runs: those under others are in other files."""

    where: Conditions
    operation: str
    before: str
    lead_s: float
    launches: int
    sensor_measured_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Head:
    """First line of a file of runs."""

    conditions: _KernelConditions
    found: _RunLengths


# Makes a run of so many executions.
_RunOf = Callable[[int], Run]


def measure_operation(
    bench: LiveKernelBench,
    gpu: Gpu,
    sensors: Sensors,
    wanted: WantedKernel,
    home: Path,
    report: Report,
    planned: Callable[[KernelPlan], object],
) -> KernelReport:
    """Measure an operation; its runs are kept in the home.

    `report` is called after each run, `planned` with the plan before the blocks.
    """
    begun, (record, channel) = time.monotonic(), sensors
    check_resolution(channel, wanted.resolution_ms)
    execution_s = bench.ready.execution_s
    if 2 * shortest_run(execution_s, channel.smear_s) * execution_s > _LONGEST_RUN_S:
        raise InputError(
            f"one execution takes {execution_s * 1000:.4g} ms",
            why="a run is several of them, so that their power can be told to be steady; power of "
            f"more than {_LONGEST_RUN_S:g} s needs no putting together of runs",
            fix="measure it with `advisor profile`, or take a smaller part of it",
        )
    if wanted.runs is not None and wanted.runs < 1:
        raise InputError(f"{wanted.runs} runs show nothing", fix="ask for --runs 200, or leave it")
    chance = random.Random(0)

    def run_of(executions: int) -> Run:
        """One run after a random gap."""
        gap_s = least_gap_s(channel) + chance.uniform(0, channel.period_ms / 1000)
        return bench.run(executions, gap_s, wanted.lead_s)

    conditions = _KernelConditions(
        where=Conditions.of(gpu, bench.ready),
        operation=bench.ready.operation,
        before=wanted.before,
        lead_s=wanted.lead_s,
        launches=bench.ready.launches,
        sensor_measured_at=record.measured_at,
    )
    name = slug(conditions.operation)[:80].strip("-")
    # 4 is the form of the lines; runs in another form are left where they are.
    key = name, sha256(f"4 {write(conditions)}".encode()).hexdigest()[:8]
    lines: RecordLines[_Head | TraceBlock] = RecordLines(
        open_home(home, KERNEL_REPORTS.name) / f"{slug(*key)}.jsonl.gz",
        "advisor power kernel",
        lambda text: read(_Head if text.startswith(b'{"conditions"') else TraceBlock, text),
        _FRESH,
    )
    run_lengths, blocks = (None, []) if wanted.fresh else _kept(lines)
    if run_lengths is None:
        run_lengths = _run_lengths(bench, run_of, sensors, wanted, report)
        lines.path.unlink(missing_ok=True)
        lines.add(_Head(conditions=conditions, found=run_lengths))
    plan = _plan(run_lengths, channel, wanted)
    planned(plan)
    # Short runs, for the energy of single executions as a difference, need idle before the runs.
    short = max(1, run_lengths.executions // 2) if wanted.before == IDLE else run_lengths.executions
    lengths, count = (run_lengths.executions, short), plan.runs // BLOCK_RUNS
    blocks = _run_blocks(bench, run_of, lengths, count, blocks, lines.add, report)
    made = analyse(blocks, sensors, wanted, gpu, bench.ready, run_lengths, time.monotonic() - begun)
    KERNEL_REPORTS.keep(made, home, *key)
    return made


def _kept(
    lines: RecordLines[_Head | TraceBlock],
) -> tuple[_RunLengths | None, list[TraceBlock]]:
    """Lengths and blocks that are in the file; None and none where there is nothing yet."""
    whole = lines.resume()
    if not whole:
        return None, []
    first, *rest = whole
    blocks = [line for line in rest if isinstance(line, TraceBlock)]
    if not isinstance(first, _Head) or len(blocks) < len(rest):
        raise StoreError(f"{lines.path} does not begin with conditions", fix=_FRESH)
    return first.found, blocks


def _run_lengths(
    bench: LiveKernelBench,
    run_of: _RunOf,
    sensors: Sensors,
    wanted: WantedKernel,
    report: Report,
) -> _RunLengths:
    """How long a run is, and what slow sensors say of the operation without a gap."""
    execution_s, (record, channel) = bench.ready.execution_s, sensors
    if wanted.before != IDLE:
        # Runs last until the operation before has left the sensor, and a little longer.
        late_s = (2 * wanted.resolution_ms + channel.delay_spread_ms) / 1000
        run_s = channel.settle_s + _LOOKED_AT_S + late_s
        executions = max(shortest_run(execution_s, channel.smear_s), math.ceil(run_s / execution_s))
        return _RunLengths(
            execution_s=execution_s, executions=executions, ssp_execution=None, stretch=None
        )
    report(Step("without a gap, for sensors that are slow", 1))
    stretch = bench.stretch(memory_settle_s(record) + STRETCH_S)
    steady, tried = _find_ssp(run_of, execution_s, channel, report)
    return _RunLengths(
        execution_s=execution_s,
        executions=steady or max(tried),
        ssp_execution=steady,
        stretch=stretch_power(stretch, record),
    )


def _plan(lengths: _RunLengths, channel: PowerChannel, wanted: WantedKernel) -> KernelPlan:
    """Whole blocks, as many of long runs as of short ones."""
    runs = wanted.runs or guidance(lengths.execution_s * 1000)[0]
    return make_plan(
        channel,
        bin_ms=wanted.resolution_ms,
        run_s=lengths.executions * lengths.execution_s,
        runs=math.ceil(runs / (2 * BLOCK_RUNS)) * 2 * BLOCK_RUNS,
        lead_s=wanted.lead_s,
    )


def _find_ssp(
    run_of: _RunOf, execution_s: float, channel: PowerChannel, report: Report
) -> tuple[int | None, dict[int, float]]:
    """How long a run must be for its power to be steady at its end.

    Raises:
        SourceError: hardly any reading falls into the runs.
    """
    runs_made, dropped = 0, Counter[str]()

    def end_power_w(executions: int) -> float:
        nonlocal runs_made
        powers: list[float] = []
        for made in range(60):  # so many for `_LEAST_READINGS` readings
            if made % 4 == 0 and _enough(powers, made):
                break
            run = run_of(executions)
            if run.dropped:
                dropped[run.dropped] += 1
            else:
                powers += end_powers([run], channel)
            runs_made += 1
            report(Step(f"power after {executions} executions", runs_made))
        if len(powers) < 2:
            if not dropped:
                raise SourceError(
                    f"hardly any power reading fell into {runs_made} runs",
                    why="the instant reading of this card changes less often than the record of "
                    "its sensor says, or not at all",
                    fix="run `advisor power sensor` again",
                )
            why, times = dropped.most_common(1)[0]
            raise SourceError(
                f"{dropped.total()} of {runs_made} runs could not be used",
                why=f"of {times} of them: {why}",
                fix="measure when the GPU is cool and otherwise idle, or another GPU"
                if "thermal" in why or "slowdown" in why
                else "measure when the GPU is otherwise idle",
            )
        return float(np.mean(powers))

    least = shortest_run(execution_s, channel.smear_s)
    most = max(4 * least, math.floor(_LONGEST_RUN_S / execution_s))
    return search_ssp(end_power_w, 2 * least, least, most)


def _enough(powers_w: Sequence[float], runs: int) -> bool:
    if len(powers_w) < _LEAST_READINGS:
        return False
    error_w = float(np.std(powers_w, ddof=1)) / math.sqrt(len(powers_w))
    return error_w <= _CERTAIN_WITHIN * float(np.mean(powers_w)) or runs >= _MOST_CERTAIN_RUNS


def _run_blocks(
    bench: LiveKernelBench,
    run_of: _RunOf,
    executions: tuple[int, int],
    blocks: int,
    kept: Sequence[TraceBlock],
    keep: Callable[[TraceBlock], object],
    report: Report,
) -> list[TraceBlock]:
    """Long and short runs in turn, so that both meet the same card; goes on after what is kept.

    Executions are of a long run and of a short one; blocks are those in all.
    """
    done, begun, total = list(kept), time.monotonic(), blocks * BLOCK_RUNS
    before = len(done) * BLOCK_RUNS
    for number in range(len(done), blocks):
        length = executions[number % 2]
        began, runs = bench.tick(), list[Run]()
        for _ in range(BLOCK_RUNS):
            runs.append(run_of(length))
            made = number * BLOCK_RUNS + len(runs)
            eta_s = (total - made) * (time.monotonic() - begun) / (made - before)
            report(Step(f"runs of {length} executions", made, total, eta_s))
        block = TraceBlock(runs=tuple(runs), began=began, ended=bench.tick())
        keep(block)
        done.append(block)
    return done
