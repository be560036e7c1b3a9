"""The master program: how many cards have each set, so that every job has a seat, at least cost."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import highspy
import numpy as np

from advisor.place.running import PlacedSet, Placing
from advisor.predict.profiles import Floats

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
        """How many jobs of each kind wait, and cards of each set; the best found in the time."""
        count = self._program.getNumCol()
        kinds = np.array([highspy.HighsVarType.kInteger] * count)
        self._program.changeColsIntegrality(count, np.arange(count, dtype=np.int32), kinds)
        for name, value in {"time_limit": time_limit_s, "mip_rel_gap": gap}.items():
            self._program.setOptionValue(name, value)
        self._program.run()
        return np.rint(np.array(self._program.getSolution().col_value, dtype=np.float64))

    def _column(self, cost: float, rows: Mapping[int, float]) -> None:
        order = sorted(rows)
        values = np.array([rows[row] for row in order])
        self._program.addCol(
            cost, 0.0, highspy.kHighsInf, len(order), np.array(order, np.int32), values
        )
