"""Measures one operation: finds how long a run must be, then makes long and short runs in turn.

Runs are kept on disk: what is done survives Ctrl-C, and is not done again.
"""

import math
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np

from advisor.core.gpu import Gpu
from advisor.errors import InputError, SourceError, StoreError
from advisor.files import open_home
from advisor.formats.kept import RecordLines, slug
from advisor.formats.wire import read, write
from advisor.validity.sensor_record import PowerChannel
from advisor.wire.power import KernelReport
from advisor_data.known import KERNEL_REPORTS
from advisor_power.gpu_worker import Conditions, Step
from advisor_power.kernels.analyse import (
    LOOKED_AT_S,
    STEADY_WITHIN,
    STRETCH_S,
    RunLengths,
    SspSearch,
    analyse,
    guidance,
    memory_settle_s,
    search_ssp,
    shortest_run,
    stretch_power,
)
from advisor_power.kernels.bench import KernelBench, RunRequest
from advisor_power.kernels.plan import (
    KernelPlan,
    Sensors,
    WantedKernel,
    check_cost,
    check_resolution,
    least_gap_s,
    make_plan,
    runs_for,
)
from advisor_power.kernels.runs import IDLE, Run, TraceBlock, end_powers

BLOCK_RUNS = 20  # between two ticks of the counter: some seconds, of which a tick is 0.1
_LONGEST_RUN_S = 2.0  # power that still changes after so long has no steady state

_LEAST_READINGS = 6
_CERTAIN_WITHIN = STEADY_WITHIN / 3  # standard error over mean at which lengths can be compared
_MOST_SEARCH_RUNS = 60  # for `_LEAST_READINGS` readings
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
    found: RunLengths


