"""What a set could gain at most, with every job that may still join it.

Side by side all batch jobs of a set keep the same part of their speed, by how much of the GPU's
time they want together (`sets.SideBySide.crowded`). Where that time is given, what a set gains
is a sum over its jobs, and which of them bring most in the time that is left is a knapsack. So
times are cut into steps: of all steps that which says most is taken. What is left of the SMs, of
the DRAM, and of what servers must have are knapsacks of their own: that which says least is taken.

A server has what the others do not take (`sets.room`), or an equal part of the GPU. And all jobs
of a set use `BUSIEST` of the SMs together at most, who wants little first (`sets.room_in`): so
each must be able to get as much as the server that needs most. No job counts for more than that,
and the one that wants most for all of it.
"""

import copy
import functools
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from advisor.core.split import ADVISED_JOBS, MOST_JOBS
from advisor.placement.answers import SetAnswers, Sets
from advisor.placement.placing import Bools, Ints
from advisor.predict.features import Float32s
from advisor.predict.profiles import Floats
from advisor.predict.sets import BUSIEST, HELD, MPS, SPEED_ERRORS, SURE_OF_BUSIEST, TAKEN

SURE = 1e-7
"""Tolerance for fractions of the SMs."""

SERVER_LEVELS = 4
"""Parts of the SMs that a server must be able to get, for which there are knapsacks."""

SERVER_CELLS = 10_000
"""Of the room of each."""

BEST_LOW = max(low for low, _ in SPEED_ERRORS.values())
"""The low end of a speed, for each 1, is no higher than this."""

Seats: TypeAlias = tuple[Ints, Ints]
"""Kinds of jobs, shape (sets, seats), and the level of each set, (sets, 1)."""


@dataclass(frozen=True, slots=True, eq=False)
class _Knapsacks:
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


def _filled_knapsacks(values: Floats, sizes: Floats, most_room: float, cells: int) -> _Knapsacks:
    """Of values (regimes, jobs, steps) and sizes (jobs,); no room is larger than the most."""
    cell = max(most_room, SURE) / cells
    taken = np.floor(sizes / cell).astype(np.int64)
    return _Knapsacks(values.astype(np.float32)[..., None], taken, cell, cells)


def _least_needed(floors: Floats, low: Floats | float, weight: float) -> Floats:
    """Expected speed of a server, 1 for its demand and above where it could do more, for a floor.

    What it serves is at most its demand, while the low end follows what it could do.
    """
    return np.minimum(floors / low**weight, floors ** (1 / weight) / low) if weight else floors


