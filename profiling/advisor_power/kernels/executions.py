"""When executions began and how long they took, over many runs."""

from collections.abc import Sequence

import numpy as np

from advisor_power.kernels.trace import Run


def start_s(runs: Sequence[Run], executions: int) -> float:
    """When so many executions are over, median of the runs that have as many."""
    return float(
        np.median(
            [
                (run.starts_s[executions] if executions < run.executions else run.ends_s[-1])
                - run.starts_s[0]
                for run in runs
                if run.executions >= executions
            ]
        )
    )


def duration_s(runs: Sequence[Run], execution: int) -> float:
    """Of one execution, counted from 1, median."""
    return float(np.median([durations_ms(run)[execution - 1] for run in runs])) / 1000


def durations_ms(run: Run) -> list[float]:
    """Of each execution of a run."""
    return [(end - start) * 1000 for start, end in zip(run.starts_s, run.ends_s, strict=True)]


def longest(runs: Sequence[Run]) -> list[Run]:
    """The runs that have as many executions as any."""
    most = max(run.executions for run in runs)
    return [run for run in runs if run.executions == most]
