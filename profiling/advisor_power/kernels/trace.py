"""What one run shows: when each execution began and ended, and what the sensor read meanwhile.

All times are of the host's monotonic clock, s. Energy of single executions is a difference of the
counter, an instrument without a window. M runs of b executions and M of a: between two ticks of the
counter each block took `E = M * E_run + P_idle * idle time`, so what b - a executions take is
`(E_run(b) - E_run(a)) / (b - a)`. What is drawn right after a run is in both, and cancels.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from advisor.core.records import Counters
from advisor.wire.power import Estimate
from advisor_power.kernels.estimates import mean_of
from advisor_profiling.window.window import CounterTick

IDLE = "idle"
"""What was before a run, where no operation was."""


@dataclass(frozen=True, slots=True)
class PowerReading:
    """A change of the instant channel: when it was seen, and what it read."""

    at_s: float
    power_w: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Executions without a gap, after a while of something else."""

    starts_s: tuple[float, ...]
    """Of each execution."""
    ends_s: tuple[float, ...]
    lead_s: float
    """How long that which was before it had lasted."""
    readings: tuple[PowerReading, ...]
    """From the beginning of the lead until the last execution can be seen."""
    sync_error_s: float = 0.0
    """How far off the times of executions can be."""
    dropped: str = ""
    """Why it cannot be used; empty where it can."""
    launched_s: float | None = None
    """When the host launched the first execution: all that is known of its start where nobody asks
    the GPU for its time; None where that was not noted."""

    @property
    def executions(self) -> int:
        """How many."""
        return len(self.starts_s)

    @property
    def length_s(self) -> float:
        """From the start of the first execution to the end of the last."""
        return self.ends_s[-1] - self.starts_s[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceBlock:
    """Runs of as many executions each, between two ticks of the energy counter."""

    runs: tuple[Run, ...]
    began: CounterTick | None = None
    """None where there is no counter, or it did not move."""
    ended: CounterTick | None = None

    @property
    def executions(self) -> int:
        """Of each run."""
        return self.runs[0].executions


@dataclass(frozen=True, slots=True, kw_only=True)
class GaplessRun:
    """The operation without a gap for some seconds, which shows it to sensors that are slow."""

    begin_s: float
    end_s: float
    execution_s: float
    """Median."""
    readings: tuple[PowerReading, ...]
    """Of the instant channel, meanwhile."""
    memory: tuple[PowerReading, ...]
    """Of the power of the memory, meanwhile; empty where the card does not read it."""
    counters: Counters
    """Of the hardware over the stretch."""
    power_capped: bool
    """Whether the card's power limit held the clock back at any moment."""
    dropped: str = ""
    """Why it cannot be used; empty where it can."""


def start_s(runs: Sequence[Run], executions: int) -> float:
    """When so many executions are over, median of the runs that have as many."""
    over_s = (
        (*run.starts_s, run.ends_s[-1])[executions] - run.starts_s[0]
        for run in runs
        if run.executions >= executions
    )
    return statistics.median(over_s)


def duration_s(runs: Sequence[Run], execution: int) -> float:
    """Of one execution, counted from 1, median."""
    return statistics.median(durations_ms(run)[execution - 1] for run in runs) / 1000


def durations_ms(run: Run) -> list[float]:
    """Of each execution of a run."""
    return [(end - start) * 1000 for start, end in zip(run.starts_s, run.ends_s, strict=True)]


def longest(runs: Sequence[Run]) -> list[Run]:
    """The runs that have as many executions as any."""
    most = max(run.executions for run in runs)
    return [run for run in runs if run.executions == most]


def energy_by_difference(blocks: Sequence[TraceBlock], idle_w: float) -> Estimate | str:
    """Energy of one of the executions that the longer runs have more; else why there is none.

    Args:
        blocks: In the order in which they were run; two neighbours of different length are a pair.
        idle_w: Power between the runs.
    """
    usable = [block for block in blocks if _moved(block)]
    if len(usable) < len(blocks):
        stuck = len(blocks) - len(usable)
        return f"the energy counter stood still or went back in {stuck} of {len(blocks)} blocks"
    found = [
        _difference_j(one, other, idle_w)
        for one, other in pairwise(usable)
        if one.executions != other.executions
    ]
    if not found:
        return "it takes a block of longer runs and one of shorter runs"
    return mean_of(found)


def _moved(block: TraceBlock) -> bool:
    if block.began is None or block.ended is None:
        return False
    return block.ended.energy_j > block.began.energy_j and block.ended.at_s > block.began.at_s


def _difference_j(one: TraceBlock, other: TraceBlock, idle_w: float) -> float:
    more = one.executions - other.executions
    return (_run_j(one, idle_w) - _run_j(other, idle_w)) / more


def _run_j(block: TraceBlock, idle_w: float) -> float:
    assert block.began is not None  # seen to in _moved
    assert block.ended is not None
    busy_s = sum(run.length_s for run in block.runs)
    idle_s = block.ended.at_s - block.began.at_s - busy_s
    return (block.ended.energy_j - block.began.energy_j - idle_w * idle_s) / len(block.runs)
