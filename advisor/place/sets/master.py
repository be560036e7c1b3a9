"""The master program: how many cards have each set, so that every job has a seat, at least cost.

Whole cards are found by a dive that goes on looking for sets, then a program. What is left when
sets have the whole ones of their cards are one or two jobs of each kind, and few of the sets known
have seats for no others. So sets are looked for among the jobs that are left while more cards are
kept (C. Joncour et al., "Column generation based primal heuristics", Electronic Notes in Discrete
Mathematics 36, 2010).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import highspy
import numpy as np

from advisor.place.sets.placing import PlacedSet, Placing
from advisor.predict.profiles import Floats

AT_ONCE = (4, 2, 1)
"""Sets that are kept before others are looked for, those that have half of a card and the first:
fewer while there is time and cards are far from their parts."""

LOOKS, WORTHWHILE = 2, 2e-4
"""How often sets are looked for at most, and the part of the cost that another time must save."""

ROUNDING = 1e-6
"""Of a card, is none."""

LAST_S = 0.5
"""Of the time, for the program."""

LAST_CARDS = 30
"""That the program may give to other sets than the dive did."""

BATCH_WAITS, SERVER_WAITS = 3.0, 30.0
"""Cost of a job that has no seat, for each 1 of the dearest alone: servers go first, also before
the seven jobs that a card may have in the place of one."""


@dataclass(slots=True, eq=False)
class Master:
    """A linear program to which sets are added: a row for each kind, and one for each pool.

    Attributes:
        spare: Whether sets may have seats for more jobs than there are: no set is cheaper for a
            further job, and whole cards are found sooner so.
    """

    placing: Placing
    spare: bool = True
    sets: list[PlacedSet] = field(default_factory=list[PlacedSet])
    waiting_costs: list[float] = field(default_factory=list[float])
    _program: highspy.Highs = field(default_factory=highspy.Highs)
    _seated: Floats = field(init=False)

    def __post_init__(self) -> None:
        self._seated = np.zeros((0, len(self.placing.kinds)))
        for name, value in {"output_flag": False, "threads": 1}.items():
            self._program.setOptionValue(name, value)
        for count in self.placing.counts:
            most = highspy.kHighsInf if self.spare else count
            self._program.addRow(count, most, 0, np.array([], np.int32), np.array([]))
        for pool in self.placing.pools:
            self._program.addRow(
                -highspy.kHighsInf, pool.gpus, 0, np.array([], np.int32), np.array([])
            )

    def wait(self, dearest: float) -> None:
        """Let each kind wait; call it once, before sets are added.

        `dearest` is what the dearest job alone costs.
        """
        self._let_wait(
            dearest * (SERVER_WAITS if kind.is_server else BATCH_WAITS)
            for kind in self.placing.kinds
        )

    def without_spare(self, more: Iterable[PlacedSet]) -> "Master":
        """The same, and some more sets, with no more seats than there are jobs."""
        exact = Master(self.placing, spare=False)
        exact._let_wait(self.waiting_costs)
        exact.add((*self.sets, *more))
        return exact

    def add(self, sets: Iterable[PlacedSet]) -> int:
        """How many of them are new."""
        known, before = set(self.sets), len(self.sets)
        for one in dict.fromkeys(sets):
            if one not in known:
                rows = {kind: float(one.kinds.count(kind)) for kind in set(one.kinds)}
                self._column(one.cost, rows | {len(self.placing.kinds) + one.pool: 1.0})
                self.sets.append(one)
        return len(self.sets) - before

    def solve(self) -> tuple[float, Floats]:
        """Least cost where cards may be cut in parts, and what rows are worth; shape (rows,)."""
        self._program.run()
        return self._program.getInfo().objective_function_value, np.array(
            self._program.getSolution().row_dual
        )

    def cards(self) -> Floats:
        """Of each set, parts of cards or whole ones, as solved last; shape (sets,)."""
        return np.array(self._program.getSolution().col_value)[len(self.waiting_costs) :]

    def left(self, cards: Floats) -> Floats:
        """Jobs of each kind without a seat, where sets have these cards."""
        return np.maximum(0.0, self.placing.counts - cards @ self.seats[: len(cards)])

    def keep(self, cards: Floats) -> None:
        """These at least; and of each set no more than those that are left have jobs for."""
        seats = self.seats
        least = np.append(cards, np.zeros(len(seats) - len(cards)))
        having = np.where(seats > 0, self.left(least) // np.maximum(seats, 1.0), np.inf)
        wait = len(self.waiting_costs)
        self._bound_columns(
            np.append(np.zeros(wait), least),
            np.append(np.full(wait, highspy.kHighsInf), least + having.min(axis=1)),
        )

    def whole(self, time_limit_s: float, gap: float, start: Floats | None = None) -> Floats:
        """Cards of each set, whole ones: the best found in the time, beginning with a solution."""
        count = self._program.getNumCol()
        kinds = np.array([highspy.HighsVarType.kInteger] * count)
        self._program.changeColsIntegrality(count, np.arange(count, dtype=np.int32), kinds)
        if start is not None:
            first = highspy.HighsSolution()
            first.col_value = [*self.left(start), *start, *[0.0] * (len(self.sets) - len(start))]
            self._program.setSolution(first)
        options = {"time_limit": self._program.getRunTime() + time_limit_s, "mip_rel_gap": gap}
        for name, value in options.items():
            self._program.setOptionValue(name, value)
        self._program.run()
        status = self._program.getInfo().primal_solution_status
        if start is not None and status != highspy.SolutionStatus.kSolutionStatusFeasible:
            return start
        return np.rint(self.cards())

    def cost(self, cards: Floats) -> float:
        """Of whole cards of each set, and of jobs that are left."""
        own = np.array([one.cost for one in self.sets[: len(cards)]])
        return float(own @ cards + self.left(cards) @ np.array(self.waiting_costs))

    @property
    def seats(self) -> Floats:
        """Of each set, how many jobs of each kind; shape (sets, kinds)."""
        new = np.zeros((len(self.sets) - len(self._seated), len(self.placing.kinds)))
        for row, one in enumerate(self.sets[len(self._seated) :]):
            for kind in one.kinds:
                new[row, kind] += 1
        self._seated = np.concatenate([self._seated, new])
        return self._seated

    def _let_wait(self, costs: Iterable[float]) -> None:
        self.waiting_costs = list(costs)
        for row, cost in enumerate(self.waiting_costs):
            self._column(cost, {row: 1.0})

    def _bound_columns(self, least: Floats, most: Floats) -> None:
        count = len(least)
        self._program.changeColsBounds(count, np.arange(count, dtype=np.int32), least, most)

    def _column(self, cost: float, rows: Mapping[int, float]) -> None:
        order = sorted(rows)
        values = np.array([rows[row] for row in order])
        self._program.addCol(
            cost, 0.0, highspy.kHighsInf, len(order), np.array(order, np.int32), values
        )


def dived(
    master: Master, look: Callable[[Floats, Floats], None], left_s: Callable[[], float], gap: float
) -> list[Floats]:
    """Whole cards of each set, more and more of them are kept; the last for all jobs that can be.

    Args:
        master: Solved.
        look: Adds sets to the master, by what rows are worth, of so many jobs of each kind.
        left_s: How much time is left.
        gap: From the best, at which whole cards are good enough.
    """
    (cost, _), best, steps = master.solve(), None, list[Floats]()
    for at_once in AT_ONCE:
        before_s = left_s()
        tried = _dive(master, look, left_s, at_once)
        if best is None or master.cost(tried[-1]) < master.cost(best):
            best, steps = tried[-1], tried
        near = master.cost(best) <= (1 + gap) * cost
        if near or before_s - left_s() > left_s() - LAST_S:
            break
    return steps


def finished(master: Master, steps: list[Floats], left_s: float, gap: float) -> Floats:
    """How many cards each set has: a program over the last of those that a dive has kept."""
    best = steps[-1]
    master.keep(next(kept for kept in steps if best.sum() - kept.sum() <= LAST_CARDS))
    if left_s <= 0:
        return best
    return min((master.whole(left_s, gap, best), best), key=master.cost)


def _dive(
    master: Master, look: Callable[[Floats, Floats], None], left_s: Callable[[], float], most: int
) -> list[Floats]:
    """Cards that are kept, more and more of them."""
    master.keep(np.zeros(0))
    master.solve()
    steps = [np.floor(master.cards() + ROUNDING)]
    while (left := master.left(steps[-1])).any():
        kept = steps[-1]
        # Without a look the last cards fit badly; so each takes one a little longer.
        looks = (left_s() > -LAST_S) + (LOOKS - 1) * (left_s() > 3 * LAST_S)
        _look_for_the_rest(master, kept, look, left, looks)
        more = _more(master, kept, most)
        if not more.any():
            break
        steps.append(np.append(kept, np.zeros(len(more) - len(kept))) + more)
    return steps


def _look_for_the_rest(
    master: Master, kept: Floats, look: Callable[[Floats, Floats], None], left: Floats, most: int
) -> None:
    """So many times at most, while that saves much."""
    before = np.inf
    for _ in range(most):
        master.keep(kept)
        cost, duals = master.solve()
        if cost > (1 - WORTHWHILE) * before:
            break
        before = cost
        look(duals, left)
    master.keep(kept)
    master.solve()


def _more(master: Master, kept: Floats, most: int) -> Floats:
    """Cards to keep, too: of those sets that have the largest parts, where jobs and GPUs are."""
    cards = master.cards()
    kept = np.append(kept, np.zeros(len(cards) - len(kept)))
    part, more, left = cards - kept, np.zeros_like(kept), master.left(kept)
    pools = np.array([one.pool for one in master.sets])
    free = np.array([pool.gpus for pool in master.placing.pools], dtype=float)
    free -= np.bincount(pools, kept, minlength=len(free))
    for row in np.argsort(-part, kind="stable")[:most].tolist():
        if part[row] < (0.5 if more.any() else ROUNDING):
            break
        cards_of = max(1.0, np.floor(part[row] + ROUNDING))
        if (cards_of * master.seats[row] <= left).all() and cards_of <= free[pools[row]]:
            more[row], left = cards_of, left - cards_of * master.seats[row]
            free[pools[row]] -= cards_of
    return more
