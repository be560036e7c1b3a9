"""Which sets are worth a column: those whose jobs are worth more than the set costs.

A master program says what each job is worth (its dual value). Jobs that fill the GPU come first,
then servers, then all others, which are chosen by what a set with them could still gain. The bound
of the plan follows from the most that any set could gain.

That most counts every job that may still join the set. In kernel round robin the job with most
kernels waits for all of the others, so jobs of a set hold the GPU for no more time than there is
(`sets.dealt`). What a set gains is a sum over its jobs, and grows with their speeds. So at any
price of that time it gains no more than all of the time costs and what each job brings beyond its
own (Lagrangian relaxation: A. M. Geoffrion, "Lagrangean relaxation for integer programming", 1974).
The price that bounds it lowest is taken.
"""

import functools
from dataclasses import dataclass

import numpy as np

from advisor.core.gpu import ADVISED_JOBS, MOST_JOBS
from advisor.placement.placing import Bools, Ints, PlacedSet, SetAnswers, Sets
from advisor.predict.profiles import Floats
from advisor.predict.sets import FULLER, SPEED_ERRORS

# The low end of a speed, for each 1, is no higher than this.
_BEST_LOW = max(low for low, _ in SPEED_ERRORS.values())

# Sets of one call.
_CHUNK = 1024


@dataclass(frozen=True, slots=True, eq=False)
class _Priced:
    """What jobs bring at prices of the GPU's time, in one regime or two.

    Attributes:
        values: Each at most, and `speeds` what of it for its speed; shape (regimes, kinds + 1,
            levels, prices).
        prices: Shape (prices,).
    """

    prices: Floats
    values: Floats
    speeds: Floats

    def most_of(self, kinds: Ints, counts: Floats) -> Floats:
        """What none, one and so on of some jobs bring; shape (regimes, jobs + 1, prices)."""
        number = np.minimum(counts[kinds], MOST_JOBS).astype(np.int64)
        each = np.repeat(self.values[:, kinds, 0], number, axis=1)
        best = -np.sort(-each, axis=1)[:, :MOST_JOBS]
        most = np.full((len(each), MOST_JOBS + 1, len(self.prices)), -np.inf)
        most[:, 0] = 0.0
        most[:, 1 : best.shape[1] + 1] = best.cumsum(axis=1)
        return most


