"""Which sets are worth a column: grown from one job to seven, the promising ones first.

A master program says what each job is worth (its dual value). Wanted are the sets whose jobs are
worth more than the set costs. Jobs that fill the GPU come first, then servers, then all others:
those are grown whose larger sets could still gain something (`advisor.place.set_bound`), so many as
there is time for. The most that those left aside could gain is told: the bound of the plan is made
of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from advisor.core.split import MOST_JOBS
from advisor.place.many_sets import Sets, nothing
from advisor.place.options import Ints
from advisor.place.problem import Bools
from advisor.place.running import PlacedSet
from advisor.place.set_answers import SetAnswers
from advisor.place.set_bound import SetBound, SetWorth
from advisor.predict.profiles import Floats
from advisor.predict.set_law import SPEED_ERRORS, TAKEN
from advisor.predict.sets import SURE_OF_BUSIEST

MOST_ASKED, MOST_LOOKED_AT = 150, 1500
"""Sets of one size that the predictor is asked of, and of which those are chosen."""

MOST_NEAR = 50_000
"""Sets that are one job off others and looked at together."""

BEST_LOW = max(low for low, _ in SPEED_ERRORS.values())
"""The low end of a speed, for each 1, is no higher than this."""

SETS_OF_A_KIND = 2
"""Of one size, the best that have a kind of job, so that every job is offered some."""

CHEAPER = 0.98
"""Cost of two jobs at least, for each 1 of the dearer alone. The model of pairs saw 5 of 4,939
pairs below 1, and none below 0.988."""

HEADS = 3
"""Times as many sets of servers and jobs that fill are grown as of others."""

LOOKED_AT = 4
"""Times as many sets as are grown are looked at closely."""


@dataclass(frozen=True, slots=True)
class Found:
    """Sets that gain, and what no set gains more than."""

    sets: tuple[PlacedSet, ...]
    most: float


class SetSearch:
    """Over the sets of one pool, by what jobs are worth now."""

    def __init__(self, answers: SetAnswers, worth: Floats, card_worth: float) -> None:
        """`worth` is by kind of the placing; `card_worth` of a card that stays free, 0 or less."""
        self._answers, placing = answers, answers.placing
        there = np.array(answers.there)
        alone = answers.many.alone
        lag = placing.lag[there]
        # Less what all of its work costs later, and that again for what is done.
        self._own = np.append(worth[there], 0.0)
        self._worth = np.append(worth[there] - lag, 0.0)
        self._lag = np.append(lag * placing.paces[answers.number, there], 0.0)
        self._per_w, self._card_worth = placing.per_w, card_worth
        self._card = card_worth - placing.per_card
        self._dearest = float(max(placing.lag.max(), worth.max()))
        light = np.flatnonzero(alone.fills[:-1, 0] == 0)
        self._joining = light[np.lexsort((-self._own[light], -alone.served[light, 0]))]
        needs = answers.floors[:, None] / np.where(answers.sure, BEST_LOW, 1.0)[:, None]
        # A server keeps its floor in this part of the GPU, or in an equal part with fewer jobs.
        parts = np.where(alone.served, needs / np.maximum(alone.most, 1e-9), 0.0)[:, 0]
        together = alone.needed[:, 0] + (1 - parts) / TAKEN
        # Sure of its speed is a server that is sure of its part of the SMs.
        busy = answers.floors / np.where(answers.sure, max(BEST_LOW, SURE_OF_BUSIEST), 1.0)
        must_have = busy[:, None] * alone.wanted / np.maximum(alone.rate, 1e-9)
        given = SetWorth(
            worth=self._worth,
            done=self._lag[:, None] * alone.rate,
            drawn=self._per_w * np.maximum(0.0, alone.power_w - alone.idle_w),
            floor=np.where(alone.served, 0.0, needs / np.maximum(alone.rate, 1e-9)),
            together=np.where(parts * MOST_JOBS > 1, together, np.inf),
            must_have=np.where(alone.served, must_have, 0.0),
            equal=int(1 / max(parts.max(), 1 / MOST_JOBS)),
            card=self._card,
            per_w=self._per_w,
            dearest=self._dearest,
        )
        self.bound = SetBound(answers.many, given, self._joining)

    def near(self, sets: Sequence[PlacedSet], least: float) -> list[PlacedSet]:
        """Sets that gain more than the least, and are one job off one of these, or one larger."""
        found: list[PlacedSet] = []
        for size in filter(self._answers.is_of_law, range(1, MOST_JOBS + 1)):
            starts = self._one_short(sets, size)
            gains = self._own[starts.rows].sum(axis=1)[:, None] + self._own[:-1] + self._card
            parent, kinds = np.nonzero(gains > least)
            first = np.argsort(-gains[parent, kinds], kind="stable")[:MOST_NEAR]
            grown = starts.with_one_more(parent[first], kinds[first], size)
            same = np.column_stack([np.sort(grown.rows, axis=1), grown.level])
            _, different = np.unique(same, axis=0, return_index=True)
            kept, _ = self._answers.kept(grown.only(different), size)
            found += self._best(kept, self._gains(kept), least, size)[0]
        return found

    def _one_short(self, sets: Sequence[PlacedSet], size: int) -> Sets:
        """One job short of a size: those that are, and larger ones less each of their jobs."""
        answers = self._answers
        short = {
            (kinds, level)
            for one in sets
            if (level := answers.levels.get(one)) is not None and size - 1 <= len(one.kinds) <= size
            for kinds in combinations(np.searchsorted(answers.there, one.kinds).tolist(), size - 1)
        }
        starts = nothing(len(self._own) - 1).only(np.zeros(len(short), dtype=np.int64))
        for row, (kinds, level) in enumerate(sorted(short)):
            starts.rows[row, : size - 1], starts.level[row] = kinds, level
        return starts

    def all(self, width: int, least: float) -> Found:
        """Sets that gain more than the least.

        `width` is how many of each size are grown, those first that could gain most.
        """
        found, most = self._pairs(width // 2, least)
        sets = nothing(len(self._own) - 1)
        for size in range(1, MOST_JOBS + 1):
            sets, cut = self._grown(sets, size, LOOKED_AT * width)
            filling = self._answers.filling(size)
            if not self._answers.is_of_law(size):
                filling = filling.only(self._answers.may_be_joined(filling))
            sets = sets.and_also(self._could_gain(filling, size))
            good, left = self._best(sets, self._gains(sets), least, size)
            found += good
            heads = sets.last < self.bound.servers
            chosen, beyond = _first(sets.most, (HEADS * width, heads), (width, ~heads))
            most = max(most, cut, left, beyond)
            sets = self._asked(sets, chosen)
        return Found(tuple(found), max([most, *map(self._gain, found)]))

    def _pairs(self, number: int, least: float) -> tuple[list[PlacedSet], float]:
        """So many pairs, those first that could gain most, and the most that others could gain.

        Only of those that the model of pairs has not been asked of yet.
        """
        own, answers = self._own[:-1], self._answers
        gains = own[:, None] + own + self._card_worth - CHEAPER * answers.dearer
        rows, columns = np.nonzero((gains > least) & answers.unasked_pairs)
        order = np.argsort(-gains[rows, columns], kind="stable")
        pairs = [
            (answers.there[rows[place]], answers.there[columns[place]]) for place in order[:number]
        ]
        found = [one for pair in pairs if (one := answers.of(pair))]
        left = order[number:]
        most = float(gains[rows[left], columns[left]].max(initial=0.0))
        return found, most

    def _grown(self, sets: Sets, size: int, width: int) -> tuple[Sets, float]:
        """With one more job, those that could gain; and what others could, not looked at."""
        sets = sets.only(self._answers.may_be_joined(sets))
        bound = self.bound.with_one_more(sets.rows, sets.level, sets.last, size - 1)
        bound = np.minimum(bound, sets.most[:, None])
        parent, place = np.nonzero(bound > 0)
        bound = bound[parent, place]
        servers = place < self.bound.servers
        chosen, cut = _first(bound, (len(bound), servers), (width, ~servers))
        parent, place = parent[chosen], place[chosen]
        grown = sets.with_one_more(parent, self._joining[place], size, place, bound[chosen])
        return self._answers.kept(self._could_gain(grown, size), size)[0], cut

    def _could_gain(self, sets: Sets, size: int) -> Sets:
        """Those whose closer bound says so."""
        most = np.minimum(sets.most, self.bound.of(sets.rows, sets.level, sets.last, size))
        return replace(sets, most=most).only(most > 0)

    def _gains(self, sets: Sets) -> Floats:
        rates = self._answers.many.at(sets.rows, sets.level)
        own = self._worth[sets.rows] + self._lag[sets.rows] * rates.speed
        gained: Floats = self._card - self._per_w * rates.power_w + own.sum(axis=1)
        return gained

    def _gain(self, one: PlacedSet) -> float:
        """By what the predictor says of it."""
        kinds = np.searchsorted(self._answers.there, one.kinds)
        return float(self._own[kinds].sum()) + self._card_worth - one.cost

    def _best(
        self, sets: Sets, gains: Floats, least: float, size: int
    ) -> tuple[list[PlacedSet], float]:
        """Some that gain and are not refused, of each kind of job; and the most that others gain.

        The others are known by arrays alone: nobody has asked whether they keep every limit.
        """
        if not self._answers.is_of_law(size):
            return [], 0.0
        ranked = np.flatnonzero(gains > least)
        ranked = ranked[np.argsort(-gains[ranked], kind="stable")]
        good: list[PlacedSet] = []
        used = [0] * len(self._own)
        asked = 0
        for row in ranked[:MOST_LOOKED_AT]:
            kinds: list[int] = sets.rows[row, :size].tolist()
            if asked >= MOST_ASKED:
                break
            if min(used[kind] for kind in kinds) < SETS_OF_A_KIND:
                asked += 1
                if one := self._answers.placed(kinds, int(sets.level[row])):
                    good.append(one)
                    for kind in set(kinds):
                        used[kind] += 1
        unknown = len(ranked) > asked and not good
        return good, float(gains[ranked[asked]]) if unknown else 0.0

    def _asked(self, sets: Sets, chosen: Ints) -> Sets:
        """Those that the predictor does not refuse, where there are limits that it alone knows."""
        limits = self._answers.pool.limits
        asked = MOST_ASKED if limits.max_p99_ms or limits.default_max_p99_ms else 0
        empty = len(self._own) - 1
        kept = [
            row
            for row in chosen[:asked].tolist()
            if self._answers.placed(
                [k for k in sets.rows[row].tolist() if k != empty], int(sets.level[row])
            )
        ]
        return sets.only(np.append(np.array(kept, dtype=np.int64), chosen[asked:]))


def _first(values: Floats, *groups: tuple[int, Bools]) -> tuple[Ints, float]:
    """So many of each group, those with the most first, and the most of all others."""
    chosen, beyond = [np.zeros(0, dtype=np.int64)], 0.0
    for number, group in groups:
        of_group = np.flatnonzero(group)
        of_group = of_group[np.argsort(-values[of_group], kind="stable")]
        chosen.append(of_group[:number])
        beyond = max(beyond, float(values[of_group[number:]].max(initial=0.0)))
    return np.concatenate(chosen), beyond
