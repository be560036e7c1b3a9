"""One operation from the record of the sensor to its report; goes on where it was interrupted."""

import dataclasses
import math
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from advisor.core.gpu import Gpu
from advisor.errors import InputError
from advisor.validity.sensor_record import PowerChannel
from advisor.wire.power import KernelPower, KernelReport, StretchPower
from advisor_power.kernels.analyse import LOOKED_AT_S, analyse
from advisor_power.kernels.golden import guidance
from advisor_power.kernels.plan import (
    KernelPlan,
    check_cost,
    check_resolution,
    make_plan,
    runs_for,
)
from advisor_power.kernels.running.bench import KernelBench, KernelReady
from advisor_power.kernels.running.measure import (
    BLOCK_RUNS,
    LONGEST_RUN_S,
    KernelStep,
    Report,
    Runner,
    find_ssp,
    run_blocks,
    short_run,
)
from advisor_power.kernels.running.session import KernelConditions, RunLengths, Session
from advisor_power.kernels.running.wanted import Sensors, WantedKernel
from advisor_power.kernels.steady import shortest_run
from advisor_power.kernels.stitch import sensor_of
from advisor_power.kernels.stretch import STRETCH_S, memory_settle_s, stretch_power
from advisor_power.kernels.trace import IDLE, TraceBlock
from advisor_profiling.window.clock import Clock


def measure_operation(
    bench: KernelBench,
    gpu: Gpu,
    sensors: Sensors,
    wanted: WantedKernel,
    home: Path,
    report: Report,
    planned: Callable[[KernelPlan], object],
) -> KernelReport:
    """Measure an operation; its runs are kept in the home.

    `report` is called after each run, `planned` with the plan before the blocks.

    Raises:
        InputError: what is wanted cannot be had, or takes too long.
        JobError: the operation failed or did not end.
        SourceError: no run can be used, or the sensor does not answer.
        StoreError: runs that were kept cannot be read.
    """
    begun, channel = time.monotonic(), sensors.channel
    check_resolution(channel, wanted.resolution_ms)
    _check_fits(bench.ready.execution_s, channel, wanted)
    runner = Runner(bench, channel, wanted.lead_s, random.Random(0))
    session = Session(home, _conditions(bench, gpu, sensors, wanted))
    kept = None if wanted.fresh else session.read()
    if kept is None:
        kept = _found(runner, sensors, wanted, report), list[TraceBlock]()
        session.begin(kept[0])
    found, blocks = kept
    plan = _plan(found, channel, wanted)
    if wanted.enough is None:
        check_cost(plan, channel, bin_ms=wanted.resolution_ms, most_s=wanted.most_s)
    planned(plan)
    # What short runs are for, the energy of single executions, needs idle before the runs.
    short = short_run(found.executions) if wanted.before == IDLE else found.executions
    lengths, count = (found.executions, short), plan.runs // BLOCK_RUNS
    blocks = run_blocks(runner, lengths, count, blocks, session.add, report)
    seconds = time.monotonic() - begun
    made = _report_of(blocks, found, bench.ready, gpu, sensors, wanted, seconds)
    session.finish(made)
    return made


def _report_of(
    blocks: Sequence[TraceBlock],
    found: RunLengths,
    ready: KernelReady,
    gpu: Gpu,
    sensors: Sensors,
    wanted: WantedKernel,
    seconds: float,
) -> KernelReport:
    channel = sensors.channel
    power = analyse(
        blocks,
        sensors.record,
        channel,
        execution_ms=found.execution_s * 1000,
        ssp_execution=found.ssp_execution,
        resolution_ms=wanted.resolution_ms,
        limit_w=gpu.power_limit_w,
        after_idle=wanted.before == IDLE,
        stretch=found.stretch,
    )
    return KernelReport(
        **{field.name: getattr(power, field.name) for field in dataclasses.fields(KernelPower)},
        launch_energy_j=power.ssp_energy_j and power.ssp_energy_j.times(1 / ready.launches),
        operation=ready.operation,
        gpu_model=gpu.model,
        gpu_uuid=gpu.uuid,
        driver=gpu.driver or "",
        units=ready.units,
        launches=ready.launches,
        captured=ready.captured,
        launch_flop=ready.launch_flop,
        launch_bytes=ready.launch_bytes,
        before=wanted.before,
        libraries=ready.libraries,
        window_ms=channel.window_ms,
        delay_ms=channel.delay_ms,
        noise_w=channel.noise_w,
        period_ms=channel.period_ms,
        gpu_busy_s=sum(run.length_s + wanted.lead_s for block in blocks for run in block.runs),
        seconds=seconds,
        measured_at=Clock().utc(),
    )


