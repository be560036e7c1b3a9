"""Which jobs share a card: column generation.

The master program (`advisor.place.set_master`) takes the sets known so far and says what each job
is worth; the search (`advisor.place.set_search`) finds sets whose jobs are worth more than they
cost; until there are none (M. Lübbecke and J. Desrosiers, "Selected topics in column generation",
Operations Research 53(6), 2005). Then the master is solved in whole cards. A quick search goes
first; then that which also bounds what any set could gain.
"""

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence

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

NARROW_PART, SEARCH_PART = 0.45, 0.75
"""Of the time, after which the narrowest search is over, and after which no sets are looked for."""

WORTHWHILE = 1e-3
"""Of the cost, what a turn of the narrowest search must save for another one."""

QUICK = 5
"""Turns of the quick search, which goes first."""

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
    left_s = max(1.0, time_limit_s - (time.monotonic() - started))
    cards = master.whole(left_s, GAP)[len(placing.kinds) :]
    used = Counter({one: int(n) for one, n in zip(master.sets, cards, strict=True) if n > 0})
    _take_out_spare(answers, used)
    return _plan(placing, used, master.waiting_costs, bound, timed_out=timed_out)


def _found(
    placing: Placing,
    answers: list[SetAnswers],
    master: Master,
    started: float,
    time_limit_s: float,
) -> tuple[float, bool]:
    """Add sets to the master; what no plan can be better than, and whether the time ended it."""
    least = LEAST_GAIN * max(one.cost for one in master.sets)
    bound, cost, widths, takes, turn = 0.0, math.inf, [*WIDTHS], 0.0, 0
    while (part := _part(started, time_limit_s)) + takes <= SEARCH_PART or not bound:
        before, (cost, duals) = cost, master.solve()
        if turn < QUICK and part <= SEARCH_PART:
            searches, turn = _searches(answers, duals), turn + 1
            master.add(one for search in searches for one in search.greedy(least, turn))
            continue
        found = [search.all(widths[0], least) for search in _searches(answers, duals / (1 + NEAR))]
        bound = max(bound, LEAST_GAIN * cost, _bound(placing, cost, found))
        new = master.add(one for of_pool in found for one in of_pool.sets)
        if bound >= (1 - 1.2 * NEAR) * cost or (not new and len(widths) == 1):
            return bound, False
        takes = _part(started, time_limit_s) - part
        little = part > NARROW_PART or cost > (1 - WORTHWHILE) * before
        if len(widths) > 1 and (not new or (little and widths[0] == WIDTHS[0])):
            takes *= widths[1] / widths.pop(0)
    return bound, True


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


def _bound(placing: Placing, cost: float, found: list[Found]) -> float:
    """No plan costs less than cards in parts do, if every card gained all that a set could.

    The values of jobs and cards are lowered by `NEAR` (A. Farley, "A note on bounding a class of
    linear programming problems", Operations Research 38(5), 1990), so that few sets gain anything.
    """
    gained = sum(pool.gpus * of.most for pool, of in zip(placing.pools, found, strict=True))
    bound = cost / (1 + NEAR) - gained
    # Cards come whole, and a job that waits costs a whole number of them.
    return math.ceil(bound - ROUNDING) if placing.aim == "fewest-cards" else bound


def _take_out_spare(answers: list[SetAnswers], used: Counter[PlacedSet]) -> None:
    """Jobs that more sets have than there are: those sets do without them."""
    seated = _seated(used)
    for kind, n in enumerate(answers[0].placing.kinds):
        for _ in range(seated[kind] - n.count):
            whole = max((one for one in used if kind in one.kinds), key=lambda one: len(one.kinds))
            used[whole] -= 1
            if left := answers[whole.pool].without(whole, kind):
                used[left] += 1
            used += Counter()


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
    cost = sum(count * one.cost for one, count in used.items())
    cost += sum(count * waiting_costs[kind] for kind, count in waiting.items())
    return RunningPlan(
        placing=placing,
        sets={one: used[one] for one in order},
        waiting=waiting,
        cost=cost,
        bound=bound,
        timed_out=timed_out,
    )
