"""Which sets are worth a column: grown from one job to seven, the promising ones first.

A master program says what each job is worth (its dual value). Wanted are the sets whose jobs are
worth more than the set costs. Adding a job makes no other faster and no set cheaper for the same
work, so speeds in a set are the most that its jobs have in any larger one; from that follows the
most that a larger set could gain. Sets that cannot gain anything are left, and of the others so
many are grown as there is time for. The most that those left aside could gain is told: the bound of
the plan is made of it.
"""

from dataclasses import dataclass, replace

import numpy as np

from advisor.core.split import ADVISED_JOBS, MOST_JOBS
from advisor.decide.limits import UNSURE_BELOW, floor, must_be_sure
from advisor.place.many_sets import LEVELS, NONE, SetRates
from advisor.place.options import Ints
from advisor.place.problem import Bools
from advisor.place.running import PlacedSet
from advisor.place.set_answers import SetAnswers
from advisor.predict.profiles import Floats
from advisor.predict.set_law import MPS

TIME_PRICES = (0.0, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0)
"""Of all the time of a GPU, for each 1 of the dearest job: jobs side by side keep so much of their
speeds that their activities add up to no more than a GPU (`set_law.SideBySide.crowded`). Each price
bounds what a set can gain; the least of these bounds is taken."""

MOST_ASKED, MOST_LOOKED_AT = 300, 3000
"""Sets of one size that the predictor is asked of, and of which those are chosen."""

GREEDY_PRICES = (0.0, 1.0, 0.4, 2.5, 0.15)
"""The same where sets are grown by what gains most."""

SETS_OF_A_KIND = 2
"""Of one size, the best that have a kind of job, so that every job is offered some."""


@dataclass(frozen=True, slots=True)
class Found:
    """Sets that gain, and what no set gains more than, for each 1 of its cost."""

    sets: tuple[PlacedSet, ...]
    most: float


@dataclass(frozen=True, slots=True, eq=False)
class _Sets:
    """Sets while they are grown.

    Attributes:
        rows: Places in the order of the search, seats from the left; shape (sets, seats).
        most: What each could gain at most for each 1 of its cost.
        parent: Which one that is.
    """

    rows: Ints
    level: Ints
    most: Floats
    parent: Ints

    def only(self, chosen: Ints | Bools) -> "_Sets":
        """Some of them."""
        return _Sets(self.rows[chosen], self.level[chosen], self.most[chosen], self.parent[chosen])