def _measure_stretch(bench: KernelBench, sensors: Sensors) -> StretchPower:
    """What slow sensors say of the operation in seconds without a gap.

    Raises:
        JobError: the operation failed or did not end.
        SourceError: the sensor does not answer.
    """
    return stretch_power(bench.stretch(memory_settle_s(sensors.record) + STRETCH_S), sensors.record)


def _found(runner: Runner, sensors: Sensors, wanted: WantedKernel, report: Report) -> RunLengths:
    execution_s = runner.bench.ready.execution_s
    if wanted.before != IDLE:
        return _found_after(execution_s, sensors.channel, wanted)
    report(KernelStep("without a gap, for sensors that are slow", 1))
    stretch = wanted.stretch or _measure_stretch(runner.bench, sensors)
    search = find_ssp(runner, report)
    longest = max(executions for executions, _ in search.tried)
    return RunLengths(
        execution_s=execution_s,
        executions=search.executions or longest,
        ssp_execution=search.executions,
        stretch=stretch,
    )


def _found_after(execution_s: float, channel: PowerChannel, wanted: WantedKernel) -> RunLengths:
    """Runs after another operation last until that has left the sensor, and a little longer."""
    late_s = (2 * wanted.resolution_ms + channel.delay_spread_ms) / 1000
    run_s = channel.settle_s + LOOKED_AT_S + late_s
    least = shortest_run(execution_s, sensor_of(channel).smear_s)
    executions = max(least, math.ceil(run_s / execution_s))
    return RunLengths(
        execution_s=execution_s, executions=executions, ssp_execution=None, stretch=None
    )


def _plan(found: RunLengths, channel: PowerChannel, wanted: WantedKernel) -> KernelPlan:
    """Whole blocks, as many of long runs as of short ones."""
    runs = wanted.runs or guidance(found.execution_s * 1000).runs
    if wanted.within_w is not None and wanted.runs is None:
        needed = runs_for(channel, bin_ms=wanted.resolution_ms, within_w=wanted.within_w)
        runs = max(runs, needed)
    plan = _plan_of(runs, found, channel, wanted)
    if wanted.enough is None or plan.seconds <= wanted.most_s:
        return plan
    affordable = math.floor(plan.runs * wanted.most_s / plan.seconds)
    return _plan_of(max(wanted.enough, affordable), found, channel, wanted)


def _plan_of(
    runs: int, found: RunLengths, channel: PowerChannel, wanted: WantedKernel
) -> KernelPlan:
    pairs = math.ceil(runs / (2 * BLOCK_RUNS))
    return make_plan(
        channel,
        bin_ms=wanted.resolution_ms,
        run_s=found.executions * found.execution_s,
        runs=pairs * 2 * BLOCK_RUNS,
        lead_s=wanted.lead_s,
    )


def _check_fits(execution_s: float, channel: PowerChannel, wanted: WantedKernel) -> None:
    """Refuse an operation whose shortest runs are longer than any run may be."""
    least_s = shortest_run(execution_s, sensor_of(channel).smear_s) * execution_s
    if 2 * least_s > LONGEST_RUN_S:
        raise InputError(
            f"one execution takes {execution_s * 1000:.4g} ms",
            why="a run is several of them, so that their power can be told to be steady; power of "
            f"more than {LONGEST_RUN_S:g} s needs no putting together of runs",
            fix="measure it with `advisor profile`, or take a smaller part of it",
        )
    if wanted.runs is not None and wanted.runs < 1:
        raise InputError(f"{wanted.runs} runs show nothing", fix="ask for --runs 200, or leave it")


def _conditions(
    bench: KernelBench, gpu: Gpu, sensors: Sensors, wanted: WantedKernel
) -> KernelConditions:
    return KernelConditions(
        operation=bench.ready.operation,
        before=wanted.before,
        lead_s=wanted.lead_s,
        gpu_model=gpu.model,
        gpu_uuid=gpu.uuid,
        driver=gpu.driver or "",
        units=bench.ready.units,
        launches=bench.ready.launches,
        torch=bench.ready.libraries.get("torch", ""),
        sensor_measured_at=sensors.record.measured_at,
    )
