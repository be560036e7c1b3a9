"""Who shares with whom: the groups that do a queue with the least energy, or in the least time.

Each job is in one group: a matching of jobs, in which a job may stay alone. Energy of a group does
not depend on where and when it runs, so an integer program over kinds of jobs finds the cheapest
matching (HiGHS). Idle GPUs draw power until the last job has ended, and that depends on how the
groups fit on the GPUs. So the program is solved for several makespans: no group may take longer,
and all of them must fit on the GPUs. Each answer is scheduled, and the best schedule is taken. One
after the other is among them, and what ends later than that is left out: no plan takes more energy,
or longer.
"""

import functools
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import highspy
import numpy as np

from advisor.core.policy import POLICY
from advisor.errors import InputError, NoSplitError
from advisor.place.problem import Ints, JobGroup, PairOptions, Problem, QueuedJob, alone_group
from advisor.place.schedule import Schedule, Slot, schedule, slots
from advisor.predict.profiles import Floats

ALONE = -1
"""In the place of a second job, of a pair and of a split."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Groups:
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


def make_groups(problem: Problem) -> _Groups:
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
    return _Groups(
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
    """Times until each job has ended, shape (2, groups), and the energy; as `core.objectives`."""
    speed = options.speed[:, row, column]
    shared_s = (work_s / speed).min(axis=0)
    left_s = np.maximum(work_s - shared_s * speed, 0) / options.left_speed[:, row, column]
    left_j = left_s * options.left_power_w[:, row, column]
    shared_j = shared_s * options.power_w[row, column]
    return shared_s + left_s, functools.reduce(np.add, left_j, shared_j)


MAKESPANS = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6)
"""Makespans that are tried, relative to that of the jobs one after the other."""

ROUNDING = 1e-9
"""Relative difference of two times that is none."""

LEAST_S = 0.1
"""What an integer program gets when the time is up; HiGHS takes 0 for an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePlan:
    """The whole queue, planned.

    Attributes:
        slots: Every group with its GPU and start, in the order of the starts.
        timed_out: Whether the time limit ended the search.
    """

    slots: tuple[Slot, ...]
    schedule: Schedule
    timed_out: bool

    @property
    def pairs(self) -> int:
        """How many pairs share a GPU."""
        return sum(slot.group.split is not None for slot in self.slots)


def place(problem: Problem, *, time_limit_s: float = 60.0) -> QueuePlan:
    """The best plan for all jobs; the search ends about at the time limit, with what it has.

    Raises:
        InputError: a time that is none, or one too short to find any plan.
        NoSplitError: the limits leave no way to place every job.
    """
    if not time_limit_s >= 0:  # true of NaN as well
        raise InputError(f"a time limit of {time_limit_s} s is not possible")
    ends = time.monotonic() + time_limit_s
    latest_s, best = math.inf, None
    if sequential := alone(problem):
        latest_s, best = sequential.schedule.makespan_s * (1 + ROUNDING), sequential
    # More pairs to choose from are no reason for a worse plan, which a schedule can make of them.
    for gain in dict.fromkeys((problem.min_gain, max(problem.min_gain, POLICY.min_gain))):
        if gain > problem.min_gain and time.monotonic() >= ends:
            break
        groups = make_groups(replace(problem, min_gain=gain))
        for chosen in _matchings(groups, latest_s, ends):
            found = _planned(problem, _groups(groups, chosen))
            if found.schedule.makespan_s <= latest_s:
                best = min(best or found, found, key=lambda plan: _badness(problem, plan))
    timed_out = time.monotonic() >= ends
    if best is None:
        raise _no_plan(problem, timed_out=timed_out)
    return QueuePlan(slots=best.slots, schedule=best.schedule, timed_out=timed_out)


def _planned(problem: Problem, groups: Sequence[JobGroup]) -> QueuePlan:
    """These groups, scheduled."""
    placed = slots(groups, problem.gpus, problem.queue)
    found = schedule(placed, problem.gpus, problem.idle_power_w)
    return QueuePlan(slots=placed, schedule=found, timed_out=False)


def alone(problem: Problem) -> QueuePlan | None:
    """One job after the other on each GPU; None where a job may not run alone."""
    if not problem.alone_fits.all():
        return None
    power_w = {kind.name: kind.power_w for kind in problem.types}
    return _planned(problem, [alone_group(job, power_w[job.name]) for job in problem.queue])


def _matchings(groups: _Groups, makespan_s: float, ends: float) -> Iterator[Ints]:
    """How often each group is used: the cheapest of all, then the cheapest for makespans."""
    problem = groups.problem
    cheapest = _matching(groups, _cost(groups), None, ends)
    if cheapest is None:
        return
    yield cheapest
    if makespan_s == math.inf:
        makespan_s = _planned(problem, _groups(groups, cheapest)).schedule.makespan_s
    idle_power_w = problem.idle_power_w if problem.saves_energy else 0.0
    # Full GPUs draw nothing idle, those that wait for the last job do.
    costs = [_cost(groups), _cost(groups) - idle_power_w * groups.time_s]
    asked = [(costs[0], 1.0), *((costs[1], part) for part in MAKESPANS)]
    for cost, part in asked:
        for used in _gpus_used(groups.time_s, part * makespan_s):
            if time.monotonic() >= ends:
                return
            if (found := _matching(groups, cost, used, ends)) is not None:
                yield found


