"""Which CPU cores belong to whom while a window is open.

Launch-bound jobs lose up to half their rate when something else runs on their cores, so the
profiler keeps one core, and the jobs share the others evenly. A job that is measured alone gets
the same number of cores as in a pair: otherwise the two rates could not be compared.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CorePlan:
    """Cores of the profiler, of the first job and of the second (or of paused clients)."""

    own: frozenset[int]
    first: frozenset[int]
    second: frozenset[int]

    @property
    def jobs(self) -> frozenset[int]:
        """Everything that is not the profiler's."""
        return self.first | self.second


def plan_cores(cores: Sequence[int]) -> CorePlan:
    """Share out `cores`; with fewer than three, some serve two owners."""
    own, *rest = sorted(cores)
    rest = rest or [own]
    half = max(1, len(rest) // 2)
    return CorePlan(
        frozenset([own]), frozenset(rest[:half]), frozenset(rest[half : 2 * half] or rest)
    )


def available_cores() -> list[int]:
    """Cores that this process may use."""
    return sorted(os.sched_getaffinity(0))
