"""Which sets are worth a column: those whose jobs are worth more than the set costs.

A master program says what each job is worth (its dual value). Jobs that fill the GPU come first,
then servers, then all others, which are chosen by what a set with them could still gain
(`advisor.placement.bound`). The bound of the plan follows from the most that any set could gain.
"""

import functools

import numpy as np

from advisor.core.gpu import ADVISED_JOBS, MOST_JOBS
from advisor.placement.bound import SetBound
from advisor.placement.placing import Bools, Ints, PlacedSet, SetAnswers, Sets
from advisor.predict.profiles import Floats

# Sets that the predictor is asked of, and of which those are chosen.
_MOST_ASKED, _MOST_LOOKED_AT = 150, 1500

PAIRS = 30
"""That the model of pairs is asked of at most, where sets are not looked at closely."""

# The best that have a kind of job, so that every job is offered some.
_OF_A_KIND = 2

FEW_HEADS, MANY_HEADS = 1500, 10_000
"""Sets of servers and jobs that fill, of one size, with which others are looked at."""

FEW, MANY, TURNS = 10, 300, 6
"""Sets that are looked at with each further job, the latter closely, and that many times."""


class SetSearch:
    """Over the sets of one pool, by what jobs are worth now."""

    def __init__(
        self, answers: SetAnswers, worth: Floats, card_worth: float, *, closely: bool
    ) -> None:
        """As `SetBound`; closely, the most that any set gains is told, else more than that."""
        self._answers, self._card_worth, self._closely = answers, card_worth, closely
        self.bound = SetBound(answers, worth, card_worth)

    def all(self, least: float, enough: float) -> tuple[list[PlacedSet], float]:
        """Sets that gain more than the least; and the most that any gains, where above enough."""
        heads, cut = self._heads(MANY_HEADS if self._closely else FEW_HEADS)
        grown, most = self._grown(heads, least, max(enough, cut))
        pairs, beyond = self._pairs(least, most)
        found = [*pairs, *self._best(functools.reduce(Sets.and_also, [heads, *grown]), least)]
        return found, max(most, beyond, *map(self._gain, found), 0.0)

    def _grown(self, sets: Sets, least: float, enough: float) -> tuple[list[Sets], float]:
        """Those and others that they grow to, and the most that any gains, where above enough."""
        told = self.bound.of(sets)
        grown = self._completed(sets, told, least)
        for _ in range(TURNS if self._closely else 1):
            first = _first(np.where(told > enough, told, -np.inf), MANY if self._closely else FEW)
            more, above = self._with_each(sets.only(first), told[first])
            gains = self.bound.of(more)
            grown.append(more)
            left = np.delete(np.arange(len(told)), first)
            sets = sets.only(left).and_also(more)
            told = np.append(told[left], np.minimum(gains, above))
        return grown, max(enough, float(told.max(initial=0.0)))

    def _heads(self, many: int) -> tuple[Sets, float]:
        """Of jobs that fill the GPU, and servers; and the most that those left aside gain."""
        answers, servers = self._answers, self.bound.servers
        if answers.heads:
            return answers.heads, 0.0
        found, cut = [grown := answers.filling()], 0.0
        while len(grown.size):
            parent, place = np.nonzero(np.arange(len(servers)) >= grown.last[:, None])
            few = np.flatnonzero(grown.size[parent] < MOST_JOBS)
            grown = grown.with_one_more(parent[few], servers[place[few]], place[few])
            grown = grown.only(answers.kept(grown))
            if len(grown.size) > many:
                most = self.bound.with_servers(grown)
                order = np.argsort(-most, kind="stable")
                cut = max(cut, float(most[order[many]]))
                grown = grown.only(order[:many])
            found.append(grown)
        heads = functools.reduce(Sets.and_also, found)
        heads.last[:] = 0
        answers.heads = None if cut else heads
        return heads, cut

    def _with_each(self, sets: Sets, most: Floats) -> tuple[Sets, Floats]:
        """With each further batch job, none before the last; and the most of what each was."""
        light = self.bound.light
        parent, place = np.nonzero(np.arange(len(light)) >= sets.last[:, None])
        few = np.flatnonzero(sets.size[parent] < MOST_JOBS)
        parent, place = parent[few], place[few]
        more = sets.with_one_more(parent, light[place], place)
        kept = self._answers.kept(more)
        return more.only(kept), most[parent[kept]]

    def _completed(self, sets: Sets, most: Floats, least: float) -> list[Sets]:
        """Adds batch jobs; keeps the sets of each size that gain most.

        A beam search by the gain of each set: the bound is too loose to rank them.
        """
        cool = self._answers.within_power(sets)
        sets, most, light = sets.only(cool), most[cool], self.bound.light
        grown = [sets := sets.only(self._starts(sets, np.where(most > least, most, -np.inf)))]
        while len(light) and len(few := np.flatnonzero(sets.size < MOST_JOBS)):
            parent, place = np.divmod(np.arange(len(few) * len(light)), len(light))
            more = sets.with_one_more(few[parent], light[place], place)
            more = more.only(self._answers.kept(more)).different()
            more = more.only(self._answers.within_power(more))
            grown.append(sets := more.only(self._starts(more, self.bound.gains(more))))
        return grown

    def _starts(self, sets: Sets, most: Floats) -> Ints:
        """Those that could gain most, and the best few of each kind of job."""
        first = [_first(most, 150)]
        having = np.zeros((len(most), len(self.bound.own)), dtype=bool)
        having[np.arange(len(most))[:, None], sets.rows] = True
        first += [
            _first(np.where(having[:, kind], most, -np.inf), _OF_A_KIND)
            for kind in np.flatnonzero(having[:, :-1].any(axis=0)).tolist()
        ]
        return np.unique(np.concatenate(first))

    def _best(self, sets: Sets, least: float) -> list[PlacedSet]:
        of_law = [self._answers.is_of_law(size) for size in sets.size.tolist()]
        sets = sets.only(np.array(of_law, dtype=bool)).different()
        sets = sets.only(self._answers.within_power(sets))
        gains = self.bound.gains(sets)
        good: list[PlacedSet] = []
        used = [0] * len(self.bound.own)
        asked = 0
        for row in _first(np.where(gains > least, gains, -np.inf), _MOST_LOOKED_AT).tolist():
            kinds: list[int] = sets.rows[row, : sets.size[row]].tolist()
            if min(used[kind] for kind in kinds) < _OF_A_KIND and asked < _MOST_ASKED:
                asked += 1
                if one := self._answers.by_law(self._answers.kinds(kinds), int(sets.level[row])):
                    good.append(one)
                    for kind in set(kinds):
                        used[kind] += 1
        return good

    def _pairs(self, least: float, most: float) -> tuple[list[PlacedSet], float]:
        """Some that gain, and closely all that gain more than the most; and what others could."""
        two = self._answers.two
        number, above = (len(two.costs) ** 2, most) if self._closely else (PAIRS, least)
        some, _ = self._gaining(two.unasked & two.roughly, above, number)
        two.look_at(some)
        some, beyond = self._gaining(two.unasked & ~two.roughly, least, PAIRS)
        _, unknown = self._gaining(two.unasked & two.roughly, least, 0)
        found = [one for a, b in some.tolist() if (one := self._answers.pair(a, b))]
        return found, max(beyond, unknown)

    def _gaining(self, of: Bools, above: float, number: int) -> tuple[Ints, float]:
        """So many pairs that could gain most, and the most that others could."""
        own = self.bound.own[:-1]
        gains = own[:, None] + own + self._card_worth - self._answers.two.costs
        several = np.triu(np.ones_like(of), 1) | np.diag(self._answers.counts[:-1] >= ADVISED_JOBS)
        pairs = np.argwhere(of & several & (gains > above))
        gains = gains[*pairs.T]
        order = np.argsort(-gains, kind="stable")
        return pairs[order[:number]], float(gains[order[number:]].max(initial=0.0))

    def _gain(self, one: PlacedSet) -> float:
        kinds = np.searchsorted(self._answers.there, one.kinds)
        return float(self.bound.own[kinds].sum()) + self._card_worth - one.cost


def _first(values: Floats, number: int) -> Ints:
    order = np.argsort(-values, kind="stable")[:number]
    return order[np.isfinite(values[order])]
