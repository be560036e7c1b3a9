"""What room a set has for other jobs, and which bring most in it: knapsacks.

A server has what the others do not take (`set_law.room`), or an equal part of the GPU. And all jobs
of a set use `BUSIEST` of the SMs together at most, who wants little first (`set_law.room_in`): so
each must be able to get as much as the server that needs most. No job counts for more than that,
and the one that wants most for all of it.
"""

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from advisor.core.split import MOST_JOBS
from advisor.place.options import Ints
from advisor.place.sets.answers import SetAnswers
from advisor.predict.features import Float32s
from advisor.predict.profiles import Floats
from advisor.predict.set_law import BUSIEST, HELD, SPEED_ERRORS, TAKEN
from advisor.predict.sets import SURE_OF_BUSIEST

SURE = 1e-7
"""Of the SMs, is none."""

LEVELS = 4
"""Parts of the SMs that a server must be able to get, for which there are knapsacks."""

CELLS = 10_000
"""Of the room of each."""

BEST_LOW = max(low for low, _ in SPEED_ERRORS.values())
"""The low end of a speed, for each 1, is no higher than this."""

Seats: TypeAlias = tuple[Ints, Ints]
"""Kinds of jobs, shape (sets, seats), and the level of each set, (sets, 1)."""


@dataclass(frozen=True, slots=True, eq=False)
class Knapsacks:
    """Of some jobs, any of them several times.

    Each takes a whole number of cells, rounded down: no set is said to bring too little.

    Attributes:
        values: What each brings, shape (regimes, jobs, steps, 1).
        taken: Cells of each, shape (jobs,).
        cell: Room of one.
        cells: How many there are.
    """

    values: Float32s
    taken: Ints
    cell: float
    cells: int
    _known: dict[tuple[int, int], Float32s] = field(default_factory=dict[tuple[int, int], Float32s])

    def most(self, least: int, number: int, room: Floats) -> Floats:
        """What at least, and at most so many bring; shape (regimes, sets, steps), as room."""
        table = self._filled(least, number)
        found = table[:, np.arange(table.shape[1]), self._cells(room)]
        return np.where(room >= -SURE, found, -np.inf)

    def most_at(self, number: int, room: Floats, step: Ints) -> Floats:
        """What at most so many bring in the first regime, each in its step; room (sets, jobs)."""
        found = self._filled(0, number)[0][step[:, None], self._cells(room)]
        return np.where(room >= -SURE, found, -np.inf)

    def _cells(self, room: Floats) -> Ints:
        return np.clip(np.minimum(room / self.cell + 1e-6, self.cells), 0, None).astype(np.int64)

    def _filled(self, least: int, number: int) -> Float32s:
        """Shape (regimes, steps, cells + 1)."""
        if (least, number) not in self._known:
            self._known[least, number] = self._with_one_more(least, number)
        return self._known[least, number]

    def _with_one_more(self, least: int, number: int) -> Float32s:
        regimes, _, steps, _ = self.values.shape
        if not number:
            return np.zeros((regimes, steps, self.cells + 1), dtype=np.float32)
        before = self._filled(max(0, least - 1), number - 1)
        most = np.full_like(before, -np.inf) if least else before.copy()
        for job, taken in enumerate(self.taken.tolist()):
            if taken <= self.cells:
                with_it = before[..., : self.cells + 1 - taken] + self.values[:, job]
                np.maximum(most[..., taken:], with_it, out=most[..., taken:])
        return most


def knapsacks(values: Floats, sizes: Floats, most_room: float, cells: int) -> Knapsacks:
    """Of values (regimes, jobs, steps) and sizes (jobs,); no room is larger than the most."""
    cell = max(most_room, SURE) / cells
    taken = np.floor(sizes / cell).astype(np.int64)
    return Knapsacks(values.astype(np.float32)[..., None], taken, cell, cells)


