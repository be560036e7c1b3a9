"""The master program: how many cards have each set, so that every job has a seat, at least cost."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import highspy
import numpy as np

from advisor.place.running import PlacedSet, Placing
from advisor.predict.profiles import Floats

MOST_COLUMNS = 2000
"""Sets, and kinds that wait, of which whole cards are made; jobs alone always are."""

KEPT = (0.0, 0.03)
"""Of the cards, for the jobs that are left where sets have got whole cards."""

ROUNDING = 1e-6
"""Of a card, is none."""

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

    def __post_init__(self) -> None:
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

    @property
    def used(self) -> list[PlacedSet]:
        """Sets that have cards, or parts of them."""
        cards = np.array(self._program.getSolution().col_value)[len(self.waiting_costs) :]
        return [self.sets[place] for place in np.flatnonzero(cards > ROUNDING).tolist()]

    def whole(self, time_limit_s: float, gap: float) -> Floats:
        """How many jobs of each kind wait, and cards of each set; the best found in the time."""
        self._program.run()
        count = self._program.getNumCol()
        # Sets that the parts of cards are far from using are of no use in whole cards.
        order = np.argsort(np.array(self._program.getSolution().col_dual), kind="stable")
        most = np.full(count, highspy.kHighsInf)
        most[order[MOST_COLUMNS:]] = 0
        alone = [True] * len(self.placing.kinds) + [len(one.kinds) == 1 for one in self.sets]
        most[np.array(alone)] = highspy.kHighsInf
        started = self._program.getRunTime()
        dealt = self._dealt(most)
        self._bound_columns(np.zeros(count), most)
        kinds = np.array([highspy.HighsVarType.kInteger] * count)
        self._program.changeColsIntegrality(count, np.arange(count, dtype=np.int32), kinds)
        first = highspy.HighsSolution()
        first.col_value = dealt.tolist()
        self._program.setSolution(first)
        options = {"time_limit": started + time_limit_s, "mip_rel_gap": gap}
        for name, value in options.items():
            self._program.setOptionValue(name, value)
        self._program.run()
        status = self._program.getInfo().primal_solution_status
        if status != highspy.SolutionStatus.kSolutionStatusFeasible:
            return dealt
        found = np.rint(np.array(self._program.getSolution().col_value, dtype=np.float64))
        return min(dealt, found, key=self._cost)

    def _dealt(self, most: Floats) -> Floats:
        """Whole cards by parts of cards, with some kept for the last jobs; the best of a few."""
        found: list[Floats] = []
        for kept in KEPT:
            least = np.zeros_like(most)
            for part in (kept, 0.0):
                self._bound_pools(1 - part)
                least[: len(self.waiting_costs)] = 0.0
                least = self._rounded(least, most.copy())
            found.append(least)
        return min(found, key=self._cost)

    def _rounded(self, least: Floats, most: Floats) -> Floats:
        """One after the other that set which has most of a card gets all of it."""
        row = 0
        while True:
            self._bound_columns(least, most)
            self._program.run()
            if self._program.getModelStatus() != highspy.HighsModelStatus.kOptimal:
                least[row] -= 1
                most[row] = least[row]
                continue
            cards = np.array(self._program.getSolution().col_value, dtype=np.float64)
            least = np.floor(cards + ROUNDING)
            part = cards - least
            if part.max() <= ROUNDING:
                return least
            row = int(part.argmax())
            least[row] += 1

    def _cost(self, cards: Floats) -> float:
        costs = [*self.waiting_costs, *(one.cost for one in self.sets)]
        return float(np.array(costs) @ cards)

    def _let_wait(self, costs: Iterable[float]) -> None:
        self.waiting_costs = list(costs)
        for row, cost in enumerate(self.waiting_costs):
            self._column(cost, {row: 1.0})

    def _bound_pools(self, part: float) -> None:
        for number, pool in enumerate(self.placing.pools):
            row = len(self.placing.kinds) + number
            self._program.changeRowBounds(row, -highspy.kHighsInf, np.floor(pool.gpus * part))

    def _bound_columns(self, least: Floats, most: Floats) -> None:
        count = len(least)
        self._program.changeColsBounds(count, np.arange(count, dtype=np.int32), least, most)

    def _column(self, cost: float, rows: Mapping[int, float]) -> None:
        order = sorted(rows)
        values = np.array([rows[row] for row in order])
        self._program.addCol(
            cost, 0.0, highspy.kHighsInf, len(order), np.array(order, np.int32), values
        )