class SetSearch:
    """Over the sets of one pool, by what jobs are worth now."""

    def __init__(self, answers: SetAnswers, worth: Floats, card_worth: float) -> None:
        """`worth` is by kind of the placing; `card_worth` of a card that stays free, 0 or less."""
        self._answers, placing = answers, answers.placing
        there, many = np.array(answers.there), answers.many
        own = worth[there]
        # Those that fill come first: what is grown from others has no limit to choose.
        self._order = np.lexsort((-own, -many.fills[:-1]))
        self._kinds = there
        pace, lag = placing.paces[answers.number, there], placing.lag[there]
        # Less what all of its work costs later, and that again for what is done.
        self._own, self._worth, self._lag = own, _seat(own - lag), _seat(lag * pace)
        self._counts = placing.counts[there]
        self._memory_mib, self._most_mib = answers.memory
        self._floors = _seat(np.array([_floor(answers, kind) for kind in there]))
        self._sure = _seat(np.array([_is_sure(answers, kind) for kind in there])) > 0
        self._per_w, self._card_worth = placing.per_w, card_worth
        self._card = card_worth - placing.per_card
        self._scale = max(placing.lag.max(), worth.max())
        self._prices = self._scale * np.array(TIME_PRICES)
        least_w = many.active_idle_w[:-1].min()
        drawn = [least_w, many.limit_w] if self._per_w else [0.0, 0.0]
        self._bases = self._card - self._per_w * np.array(drawn)

    def greedy(self, least: float, turn: int) -> tuple[PlacedSet, ...]:
        """Sets that gain, grown from every job by what gains most at each step.

        Each turn has another price of what is left of a GPU, so that one finds what another misses.
        """
        found: list[PlacedSet] = []
        sets = self._roots()
        price = self._scale * GREEDY_PRICES[turn % len(GREEDY_PRICES)]
        root = np.arange(len(sets.rows))
        many = self._answers.many
        for size in range(2, MOST_JOBS + 1):
            children, rates = self._children(sets, size, any_order=True)
            gains = self._gains(children, rates)
            root = root[children.parent]
            if size > ADVISED_JOBS or not self._answers.pool.of_pairs:
                found += self._best(children, gains, least)[0]
            busy = many.sm[self._seats(children.rows), children.level[:, None]].sum(axis=1)
            order = np.lexsort((price * busy - gains, root))
            _, first = np.unique(root[order], return_index=True)
            chosen = order[first]
            sets, root = children.only(chosen), root[chosen]
        return tuple(found)

    def all(self, width: int, least: float, near: float) -> Found:
        """Sets that gain more than the least.

        Args:
            width: How many of each size are grown, those first that could gain most.
            least: What gains less is nothing.
            near: Sets that can never gain more for each 1 of their cost are not grown.
        """
        most, found = 0.0, list[PlacedSet]()
        sets = self._roots()
        for size in range(2, MOST_JOBS + 1):
            if not len(sets.rows):
                break
            children, rates = self._children(sets, size)
            gains = self._gains(children, rates)
            # No larger set costs less.
            costs = self._own_of(children) + self._card_worth - gains
            if size > ADVISED_JOBS or not self._answers.pool.of_pairs:
                good, left = self._best(children, gains, least)
                found += good
                most = max(most, left)
            bound = self._bound(sets, children, rates, size)
            ratio = np.minimum(bound / costs, sets.most[children.parent])
            order = np.argsort(-ratio, kind="stable")
            grown = min(width, int((ratio > near).sum()))
            most = max(most, float(ratio[order[grown:]].max(initial=0.0)))
            sets = self._asked(replace(children, most=ratio), order[:grown])
        return Found(tuple(found), max([most, *(self._gain(one) / one.cost for one in found)]))

    def _own_of(self, sets: _Sets) -> Floats:
        worth: Floats = _seat(self._own)[self._seats(sets.rows)].sum(axis=1)
        return worth

    def _roots(self) -> _Sets:
        filling = self._answers.many.fills[self._order]
        singles = [
            (place, level)
            for place, fills in enumerate(filling)
            for level in range(len(LEVELS) if fills else 1)
        ]
        rows = np.full((len(singles), MOST_JOBS), NONE)
        rows[:, 0] = [place for place, _ in singles]
        level = np.array([level for _, level in singles])
        return _Sets(rows, level, np.full(len(rows), np.inf), np.arange(len(rows)))

    def _children(
        self, sets: _Sets, size: int, *, any_order: bool = False
    ) -> tuple[_Sets, SetRates]:
        """Each set with one more job, not before its last in the order; those that keep limits."""
        last = sets.rows[:, [size - 2]] if not any_order else 0
        parent, added = np.nonzero(
            np.broadcast_to(np.arange(len(self._order)) >= last, (len(sets.rows), len(self._order)))
        )
        rows = sets.rows[parent].copy()
        rows[:, size - 1] = added
        seats = self._seats(rows)
        fits: Bools = self._memory_mib[seats].sum(axis=1) <= self._most_mib
        fits &= (rows == rows[:, [size - 1]]).sum(axis=1) <= self._counts[self._order[added]]
        children = _Sets(rows, sets.level[parent], sets.most[parent], parent).only(fits)
        rates = self._rates(children)
        seats = self._seats(children.rows)
        unsure = self._sure[seats] | (rates.low < UNSURE_BELOW * rates.speed)
        decisive = np.where(unsure, rates.low, rates.speed)
        kept = np.flatnonzero((decisive >= self._floors[seats] - 1e-9).all(axis=1))
        return children.only(kept), rates.only(kept)

    def _rates(self, sets: _Sets) -> SetRates:
        return self._answers.many.at(self._seats(sets.rows), sets.level)

    def _bound(self, sets: _Sets, children: _Sets, rates: SetRates, size: int) -> Floats:
        """The most that each child, or a larger set of it and jobs that come no earlier, gains."""
        values = self._values(self._seats(children.rows), children.level, rates)
        prices = self._prices[:, None] * MPS.supply
        together = self._bases[:, None, None] + prices + values.sum(axis=3)
        parent, added = children.parent, children.rows[:, size - 1]
        # What a further job adds at most beside the parent, of those from a place on.
        more = np.zeros((*together.shape[:2], len(sets.rows), len(self._order)))
        more[:, :, parent, added] = np.maximum(values[..., size - 1], 0)
        more = np.maximum.accumulate(more[..., ::-1], axis=3)[..., ::-1]
        bound = together + (MOST_JOBS - size) * more[:, :, parent, added]
        most: Floats = bound.min(axis=1).max(axis=0)
        return most

    def _values(self, seats: Ints, level: Ints, rates: SetRates) -> Floats:
        """What each job brings at most, here or in a larger set; (2, prices, sets, seats).

        Below the power limit, where it adds to the watts, and at the limit; for each price of the
        GPU's time. Jobs are no faster in a larger set, and keep their floors.
        """
        many = self._answers.many
        own_w = np.maximum(0, many.power_w[seats, level[:, None]] - many.active_idle_w[seats])
        rate = many.rate[seats, level[:, None]]
        done = self._lag[seats] * np.where(many.served[seats], 1.0, rate)
        # A server is not slowed by the crowd: it is charged for no time.
        busy = np.where(many.served[seats], 0.0, many.sm[seats, level[:, None]])
        least = np.minimum(rates.kept, self._floors[seats] / np.maximum(rate, 1e-9))
        more = np.array([done - self._per_w * own_w, done])[:, None]
        more = more - self._prices[:, None, None] * busy
        values = self._worth[seats] + more * np.where(more > 0, rates.kept, least)
        return np.where(seats < len(self._kinds), values, 0.0)

    def _gains(self, sets: _Sets, rates: SetRates) -> Floats:
        seats = self._seats(sets.rows)
        own = self._worth[seats] + self._lag[seats] * rates.speed
        gained: Floats = self._card - self._per_w * rates.power_w + own.sum(axis=1)
        return gained

    def _gain(self, one: PlacedSet) -> float:
        """By what the predictor says of it."""
        worth = self._own[np.searchsorted(self._kinds, one.kinds)].sum()
        return float(worth) + self._card_worth - one.cost

    def _seats(self, rows: Ints) -> Ints:
        """Places in the order of the search as those of `many`, its last row for an empty seat."""
        return np.append(self._order, len(self._order))[rows]

    def _best(self, children: _Sets, gains: Floats, least: float) -> tuple[list[PlacedSet], float]:
        """Some that gain and are not refused, of each kind of job; and the most that others gain.

        The others are known by arrays alone: nobody has asked whether they keep every limit.
        """
        ranked = np.flatnonzero(gains > least)
        ranked = ranked[np.argsort(-gains[ranked], kind="stable")]
        good: list[PlacedSet] = []
        used = np.zeros(len(self._order) + 1)
        asked = 0
        for row in ranked[:MOST_LOOKED_AT]:
            places = children.rows[row][children.rows[row] != NONE]
            if asked >= MOST_ASKED:
                break
            if used[places].min() < SETS_OF_A_KIND:
                asked += 1
                if one := self._ask(children, int(row)):
                    used[places] += 1
                    good.append(one)
        unknown = len(ranked) > asked and not good
        return good, float(gains[ranked[asked]]) if unknown else 0.0

    def _ask(self, sets: _Sets, row: int) -> PlacedSet | None:
        places = sets.rows[row][sets.rows[row] != NONE]
        kinds = tuple(sorted(self._kinds[self._order[places]].tolist()))
        return self._answers.by_law(kinds, int(sets.level[row]))

    def _asked(self, sets: _Sets, chosen: Ints) -> _Sets:
        """Those that the predictor does not refuse, where there are limits that it alone knows."""
        limits = self._answers.pool.limits
        asked = MOST_ASKED if limits.max_p99_ms or limits.default_max_p99_ms else 0
        kept = [row for row in chosen[:asked] if self._ask(sets, int(row))]
        rows = np.append(np.array(kept, dtype=np.int64), chosen[asked:])
        return sets.only(rows)


def _floor(answers: SetAnswers, kind: int) -> float:
    profile = answers.pool.profiles[kind]
    assert profile is not None
    return floor(profile, answers.pool.limits)


def _is_sure(answers: SetAnswers, kind: int) -> bool:
    profile = answers.pool.profiles[kind]
    assert profile is not None
    return must_be_sure(profile, answers.pool.limits)


def _seat(values: Floats) -> Floats:
    return np.append(values, 0.0)
