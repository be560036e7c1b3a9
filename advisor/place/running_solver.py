"""Which jobs share a card: column generation.

The master program (`advisor.place.set_master`) takes the sets known so far and says what each job
is worth; the search (`advisor.place.set_search`) finds sets whose jobs are worth more than they
cost; until there are none (M. Lübbecke and J. Desrosiers, "Selected topics in column generation",
Operations Research 53(6), 2005). Then the master is solved in whole cards. Sets near those in use
are looked at first; then all, by a search that also bounds what any set could gain.
"""

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from advisor.core.split import ADVISED_JOBS
from advisor.errors import NoSplitError
from advisor.place.running import PlacedSet, Placing, RunningPlan
from advisor.place.set_answers import SetAnswers, set_answers
from advisor.place.set_master import Master
from advisor.place.set_search import Found, SetSearch
from advisor.predict.profiles import Floats

WIDTHS = (300, 1500, 5000)
"""Sets of each size that are grown; more where fewer save little more."""

NEAR = 0.005
"""Of the cost, the bound is near enough."""

GAP = 2e-3
"""Of the whole cards from their own bound at which they are good enough."""

SEARCH_PART = 0.85
"""Of the time, after which no sets are looked for."""

WORTHWHILE = 1e-3
"""Of the cost, what a turn of a search must save for another one."""

LOOKED_NEAR = 800
"""Sets: where more are known, only those in use are looked near."""

ROUNDING = 1e-6
"""Of a card, is none."""

LEAST_GAIN = 1e-6
"""Of the dearest job alone; what gains less is nothing."""


def place_running(placing: Placing, *, time_limit_s: float = 10.0) -> RunningPlan:
    """The best plan found in about the time, and what none can be better than.

    Raises:
        InputError: a limit for no job that is there.
        NoSplitError: a kind keeps its limits nowhere.
    """
    started = time.monotonic()
    answers = [set_answers(placing, n) for n in range(len(placing.pools))]
    master = _master(placing, answers)
    bound, timed_out = _found(placing, answers, master, started, time_limit_s)
    if placing.aim == "fewest-cards":
        # Cards come whole, and a job that waits costs a whole number of them.
        bound = math.ceil(bound - ROUNDING)
    used = _used(master, started, time_limit_s)
    if not _take_out_spare(answers, used):
        used = _used(master.without_spare(used), started, time_limit_s)
    return _plan(placing, used, master.waiting_costs, bound, timed_out=timed_out)


def _found(
    placing: Placing,
    answers: list[SetAnswers],
    master: Master,
    started: float,
    time_limit_s: float,
) -> tuple[float, bool]:
    """Add sets to the master; what no plan can be better than, and whether the time ended it.

    A wide search goes between the values of jobs that have told the best bound and those of now,
    as these swing (A. Pessoa et al., "Automation and combination of linear-programming based
    stabilization techniques in column generation", INFORMS J. on Computing 30(2), 2018).
    """
    least = LEAST_GAIN * max(one.cost for one in master.sets)
    bound, cost, widths, takes = 0.0, math.inf, [*WIDTHS], 0.0
    steady, of_steady = None, -math.inf
    while (part := _part(started, time_limit_s)) + takes <= SEARCH_PART or not bound:
        before, (cost, duals) = cost, _near(answers, master, least, started, time_limit_s)
        tried = duals if steady is None else (steady + duals) / 2
        found = [search.all(widths[0], least) for search in _searches(answers, tried / (1 + NEAR))]
        told = _bound(placing, tried, found)
        bound = max(bound, LEAST_GAIN * cost, told)
        new = master.add(one for of_pool in found for one in of_pool.sets)
        if bound >= (1 - 1.2 * NEAR) * cost or not (new or len(widths) > 1 or steady is not None):
            return bound, False
        if not new:
            steady = None
        elif len(widths) < len(WIDTHS) and told > of_steady:
            steady, of_steady = tried, told
        takes = _part(started, time_limit_s) - part
        if len(widths) > 1 and (not new or cost > (1 - WORTHWHILE) * before):
            widths.pop(0)
    return bound, True


def _near(
    answers: list[SetAnswers], master: Master, least: float, started: float, time_limit_s: float
) -> tuple[float, Floats]:
    """Add sets that are one job off others, while that saves much; the cost, and values then."""
    cost, duals = master.solve()
    while _part(started, time_limit_s) < SEARCH_PART:
        before, known = cost, master.sets
        near = master.used if len(known) > LOOKED_NEAR else tuple(known)
        master.add(one for s in _searches(answers, duals) for one in s.near(near, least))
        cost, duals = master.solve()
        if cost > (1 - WORTHWHILE) * before:
            break
    return cost, duals