class BesideServers:
    """Of one pool."""

    def __init__(self, answers: SetAnswers, joining: Ints) -> None:
        """`joining` are the kinds of jobs that may join."""
        self._alone = alone = answers.many.alone
        self._wanted = alone.wanted[joining, 0]
        served, sure, floors = alone.served[:, 0] > 0, answers.sure, answers.floors
        lows = np.array([SPEED_ERRORS[name][0] for name in ("no filling", "held", "filling")])
        needs = floors / np.where(sure, lows[:, None], 1.0)
        parts = np.where(served, needs / np.maximum(alone.most[:, 0], 1e-9), 0.0)
        # Of the GPU, all jobs may need together; and so many have equal parts that are enough.
        self._together = np.where(parts > 0, alone.needed[:, 0] + (1 - parts) / TAKEN, np.inf)
        self._equal = np.floor(1 / np.maximum(parts, 1 / MOST_JOBS) + SURE).astype(np.int64)
        self._equal[parts <= 1 / MOST_JOBS] = MOST_JOBS
        # Sure of its speed is a server that is sure of its part of the SMs.
        busy = floors / np.where(sure, max(BEST_LOW, SURE_OF_BUSIEST), 1.0)
        must_have = busy[:, None] * alone.wanted / np.maximum(alone.rate, 1e-9)
        self._must_have = np.where(alone.served > 0, must_have, 0.0)
        least = self._must_have.min(initial=np.inf, where=self._must_have > 0)
        for_each = alone.sm[joining, 0] / np.maximum(np.minimum(self._wanted, least), SURE)
        self._for_each = float(for_each.max(initial=1.0))
        self.totals = sorted({MOST_JOBS, *self._equal.ravel().tolist()})
        self._knapsacks: list[tuple[float, Knapsacks]] = []

    def fill(self, values: Floats) -> None:
        """The knapsacks, with what they bring; shape (regimes, joining)."""
        needed = np.unique(self._must_have[self._must_have > 0])
        chosen = np.linspace(0, len(needed) - 1, min(len(needed), LEVELS)).astype(np.int64)
        self._knapsacks = [
            (
                least,
                knapsacks(values[..., None], np.minimum(self._wanted, least), BUSIEST.value, CELLS),
            )
            for least in np.unique(needed[chosen]).tolist()
        ]

    def room(self, seats: Seats, total: int) -> Floats:
        """What they may want, in sets of so many jobs in all; shape (sets,)."""
        return np.minimum(self.needed(seats, total), self.busy_room(seats) * self._for_each)

    def needed(self, seats: Seats, total: int) -> Floats:
        """What all that join may need (`JobsAlone.needed`) there; shape (sets,)."""
        alone, rows = self._alone, seats[0]
        beside = (alone.sm * alone.fills)[seats].sum(axis=1)
        of_class = np.where(beside == 0, 0, np.where(beside < HELD, 1, 2))[:, None]
        limited = self._equal[of_class, rows] < total
        together = np.where(limited, self._together[of_class, rows], np.inf).min(axis=1)
        left: Floats = together - alone.needed[seats].sum(axis=1)
        return left

    def busy_room(self, seats: Seats) -> Floats:
        """What they may count for; infinite where there is no server; shape (sets,)."""
        wanted, must_have = self._alone.wanted[seats], self.must_have(seats)
        left = BUSIEST.value - np.minimum(wanted, must_have[:, None]).sum(axis=1)
        # A job that joins wants most only where it gets it.
        top, joining = wanted.max(axis=1), float(self._wanted.max(initial=0.0))
        top = np.maximum(top, np.where(left >= must_have - SURE, joining, 0.0))
        return np.where(must_have > 0, left - np.maximum(0.0, must_have - top), np.inf)

    def must_have(self, seats: Seats) -> Floats:
        """Of the SMs, each job must be able to get; shape (sets,)."""
        most: Floats = self._must_have[seats].max(axis=1)
        return most

    def most(self, seats: Seats, least: int, number: int) -> Floats:
        """What they bring at most; shape (regimes, sets)."""
        must_have, room = self.must_have(seats), self.busy_room(seats)
        found = np.full((1, len(room)), np.inf)
        for level, sacks in self._knapsacks:
            told = sacks.most(least, number, room[:, None])[..., 0]
            found = np.where(must_have >= level, told, found)
        return found

    def next(self, seats: Seats, number: int) -> Floats:
        """What each of them leaves to so many others; shape (sets, joining)."""
        must_have = self.must_have(seats)[:, None]
        room = self.busy_room(seats)[:, None] - np.minimum(self._wanted, must_have)
        found = np.full(room.shape, np.inf)
        step = np.zeros(len(room), dtype=np.int64)
        for level, sacks in self._knapsacks:
            found = np.where(must_have >= level, sacks.most_at(number, room, step), found)
        return found
