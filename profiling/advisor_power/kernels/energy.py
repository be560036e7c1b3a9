"""Energy of single executions as a difference of the counter: an instrument without a window.

M runs of b executions and M of a: between two ticks of the counter each block took
`E = M * E_run + P_idle * idle time`, so what b - a executions take is
`(E_run(b) - E_run(a)) / (b - a)`. What is drawn right after a run is in both, and cancels.
"""

from collections.abc import Sequence
from itertools import pairwise

from advisor.wire.kernel_power import Estimate
from advisor_power.kernels.estimates import mean_of
from advisor_power.kernels.trace import TraceBlock


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
