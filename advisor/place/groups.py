"""Every group that a queue allows: how long it has its GPU, and what energy that takes."""

import functools
from dataclasses import dataclass

import numpy as np

from advisor.place.options import Ints, PairOptions
from advisor.place.problem import JobGroup, Problem, QueuedJob, alone_group
from advisor.predict.profiles import Floats

ALONE = -1
"""In the place of a second job, of a pair and of a split."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Groups:
    """Groups as arrays, each of shape (groups,) where nothing else is said.

    Attributes:
        kinds: The jobs that differ, in the order of `Problem.kinds`.
        members: Index of the kind of each job, shape (2, groups); of the second one `ALONE` where
            there is none.
        row: Row of the pair in the options, or `ALONE`.
        times_s: Until each job has ended, shape (2, groups); 0 where there is no second job.
        energy_j: Until both have ended.
        alone_j: The same work, one after the other.
    """

    problem: Problem
    kinds: tuple[QueuedJob, ...]
    members: Ints
    row: Ints
    column: Ints
    times_s: Floats
    energy_j: Floats
    alone_j: Floats

    @property
    def time_s(self) -> Floats:
        """How long each has its GPU."""
        return self.times_s.max(axis=0)

    def group(self, n: int) -> JobGroup:
        """One of them as a value."""
        options, row, column = self.problem.options, int(self.row[n]), int(self.column[n])
        jobs = tuple(self.kinds[int(kind)] for kind in self.members[:, n] if kind != ALONE)
        if row == ALONE:
            power_w = self.problem.types[self.problem.type_of(jobs[0])].power_w
            return alone_group(jobs[0], power_w)
        return JobGroup(
            jobs=jobs,
            split=options.split(row, column),
            speeds=tuple(map(float, options.speed[:, row, column])),
            power_w=float(options.power_w[row, column]),
            times_s=tuple(map(float, self.times_s[:, n])),
            energy_j=float(self.energy_j[n]),
            alone_j=float(self.alone_j[n]),
        )


def make_groups(problem: Problem) -> Groups:
    """All groups that keep the limits and are worth it, jobs alone last.

    Sharing is worth it where it saves enough of what the problem minimises, and where a job may not
    run alone.
    """
    kinds = tuple(problem.kinds)
    types = np.array([problem.type_of(kind) for kind in kinds])
    work_s = np.array([kind.work_s for kind in kinds])
    members, row, column = _pairs(problem, types)
    times_s, energy_j = _to_the_end(problem.options, row, column, work_s[members])
    alone_kind_j = work_s * np.array([kind.power_w for kind in problem.types])[types]
    alone_j, alone_s = alone_kind_j[members].sum(axis=0), work_s[members].sum(axis=0)
    more, times = 1 + problem.min_gain, times_s.max(axis=0)
    saves = more * energy_j < alone_j if problem.saves_energy else more * times < alone_s
    alone_fits = problem.alone_fits[types]
    kept = saves | ~alone_fits[members].all(axis=0)
    alone = np.flatnonzero(alone_fits)
    none = np.full(len(alone), ALONE)
    return Groups(
        problem=problem,
        kinds=kinds,
        members=np.hstack([members[:, kept], [alone, none]]),
        row=np.append(row[kept], none),
        column=np.append(column[kept], none),
        times_s=np.hstack([times_s[:, kept], [work_s[alone], np.zeros(len(alone))]]),
        energy_j=np.append(energy_j[kept], alone_kind_j[alone]),
        alone_j=np.append(alone_j[kept], alone_kind_j[alone]),
    )


def _pairs(problem: Problem, types: Ints) -> tuple[Ints, Ints, Ints]:
    """Kinds of both jobs, row and column of every pair that keeps the limits."""
    counts = np.array(list(problem.kinds.values()))
    one, other = np.triu_indices(len(types))
    there = (one != other) | (counts[one] > 1)
    one, other = one[there], other[there]
    # Rows know each pair of types in one order.
    rows = np.full((len(problem.types), len(problem.types)), ALONE)
    first, second = problem.options.types
    rows[first, second] = np.arange(len(first))
    turned = rows[types[one], types[other]] == ALONE
    members = np.where(turned, [other, one], [one, other])
    row = rows[tuple(types[members])]
    at, column = np.nonzero(problem.pair_fits[row])
    return members[:, at], row[at], column


def _to_the_end(
    options: PairOptions, row: Ints, column: Ints, work_s: Floats
) -> tuple[Floats, Floats]:
    """Times until each job has ended, shape (2, groups), and the energy: `advisor.core.finish`."""
    speed = options.speed[:, row, column]
    shared_s = (work_s / speed).min(axis=0)
    left_s = np.maximum(work_s - shared_s * speed, 0) / options.left_speed[:, row, column]
    left_j = left_s * options.left_power_w[:, row, column]
    shared_j = shared_s * options.power_w[row, column]
    return shared_s + left_s, functools.reduce(np.add, left_j, shared_j)
