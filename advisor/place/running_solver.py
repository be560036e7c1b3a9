"""Which jobs share a card: column generation.

The master program (`advisor.place.set_master`) takes the sets known so far and says what each job
is worth; the search (`advisor.place.set_search`) finds sets whose jobs are worth more than they
cost; until there are none (M. Lübbecke and J. Desrosiers, "Selected topics in column generation",
Operations Research 53(6), 2005). Then the master is solved in whole cards. A quick search goes
first; that which also bounds what any set could gain takes over where it no longer saves much.
"""

import math
import time

from advisor.errors import NoSplitError
from advisor.place.running import Placing, RunningPlan
from advisor.place.set_answers import SetAnswers, set_answers
from advisor.place.set_master import Master
from advisor.place.set_search import GREEDY_PRICES, Found, SetSearch
from advisor.predict.profiles import Floats

WIDTHS = (1500, 5000, 20_000)
"""Sets of each size that are looked at for the bound; more where fewer do not suffice."""

NEAR = 0.01
"""Of the cost, the bound is near enough."""

GAP = 2e-3
"""Of the whole cards from their own bound at which they are good enough."""

SEARCH_PART = 0.6
"""Of the time, after which no more sets are looked for."""

WORTHWHILE = 2e-3
"""Of the cost, what the quick search must save for another turn of it."""

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
    least = LEAST_GAIN * max(one.cost for one in master.sets)
    bound, cost, turn, timed_out = 0.0, math.inf, 0, False
    for width in WIDTHS:
        while not (timed_out := time.monotonic() - started > SEARCH_PART * time_limit_s):
            before, (cost, duals) = cost, master.solve()
            searches = _searches(answers, duals)
            quick = turn < len(GREEDY_PRICES) or cost < (1 - WORTHWHILE) * before
            if quick and master.add(
                one for search in searches for one in search.greedy(least, turn)
            ):
                turn += 1
                continue
            found = [search.all(width, least, NEAR) for search in searches]
            bound = max(bound, _bound(placing, cost, found))
            if not master.add(one for of_pool in found for one in of_pool.sets):
                break
        if timed_out or bound >= (1 - 1.01 * NEAR) * cost:
            break
    if not bound:
        cost, duals = master.solve()
        found = [search.all(WIDTHS[0], least, NEAR) for search in _searches(answers, duals)]
        bound = _bound(placing, cost, found)
    left_s = max(1.0, time_limit_s - (time.monotonic() - started))
    return _plan(placing, master, master.whole(left_s, GAP), bound, timed_out=timed_out)


def _master(placing: Placing, answers: list[SetAnswers]) -> Master:
    """With each job alone, every pair, and copies."""
    singles = [one for a in answers for one in a.singles()]
    pairs = [one for a in answers for one in a.pairs()]
    seated = {kind for one in (*singles, *pairs) for kind in one.kinds}
    lost = [kind.name for n, kind in enumerate(placing.kinds) if n not in seated]
    if lost:
        raise NoSplitError(
            f"{', '.join(lost)} cannot be placed",
            why="no limit is kept, neither alone nor beside another job",
            fix="loosen the limits, or leave those jobs out",
        )
    master = Master(placing)
    master.wait(max(one.cost for one in (*singles, *pairs)))
    master.add((*singles, *pairs, *(one for a in answers for one in a.copies())))
    return master


def _searches(answers: list[SetAnswers], duals: Floats) -> list[SetSearch]:
    kinds = len(answers[0].placing.kinds)
    return [SetSearch(a, duals[:kinds], float(duals[kinds + a.number])) for a in answers]


def _bound(placing: Placing, cost: float, found: list[Found]) -> float:
    """No plan costs less than the cost of cards in parts, if each set gained all that it could.

    Lowered so far that no set gains anything, what jobs are worth is a dual solution (A. Farley,
    "A note on bounding a class of linear programming problems", Operations Research 38(5), 1990).
    """
    bound = cost / (1 + max(of_pool.most for of_pool in found))
    # Cards come whole, and a job that waits costs a whole number of them.
    return math.ceil(bound - ROUNDING) if placing.aim == "fewest-cards" else bound


def _plan(
    placing: Placing, master: Master, counts: Floats, bound: float, *, timed_out: bool
) -> RunningPlan:
    kinds = len(placing.kinds)
    used = {
        one: int(count) for one, count in zip(master.sets, counts[kinds:], strict=True) if count > 0
    }
    waiting = {n: int(count) for n, count in enumerate(counts[:kinds]) if count > 0}
    order = sorted(used, key=lambda one: (-len(one.kinds), -used[one], one.pool, one.kinds))
    cost = sum(count * one.cost for one, count in used.items())
    cost += sum(count * master.waiting_costs[kind] for kind, count in waiting.items())
    return RunningPlan(
        placing=placing,
        sets={one: used[one] for one in order},
        waiting=waiting,
        cost=cost,
        bound=bound,
        timed_out=timed_out,
    )
