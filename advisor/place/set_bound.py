"""What a set could gain at most, with every job that may still join it.

Side by side all batch jobs of a set keep the same part of their speed, by how much of the GPU's
time they want together (`set_law.SideBySide.crowded`). Where that time is given, what a set gains
is a sum over its jobs. So times are cut into steps. In each of them a price is set on the time: no
set gains more than the jobs that bring most at that price, and a price for the time of the step. Of
all prices that which says least is taken, of all steps that which says most.

Every array of ends has one for the first and one for the last time of each step; what is between
them lies below the line between the two.
"""

from dataclasses import dataclass
from typing import TypeAlias, cast

import numpy as np

from advisor.core.split import MOST_JOBS
from advisor.place.many_sets import ManyAlone
from advisor.place.options import Ints
from advisor.place.problem import Bools
from advisor.place.set_busy import SURE, Busy
from advisor.predict.profiles import Floats
from advisor.predict.set_law import MPS

STEPS = 32
"""Of the time that jobs want together, from none to the most with which any keeps its floor."""

PRICES = np.concatenate([[0.0], np.geomspace(0.02, 4.0, 60)])
"""Of all the time of a GPU, for each 1 of the dearest job: those that are tried."""

LEFT = (1.0, 0.3, 0.08)
"""Parts of the time of a step that may be left for jobs that join: for each its best price."""

NEVER = -1e9
"""Of the dearest job, what one brings that does not keep its floor."""

CHUNK = 64
"""Sets looked at together."""

EXACT = 1e-5
"""Of the dearest job: prices and times are added up in single precision."""

Ends: TypeAlias = tuple[Floats, Floats]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SetWorth:
    """What jobs bring to a set; the last row is an empty seat.

    Attributes:
        worth: Of a job of each kind, none of whose work is done; shape (kinds + 1,).
        done: Of its work, at its speed alone at a limit; shape (kinds + 1, levels).
        drawn: Cost of the watts that it adds then.
        floor: Part of that speed that it must keep, above 1: it cannot; 0 for a server.
        together: Part of the GPU that jobs may need beside a server, with its own; infinite beside
            others; shape (kinds + 1,).
        must_have: Of the SMs what each job must be able to get beside a server; 0 for others.
        equal: So many jobs have an equal part of the GPU that is enough for every server.
        card: What a card costs less than one that stays free is worth, without watts.
        per_w: Cost of a watt.
        dearest: Of what a job brings, for the scale of prices.
    """

    worth: Floats
    done: Floats
    drawn: Floats
    floor: Floats
    together: Floats
    must_have: Floats
    equal: int
    card: float
    per_w: float
    dearest: float


