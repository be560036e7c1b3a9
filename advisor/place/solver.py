"""Who shares with whom: the groups that do a queue with the least energy, or in the least time.

Each job is in one group: a matching of jobs, in which a job may stay alone. Energy of a group does
not depend on where and when it runs, so an integer program over kinds of jobs finds the cheapest
matching (HiGHS). Idle GPUs draw power until the last job has ended, and that depends on how the
groups fit on the GPUs. So the program is solved for several makespans: no group may take longer,
and all of them must fit on the GPUs. Each answer is scheduled, and the best schedule is taken. One
after the other is among them, and what ends later than that is left out: no plan takes more energy,
or longer.
"""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.errors import InputError, NoSplitError
from advisor.place.groups import Groups, make_groups
from advisor.place.options import Ints
from advisor.place.problem import JobGroup, Problem, alone_group
from advisor.place.programs import cheapest
from advisor.place.schedule import Schedule, Slot, schedule, slots
from advisor.predict.profiles import Floats
from advisor.wire.requests import MIN_GAIN

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
    for gain in dict.fromkeys((problem.min_gain, max(problem.min_gain, MIN_GAIN))):
        if gain > problem.min_gain and time.monotonic() >= ends:
            break
        groups = make_groups(replace(problem, min_gain=gain))
        for chosen in _matchings(groups, latest_s, ends):
            found = planned(problem, _groups(groups, chosen))
            if found.schedule.makespan_s <= latest_s:
                best = min(best or found, found, key=lambda plan: _badness(problem, plan))
    timed_out = time.monotonic() >= ends
    if best is None:
        raise _no_plan(problem, timed_out=timed_out)
    return QueuePlan(slots=best.slots, schedule=best.schedule, timed_out=timed_out)


def planned(problem: Problem, groups: Sequence[JobGroup]) -> QueuePlan:
    """These groups, scheduled."""
    placed = slots(groups, problem.gpus, problem.queue)
    found = schedule(placed, problem.gpus, problem.idle_power_w)
    return QueuePlan(slots=placed, schedule=found, timed_out=False)


def alone(problem: Problem) -> QueuePlan | None:
    """One job after the other on each GPU; None where a job may not run alone."""
    if not problem.alone_fits.all():
        return None
    power_w = {kind.name: kind.power_w for kind in problem.types}
    return planned(problem, [alone_group(job, power_w[job.name]) for job in problem.queue])


def _matchings(groups: Groups, makespan_s: float, ends: float) -> Iterator[Ints]:
    """How often each group is used: the cheapest of all, then the cheapest for makespans."""
    problem = groups.problem
    cheapest = _matching(groups, _cost(groups), None, ends)
    if cheapest is None:
        return
    yield cheapest
    if makespan_s == math.inf:
        makespan_s = planned(problem, _groups(groups, cheapest)).schedule.makespan_s
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


def _cost(groups: Groups) -> Floats:
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


def _matching(groups: Groups, cost: Floats, used: Floats | None, ends: float) -> Ints | None:
    return cheapest(groups, cost, used, max(ends - time.monotonic(), LEAST_S))


def _groups(groups: Groups, chosen: Ints) -> list[JobGroup]:
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
