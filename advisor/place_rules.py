"""How people place jobs without an optimiser: what `advisor place` is compared with."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from advisor.place import ALONE, Choice, Placement, Problem, placed
from advisor.rules import EQUAL


def all_alone(problem: Problem) -> Placement | None:
    """Each job on a GPU of its own; None where that is not possible."""
    if problem.counts.sum() > problem.gpus or not problem.alone_fits.all():
        return None
    return placed(problem, {(t, ALONE): kind.count for t, kind in enumerate(problem.types)})


def greedy(problem: Problem) -> Placement:
    """The best remaining pair first, each at its own best split; the rest alone."""
    options, left, free = problem.options, problem.counts, problem.gpus
    worth = options.speed_a + options.speed_b
    if problem.per_watt:
        worth = worth / options.power_w
    worth = np.where(problem.pair_fits, worth, -np.inf)
    split, chosen = worth.argmax(axis=1), Counter[Choice]()
    best = worth.max(axis=1)
    for row in (row for row in np.argsort(-best, kind="stable") if best[row] > 0):
        a, b = options.first[row], options.second[row]
        times = min(free, left[a] // 2 if a == b else min(left[a], left[b]))
        chosen[(int(row), int(split[row]))] += int(times)
        left[a] -= times
        left[b] -= times
        free -= times
    for kind in np.flatnonzero(problem.alone_fits):
        times = min(free, left[kind])
        chosen[(int(kind), ALONE)] += int(times)
        free -= times
    return placed(problem, chosen)


def first_come(problem: Problem, queue: Sequence[int]) -> Placement:
    """Each two jobs that follow one another at 50/50; a job whose next does not fit runs alone.

    Args:
        problem: What is to be placed.
        queue: Type of each job, in the order in which they come.
    """
    equal = problem.options.splits.index(EQUAL)
    ends = zip(problem.options.first, problem.options.second, strict=True)
    rows = {(int(a), int(b)): row for row, (a, b) in enumerate(ends)}
    chosen, place = Counter[Choice](), 0
    while place < len(queue) and chosen.total() < problem.gpus:
        a, b = min(queue[place : place + 2]), max(queue[place : place + 2])
        row = rows.get((a, b)) if place + 1 < len(queue) else None
        if row is not None and problem.pair_fits[row, equal]:
            chosen[(row, equal)] += 1
            place += 2
            continue
        if problem.alone_fits[queue[place]]:
            chosen[(queue[place], ALONE)] += 1
        place += 1
    return placed(problem, chosen)