class SetBound:
    """For sets that grow by servers, then by batch jobs that do not fill the GPU.

    Attributes:
        duals: What a job of each kind is worth, and an empty seat; shape (kinds + 1,).
        servers: Kinds of servers, `light` those of the other jobs that join.
    """

    def __init__(self, answers: SetAnswers, duals: Floats, card_dual: float) -> None:
        """`duals` is by kind of the placing; `card_dual` of a card that stays free, 0 or less."""
        self._answers, self._card_dual = answers, card_dual
        self._alone = alone = answers.many.alone
        self._per_w = answers.placing.per_w
        # Below a ceiling under the power limit no watts are cut off.
        held = answers.ceiling_w < answers.many.limit_w
        self._limit_w = np.inf if held else answers.many.limit_w
        self._dearest = float(max(answers.placing.lag.max(), duals.max()))
        self.duals = np.append(duals[list(answers.there)], 0.0)
        joins = (alone.fills[:-1, 0] == 0) & (answers.counts[:-1] > 0)
        served = alone.served[:-1, 0] > 0
        self.servers, self.light = np.flatnonzero(joins & served), np.flatnonzero(joins & ~served)
        # The job with most kernels waits for the others, and has as many as all in the mean.
        gap_s = (alone.kernel_s - alone.hold_s)[self.light, 0].min(initial=np.inf)
        self._sets, self._light_sets = (
            self._priced(least / MOST_JOBS) for least in (0.0, min(gap_s, 1.0))
        )
        self._joins = np.append(np.isin(np.arange(len(joins)), self.light), True)

    def of(self, sets: Sets) -> Floats:
        """The most that sets gain with any batch jobs that do not fill."""
        most = self._of(sets, self._sets, self.light)
        light = np.flatnonzero(self._joins[sets.rows].all(axis=1))
        if len(light):
            bounds = self._of(sets.only(light), self._light_sets, self.light)
            most[light] = np.minimum(most[light], bounds)
        return most

    def with_servers(self, sets: Sets) -> Floats:
        """With any servers, too: the most."""
        return self._of(sets, self._sets, np.append(self.servers, self.light))

    def gains(self, sets: Sets) -> Floats:
        """Of sets as they are, by arrays alone."""
        return self.duals[sets.rows].sum(axis=1) + self._card_dual - self._answers.costs(sets)

    def _of(self, sets: Sets, priced: _Priced, kinds: Ints) -> Floats:
        joining = priced.most_of(kinds, self._answers.counts)
        most = np.zeros(len(sets.size))
        for size in np.unique(sets.size).tolist():
            of_size = np.flatnonzero(sets.size == size)
            joined = joining[:, max(0, ADVISED_JOBS - size) : MOST_JOBS - size + 1].max(axis=1)
            for start in range(0, len(of_size), _CHUNK):
                some = of_size[start : start + _CHUNK]
                most[some] = self._with(sets.only(some), priced, joined)
        return most

    def _with(self, sets: Sets, priced: _Priced, joined: Floats) -> Floats:
        """With what joins, shape (regimes, prices)."""
        seats = sets.rows, sets.level[:, None]
        # A join makes no job faster.
        alone = self._alone.seated(sets.rows.T, sets.level)
        lost = 1 - alone.kept(alone.could).T[..., None]
        head = priced.values[:, *seats] - lost * np.maximum(0.0, priced.speeds[:, *seats])
        head = head.sum(axis=2)
        most: Floats = (head + joined[:, None] + priced.prices).min(axis=2)
        # Jobs with SMs of their own do not wait for others, as long as none joins them.
        most = np.where(alone.apart, np.maximum(most, head[..., 0]), most)
        return self._gain(most, self._alone.power_w[seats].max(axis=1))

    def _gain(self, bound: Floats, hottest_w: Floats) -> Floats:
        """Less what card and watts cost: the sum of all, or the hottest job, or the power limit."""
        # Sums are rounded, so a little of the dearest job is added.
        bound = bound + (self._card_dual - self._answers.placing.per_card) + 1e-9 * self._dearest
        apart = bound[-1]
        if not self._per_w:
            return apart
        added = bound[0] - self._per_w * self._alone.idle_w[:-1].min()
        below = np.minimum(added, apart - self._per_w * hottest_w)
        return np.maximum(below, apart - self._per_w * self._limit_w)

    def _priced(self, more_s: float) -> _Priced:
        """With so much more time for each kernel than it holds the GPU.

        In one regime each job adds its watts, in the other they are counted once for all.
        """
        answers, alone = self._answers, self._alone
        placing, there = answers.placing, list(answers.there)
        lag, paces = placing.lag[there], placing.paces[answers.number, there]
        done = np.append(lag * paces, 0.0)[:, None] * alone.rate
        # Less what all of its work costs later, and that again for what is done.
        duals = (self.duals - np.append(lag, 0.0))[:, None]
        drawn = self._per_w * np.maximum(0.0, alone.power_w - alone.idle_w)
        drawn *= 1 - FULLER * alone.served
        # A set draws the mean of what its cards draw idle: that of each job counts a seventh.
        idle = self._per_w * (alone.idle_w - alone.idle_w[:-1].min()) / MOST_JOBS
        time = (alone.hold_s + more_s) * alone.made
        needs = answers.floors / _BEST_LOW**answers.weight
        least: Floats = needs[:, None] / np.maximum(alone.rate, 1e-9)
        # A server that has all of its demand has nothing to lose.
        least = np.where(alone.served > 0, np.minimum(least, 1.0), least)
        regimes = [(done - drawn, idle), (done, np.zeros_like(idle))][0 if self._per_w else 1 :]
        rates = [each[:-1] / np.maximum(time[:-1], 1e-9) for each, _ in regimes]
        # 32 prices of the time of a GPU are tried.
        prices = np.quantile(np.maximum(rates, 0.0), np.linspace(0, 1, 32))
        prices[0] = 0.0
        values, speeds = list[Floats](), list[Floats]()
        for each, less in regimes:
            speeds.append(beyond := each[..., None] - time[..., None] * prices)
            kept = np.where(beyond > 0, 1.0, np.minimum(least, 1.0)[..., None])
            value = (duals - less)[..., None] + beyond * kept
            # What does not keep its floor is never taken.
            values.append(np.where(least[..., None] > 1 + 1e-7, -1e9 * self._dearest, value))
            values[-1][-1] = 0.0
        return _Priced(prices, np.array(values), np.array(speeds))


