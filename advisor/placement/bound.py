"""What a set could gain at most, with every job that may still join it.

In kernel round robin the job with most kernels waits for all of the others, so jobs of a set hold
the GPU for no more time than there is (`sets.dealt`). What a set gains is a sum over its jobs, and
grows with their speeds. So at any price of that time it gains no more than all of the time costs
and what each job brings beyond its own (Lagrangian relaxation: A. M. Geoffrion, "Lagrangean
relaxation for integer programming", 1974). Of several prices that which says least is taken.
"""

from dataclasses import dataclass

import numpy as np

from advisor.core.gpu import ADVISED_JOBS, MOST_JOBS
from advisor.placement.placing import Ints, SetAnswers, Sets
from advisor.predict.profiles import Floats
from advisor.predict.sets import FULLER, SPEED_ERRORS

# The low end of a speed, for each 1, is no higher than this.
_BEST_LOW = max(low for low, _ in SPEED_ERRORS.values())

CHUNK = 1024
"""Sets looked at together."""


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
        found = np.full((len(each), MOST_JOBS + 1, len(self.prices)), -np.inf)
        found[:, 0] = 0.0
        found[:, 1 : best.shape[1] + 1] = best.cumsum(axis=1)
        return found


class SetBound:
    """For sets that grow by servers, then by batch jobs that do not fill the GPU.

    Attributes:
        own: What a job of each kind is worth, and an empty seat; shape (kinds + 1,).
        servers: Kinds of servers, `light` those of the other jobs that join.
    """

    def __init__(self, answers: SetAnswers, worth: Floats, card_worth: float) -> None:
        """`worth` is by kind of the placing; `card_worth` of a card that stays free, 0 or less."""
        self._answers, self._card_worth = answers, card_worth
        self._alone = alone = answers.many.alone
        self._per_w = answers.placing.per_w
        # Below a ceiling under the power limit no watts are cut off.
        held = answers.ceiling_w < answers.many.limit_w
        self._limit_w = np.inf if held else answers.many.limit_w
        self._dearest = float(max(answers.placing.lag.max(), worth.max()))
        self._least_size = ADVISED_JOBS if answers.is_of_law(ADVISED_JOBS) else ADVISED_JOBS + 1
        self.own = np.append(worth[list(answers.there)], 0.0)
        joins = (alone.fills[:-1, 0] == 0) & (answers.counts[:-1] > 0)
        served = alone.served[:-1, 0] > 0
        self.servers, self.light = np.flatnonzero(joins & served), np.flatnonzero(joins & ~served)
        # The job with most kernels waits for the others, and has as many as all in the mean.
        gap_s = (alone.own_s - alone.hold_s)[self.light, 0].min(initial=np.inf)
        self._sets, self._light_sets = (
            self._priced(least / MOST_JOBS) for least in (0.0, min(gap_s, 1.0))
        )
        self._joins = np.append(np.isin(np.arange(len(joins)), self.light), True)

    def of(self, sets: Sets) -> Floats:
        """The most that sets gain with any batch jobs that do not fill."""
        most = self._of(sets, self._sets, self.light)
        light = np.flatnonzero(self._joins[sets.rows].all(axis=1))
        if len(light):
            told = self._of(sets.only(light), self._light_sets, self.light)
            most[light] = np.minimum(most[light], told)
        return most

    def with_servers(self, sets: Sets) -> Floats:
        """With any servers, too: the most."""
        return self._of(sets, self._sets, np.append(self.servers, self.light))

    def gains(self, sets: Sets) -> Floats:
        """Of sets as they are, by arrays alone."""
        worth: Floats = self.own[sets.rows].sum(axis=1)
        return worth + self._card_worth - self._answers.costs(sets)

    def _of(self, sets: Sets, priced: _Priced, kinds: Ints) -> Floats:
        joining = priced.most_of(kinds, self._answers.counts)
        most = np.zeros(len(sets.size))
        for size in np.unique(sets.size).tolist():
            of_size = np.flatnonzero(sets.size == size)
            least = min(max(0, self._least_size - size), MOST_JOBS - size)
            joined = joining[:, least : MOST_JOBS - size + 1].max(axis=1)
            for start in range(0, len(of_size), CHUNK):
                some = of_size[start : start + CHUNK]
                most[some] = self._with(sets.only(some), priced, joined)
        return most

    def _with(self, sets: Sets, priced: _Priced, joined: Floats) -> Floats:
        """With what joins, shape (regimes, prices)."""
        seats = sets.rows, sets.level[:, None]
        # Who joins makes nobody faster.
        alone = self._alone.seated(sets.rows.T, sets.level)
        lost = 1 - alone.kept(alone.could).T[..., None]
        head = priced.values[:, *seats] - lost * np.maximum(0.0, priced.speeds[:, *seats])
        head = head.sum(axis=2)
        bounds = head + joined[:, None] + priced.prices
        most: Floats = bounds.min(axis=2)
        # Jobs with SMs of their own wait for nobody, as long as none joins them.
        most = np.where(alone.apart, np.maximum(most, head[..., 0]), most)
        return self._gain(most, self._alone.power_w[seats].max(axis=1))

    def _gain(self, bound: Floats, hottest_w: Floats) -> Floats:
        """Less what card and watts cost: the sum of all, or the hottest job, or the power limit."""
        card = self._card_worth - self._answers.placing.per_card
        # Sums are rounded, so a little of the dearest job is added.
        bound = bound + card + 1e-9 * self._dearest
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
        worth = (self.own - np.append(lag, 0.0))[:, None]
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
        found, speeds = list[Floats](), list[Floats]()
        for each, less in regimes:
            speeds.append(beyond := each[..., None] - time[..., None] * prices)
            kept = np.where(beyond > 0, 1.0, np.minimum(least, 1.0)[..., None])
            value = (worth - less)[..., None] + beyond * kept
            # What does not keep its floor is never taken.
            found.append(np.where(least[..., None] > 1 + 1e-7, -1e9 * self._dearest, value))
            found[-1][-1] = 0.0
        return _Priced(prices, np.array(found), np.array(speeds))
