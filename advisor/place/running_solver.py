"""Which jobs share a card: column generation.

The master program (`advisor.place.set_master`) takes the sets known so far and says what each job
is worth; the search (`advisor.place.set_search`) finds sets whose jobs are worth more than they
cost; until there are none. Then the master is solved in whole cards. Its bound is that of Lagrange:
what the duals say of all jobs and cards, less the most that a set could still gain, on every card
(M. Lübbecke and J. Desrosiers, "Selected topics in column generation", Operations Research 53(6),
2005).
"""

import math
import time

from advisor.errors import NoSplitError
from advisor.place.running import Placing, RunningPlan
from advisor.place.set_answers import SetAnswers, set_answers
from advisor.place.set_master import Master
from advisor.place.set_search import Found, SetSearch
from advisor.predict.profiles import Floats

WIDTHS = (1000, 4000, 16_000)
"""Sets of each size that are looked at for the bound; more where fewer do not suffice."""

NEAR = 0.01
"""Of the cost, the bound is near enough."""

GAP = 2e-3
"""Of the whole cards from their own bound at which they are good enough."""

SEARCH_PART = 0.6
"""Of the time, after which no more sets are looked for."""

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
    near = NEAR / min(placing.counts.sum(), sum(pool.gpus for pool in placing.pools))
    bound, cost, timed_out = 0.0, math.inf, False
    for width in WIDTHS:
        while not (timed_out := time.monotonic() - started > SEARCH_PART * time_limit_s):
            cost, duals = master.solve()
            if master.add(
                one for search in _searches(answers, duals) for one in search.greedy(least)
            ):
                continue
            found = [search.all(width, least, near * cost) for search in _searches(answers, duals)]
            bound = max(bound, _bound(placing, duals, found))
            if not master.add(one for of_pool in found for one in of_pool.sets):
                break
        if timed_out or bound >= (1 - 1.01 * NEAR) * cost:
            break
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


def _bound(placing: Placing, duals: Floats, proofs: list[Found]) -> float:
    """No plan costs less: each card could still gain the most that a set can."""
    kinds = len(placing.kinds)
    of_cards = zip(placing.pools, duals[kinds:], proofs, strict=True)
    jobs = placing.counts.sum()
    found = float(duals[:kinds] @ placing.counts) + sum(
        pool.gpus * float(worth) - min(pool.gpus, jobs) * proof.most
        for pool, worth, proof in of_cards
    )
    # Cards come whole, and a job that waits costs a whole number of them.
    return math.ceil(found - ROUNDING) if placing.aim == "fewest-cards" else found


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
