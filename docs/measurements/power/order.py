"""Does the same work take less energy with the light operation first? One pair of blocks (F5).

`fingrav.py RESULTS --only order` measures three pairs at each number of SMs, 40 s each. A block is
the same repetitions of two operations after a gap, light then heavy or heavy then light, between
two ticks of the energy counter; blocks take turns, and so does which of a pair is first. Idle power
of the gaps is taken off: gaps are as long in both, so that an error of it cancels.
"""

import math
import time
from typing import Any

from advisor.errors import SourceError
from advisor_power.kernels.running.bench import RunRequest
from advisor_power.kernels.running.live import LiveKernelBench
from advisor_power.kernels.trace import Tick

BLOCK_S = 20.0
PART_S = 0.03
"""Of each operation in a repetition: a few times what power takes to follow."""

GAP_S = 0.05
IDLE_S = 2.0
_OVERHEAD_S = 0.005
"""Of a repetition: clocks of host and GPU are compared, and the times are handed over."""

REPETITIONS = round(BLOCK_S / (2 * PART_S + GAP_S + _OVERHEAD_S))
PAIR_S = 2 * BLOCK_S + IDLE_S


def measure_pair(
    bench: LiveKernelBench, light: list[str], heavy: list[str], number: int
) -> dict[str, Any]:
    """Energy of a block of each order.

    Args:
        bench: Runs both operations.
        light: Options of the operation that draws little.
        heavy: Of the one that draws much.
        number: Of the pair; with an even one the light operation is first in the first block.

    Raises:
        SourceError: the counter stood still, or something held the clock back.
        JobError: an operation failed or did not end.
    """
    executions = {
        " ".join(words): math.ceil(PART_S / bench.prepare(words).execution_s)
        for words in (light, heavy)
    }
    idle_w = _idle_w(bench)
    energy_j: dict[str, float] = {}
    orders = [("light_first_j", light, heavy), ("heavy_first_j", heavy, light)]
    for name, first, second in orders if number % 2 == 0 else orders[::-1]:
        energy_j[name] = _block_j(bench, first, second, executions, idle_w)
    return {**energy_j, "idle_w": idle_w, "repetitions": REPETITIONS, "executions": executions}


def _block_j(
    bench: LiveKernelBench,
    first: list[str],
    second: list[str],
    executions: dict[str, int],
    idle_w: float,
) -> float:
    before = " ".join(first)
    bench.prepare([*second, "--after", before])
    request = RunRequest(executions[" ".join(second)], GAP_S, lead_executions=executions[before])
    began, busy_s = _tick(bench), 0.0
    for _ in range(REPETITIONS):
        run = bench.timed(request)
        busy_s += run.lead_s + run.length_s
    ended = _tick(bench)
    if reason := bench.read().held_back(began.at_s, ended.at_s):
        raise SourceError(f"a block cannot be used: {reason}", fix="measure it again")
    return ended.energy_j - began.energy_j - idle_w * (ended.at_s - began.at_s - busy_s)


def _idle_w(bench: LiveKernelBench) -> float:
    began = _tick(bench)
    time.sleep(IDLE_S)
    ended = _tick(bench)
    return (ended.energy_j - began.energy_j) / (ended.at_s - began.at_s)


def _tick(bench: LiveKernelBench) -> Tick:
    found = bench.tick()
    if found is None:
        raise SourceError(
            "the energy counter of this card does not move",
            fix="run `advisor power sensor` to see whether the card has one",
        )
    return found