# Most pairs for which the model is called where sets are not looked at closely.
_PAIRS = 30

# So many of the best pairs have each kind of job, so that every job is offered some.
_OF_A_KIND = 2

# Sets of servers and jobs that fill the GPU, of one size, to which other jobs are added.
FEW_HEADS = 1500

# The same where sets are looked at closely.
MANY_HEADS = 10_000

# Sets that are looked at with each further job.
FEW = 10

# The same where sets are looked at closely.
MANY = 300

# How often jobs are added where sets are looked at closely; else once.
ROUNDS = 6


class SetSearch:
    """Over the sets of one pool, by what jobs are worth now."""

    def __init__(
        self, answers: SetAnswers, duals: Floats, card_dual: float, *, closely: bool
    ) -> None:
        """As `SetBound`; closely, the most that any set gains, else an upper bound."""
        self._answers, self._card_dual, self._closely = answers, card_dual, closely
        self.bound = SetBound(answers, duals, card_dual)

    def all(self, least: float, enough: float) -> tuple[list[PlacedSet], float]:
        """Sets that gain more than the least; and the most that any gains, where above enough."""
        heads, cut = self._heads(MANY_HEADS if self._closely else FEW_HEADS)
        grown, most = self._grown(heads, least, max(enough, cut))
        pairs, beyond = self._pairs(least, most)
        sets = [*pairs, *self._best(functools.reduce(Sets.and_also, [heads, *grown]), least)]
        return sets, max(most, beyond, *map(self._gain, sets), 0.0)

    def _grown(self, sets: Sets, least: float, enough: float) -> tuple[list[Sets], float]:
        """Those and others that they grow to, and the most that any gains, where above enough."""
        bounds = self.bound.of(sets)
        grown = self._completed(sets, bounds, least)
        for _ in range(ROUNDS if self._closely else 1):
            first = _first(
                np.where(bounds > enough, bounds, -np.inf), MANY if self._closely else FEW
            )
            more, above = self._with_each(sets.only(first), bounds[first])
            gains = self.bound.of(more)
            grown.append(more)
            left = np.delete(np.arange(len(bounds)), first)
            sets = sets.only(left).and_also(more)
            bounds = np.append(bounds[left], np.minimum(gains, above))
        return grown, max(enough, float(bounds.max(initial=0.0)))

    def _heads(self, many: int) -> tuple[Sets, float]:
        """Of jobs that fill the GPU, and servers; and the most that those left aside gain."""
        answers, servers = self._answers, self.bound.servers
        if answers.heads:
            return answers.heads, 0.0
        heads_by_size, cut = [grown := answers.filling()], 0.0
        while len(grown.size):
            parent, place = np.nonzero(np.arange(len(servers)) >= grown.last[:, None])
            few = np.flatnonzero(grown.size[parent] < MOST_JOBS)
            grown = grown.with_another(parent[few], servers[place[few]], place[few])
            grown = grown.only(answers.kept(grown))
            if len(grown.size) > many:
                most = self.bound.with_servers(grown)
                order = np.argsort(-most, kind="stable")
                cut = max(cut, float(most[order[many]]))
                grown = grown.only(order[:many])
            heads_by_size.append(grown)
        heads = functools.reduce(Sets.and_also, heads_by_size)
        heads.last[:] = 0
        answers.heads = None if cut else heads
        return heads, cut

    def _with_each(self, sets: Sets, most: Floats) -> tuple[Sets, Floats]:
        """With each further batch job, none before the last; and the most of what each was."""
        light = self.bound.light
        parent, place = np.nonzero(np.arange(len(light)) >= sets.last[:, None])
        few = np.flatnonzero(sets.size[parent] < MOST_JOBS)
        parent, place = parent[few], place[few]
        more = sets.with_another(parent, light[place], place)
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
            more = sets.with_another(few[parent], light[place], place)
            more = more.only(self._answers.kept(more)).different()
            more = more.only(self._answers.within_power(more))
            grown.append(sets := more.only(self._starts(more, self.bound.gains(more))))
        return grown

    def _starts(self, sets: Sets, most: Floats) -> Ints:
        """Those that could gain most, and the best few of each kind of job."""
        first = [_first(most, 150)]
        having = np.zeros((len(most), len(self.bound.duals)), dtype=bool)
        having[np.arange(len(most))[:, None], sets.rows] = True
        first += [
            _first(np.where(having[:, kind], most, -np.inf), _OF_A_KIND)
            for kind in np.flatnonzero(having[:, :-1].any(axis=0)).tolist()
        ]
        return np.unique(np.concatenate(first))

    def _best(self, sets: Sets, least: float) -> list[PlacedSet]:
        sets = sets.only(sets.size >= ADVISED_JOBS).different()
        sets = sets.only(self._answers.within_power(sets))
        gains = self.bound.gains(sets)
        good: list[PlacedSet] = []
        used = [0] * len(self.bound.duals)
        count = 0
        # The predictor is asked of 150 sets at most, chosen from 1,500.
        for row in _first(np.where(gains > least, gains, -np.inf), 1500).tolist():
            kinds: list[int] = sets.rows[row, : sets.size[row]].tolist()
            if min(used[kind] for kind in kinds) < _OF_A_KIND and count < 150:
                count += 1
                if answer := self._answers.by_physics(
                    self._answers.kinds(kinds), int(sets.level[row])
                ):
                    good.append(answer)
                    for kind in set(kinds):
                        used[kind] += 1
        return good

    def _pairs(self, least: float, most: float) -> tuple[list[PlacedSet], float]:
        """Some that gain, and closely all that gain more than the most; and what others could."""
        two = self._answers.two
        number, above = (len(two.costs) ** 2, most) if self._closely else (_PAIRS, least)
        some, _ = self._gaining(two.unasked & two.roughly, above, number)
        two.look_at(some)
        some, beyond = self._gaining(two.unasked & ~two.roughly, least, _PAIRS)
        _, unknown = self._gaining(two.unasked & two.roughly, least, 0)
        placed = [pair for a, b in some.tolist() if (pair := self._answers.pair(a, b))]
        return placed, max(beyond, unknown)

    def _gaining(self, of: Bools, above: float, number: int) -> tuple[Ints, float]:
        """So many pairs that could gain most, and the most that others could."""
        duals = self.bound.duals[:-1]
        gains = duals[:, None] + duals + self._card_dual - self._answers.two.costs
        several = np.triu(np.ones_like(of), 1) | np.diag(self._answers.counts[:-1] >= ADVISED_JOBS)
        pairs = np.argwhere(of & several & (gains > above))
        gains = gains[*pairs.T]
        order = np.argsort(-gains, kind="stable")
        return pairs[order[:number]], float(gains[order[number:]].max(initial=0.0))

    def _gain(self, placed: PlacedSet) -> float:
        kinds = np.searchsorted(self._answers.there, placed.kinds)
        return float(self.bound.duals[kinds].sum()) + self._card_dual - placed.cost


def _first(values: Floats, number: int) -> Ints:
    order = np.argsort(-values, kind="stable")[:number]
    return order[np.isfinite(values[order])]