class _BesideServers:
    """Of one pool."""

    def __init__(self, answers: SetAnswers, joining: Ints) -> None:
        """`joining` are the kinds of jobs that may join."""
        self._alone = alone = answers.many.alone
        self._wanted = alone.wanted[joining, 0]
        served, floors, weight = alone.served[:, 0] > 0, answers.floors, answers.weight
        lows = np.array([SPEED_ERRORS[name][0] for name in ("no filling", "held", "filling")])
        needs = _least_needed(floors, lows[:, None], weight)
        parts = np.where(served, needs / np.maximum(alone.most[:, 0], 1e-9), 0.0)
        # Of the GPU, all jobs may need together; and so many have equal parts that are enough.
        self._together = np.where(parts > 0, alone.needed[:, 0] + (1 - parts) / TAKEN, np.inf)
        self._equal = np.floor(1 / np.maximum(parts, 1 / MOST_JOBS) + SURE).astype(np.int64)
        self._equal[parts <= 1 / MOST_JOBS] = MOST_JOBS
        # Sure of its speed is a server that is sure of its part of the SMs.
        busy = _least_needed(floors, max(BEST_LOW, SURE_OF_BUSIEST), weight)
        must_have = busy[:, None] * alone.wanted / np.maximum(alone.rate, 1e-9)
        self._must_have = np.where(alone.served > 0, must_have, 0.0)
        least = self._must_have.min(initial=np.inf, where=self._must_have > 0)
        for_each = alone.sm[joining, 0] / np.maximum(np.minimum(self._wanted, least), SURE)
        self._for_each = float(for_each.max(initial=1.0))
        self.totals = sorted({MOST_JOBS, *self._equal.ravel().tolist()})
        self._knapsacks: list[tuple[float, _Knapsacks]] = []

    def fill(self, values: Floats) -> None:
        """The knapsacks, with what they bring; shape (regimes, joining)."""
        needed = np.unique(self._must_have[self._must_have > 0])
        chosen = np.linspace(0, len(needed) - 1, min(len(needed), SERVER_LEVELS)).astype(np.int64)
        self._knapsacks = [
            (
                least,
                _filled_knapsacks(
                    values[..., None], np.minimum(self._wanted, least), BUSIEST.value, SERVER_CELLS
                ),
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


STEPS, CLOSER = 16, 12
"""Of time, and parts of one of them where it is looked at closely."""

CELLS, MOST_CELLS = 96_000, 10_000
"""Of the room of a knapsack: for all steps together, and for each."""

NEVER = -1e9
"""Of the dearest job, what one brings that does not keep its floor."""

EXACT = 1e-5
"""Of the dearest job: values are added up in single precision."""

FLOORS = 16
"""Times that some job may want together at most, at which a step ends."""

CHUNK = 1024
"""Sets looked at together."""


class SetBound:
    """For sets that grow by servers, then by batch jobs that do not fill the GPU.

    Attributes:
        own: What a job of each kind is worth, and an empty seat; shape (kinds + 1,).
        servers: Kinds of servers, `light` those of the other jobs that join.
    """

    def __init__(self, answers: SetAnswers, worth: Floats, card_worth: float) -> None:
        """`worth` is by kind of the placing; `card_worth` of a card that stays free, 0 or less."""
        self._answers = answers
        placing, there = answers.placing, np.array(answers.there)
        self._alone = alone = answers.many.alone
        # Below a ceiling under the power limit no watts are cut off.
        held = answers.ceiling_w < answers.many.limit_w
        self._limit_w, self._per_w = np.inf if held else answers.many.limit_w, placing.per_w
        self._card_worth, self._card = card_worth, card_worth - placing.per_card
        self._dearest = float(max(placing.lag.max(), worth.max()))
        self._least_size = ADVISED_JOBS if answers.is_of_law(ADVISED_JOBS) else ADVISED_JOBS + 1
        lag = placing.lag[there]
        self.own = np.append(worth[there], 0.0)
        # Less what all of its work costs later, and that again for what is done.
        self._worth = np.append(worth[there] - lag, 0.0)
        self._lag = np.append(lag * placing.paces[answers.number, there], 0.0)
        joins = (alone.fills[:-1, 0] == 0) & (answers.counts[:-1] > 0)
        served = alone.served[:-1, 0] > 0
        self.servers, self.light = np.flatnonzero(joins & served), np.flatnonzero(joins & ~served)
        self._beside = _BesideServers(answers, self.light)
        self._floor = self._floors(answers)
        self._longest = self._most_wanted()
        self._by_time = bool(self._per_w or lag.any())
        cuts = self._cuts()
        self._first, self._end = cuts[:-1], cuts[1:]
        self._values = self._values_at_steps()
        self._with_light = self._knapsacks()
        self._beside.fill(self._values[:, self.light, 0].max(axis=-1))
        sm, dram = alone.sm[self.light, 0], alone.dram[self.light, 0]
        self._dram_for_each = float((dram / np.maximum(sm, SURE)).max(initial=1.0))

    def closer(self, steps: Bools) -> "SetBound":
        """Some of the steps, cut into shorter ones."""
        if not self._by_time:
            return self
        closer = copy.copy(self)
        cuts = np.linspace(self._first[steps], self._end[steps], CLOSER + 1)
        closer._first, closer._end = cuts[:-1].T.ravel(), cuts[1:].T.ravel()
        closer._values = closer._values_at_steps()
        closer._with_light = closer._knapsacks()
        return closer

    def of(self, sets: Sets) -> Floats:
        """Of sets with any batch jobs that do not fill, in each step; shape (sets, steps)."""
        gains = np.zeros((len(sets.size), len(self._first)))
        for size in np.unique(sets.size).tolist():
            of_size = np.flatnonzero(sets.size == size)
            for start in range(0, len(of_size), CHUNK):
                some = of_size[start : start + CHUNK]
                gains[some] = self._of(sets.rows[some], sets.level[some], size)
        return gains

    def next(self, sets: Sets, step: Ints) -> Floats:
        """What each batch job would bring, with those that may join after it; (sets, light)."""
        found = np.full((len(sets.size), len(self.light)), -np.inf)
        for size in np.unique(sets.size).tolist():
            some = np.flatnonzero(sets.size == size)
            found[some] = self._next(sets.rows[some], sets.level[some], size, step[some])
        return found

    def with_servers(self, sets: Sets) -> Floats:
        """With any servers, too: the most, less closely."""
        most = np.zeros(len(sets.size))
        for size in np.unique(sets.size).tolist():
            some = np.flatnonzero(sets.size == size)
            most[some] = self._with_servers(sets.rows[some], sets.level[some], size)
        return most

    def gains(self, sets: Sets) -> Floats:
        """Of sets as they are, by arrays alone."""
        worth: Floats = self.own[sets.rows].sum(axis=1)
        return worth + self._card_worth - self._answers.costs(sets)

    def _of(self, rows: Ints, level: Ints, size: int) -> Floats:
        alone, seats, beside = self._alone, (rows, level[:, None]), self._beside
        head = self._values[:, *seats].sum(axis=2)
        sm, dram = (of[seats].sum(axis=1)[:, None] for of in (alone.sm, alone.dram))
        longest = self._longest[seats].min(axis=1)[:, None]
        can = (self._end >= np.maximum(sm, dram) - SURE) & (self._first <= longest + SURE)
        until = np.minimum(self._end, longest)
        most, least = np.full(head.shape, -np.inf), max(0, self._least_size - size)
        for total in beside.totals:
            number = total - size
            if number < least:
                continue
            left = beside.room(seats, total)[:, None]
            room = np.minimum(until - sm, left)
            wanted = np.maximum(sm + left, dram + left * self._dram_for_each)
            joining = beside.most(seats, least, number)[..., None]
            for sacks, own in zip(
                self._with_light, (room, until - dram, (room + until - dram) / 2), strict=True
            ):
                joining = np.minimum(joining, sacks.most(least, number, own))
            joining = np.where(can & (self._first <= wanted + SURE), joining, -np.inf)
            most = np.maximum(most, head + joining)
        return self._gain(most, alone.power_w[seats].max(axis=1)[:, None])

    def _with_servers(self, rows: Ints, level: Ints, size: int) -> Floats:
        alone, seats, beside = self._alone, (rows, level[:, None]), self._beside
        sm, longest = alone.sm[seats].sum(axis=1), self._longest[seats].min(axis=1)
        head = self._values[:, *seats].sum(axis=2)
        can = (self._end >= sm[:, None] - SURE) & (self._first <= longest[:, None] + SURE)
        head = np.where(can, head, -np.inf).max(axis=-1)
        most, least = np.full(head.shape, -np.inf), max(0, self._least_size - size)
        for total in beside.totals:
            if (number := total - size) >= least:
                room = np.minimum(longest - sm, beside.needed(seats, total))[:, None]
                joining = np.minimum(
                    self._with_any.most(least, number, room)[..., 0],
                    self._beside_any.most(seats, least, number),
                )
                most = np.maximum(most, head + joining)
        return self._gain(most, alone.power_w[seats].max(axis=1))

    @functools.cached_property
    def _beside_any(self) -> _BesideServers:
        any_job = np.append(self.servers, self.light)
        beside = _BesideServers(self._answers, any_job)
        beside.fill(self._values[:, any_job, 0].max(axis=-1))
        return beside

    @functools.cached_property
    def _with_any(self) -> _Knapsacks:
        """Of servers and others, by what they need, which is no more than their activity."""
        any_job = np.append(self.servers, self.light)
        values = self._values[:, any_job, 0].max(axis=-1, keepdims=True)
        alone = self._alone
        sizes = np.minimum(alone.needed, alone.sm)[any_job, 0]
        return _filled_knapsacks(
            values, sizes, MOST_JOBS * float(sizes.max(initial=0.0)), MOST_CELLS
        )

    def _next(self, rows: Ints, level: Ints, size: int, step: Ints) -> Floats:
        alone, seats, beside = self._alone, (rows, level[:, None]), self._beside
        sm, dram = (of[seats].sum(axis=1) for of in (alone.sm, alone.dram))
        until = np.minimum(self._end[step], self._longest[seats].min(axis=1))
        room = np.minimum(until - sm, beside.room(seats, MOST_JOBS))[:, None]
        room, of_dram = (
            left - of[self.light, 0]
            for left, of in ((room, alone.sm), ((until - dram)[:, None], alone.dram))
        )
        number = MOST_JOBS - size - 1
        left = beside.next(seats, number)
        for sacks, own in zip(self._with_light, (room, of_dram, (room + of_dram) / 2), strict=True):
            left = np.minimum(left, sacks.most_at(number, own, step))
        return self._values[0, self.light, 0].T[step] + left

    def _gain(self, bound: Floats, hottest_w: Floats) -> Floats:
        """Less what card and watts cost: the sum of all, or the hottest job, or the power limit."""
        bound = bound + self._card + EXACT * self._dearest
        apart = bound[-1]
        if not self._per_w:
            return apart
        added = bound[0] - self._per_w * self._alone.idle_w[:-1].min()
        below = np.minimum(added, apart - self._per_w * hottest_w)
        return np.maximum(below, apart - self._per_w * self._limit_w)

    def _floors(self, answers: SetAnswers) -> Floats:
        """Part of its speed at a limit that each job must keep; 0 for servers."""
        needs = answers.floors / BEST_LOW**answers.weight
        alone = self._alone
        return np.where(alone.served > 0, 0.0, needs[:, None] / np.maximum(alone.rate, 1e-9))

    def _most_wanted(self) -> Floats:
        """By a set, with which each job keeps its floor; below 0: it does in none."""
        floor = self._floor
        most = np.where(floor > 0, MPS.wanted(np.clip(floor, 1e-3, 1.0)), np.inf)
        return np.where(floor > 1 + SURE, NEVER, most)

    def _cuts(self) -> Floats:
        """Where steps end: at equal parts of speed, and where jobs fall below a floor."""
        alone = self._alone
        all_of_it = MOST_JOBS * float(np.maximum(alone.sm, alone.dram).max())
        batch = self._longest[:-1][alone.served[:-1] == 0]
        most = max(float(np.minimum(batch, all_of_it).max(initial=0.0)), SURE)
        ends = MPS.wanted(np.linspace(1.0, _part(most), STEPS + 1 if self._by_time else 2))
        floors = np.unique(self._longest[self.light, 0])
        floors = floors[(floors > 0) & (floors < most)]
        few = np.linspace(0, len(floors) - 1, min(len(floors), FLOORS)).astype(np.int64)
        # Servers alone may want any time.
        return np.unique([0.0, *ends[1:-1], *floors[few], most, all_of_it + 1.0])

    def _values_at_steps(self) -> Floats:
        """What each job brings at most; shape (regimes, kinds + 1, levels, steps).

        In one regime each job adds its watts, in the other they are counted once for all.
        """
        alone = self._alone
        done = self._lag[:, None] * alone.rate
        drawn = self._per_w * np.maximum(0.0, alone.power_w - alone.idle_w)
        # A set draws the mean of what its cards draw idle: that of each job counts a seventh.
        idle = self._per_w * (alone.idle_w - alone.idle_w[:-1].min()) / MOST_JOBS
        kept_most = np.where(alone.served[..., None] > 0, 1.0, _part(self._first))
        kept_least = np.minimum(self._floor[..., None], _part(self._end))
        able = self._longest[..., None] >= self._first - SURE
        found: list[Floats] = []
        for each, less in ((done - drawn, idle), (done, np.zeros_like(idle))):
            kept = np.where(each[..., None] > 0, kept_most, kept_least)
            value = (self._worth[:, None] - less)[..., None] + each[..., None] * kept
            found.append(np.where(able, value, NEVER * self._dearest))
            found[-1][-1] = 0.0
        return np.array(found if self._per_w else found[1:])

    def _knapsacks(self) -> list[_Knapsacks]:
        """By SM activity, by DRAM activity, and by the mean of both."""
        sm, dram = self._alone.sm[self.light, 0], self._alone.dram[self.light, 0]
        most = float(self._longest[self.light, 0].max(initial=0.0))
        most = min(most, float(self._end[-1]))
        cells = min(MOST_CELLS, max(500, CELLS // len(self._first)))
        values = self._values[:, self.light, 0]
        return [_filled_knapsacks(values, of, most, cells) for of in (sm, dram, (sm + dram) / 2)]


def _part(times: Floats | float) -> Floats:
    """Of their speeds that jobs keep which want this much of a GPU."""
    wanted = np.asarray(times, dtype=np.float64)[None]
    return MPS.crowded(wanted, np.zeros_like(wanted))
