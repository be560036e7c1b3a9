"""The order of things: how long a run must be, then blocks of runs, long and short in turn."""

import math
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.errors import SourceError
from advisor.validity.sensor_record import PowerChannel
from advisor_power.kernels.plan import least_gap_s
from advisor_power.kernels.running.bench import KernelBench, RunRequest
from advisor_power.kernels.steady import STEADY_WITHIN, SspSearch, search_ssp, shortest_run
from advisor_power.kernels.stitch import end_powers, sensor_of
from advisor_power.kernels.trace import Run, TraceBlock

BLOCK_RUNS = 20
"""Runs between two ticks of the counter: some seconds, of which a tick is 0.1."""

LONGEST_RUN_S = 2.0
"""An operation whose power still changes after so long has no steady power to speak of."""

_LEAST_READINGS = 6
_CERTAIN_WITHIN = STEADY_WITHIN / 3
"""Standard error of a mean, as a part of it, beside which two lengths can be told to agree."""

_MOST_SEARCH_RUNS = 60
"""For `_LEAST_READINGS`; for a mean that is certain, no more than `_MOST_CERTAIN_RUNS`."""

_MOST_CERTAIN_RUNS = 20
_RUNS_PER_LOOK = 4


@dataclass(frozen=True, slots=True)
class KernelStep:
    """How far a measurement is."""

    what: str
    done: int
    total: int | None = None
    """Runs; None where that is being found out."""
    eta_s: float | None = None
    """What is left; None where that is being found out."""


Report = Callable[[KernelStep], object]


@dataclass(frozen=True, slots=True)
class Runner:
    """Runs of one bench with random gaps, after the operation before or nothing."""

    bench: KernelBench
    channel: PowerChannel
    lead_s: float
    """Of the operation before each run; 0: nothing is before."""
    random: random.Random

    def run(self, executions: int) -> Run:
        """One run after a random gap."""
        gap_s = least_gap_s(self.channel) + self.random.uniform(0, self.channel.period_ms / 1000)
        return self.bench.run(RunRequest(executions, gap_s, self.lead_s))


def find_ssp(runner: Runner, report: Report) -> SspSearch:
    """How long a run must be for its power to be steady at its end.

    Raises:
        SourceError: hardly any reading falls into the runs.
    """
    sensor, execution_s = sensor_of(runner.channel), runner.bench.ready.execution_s
    runs_made, dropped = 0, Counter[str]()

    def end_power_w(executions: int) -> float:
        nonlocal runs_made
        powers: list[float] = []
        for made in range(_MOST_SEARCH_RUNS):
            if made % _RUNS_PER_LOOK == 0 and _enough(powers, made):
                break
            run = runner.run(executions)
            if run.dropped:
                dropped[run.dropped] += 1
            else:
                powers += end_powers([run], sensor)
            runs_made += 1
            report(KernelStep(f"power after {executions} executions", runs_made))
        if len(powers) < 2:
            raise _no_readings(runs_made, dropped)
        return float(np.mean(powers))

    least = shortest_run(execution_s, sensor.smear_s)
    most = max(4 * least, math.floor(LONGEST_RUN_S / execution_s))
    return search_ssp(end_power_w, 2 * least, least, most)


def _enough(powers_w: Sequence[float], runs: int) -> bool:
    if len(powers_w) < _LEAST_READINGS:
        return False
    error_w = float(np.std(powers_w, ddof=1)) / math.sqrt(len(powers_w))
    return error_w <= _CERTAIN_WITHIN * float(np.mean(powers_w)) or runs >= _MOST_CERTAIN_RUNS


def run_blocks(
    runner: Runner,
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
            report(KernelStep(f"runs of {length} executions", made, total, eta_s))
        block = TraceBlock(runs=tuple(runs), began=began, ended=runner.bench.tick())
        keep(block)
        done.append(block)
    return done


def short_run(executions: int) -> int:
    """Executions of a short run, with which the energy of the others is found as a difference."""
    return max(1, executions // 2)


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