def _cost(groups: _Groups) -> Floats:
    return groups.energy_j if groups.problem.saves_energy else groups.time_s


def _gpus_used(time_s: Floats, makespan_s: float) -> Iterator[Floats]:
    """What part of a GPU a group takes until the makespan; infinite where it takes longer.

    At least its part of the time; at most one of as many as fit one after the other, since groups
    of like length then fill each GPU.
    """
    fit = np.floor(makespan_s / time_s * (1 + ROUNDING))
    fits = fit >= 1
    yield np.where(fits, time_s / makespan_s, np.inf)
    yield np.where(fits, 1 / np.maximum(fit, 1), np.inf)


def _matching(groups: _Groups, cost: Floats, used: Floats | None, ends: float) -> Ints | None:
    return cheapest(groups, cost, used, max(ends - time.monotonic(), LEAST_S))


def _groups(groups: _Groups, chosen: Ints) -> list[JobGroup]:
    times = [(groups.group(int(n)), int(chosen[n])) for n in np.flatnonzero(chosen)]
    return [group for group, count in times for _ in range(count)]


def _badness(problem: Problem, plan: QueuePlan) -> tuple[float, float]:
    found = plan.schedule
    if problem.saves_energy:
        return found.energy_j, found.makespan_s
    return found.makespan_s, found.mean_completion_s


def _no_plan(problem: Problem, *, timed_out: bool) -> Exception:
    if timed_out:
        return InputError("no plan was found in time", fix="give more with --time-limit")
    lost = [t.name for t, fits in zip(problem.types, problem.alone_fits, strict=True) if not fits]
    return NoSplitError(
        "not every job can be placed",
        why=f"{', '.join(lost)} may not run alone, and has not enough jobs to share with",
        fix="loosen --max-power, --memory or --min-speed",
    )


GAP = 1e-4
"""Relative distance from its bound at which an integer program ends."""


def cheapest(
    groups: _Groups, cost: Floats, used: Floats | None, time_limit_s: float
) -> Ints | None:
    """How often to use each group, so that each job is in one of them, at the least cost.

    Args:
        groups: To choose from.
        cost: Of each group; one that is infinite is left out.
        used: What part of a GPU each group takes, infinite for one to leave out; None: it does
            not matter.
        time_limit_s: The search ends about then, with the best that it has.

    Returns:
        A count for each group; None where none were found.
    """
    kept = np.flatnonzero(np.isfinite(cost if used is None else used))
    if not len(kept):
        return None
    counts = np.array(list(groups.problem.kinds.values()), dtype=float)
    program = highspy.HighsLp()
    program.num_col_ = len(kept)
    program.col_cost_ = cost[kept]
    program.col_lower_ = np.zeros(len(kept))
    program.col_upper_ = np.full(len(kept), highspy.kHighsInf)
    program.integrality_ = [highspy.HighsVarType.kInteger] * len(kept)
    program.row_lower_ = counts if used is None else np.append(counts, -highspy.kHighsInf)
    program.row_upper_ = counts if used is None else np.append(counts, groups.problem.gpus)
    program.num_row_ = len(program.row_upper_)
    _set_matrix(program, groups, kept, used)
    found = solved(program, time_limit_s)
    if found is None:
        return None
    chosen = np.zeros(len(cost), dtype=np.int64)
    chosen[kept] = np.round(found)
    return chosen


def solved(program: highspy.HighsLp, time_limit_s: float) -> Floats | None:
    """Values of the columns of an integer program; None: none were found in time."""
    solver = highspy.Highs()
    # One thread: plans are the same on every host, and the service's other requests keep theirs.
    options = {"output_flag": False, "threads": 1, "time_limit": time_limit_s, "mip_rel_gap": GAP}
    for name, value in options.items():
        solver.setOptionValue(name, value)
    solver.passModel(program)
    solver.run()
    if solver.getInfo().primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        return None
    return np.array(solver.getSolution().col_value)


def _set_matrix(program: highspy.HighsLp, groups: _Groups, kept: Ints, used: Floats | None) -> None:
    """A row for each kind: how many of its jobs a group takes; and one for the GPUs in use."""
    first, second = groups.members[:, kept]
    columns = np.arange(len(kept))
    like = first == second
    other = (second != ALONE) & ~like
    kinds = [first, second[other]]
    places = [columns, columns[other]]
    values = [1.0 + like, np.ones(other.sum())]
    if used is not None:
        kinds.append(np.full(len(kept), len(groups.kinds)))
        places.append(columns)
        values.append(used[kept])
    column = np.concatenate(places)
    order = np.argsort(column, kind="stable")
    program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    program.a_matrix_.start_ = np.append(0, np.cumsum(np.bincount(column, minlength=len(kept))))
    program.a_matrix_.index_ = np.concatenate(kinds)[order]
    program.a_matrix_.value_ = np.concatenate(values)[order]
