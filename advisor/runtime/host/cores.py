"""Which CPU cores belong to whom while a window is open.

Launch-bound jobs lose up to half their rate when something else runs on their cores, so the
profiler keeps one core, and the jobs share the others evenly. A job that is measured alone gets
the same number of cores as beside others: otherwise the two rates could not be compared.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class CorePlan:
    """Cores of the profiler, of each job of a set in its order, and of clients that wait."""

    own: frozenset[int]
    slots: tuple[frozenset[int], ...]
    waiting: frozenset[int]

    @property
    def jobs(self) -> frozenset[int]:
        """Everything that is not the profiler's."""
        return _union((*self.slots, self.waiting))


def plan_cores(groups: Sequence[frozenset[int]], jobs: int = 2) -> CorePlan:
    """Share out physical cores; with fewer than two more than jobs, some serve several owners.

    Args:
        groups: The logical cores of each physical one. Two logical cores of one physical core
            slow each other down, so they never get different owners.
        jobs: Most jobs that run at the same time.
    """
    own, *rest = groups
    rest = rest or [own]
    # Dozens of waiting clients look at their gates 200 times a second each.
    *rest, waiting = rest if len(rest) > 2 else [*rest, rest[-1]]
    # In turns, so that on a host with two sockets no job is farther from the GPU.
    each = max(1, len(rest) // jobs)
    slots = (rest[slot::jobs][:each] or rest for slot in range(jobs))
    return CorePlan(own, tuple(map(_union, slots)), waiting)


def available_cores() -> list[int]:
    """Logical cores that this process may use."""
    return sorted(os.sched_getaffinity(0))


def physical_cores(topology: Path = Path("/sys/devices/system/cpu")) -> list[frozenset[int]]:
    """The logical cores that this process may use, grouped by physical core."""
    allowed = set(available_cores())
    groups = {frozenset(_siblings(topology, core) & allowed) for core in allowed}
    return sorted(groups, key=min)


def _siblings(topology: Path, core: int) -> set[int]:
    try:
        text = (topology / f"cpu{core}/topology/thread_siblings_list").read_text()
    except OSError:
        return {core}
    siblings = {core}
    for part in text.strip().split(","):
        low, _, high = part.partition("-")
        siblings |= set(range(int(low), int(high or low) + 1))
    return siblings


def _union(groups: Sequence[frozenset[int]]) -> frozenset[int]:
    return frozenset[int]().union(*groups)
