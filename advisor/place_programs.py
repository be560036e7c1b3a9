"""The linear and integer programs of a placement, solved by HiGHS in SciPy.

A variable says how often a pair, or a type alone, is placed. At a price of a joule, in work, each
pair has one best split, so that splits add nothing to the programs.

A column whose reduced cost exceeds what an answer loses against the relaxed program is in no better
answer (reduced-cost fixing): the integer programs take the cheap columns only, and miss nothing.
"""

import importlib
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from advisor.errors import InputError
from advisor.place import ALONE, Bools, Choice, Placement, Problem, placed
from advisor.place_options import Ints
from advisor.profiles import Floats

GAP = 1e-4
"""Relative distance from a bound at which an answer is called the best: a hundredth of what
predictions are off by."""

CORE = 0.005
"""Work per GPU: columns of a larger reduced cost are left out of the first integer program."""

LEAST_S = 0.1
"""What an integer program gets when the time is up; HiGHS takes 0 for an error."""

TIME_LIMIT = 1
"""Status of `scipy.optimize.milp`: the time was up."""


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """The variables of the programs.

    Attributes:
        pairs: Rows of the pairs that fit; `alone` types that fit. Columns are in this order.
        rows: Sparse, shape (types + 2, columns): jobs of each type that a column takes, its one
            GPU, and less its jobs.
        jobs: Jobs of a column.
        least_w: Power that no placement is below.
    """

    problem: Problem
    pairs: Ints
    alone: Ints
    rows: Any
    jobs: Floats
    least_w: float

    def there(self, jobs: int) -> Floats:
        """What the rows must not exceed, if at least so many jobs are placed; (types + 2,)."""
        return np.append(self.problem.counts, [self.problem.gpus, -jobs]).astype(np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class Priced:
    """The columns at a price: the split of each pair, and what it does; each shape (columns,)."""

    columns: Columns
    price: float
    split: Ints
    work: Floats
    power_w: Floats

    @property
    def idle_w(self) -> float:
        """Power of all GPUs when they are idle."""
        return self.columns.problem.gpus * self.columns.problem.idle_power_w

    @property
    def profit(self) -> Floats:
        """What a GPU gains by a column, over being idle."""
        return self.work - self.price * (self.power_w - self.columns.problem.idle_power_w)

    def value(self, times: Floats) -> float:
        """Work, or work per joule, when each column is used so many times."""
        if not self.columns.problem.per_watt:
            return float(self.work @ times)
        above_w = self.power_w - self.columns.problem.idle_power_w
        return float(self.work @ times / (above_w @ times + self.idle_w))

    def placement(self, times: Floats) -> Placement:
        """The same as a placement."""
        rows = (*self.columns.pairs, *self.columns.alone)
        chosen: dict[Choice, int] = {
            (int(row), int(split)): int(count)
            for row, split, count in zip(rows, self.split, times, strict=True)
        }
        return placed(self.columns.problem, chosen)


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """How often each column is used, None if that was not found; no answer exceeds `bound`."""

    times: Floats | None
    bound: float


def make_columns(problem: Problem) -> Columns:
    """The variables of a problem.

    Raises:
        InputError: no job can be placed at all.
    """
    pairs = np.flatnonzero(problem.pair_fits.any(axis=1))
    alone = np.flatnonzero(problem.alone_fits)
    jobs = np.append(np.full(len(pairs), 2.0), np.ones(len(alone)))
    if not len(jobs):
        raise InputError(
            "no job can be placed",
            why="not one keeps the limits, alone or beside another one",
            fix="allow more power or lower speeds",
        )
    return Columns(problem, pairs, alone, _rows(problem, pairs, alone, jobs), jobs, _least(problem))


def priced(columns: Columns, price: float) -> Priced:
    """The columns with the split of each pair that is best at the price."""
    problem, options = columns.problem, columns.problem.options
    works = (options.speed_a + options.speed_b)[columns.pairs]
    powers_w = options.power_w[columns.pairs]
    fits = problem.pair_fits[columns.pairs]
    split = np.where(fits, works - price * powers_w, -np.inf).argmax(axis=1)
    rows = np.arange(len(split))
    types_w = np.array([kind.power_w for kind in problem.types])
    return Priced(
        columns,
        price,
        np.append(split, np.full(len(columns.alone), ALONE)),
        np.append(works[rows, split], np.ones(len(columns.alone))),
        np.append(powers_w[rows, split], types_w[columns.alone]),
    )


def relaxed(at: Priced, jobs: int) -> Any:
    """SciPy's answer with fractions of GPUs, at least so many jobs, and the largest profit."""
    columns = at.columns
    return _scipy("optimize").linprog(
        -at.profit, A_ub=columns.rows, b_ub=columns.there(jobs), method="highs"
    )


def best_at(at: Priced, jobs: int, ends: float) -> Found:
    """The answer in whole GPUs, at least so many jobs, with the largest profit.

    Args:
        at: The columns at a price.
        jobs: How many jobs it has at least.
        ends: `time.monotonic` at which the search ends.
    """
    fractions = relaxed(at, jobs)
    most, reduced = -fractions.fun, fractions.lower.marginals
    allowed = CORE
    while True:
        kept = reduced <= allowed
        found = integer_program(at.columns, at.profit, kept, jobs, ends)
        lost = np.inf if found.times is None else most - float(at.profit @ found.times)
        if kept.all() or lost <= allowed or time.monotonic() >= ends:
            # What uses a column that was left out has lost more than `allowed`.
            left_out = -np.inf if kept.all() else most - allowed
            return Found(found.times, min(most, max(found.bound, left_out)))
        allowed = lost


def integer_program(
    columns: Columns, profit: Floats, kept: Bools, jobs: int, ends: float, gap: float = GAP
) -> Found:
    """The answer in whole GPUs that uses the kept columns only; the bound is for these as well."""
    optimize = _scipy("optimize")
    done = optimize.milp(
        -profit[kept],
        integrality=np.ones(int(kept.sum())),
        constraints=optimize.LinearConstraint(columns.rows[:, kept], ub=columns.there(jobs)),
        options={"time_limit": max(ends - time.monotonic(), LEAST_S), "mip_rel_gap": gap},
    )
    if done.x is None:
        return Found(None, np.inf if done.status == TIME_LIMIT else -np.inf)
    times = np.zeros(len(kept))
    times[kept] = np.round(done.x)
    return Found(times, -done.mip_dual_bound)


def _rows(problem: Problem, pairs: Ints, alone: Ints, jobs: Floats) -> Any:
    first, second = problem.options.first[pairs], problem.options.second[pairs]
    types, columns = len(problem.types), np.arange(len(jobs))
    # Entries of one place are added up: a job beside its like takes two of its type.
    entries = (
        (np.concatenate([first, alone]), columns, np.ones(len(jobs))),
        (second, columns[: len(pairs)], np.ones(len(pairs))),
        (np.full(len(jobs), types), columns, np.ones(len(jobs))),
        (np.full(len(jobs), types + 1), columns, -jobs),
    )
    row, column, value = (np.concatenate(part) for part in zip(*entries, strict=True))
    return _scipy("sparse").csr_array((value, (row, column)), shape=(types + 2, len(jobs)))


def _least(problem: Problem) -> float:
    """All GPUs at the least that any of them can draw."""
    alone_w = np.array([kind.power_w for kind in problem.types])[problem.alone_fits]
    pairs_w = problem.options.power_w[problem.pair_fits]
    return problem.gpus * float(np.concatenate([alone_w, pairs_w, [problem.idle_power_w]]).min())


def _scipy(part: str) -> Any:
    """A part of SciPy, which has no types."""
    return importlib.import_module(f"scipy.{part}")