@dataclass(frozen=True, slots=True)
class _Runner:
    """Makes runs of one bench with random gaps, after the operation before or nothing."""

    bench: KernelBench
    channel: PowerChannel
    lead_s: float
    random: random.Random

    def run(self, executions: int) -> Run:
        """One run after a random gap."""
        gap_s = least_gap_s(self.channel) + self.random.uniform(0, self.channel.period_ms / 1000)
        return self.bench.run(RunRequest(executions, gap_s, self.lead_s))


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
    """
    begun, channel = time.monotonic(), sensors.channel
    check_resolution(channel, wanted.resolution_ms)
    _check_fits(bench.ready.execution_s, channel, wanted)
    runner = _Runner(bench, channel, wanted.lead_s, random.Random(0))
    conditions = _KernelConditions(
        where=Conditions.of(gpu, bench.ready),
        operation=bench.ready.operation,
        before=wanted.before,
        lead_s=wanted.lead_s,
        launches=bench.ready.launches,
        sensor_measured_at=sensors.record.measured_at,
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
    found, blocks = (None, []) if wanted.fresh else _kept(lines)
    if found is None:
        found = _run_lengths(runner, sensors, wanted, report)
        lines.path.unlink(missing_ok=True)
        lines.add(_Head(conditions=conditions, found=found))
    plan = _plan(found, channel, wanted)
    check_cost(plan, channel, bin_ms=wanted.resolution_ms, most_s=wanted.most_s)
    planned(plan)
    # Short runs, for the energy of single executions as a difference, need idle before the runs.
    short = max(1, found.executions // 2) if wanted.before == IDLE else found.executions
    lengths, count = (found.executions, short), plan.runs // BLOCK_RUNS
    blocks = _run_blocks(runner, lengths, count, blocks, lines.add, report)
    seconds = time.monotonic() - begun
    made = analyse(blocks, sensors, wanted, gpu, bench.ready, found, seconds)
    KERNEL_REPORTS.keep(made, home, *key)
    return made


def _kept(
    lines: RecordLines[_Head | TraceBlock],
) -> tuple[RunLengths | None, list[TraceBlock]]:
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
    runner: _Runner, sensors: Sensors, wanted: WantedKernel, report: Report
) -> RunLengths:
    """How long a run is, and what slow sensors say of the operation without a gap."""
    execution_s, channel = runner.bench.ready.execution_s, sensors.channel
    if wanted.before != IDLE:
        # Runs last until the operation before has left the sensor, and a little longer.
        late_s = (2 * wanted.resolution_ms + channel.delay_spread_ms) / 1000
        run_s = channel.settle_s + LOOKED_AT_S + late_s
        least = shortest_run(execution_s, channel.smear_s)
        executions = max(least, math.ceil(run_s / execution_s))
        return RunLengths(
            execution_s=execution_s, executions=executions, ssp_execution=None, stretch=None
        )
    report(Step("without a gap, for sensors that are slow", 1))
    stretch = runner.bench.stretch(memory_settle_s(sensors.record) + STRETCH_S)
    search = _find_ssp(runner, report)
    return RunLengths(
        execution_s=execution_s,
        executions=search.executions or max(executions for executions, _ in search.tried),
        ssp_execution=search.executions,
        stretch=stretch_power(stretch, sensors.record),
    )


def _plan(found: RunLengths, channel: PowerChannel, wanted: WantedKernel) -> KernelPlan:
    """Whole blocks, as many of long runs as of short ones."""
    runs = wanted.runs or guidance(found.execution_s * 1000)[0]
    if wanted.within_w is not None and wanted.runs is None:
        needed = runs_for(channel, bin_ms=wanted.resolution_ms, within_w=wanted.within_w)
        runs = max(runs, needed)
    return make_plan(
        channel,
        bin_ms=wanted.resolution_ms,
        run_s=found.executions * found.execution_s,
        runs=math.ceil(runs / (2 * BLOCK_RUNS)) * 2 * BLOCK_RUNS,
        lead_s=wanted.lead_s,
    )


def _check_fits(execution_s: float, channel: PowerChannel, wanted: WantedKernel) -> None:
    """Refuse an operation whose shortest runs are longer than any run may be."""
    least_s = shortest_run(execution_s, channel.smear_s) * execution_s
    if 2 * least_s > _LONGEST_RUN_S:
        raise InputError(
            f"one execution takes {execution_s * 1000:.4g} ms",
            why="a run is several of them, so that their power can be told to be steady; power of "
            f"more than {_LONGEST_RUN_S:g} s needs no putting together of runs",
            fix="measure it with `advisor profile`, or take a smaller part of it",
        )
    if wanted.runs is not None and wanted.runs < 1:
        raise InputError(f"{wanted.runs} runs show nothing", fix="ask for --runs 200, or leave it")


def _find_ssp(runner: _Runner, report: Report) -> SspSearch:
    """How long a run must be for its power to be steady at its end.

    Raises:
        SourceError: hardly any reading falls into the runs.
    """
    channel, execution_s = runner.channel, runner.bench.ready.execution_s
    runs_made, dropped = 0, Counter[str]()

    def end_power_w(executions: int) -> float:
        nonlocal runs_made
        powers: list[float] = []
        for made in range(_MOST_SEARCH_RUNS):
            if made % 4 == 0 and _enough(powers, made):
                break
            run = runner.run(executions)
            if run.dropped:
                dropped[run.dropped] += 1
            else:
                powers += end_powers([run], channel)
            runs_made += 1
            report(Step(f"power after {executions} executions", runs_made))
        if len(powers) < 2:
            raise _no_readings(runs_made, dropped)
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
    runner: _Runner,
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
        began, runs = runner.bench.tick(), list[Run]()
        for _ in range(BLOCK_RUNS):
            runs.append(runner.run(length))
            made = number * BLOCK_RUNS + len(runs)
            spent_s = time.monotonic() - begun
            eta_s = (total - made) * spent_s / (made - before)
            report(Step(f"runs of {length} executions", made, total, eta_s))
        block = TraceBlock(runs=tuple(runs), began=began, ended=runner.bench.tick())
        keep(block)
        done.append(block)
    return done


def _no_readings(runs: int, dropped: Counter[str]) -> SourceError:
    if dropped:
        why, times = dropped.most_common(1)[0]
        return SourceError(
            f"{dropped.total()} of {runs} runs could not be used",
            why=f"of {times} of them: {why}",
            fix="measure when the card is cool and nobody else computes on it, or another card"
            if "thermal" in why or "slowdown" in why
            else "measure when nothing else happens on the card",
        )
    return SourceError(
        f"hardly any power reading fell into {runs} runs",
        why="the instant reading of this card changes less often than the record of its sensor "
        "says, or not at all",
        fix="run `advisor power sensor` again",
    )
