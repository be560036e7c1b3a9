"""From which execution on times are steady (SSE), and how long a run must be for power (SSP)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

LEAST_EXECUTIONS = 4
"""Of a run, as FinGraV begins with."""

LEAST_WINDOWS = 3
"""A run is at least this many windows of the sensor long, with the spread of its delay: readings of
its end are of it alone."""

STEADY_WITHIN = 0.01
"""Two run lengths whose power differs by less than this part are the same."""


@dataclass(frozen=True, slots=True)
class SspSearch:
    """How long a run must be for its power to be steady at its end."""

    executions: int | None
    """Of the shortest such run that was tried; None where none was long enough."""
    tried: tuple[tuple[int, float], ...]
    """Executions and mean power at the end of runs of so many, W, as they were tried."""


def steady_execution(times_ms: Sequence[Sequence[float]], margin: float) -> int:
    """SSE: the first execution, counted from 1, after which times fall no further.

    Args:
        times_ms: Of each run, the time of each execution; runs may differ in length.
        margin: Times that differ by less than this part are the same.
    """
    shortest = min(len(times) for times in times_ms)
    medians = np.median([times[:shortest] for times in times_ms], axis=0)
    least_left = np.minimum.accumulate(medians[::-1])[::-1]
    return int(np.argmax(medians <= (1 + margin) * least_left)) + 1


def shortest_run(execution_s: float, window_s: float) -> int:
    """Executions of the shortest run that is tried."""
    return max(LEAST_EXECUTIONS, math.ceil(LEAST_WINDOWS * window_s / execution_s))


def search_ssp(power_w: Callable[[int], float], start: int, least: int, most: int) -> SspSearch:
    """Double the length of runs until two neighbours agree, or halve it for as long as they do.

    Args:
        power_w: Mean power at the end of runs of so many executions, W.
        start: Executions of the first runs.
        least: Executions of the shortest runs that the sensor can tell anything about.
        most: Executions of the longest runs that may be tried.
    """
    tried: dict[int, float] = {}

    def agree(short: int, long: int) -> bool:
        for length in (short, long):
            if length not in tried:
                tried[length] = power_w(length)
        return abs(tried[short] - tried[long]) <= STEADY_WITHIN * abs(tried[long])

    length = start
    while not agree(length, 2 * length):
        length *= 2
        if 2 * length > most:
            return SspSearch(None, tuple(tried.items()))
    while length == start or length < start:
        shorter = length // 2
        if shorter < least or not agree(shorter, length):
            break
        length = start = shorter
    return SspSearch(length, tuple(tried.items()))