class SetBound:
    """For sets that grow by servers, then by batch jobs that do not fill the GPU."""

    def __init__(self, many: ManyAlone, worth: SetWorth, joining: Ints) -> None:
        """`joining` are the kinds that sets grow by, servers first, then in their order."""
        self._alone, self._limit_w = many.alone, many.limit_w
        self._worth, self.joining = worth, joining
        self.servers = int(many.alone.served[joining, 0].sum())
        self._longest = np.where(
            worth.floor > 0, MPS.wanted(np.clip(worth.floor, 1e-3, 1.0)), np.inf
        )
        self._times = np.linspace(0.0, self._most_wanted(), STEPS + 1)
        self._values = self._values_at_ends()
        self._busy = Busy(many.alone, worth.must_have, joining)
        self._known: dict[int, tuple[Ends, Ends]] = {}

    def with_one_more(self, rows: Ints, level: Ints, last: Ints, size: int) -> Floats:
        """Of sets with each job that may join, none before the last; shape (sets, joining)."""
        most = np.full((len(rows), len(self.joining)), -np.inf)
        own, rest = self._priced(MOST_JOBS - size - 1)
        for start in range(0, len(rows), CHUNK):
            some = slice(start, start + CHUNK)
            seats = rows[some], level[some, None]
            first, end = (
                of[seats].sum(axis=1)[:, None] + of[self.joining, 0] + left[:-1]
                for of, left in zip(own, rest, strict=True)
            )
            wanted = np.maximum(
                self._with(seats, self._alone.sm), self._with(seats, self._alone.dram)
            )
            hottest_w = self._alone.power_w[seats].max(axis=1)[:, None]
            hottest_w = np.maximum(hottest_w, self._alone.power_w[self.joining, 0])
            bound = np.maximum(first, end, out=end).min(axis=-2)
            can = self._steps_between(wanted, self._until(seats, size + 1, wanted))
            bound = np.where(can[..., None, :], bound, -np.inf).max(axis=-1)
            most[some] = self._gain(bound, hottest_w)
        most[np.arange(len(self.joining)) < last[:, None]] = -np.inf
        return most

    def of(self, rows: Ints, level: Ints, last: Ints, size: int) -> Floats:
        """Of sets, and all that grow from them by jobs not before the last; shape (sets,)."""
        most = [np.zeros(0)]
        for start in range(0, len(rows), 8 * CHUNK):
            some = slice(start, start + 8 * CHUNK)
            given, together = (rows[some], level[some], last[some]), self._worth.together
            most.append(self._of(*given, MOST_JOBS - size, together))
            if size <= self._worth.equal and self.servers:
                # Small sets need not leave servers what they need.
                small = self._of(*given, self._worth.equal - size, np.full_like(together, np.inf))
                most[-1] = np.maximum(most[-1], small)
        return np.concatenate(most)

    def _of(self, rows: Ints, level: Ints, last: Ints, free: int, most_together: Floats) -> Floats:
        """For each number of servers that may join, as many as their needs allow."""
        alone, seats, servers = self._alone, (rows, level[:, None]), self.joining[: self.servers]
        sm, needed, hottest_w = (
            alone.sm[seats].sum(axis=1),
            alone.needed[seats].sum(axis=1),
            alone.power_w[seats].max(axis=1),
        )
        wanted = np.maximum(sm, alone.dram[seats].sum(axis=1))
        together, longest = most_together[rows].min(axis=1), self._longest[seats].min(axis=1)
        found = np.full(len(rows), -np.inf)
        for more in range(free + 1):
            if more:
                together = np.minimum(together, most_together[servers].max())
                together = np.where(last < self.servers, together, -np.inf)
                needed, sm = (
                    needed + alone.needed[servers, 0].min(),
                    sm + alone.sm[servers, 0].max(),
                )
            can = together - needed >= -SURE
            if not can.any():
                break
            own, rest = self._priced(free - more)
            # No job before the last of them joins, and servers come before all others.
            ends = [
                of[seats].sum(axis=1)
                + left[np.maximum(last, self.servers)]
                + (more * of[servers, 0].max(axis=0) if more else 0)
                for of, left in zip(own, rest, strict=True)
            ]
            busy = self._busy.with_servers(seats, sm, last, self.servers, more)
            can &= busy >= 0
            until = np.minimum(busy, sm + np.maximum(0.0, together - needed))
            until = np.minimum(longest, np.maximum(wanted, until))
            bound = np.where(can[:, None], self._between(ends[0], ends[1], wanted, until), -np.inf)
            found = np.maximum(found, self._gain(bound, hottest_w))
            if not self.servers:
                break
        return found

    def _with(self, seats: tuple[Ints, Ints], values: Floats) -> Floats:
        """Of each set and each job that joins it, added up; shape (sets, joining)."""
        added: Floats = values[seats].sum(axis=1)[:, None] + values[self.joining, 0]
        return added

    def _until(self, seats: tuple[Ints, Ints], size: int, wanted: Floats) -> Floats:
        """The most time that each set with one more job may want; shape (sets, joining)."""
        longest = np.minimum(
            self._longest[seats].min(axis=1)[:, None], self._longest[self.joining, 0]
        )
        sm, needed = (self._with(seats, of) for of in (self._alone.sm, self._alone.needed))
        left = self._worth.together[seats[0]].min(axis=1)[:, None] - needed
        until = sm + np.maximum(0.0, left)
        # Another server may want more time than it needs.
        until[:, : self.servers if size > self._worth.equal else None] = np.inf
        busy = self._busy.with_one_more(seats, sm)
        until = np.minimum(longest, np.maximum(wanted, np.minimum(until, busy)))
        return np.where(busy < 0, busy, until)

    def _steps_between(self, wanted: Floats, until: Floats) -> Bools:
        """Which steps have a time between the two; shape (..., steps)."""
        return (wanted[..., None] <= self._times[1:] + SURE) & (
            self._times[:-1] <= until[..., None] + SURE
        )

    def _between(self, first: Floats, end: Floats, wanted: Floats, until: Floats) -> Floats:
        """The most over all times between the two; ends (sets, regimes, prices, steps)."""
        starts, widths = self._times[:-1], np.diff(self._times)
        part = [
            np.clip((time[:, None] - starts) / widths, 0, 1)[:, None, None]
            for time in (wanted, until)
        ]
        end -= first
        bound = (first + np.maximum(end * part[0], end * part[1])).min(axis=-2)
        can = self._steps_between(wanted, until)[:, None]
        return np.where(can, bound, -np.inf).max(axis=-1)

    def _gain(self, bound: Floats, hottest_w: Floats) -> Floats:
        """Less what card and watts cost: the sum of all, or the hottest job, or the power limit."""
        worth = self._worth
        bound = bound + worth.card + EXACT * worth.dearest
        apart = bound[..., -1]
        if not worth.per_w:
            return apart
        added = bound[..., 0] - worth.per_w * self._alone.idle_w[:-1].min()
        below = np.minimum(added, apart - worth.per_w * hottest_w)
        return np.maximum(below, apart - worth.per_w * self._limit_w)

    def _most_wanted(self) -> float:
        """Of all sets: by the batch job that may be slowed down most, and by what servers need."""
        alone, served = self._alone, self._alone.served[:-1, 0] > 0
        active = np.maximum(alone.sm, alone.dram)[:-1, 0]
        most = MOST_JOBS * active.max()
        batch = self._longest[:-1][~served].max(initial=0.0)
        if not served.any():
            return float(min(most, batch))
        more = (active / np.maximum(alone.needed[:-1, 0], SURE))[served].max()
        beside = self._worth.together[:-1][served].max() * max(1.0, more)
        return float(min(most, max(batch, beside, self._worth.equal * active.max())))

    def _values_at_ends(self) -> Ends:
        """What each job brings; two of shape (regimes, kinds + 1, levels, steps).

        In one regime each job adds its watts, in the other they are counted once for all.
        """
        worth, times = self._worth, self._times
        served = self._alone.served[..., None] > 0
        parts, floor = _part(times), worth.floor[..., None]
        over = _over_chord(times)
        able = self._longest[..., None] >= times[:-1] - SURE
        ends: list[Floats] = []
        for part in (np.minimum(1.0, parts[:-1] + over), parts[1:] + over):
            values: list[Floats] = []
            for done in (worth.done - worth.drawn, worth.done):
                kept = np.where(served, 1.0, part)
                kept = np.where(done[..., None] > 0, kept, np.minimum(kept, floor))
                value = worth.worth[:, None, None] + done[..., None] * kept
                values.append(np.where(able, value, NEVER * worth.dearest))
                values[-1][-1] = 0.0
            ends.append(np.array(values if worth.per_w else values[1:]))
        return ends[0], ends[1]

    def _priced(self, free: int) -> tuple[Ends, Ends]:
        """What each job brings less the price of its time, and all that join after each at most.

        Two each, of shape (kinds + 1, levels, regimes, prices, steps), and (joining + 1, ...): the
        last row where none joins; with the price of the time of the step.
        """
        if free not in self._known:
            prices, sm = self._best_prices(free), self._alone.sm[..., None, None, None]
            own: list[Floats] = []
            rest: list[Floats] = []
            for values, time in zip(self._values, (self._times[:-1], self._times[1:]), strict=True):
                own.append(np.moveaxis(values, 0, 2)[:, :, :, None] - prices * sm)
                joins = np.append(own[-1][self.joining, 0], np.zeros((1, *prices.shape)), axis=0)
                best = np.maximum.accumulate(joins[::-1], axis=0)[::-1]
                rest.append(free * best + prices * time)
            self._known[free] = _single(own), _single(rest)
        return self._known[free]

    def _best_prices(self, free: int) -> Floats:
        """Shape (regimes, prices, steps)."""
        tried = self._worth.dearest * PRICES[:, None]
        batch = self.joining[self.servers :]
        value = np.maximum(*self._values)[:, batch, 0]
        brought = value[:, None].swapaxes(2, 3) - tried[:, :, None] * self._alone.sm[batch, 0]
        best = brought.max(axis=-1, initial=0.0)
        total = [tried * left * self._times[1:] + free * best for left in LEFT]
        found: Floats = np.stack([tried[each.argmin(axis=1), 0] for each in total], axis=1)
        return found


def _single(ends: list[Floats]) -> Ends:
    """In single precision, which is a quarter faster."""
    first, end = (cast("Floats", of.astype(np.float32)) for of in ends)
    return first, end


def _part(times: Floats) -> Floats:
    """Of their speeds that jobs keep which want this much of a GPU."""
    return MPS.crowded(times[None], np.zeros_like(times[None]))


def _over_chord(times: Floats) -> Floats:
    """How far the part that jobs keep lies above the line between the ends of each step."""
    fine = np.linspace(0, 1, 33)[:, None]
    line = _part(times[:-1]) + np.diff(_part(times)) * fine
    over: Floats = (
        _part((times[:-1] + np.diff(times) * fine).ravel()).reshape(line.shape) - line
    ).max(axis=0)
    return over
