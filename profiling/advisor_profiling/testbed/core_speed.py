"""How fast each CPU core is right now.

Other guests of a shared host slow cores down without the reported CPU steal saying so:
docs/measurements has launch-bound jobs at a third of their rate with a steal of 0.
"""

import os
import time
from collections.abc import Callable, Iterable

_ROUNDS = 2000


def core_speeds(
    cores: Iterable[int], seconds: float = 0.02, clock: Callable[[], float] = time.perf_counter
) -> dict[int, float]:
    """Rounds of a fixed loop per second on each core, one core after the other.

    The calling thread is moved from core to core, and back to all of its cores at the end.

    Args:
        cores: Logical cores that this thread may use.
        seconds: Time spent on each.
        clock: Seconds.
    """
    before = os.sched_getaffinity(0)
    try:
        return {core: _speed(core, seconds, clock) for core in cores}
    finally:
        os.sched_setaffinity(0, before)


def _speed(core: int, seconds: float, clock: Callable[[], float]) -> float:
    os.sched_setaffinity(0, {core})
    begun, rounds = clock(), 0
    while (passed := clock() - begun) < seconds:
        for _ in range(_ROUNDS):
            pass
        rounds += _ROUNDS
    return rounds / passed
