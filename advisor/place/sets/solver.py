"""Which jobs share a card: column generation.

The master program (`advisor.place.sets.master`) takes the sets known so far and says what each job
is worth; the search (`advisor.place.sets.search`) finds sets whose jobs are worth more than they
cost; until there are none (M. Lübbecke and J. Desrosiers, "Selected topics in column generation",
Operations Research 53(6), 2005). Then the master is solved in whole cards. The search also bounds
what any set could gain: closely, once the sets that it finds save little more, and where time is
left again when cards are whole.
"""

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from advisor.core.split import ADVISED_JOBS
from advisor.errors import NoSplitError
from advisor.place.sets.answers import SetAnswers, set_answers
from advisor.place.sets.master import ROUNDING, Master, dived, finished
from advisor.place.sets.placing import PlacedSet, Placing, RunningPlan
from advisor.place.sets.search import Found, SetSearch
from advisor.place.sets.seats import SeatSearch
from advisor.predict.profiles import Floats

NEAR = 0.005
"""Of the cost, the bound is near enough, and whole cards are to the parts of cards."""

SEARCH_PART = 0.75
"""Of the time, after which no sets are looked for; half of it, and bounds are looked at closely."""

TURN_PART = 0.16
"""Of the time, that a turn takes at most which looks closely; the first one asks of pairs, too."""

WORTHWHILE = 5e-4
"""Of the cost, what a turn of a search must save for another one like it."""

SEATING_S = 0.3
"""Of the time, for jobs that wait still."""

LEAST_GAIN = 1e-4
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
    bound, timed_out = _found(placing, answers, master, started, time_limit_s, SEARCH_PART, 0.0)
    steps = _dived(answers, master, started, time_limit_s)
    if timed_out:
        master.keep(np.zeros(0))
        given = started, time_limit_s, 1.0, TURN_PART
        closer, timed_out = _found(placing, answers, master, *given)
        bound = max(bound, closer)
    if placing.aim == "fewest-cards":
        # Cards come whole, and a job that waits costs a whole number of them.
        bound = math.ceil(bound - ROUNDING)
    left_s = time_limit_s - SEATING_S - (time.monotonic() - started)
    used = _used(master, finished(master, steps, left_s, NEAR))
    if not _take_out_spare(answers, used):
        master = master.without_spare(used)
        used = _used(master, _dived(answers, master, started, time_limit_s)[-1])
    _seat_waiting(answers, used, master.waiting_costs, started + time_limit_s + SEATING_S)
    return _plan(placing, used, master.waiting_costs, bound, timed_out=timed_out)


def _found(
    placing: Placing,
    answers: list[SetAnswers],
    master: Master,
    started: float,
    time_limit_s: float,
    most: float,
    takes: float,
) -> tuple[float, bool]:
    """Add sets to the master; what no plan can be better than, and whether the time ended it.

    `most` is the part of the time after which it ends, `takes` that of the first turn.
    """
    least = _least(master)
    bound, cost, closely = 0.0, math.inf, False
    while (part := _part(started, time_limit_s)) + takes <= most or not (bound or takes):
        before, (cost, duals) = cost, master.solve()
        closely |= cost > (1 - WORTHWHILE) * before or part > SEARCH_PART / 2
        enough = NEAR / 2 * cost / sum(pool.gpus for pool in placing.pools)
        searches = _searches(answers, duals, closely=closely)
        found = [search.all(least, enough) for search in searches]
        bound = max(bound, LEAST_GAIN * cost, _bound(placing, duals, found))
        new = master.add(one for of_pool in found for one in of_pool.sets)
        if bound >= (1 - NEAR) * cost or (closely and not new):
            return bound, False
        takes = min(_part(started, time_limit_s) - part, TURN_PART)
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


def _searches(answers: list[SetAnswers], duals: Floats, *, closely: bool) -> list[SetSearch]:
    kinds = len(answers[0].placing.kinds)
    return [
        SetSearch(a, duals[:kinds], float(duals[kinds + a.number]), closely=closely)
        for a in answers
    ]


def _bound(placing: Placing, duals: Floats, found: list[Found]) -> float:
    """No plan costs less than jobs and cards are worth, if every card gained all that a set could.

    Where each set costs one card, the values may be lowered until none gains anything, which is
    less (A. Farley, "A note on bounding a class of linear programming problems", Operations
    Research 38(5), 1990).
    """
    gpus = np.array([pool.gpus for pool in placing.pools])
    most = np.array([of.most for of in found])
    worth = float(duals @ np.append(placing.counts, gpus))
    bound = worth - float(gpus @ most)
    return max(bound, worth / (1 + most.max())) if placing.aim == "fewest-cards" else bound


def _dived(
    answers: list[SetAnswers], master: Master, started: float, time_limit_s: float
) -> list[Floats]:
    """Whole cards of each set."""

    def look(duals: Floats, left: Floats) -> None:
        for of_pool in answers:
            of_pool.leave(left)
        for search in _searches(answers, duals, closely=False):
            master.add(search.all(least, math.inf).sets)

    def left_s() -> float:
        return time_limit_s - (time.monotonic() - started)

    least = _least(master)
    steps = dived(master, look, left_s, NEAR)
    for of_pool in answers:
        of_pool.leave(master.placing.counts)
    return steps


def _used(master: Master, cards: Floats) -> Counter[PlacedSet]:
    """How many whole cards have each set."""
    return Counter({one: int(n) for one, n in zip(master.sets, cards, strict=False) if n > 0})


def _least(master: Master) -> float:
    """What a set gains at least that is worth a column."""
    return LEAST_GAIN * max(one.cost for one in master.sets if len(one.kinds) <= ADVISED_JOBS)


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


def _seat_waiting(
    answers: list[SetAnswers],
    used: Counter[PlacedSet],
    waiting_costs: Sequence[float],
    until: float,
) -> None:
    """Those that wait, the dearest first, while there is time and a seat for them."""
    seated, seats = _seated(used), list[SeatSearch]()
    order = sorted(range(len(waiting_costs)), key=lambda kind: -waiting_costs[kind])
    for kind in order:
        for _ in range(answers[0].placing.kinds[kind].count - seated[kind]):
            seats = seats or [SeatSearch(of_pool, used) for of_pool in answers]
            changes = filter(None, (of_pool.for_one_more(kind) for of_pool in seats))
            change = min(changes, key=lambda change: change.more, default=None)
            if change is None or change.more >= waiting_costs[kind] or time.monotonic() > until:
                break
            used.subtract(change.before)
            used.update(change.after)
            used += Counter()
            seats = []


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