def _part(started: float, time_limit_s: float) -> float:
    return (time.monotonic() - started) / max(time_limit_s, 1e-3)


def _master(placing: Placing, answers: list[SetAnswers]) -> Master:
    """With each job alone, and copies; where one may not be alone, every pair."""
    sets = [one for a in answers for one in (*a.singles(), *a.copies())]
    seated = {kind for one in sets for kind in one.kinds}
    if len(seated) < len(placing.kinds):
        sets += [one for a in answers for one in a.pairs()]
        seated = {kind for one in sets for kind in one.kinds}
    lost = [kind.name for n, kind in enumerate(placing.kinds) if n not in seated]
    if lost:
        raise NoSplitError(
            f"{', '.join(lost)} cannot be placed",
            why="no limit is kept, neither alone nor beside another job",
            fix="loosen the limits, or leave those jobs out",
        )
    master = Master(placing)
    master.wait(max(one.cost for one in sets if len(one.kinds) <= ADVISED_JOBS))
    master.add(sets)
    return master


def _searches(answers: list[SetAnswers], duals: Floats) -> list[SetSearch]:
    kinds = len(answers[0].placing.kinds)
    return [SetSearch(a, duals[:kinds], float(duals[kinds + a.number])) for a in answers]


def _bound(placing: Placing, duals: Floats, found: list[Found]) -> float:
    """No plan costs less than jobs and cards are worth, if every card gained all that a set could.

    The values of jobs and cards are lowered by `NEAR`, so that few sets gain anything. Where each
    set costs one card, they may be lowered until none does, which is less (A. Farley, "A note on
    bounding a class of linear programming problems", Operations Research 38(5), 1990).
    """
    gpus = np.array([pool.gpus for pool in placing.pools])
    most = np.array([of.most for of in found])
    worth = float(duals @ np.append(placing.counts, gpus)) / (1 + NEAR)
    bound = worth - float(gpus @ most)
    return max(bound, worth / (1 + most.max())) if placing.aim == "fewest-cards" else bound


def _used(master: Master, started: float, time_limit_s: float) -> Counter[PlacedSet]:
    """How many whole cards have each set."""
    left_s = max(1.0, time_limit_s - (time.monotonic() - started))
    cards = master.whole(left_s, GAP)[len(master.waiting_costs) :]
    return Counter({one: int(n) for one, n in zip(master.sets, cards, strict=True) if n > 0})


def _take_out_spare(answers: list[SetAnswers], used: Counter[PlacedSet]) -> bool:
    """Jobs that more sets have than there are: those sets do without them, the largest first.

    False: some cannot, as jobs that draw too much alone cannot be alone.
    """
    seated = _seated(used)
    for kind, n in enumerate(answers[0].placing.kinds):
        for _ in range(seated[kind] - n.count):
            having = sorted((one for one in used if kind in one.kinds), key=lambda o: -len(o.kinds))
            fewer = ((one, _without(answers, one, kind)) for one in having)
            whole, left = next(filter(lambda found: found[1] is not None, fewer), (None, None))
            if whole is None or left is None:
                return False
            used.subtract([whole])
            used.update(left)
            used += Counter()
    return True


def _without(answers: list[SetAnswers], one: PlacedSet, kind: int) -> tuple[PlacedSet, ...] | None:
    """What is left of a set less one job of a kind; None: it keeps not all limits."""
    if len(one.kinds) == 1:
        return ()
    left = answers[one.pool].without(one, kind)
    return (left,) if left else None


def _seated(used: Mapping[PlacedSet, int]) -> Counter[int]:
    seated = Counter[int]()
    for one, count in used.items():
        for kind in one.kinds:
            seated[kind] += count
    return seated


def _plan(
    placing: Placing,
    used: Mapping[PlacedSet, int],
    waiting_costs: Sequence[float],
    bound: float,
    *,
    timed_out: bool,
) -> RunningPlan:
    seated = _seated(used)
    waiting = {
        n: kind.count - seated[n] for n, kind in enumerate(placing.kinds) if kind.count > seated[n]
    }
    order = sorted(used, key=lambda one: (-len(one.kinds), -used[one], one.pool, one.kinds))
    waiting_cost = sum(count * waiting_costs[kind] for kind, count in waiting.items())
    return RunningPlan(
        placing=placing,
        sets={one: used[one] for one in order},
        waiting=waiting,
        waiting_cost=waiting_cost,
        cost=sum(count * one.cost for one, count in used.items()) + waiting_cost,
        bound=bound,
        timed_out=timed_out,
    )
