"""The best placement, and how far from the best it can be at most.

Work per joule of a cluster is a ratio of two sums, both linear in how often each choice is made.
Dinkelbach's method ("On nonlinear fractional programming", Management Science 13(7), 1967) turns
its maximum into a few integer programs: at a price q of a joule, in work, maximise work - q x
energy; the ratio of the answer is the next price, and when the price stands still it is the
maximum. The method runs on the relaxed programs first, with fractions of GPUs: their maximum is an
upper bound on every placement, and a price so close to the final one that most often one integer
program is enough.
"""

import time
from dataclasses import dataclass

import numpy as np

from advisor.errors import InputError
from advisor.place import Placement, Problem, value
from advisor.place_programs import (
    GAP,
    Columns,
    Priced,
    best_at,
    integer_program,
    make_columns,
    priced,
    relaxed,
)
from advisor.place_rules import greedy

STILL = 1e-9
"""Relative change of a price that is none."""


@dataclass(frozen=True, slots=True)
class Solution:
    """A placement and what is known about better ones.

    Attributes:
        placement: The best that was found.
        most_jobs: No placement has more jobs than this.
        gap: No placement of as many jobs is better by more than this part.
        timed_out: Whether the time limit ended the search.
    """

    placement: Placement
    most_jobs: int
    gap: float
    timed_out: bool


def place(problem: Problem, *, time_limit_s: float = 60.0) -> Solution:
    """As many jobs as possible, and of all placements of so many jobs the best.

    Args:
        problem: From `advisor.place.make_problem`.
        time_limit_s: The search ends about then, with the best that it has.

    Raises:
        InputError: no job can be placed at all, or a time that is none.
    """
    if not time_limit_s >= 0:  # true of NaN as well
        raise InputError(f"a time limit of {time_limit_s} s is not possible")
    ends = time.monotonic() + time_limit_s
    columns = make_columns(problem)
    full, most_jobs = _fullest(columns, ends)
    return _improved(columns, full, most_jobs, ends)


def _fullest(columns: Columns, ends: float) -> tuple[Placement, int]:
    """A placement of as many jobs as possible, and how many jobs none can exceed."""
    problem = columns.problem
    known = greedy(problem)
    most = min(int(problem.counts.sum()), 2 * problem.gpus)
    if known.jobs == most:
        return known, most
    every = np.full(len(columns.jobs), fill_value=True)
    found = integer_program(columns, columns.jobs, every, 0, ends, gap=0.0)
    most = int(min(most, found.bound + 1e-6))
    if found.times is None:
        return known, most
    fuller = priced(columns, 0.0).placement(found.times)
    return max(known, fuller, key=lambda placement: placement.jobs), most


def _improved(columns: Columns, best: Placement, most_jobs: int, ends: float) -> Solution:
    """Dinkelbach's method over integer programs, from the price of the relaxed ones."""
    problem = columns.problem
    bound = _relaxed_bound(columns, best.jobs)
    price, last_price = bound if problem.per_watt else 0.0, None
    timed_out = best.jobs < most_jobs
    while not timed_out and price != last_price and _gap(bound, value(problem, best)) > GAP:
        at = priced(columns, price)
        found = best_at(at, best.jobs, ends)
        bound = min(bound, _bound_at(at, found.bound))
        if found.times is not None:
            candidate = at.placement(found.times)
            best = max(best, candidate, key=lambda placement: value(problem, placement))
        timed_out = time.monotonic() >= ends
        last_price, price = price, value(problem, best) if problem.per_watt else price
    return Solution(best, most_jobs, _gap(bound, value(problem, best)), timed_out)


def _relaxed_bound(columns: Columns, jobs: int) -> float:
    """The largest value of a placement of so many jobs that may use fractions of GPUs."""
    price = 0.0
    while True:
        at = priced(columns, price)
        reached = at.value(relaxed(at, jobs).x)
        if not columns.problem.per_watt or reached <= price * (1 + STILL):
            return max(price, reached)
        price = reached


def _bound_at(at: Priced, profit: float) -> float:
    """What no placement exceeds, if none has a larger profit at the price."""
    if not at.columns.problem.per_watt:
        return profit
    # work - price x power <= over, and no placement draws less than `least_w`.
    over = profit - at.price * at.idle_w
    return at.price + max(over, 0.0) / at.columns.least_w


def _gap(bound: float, reached: float) -> float:
    return max(0.0, bound / reached - 1) if reached > 0 else float("inf")
