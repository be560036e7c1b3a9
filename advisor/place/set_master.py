"""The master program: how many cards have each set, so that every job has a seat, at least cost."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import highspy
import numpy as np

from advisor.place.running import PlacedSet, Placing
from advisor.predict.profiles import Floats

MOST_COLUMNS = 6000
"""Sets, and kinds that wait, of which whole cards are made; jobs alone always are."""

ROUNDING = 1e-6
"""Of a card, is none."""

BATCH_WAITS, SERVER_WAITS = 3.0, 30.0
"""Cost of a job that has no seat, for each 1 of the dearest alone: servers go first, also before
the seven jobs that a card may have in the place of one."""


@dataclass(slots=True, eq=False)
class Master:
    """A linear program to which sets are added: a row for each kind, and one for each pool."""

    placing: Placing
    sets: list[PlacedSet] = field(default_factory=list[PlacedSet])
    waiting_costs: list[float] = field(default_factory=list[float])
    _program: highspy.Highs = field(default_factory=highspy.Highs)

    def __post_init__(self) -> None:
        for name, value in {"output_flag": False, "threads": 1}.items():
            self._program.setOptionValue(name, value)
        for count in self.placing.counts:
            self._program.addRow(count, count, 0, np.array([], np.int32), np.array([]))
        for pool in self.placing.pools:
            self._program.addRow(
                -highspy.kHighsInf, pool.gpus, 0, np.array([], np.int32), np.array([])
            )

    def wait(self, dearest: float) -> None:
        """Let each kind wait; call it once, before sets are added.

        `dearest` is what the dearest job alone costs.
        """
        self.waiting_costs = [
            dearest * (SERVER_WAITS if kind.is_server else BATCH_WAITS)
            for kind in self.placing.kinds
        ]
        for row, cost in enumerate(self.waiting_costs):
            self._column(cost, {row: 1.0})

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

    def whole(self, time_limit_s: float, gap: float) -> Floats:
        """How many jobs of each kind wait, and cards of each set; the best found in the time.

        Where none is found, the whole cards among the parts are dealt, and the rest waits.
        """
        self._program.run()
        solution, count = self._program.getSolution(), self._program.getNumCol()
        least = np.floor(np.array(solution.col_value, dtype=np.float64) + ROUNDING)
        # Sets that the parts of cards are far from using are of no use in whole cards.
        order = np.argsort(np.array(solution.col_dual), kind="stable")
        most = np.full(count, highspy.kHighsInf)
        most[order[MOST_COLUMNS:]] = 0
        alone = [True] * len(self.placing.kinds) + [len(one.kinds) == 1 for one in self.sets]
        most[np.array(alone)] = highspy.kHighsInf
        columns = np.arange(count, dtype=np.int32)
        self._program.changeColsBounds(count, columns, np.zeros(count), most)
        kinds = np.array([highspy.HighsVarType.kInteger] * count)
        self._program.changeColsIntegrality(count, columns, kinds)
        options = {"time_limit": self._program.getRunTime() + time_limit_s, "mip_rel_gap": gap}
        for name, value in options.items():
            self._program.setOptionValue(name, value)
        self._program.run()
        status = self._program.getInfo().primal_solution_status
        if status != highspy.SolutionStatus.kSolutionStatusFeasible:
            return self._rest_waits(least)
        return np.rint(np.array(self._program.getSolution().col_value, dtype=np.float64))

    def _rest_waits(self, chosen: Floats) -> Floats:
        """These cards, and no others."""
        kinds = len(self.placing.kinds)
        seated = np.zeros(kinds)
        for one, cards in zip(self.sets, chosen[kinds:], strict=True):
            np.add.at(seated, list(one.kinds), cards)
        return np.append(self.placing.counts - seated, chosen[kinds:])

    def _column(self, cost: float, rows: Mapping[int, float]) -> None:
        order = sorted(rows)
        values = np.array([rows[row] for row in order])
        self._program.addCol(
            cost, 0.0, highspy.kHighsInf, len(order), np.array(order, np.int32), values
        )
