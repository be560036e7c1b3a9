"""Seats for jobs that wait once all cards are taken: one joins a set, and may send another job on.

Whole cards leave one or two of thousands of jobs without a seat, which costs more than all that a
longer search would save. What each set that is in use costs with a job more is asked as arrays;
what is best by them is asked of the predictors, as all that is planned.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.core.split import MOST_JOBS
from advisor.place.options import Ints
from advisor.place.problem import Bools
from advisor.place.sets.answers import SetAnswers
from advisor.place.sets.many import LEVELS, NONE, Sets
from advisor.place.sets.placing import PlacedSet
from advisor.predict.profiles import Floats

TRIED = 10
"""Ways to seat a job, cheapest first, that the predictors are asked of."""


@dataclass(frozen=True, slots=True)
class SeatChange:
    """Sets in use that are others then, as many of them."""

    before: tuple[PlacedSet, ...]
    after: tuple[PlacedSet, ...]

    @property
    def more(self) -> float:
        """What they cost more than before."""
        return sum(one.cost for one in self.after) - sum(one.cost for one in self.before)


@dataclass(frozen=True, slots=True)
class _Becomes:
    """Which set, and what it is then: its jobs by their places, and their level."""

    number: int
    places: tuple[int, ...]
    level: int


class SeatSearch:
    """In the sets of one pool that are in use."""

    def __init__(self, answers: SetAnswers, used: Mapping[PlacedSet, int]) -> None:
        self._answers, there = answers, list(answers.there)
        self._sets = [one for one in used if one.pool == answers.number]
        self._several = [used[one] > 1 for one in self._sets]
        self._jobs = [tuple(map(there.index, one.kinds)) for one in self._sets]
        self._levels = [answers.levels.get(one, NONE) for one in self._sets]
        costs = np.array([one.cost for one in self._sets])
        joined, self._at = _with_each(answers, self._jobs, self._levels, np.arange(len(there)))
        self._more = joined - costs[:, None]

    def for_one_more(self, kind: int) -> SeatChange | None:
        """The cheapest change of some that seat another job of a kind; None: there is none."""
        if kind not in self._answers.there:
            return None
        ways = sorted(self._ways(self._answers.there.index(kind)), key=lambda way: way[0])
        changes = filter(None, (self._change(becomes) for _, becomes in ways[:TRIED]))
        return min(changes, key=lambda change: change.more, default=None)

    def _ways(self, place: int) -> Iterator[tuple[float, tuple[_Becomes, ...]]]:
        """What each costs more by the arrays."""
        for n in np.flatnonzero(np.isfinite(self._more[:, place])).tolist():
            yield float(self._more[n, place]), (self._joined(n, place),)
        freed = [(n, job) for n, jobs in enumerate(self._jobs) for job in {*jobs} - {place}]
        left = [_without(self._jobs[n], job) for n, job in freed]
        levels = [self._levels[n] for n, _ in freed]
        costs, at = _with_each(self._answers, left, levels, np.array([place]))
        for row, (n, job) in enumerate(freed):
            others = self._more[:, job].copy()
            others[n] = others[n] if self._several[n] else np.inf
            to = int(others.argmin())
            more = float(costs[row, 0]) - self._sets[n].cost + float(others[to])
            if np.isfinite(more):
                changed = _Becomes(n, (*left[row], place), int(at[row, 0]))
                yield more, (changed, self._joined(to, job))

    def _joined(self, n: int, place: int) -> _Becomes:
        return _Becomes(n, (*self._jobs[n], place), int(self._at[n, place]))

    def _change(self, becomes: Sequence[_Becomes]) -> SeatChange | None:
        """As the predictors say; None: a limit is not kept."""
        before = tuple(self._sets[one.number] for one in becomes)
        after = tuple(self._answers.placed(one.places, one.level) for one in becomes)
        kept = tuple(filter(None, after))
        return SeatChange(before, kept) if len(kept) == len(after) else None


def _without(places: Sequence[int], job: int) -> tuple[int, ...]:
    left = list(places)
    left.remove(job)
    return tuple(left)


def _with_each(
    answers: SetAnswers, bases: Sequence[Sequence[int]], levels: Sequence[int], adds: Ints
) -> tuple[Floats, Ints]:
    """Costs of sets with each of some further jobs, and at which level; shape (bases, adds).

    Infinite where there is no seat or a limit is not kept.
    """
    costs, at = np.full((len(bases), len(adds)), np.inf), np.zeros((len(bases), len(adds)), int)
    fills = answers.many.alone.fills[:, 0] > 0
    base, sets = _at_levels(bases, levels, fills)
    parent, add = (n.ravel() for n in np.indices((len(base), len(adds))))
    grown = sets.with_one_more(parent, adds[add], add)
    filling = fills[grown.rows].any(axis=1)
    some = np.flatnonzero(filling | (grown.level == 0))
    # What a job does alone was measured; whether it may be is asked later.
    alone = np.flatnonzero(grown.size[some] == 1)
    some = some[np.union1d(answers.kept(grown.only(some)), alone)]
    some = some[answers.within_power(grown.only(some))]
    told = answers.costs(grown.only(some))
    # Of the levels of one set the cheapest is written last.
    order = some[np.argsort(-told, kind="stable")]
    where = base[parent[order]], add[order]
    costs[where], at[where] = np.sort(told)[::-1], grown.level[order]
    return costs, at


def _at_levels(
    bases: Sequence[Sequence[int]], levels: Sequence[int], fills: Bools
) -> tuple[Ints, Sets]:
    """Sets with a seat left, at their level or, where they have none that counts, at each."""
    found = [
        (n, level)
        for n, (places, own) in enumerate(zip(bases, levels, strict=True))
        if len(places) < MOST_JOBS
        for level in range(len(LEVELS))
        if level == own or own == NONE or len(places) == 1 or not fills[list(places)].any()
    ]
    empty = len(fills) - 1
    rows = [[*bases[n], *[empty] * (MOST_JOBS - len(bases[n]))] for n, _ in found]
    number = np.array([n for n, _ in found], dtype=np.int64)
    size = np.array([len(bases[n]) for n, _ in found], dtype=np.int64)
    return number, Sets(
        rows=np.array(rows, dtype=np.int64).reshape(-1, MOST_JOBS),
        level=np.array([level for _, level in found], dtype=np.int64),
        size=size,
        last=np.zeros_like(size),
    )
