"""Who could have shared a card: sets of kinds, grown job by job by the law of sets.

A cluster is packed hundreds of times, slot by slot, in groups that may share. So what each further
kind would gain a set is asked once of `advisor.place` (the law as arrays, with every limit) and
kept, and a group is packed by taking what gains most. That finds no more than `advisor place`
would: what is saved here, a plan saves, too.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from advisor.core.gpu import WHOLE
from advisor.core.objectives import Aim, Prices
from advisor.core.split import MOST_JOBS
from advisor.decide.limits import Limits
from advisor.place.sets.answers import LEVELS, SetAnswers, Sets, set_answers
from advisor.place.sets.placing import Kind, Pool, make_placing
from advisor.predict.profiles import Floats, Profile
from advisor.predict.sets import SetClass, class_of, filling_beside
from advisor_audit.kinds import SeenKind

LEAST_GAIN = 0.03
"""Of what a set costs without the job: a fault of one can end all, so less is not worth it."""

Members: TypeAlias = tuple[int, ...]
"""Kinds of a set by their numbers, ascending."""

_Found: TypeAlias = Counter[tuple[Members, int]]
"""Sets with their level, and how many of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedSet:
    """What a set does, by the law.

    Attributes:
        speeds: Of each kind, relative to its own alone.
        shares: Limits in percent.
        longer: How much longer the tail of each could be, for each 1 alone, as expected.
        lags: 1 for a job whose work is done later, 0 for a server: what it misses is lost.
        lag_w: Watts at which what the jobs lag behind is done later, on cards of their own.
        lag_cards: Cards that this takes, 1 for as long as the set runs.
    """

    members: Members
    speeds: tuple[float, ...]
    shares: tuple[float, ...]
    floors: tuple[float, ...]
    longer: tuple[float, ...]
    of_class: SetClass
    power_w: float
    alone_w: float
    lags: tuple[float, ...]
    lag_w: float
    lag_cards: float

    @property
    def saved_w(self) -> float:
        """For the same work, freed cards off."""
        return self.alone_w - self.power_w - self.lag_w


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Row:
    """Of a set, what it is with each further kind: gains, and the level at which."""

    gains: Floats
    levels: "np.ndarray[tuple[int], np.dtype[np.int64]]"
    costs: Floats


@dataclass(slots=True, eq=False)
class Packer:
    """Kinds on cards of one GPU model; keeps what was asked.

    Attributes:
        kinds: In the order of their numbers.
    """

    kinds: Sequence[SeenKind]
    answers: SetAnswers
    alone: Floats = field(init=False)
    _rows: dict[tuple[Members, int], _Row] = field(default_factory=dict[tuple[Members, int], _Row])
    _packed: dict[frozenset[tuple[int, int]], _Found] = field(
        default_factory=dict[frozenset[tuple[int, int]], _Found]
    )
    _costs: dict[tuple[Members, int], float] = field(
        default_factory=dict[tuple[Members, int], float]
    )
    _sets: dict[tuple[Members, int], PackedSet] = field(
        default_factory=dict[tuple[Members, int], PackedSet]
    )

    def __post_init__(self) -> None:
        self.alone = np.array([self._cost_alone(n) for n in range(len(self.kinds))])

    def pack(self, counts: Mapping[int, int]) -> _Found:
        """Sets for so many jobs of each kind, with their level; those alone are among them."""
        key = frozenset(counts.items())
        if key not in self._packed:
            if len(self._packed) > MOST_KEPT:
                self._packed.clear()
            sm = self.answers.many.alone.sm[:, 0]
            orders = (sorted(counts, key=lambda n: (sign * sm[n], n)) for sign in (-1, 1))
            ways = [self._grown(counts, order) for order in orders]
            self._packed[key] = min(ways, key=self._total)
        return self._packed[key]

    def _grown(self, counts: Mapping[int, int], order: Sequence[int]) -> _Found:
        left, found = dict(counts), Counter[tuple[Members, int]]()
        for seed in order:
            while left.get(seed, 0) > 0:
                members, level = self._best((seed,), left)
                used = Counter(members)
                times = min(left[kind] // count for kind, count in used.items())
                for kind, count in used.items():
                    left[kind] -= times * count
                found[members, level] += times
        return found

    def _best(self, members: Members, left: Mapping[int, int]) -> tuple[Members, int]:
        """A set with whoever gains it most, as long as anybody does."""
        level = 0
        while len(members) < MOST_JOBS:
            used = Counter(members)
            free = [kind for kind, count in left.items() if count > used[kind]]
            if not free:
                break
            row = self.row(members, level)
            gains = row.gains[free]
            best = int(gains.argmax())
            if not gains[best] > 0:
                break
            level = int(row.levels[free[best]])
            members = tuple(sorted((*members, free[best])))
            self._costs[members, level] = float(row.costs[free[best]])
        return members, level

    def row(self, members: Members, level: int) -> _Row:
        """What each further kind would gain a set, and at which level."""
        key = (members, level)
        if key not in self._rows:
            if len(self._rows) > MOST_KEPT:
                self._rows.clear()
            self._rows[key] = self._asked(members, level)
        return self._rows[key]

    def _asked(self, members: Members, level: int) -> _Row:
        """Each further kind at each level, all at once."""
        answers, kinds, size = self.answers, len(self.kinds), len(members) + 1
        empty = kinds
        rows = np.full((kinds * len(LEVELS), MOST_JOBS), empty)
        rows[:, : len(members)] = members
        rows[:, size - 1] = np.tile(np.arange(kinds), len(LEVELS))
        levels = np.repeat(np.arange(len(LEVELS)), kinds)
        sizes = np.full(len(rows), size)
        sets = Sets(rows=rows, level=levels, size=sizes, last=np.zeros_like(sizes))
        # Only jobs that fill the GPU have limits.
        several = np.flatnonzero((levels == 0) | answers.many.alone.fills[rows, 0].any(axis=1))
        chosen = several[answers.kept(sets.only(several))]
        costs = np.full(len(rows), np.inf)
        if len(chosen):
            placing, rates = answers.placing, answers.many.at(rows[chosen], levels[chosen])
            lag = np.append(placing.lag, 0.0)[rows[chosen]]
            behind = ((1 - rates.speed) * lag).sum(axis=1)
            costs[chosen] = placing.per_card + placing.per_w * rates.power_w + behind
        table = costs.reshape(len(LEVELS), kinds)
        best = table.argmin(axis=0)
        cheapest = table[best, np.arange(kinds)]
        before = self.cost(members, level)
        gains = before + self.alone - cheapest
        return _Row(
            gains=np.where(gains > LEAST_GAIN * before, gains, -np.inf), levels=best, costs=cheapest
        )

    def _cost_alone(self, kind: int) -> float:
        placing = self.answers.placing
        return placing.per_card + placing.per_w * self._alone_w(kind)

    def _alone_w(self, kind: int) -> float:
        return float(self.answers.many.alone.power_w[kind, 0])

    def cost(self, members: Members, level: int) -> float:
        """Of a set, or of a job alone, as the aim counts."""
        if len(members) == 1:
            return float(self.alone[members[0]])
        if (members, level) in self._costs:
            return self._costs[members, level]
        one, placing = self.set_of(members, level), self.answers.placing
        behind = sum(
            (1 - speed) * placing.lag[kind] for kind, speed in zip(members, one.speeds, strict=True)
        )
        return float(placing.per_card + placing.per_w * one.power_w + behind)

    def _total(self, found: Mapping[tuple[Members, int], int]) -> float:
        return sum(count * self.cost(*key) for key, count in found.items())

    def set_of(self, members: Members, level: int) -> PackedSet:
        """What a set of two or more does, or what a job does alone."""
        key = (members, level)
        if key not in self._sets:
            self._sets[key] = self._described(members, level)
        return self._sets[key]

    def _described(self, members: Members, level: int) -> PackedSet:
        many, size = self.answers.many, len(members)
        rows = np.full((1, MOST_JOBS), len(self.kinds))
        rows[0, :size] = members
        served = many.alone.served[list(members), 0] > 0
        alone_w = np.array([self._alone_w(kind) for kind in members])
        if size == 1:
            speeds, power_w, level = np.ones(1), float(alone_w[0]), 0
        else:
            rates = many.at(rows, np.array([level]))
            speeds, power_w = np.minimum(rates.speed[0, :size], 1.0), float(rates.power_w[0])
        alone = many.alone.seated([[kind] for kind in members], level)
        beside = float(filling_beside(alone.sm, alone.fills).max()) if size > 1 else 0.0
        shares = tuple(map(float, many.shares[list(members), level]))
        limited = min(shares) < WHOLE
        # What a server does not answer is lost, not done later.
        behind = np.where(served, 0.0, 1 - speeds)
        return PackedSet(
            members=members,
            speeds=tuple(map(float, speeds)),
            shares=shares,
            floors=tuple(map(float, self.answers.floors[list(members)])),
            longer=tuple(map(float, alone.tails()[:, 0])),
            of_class=class_of("limited" if limited else "uncapped", beside),
            power_w=power_w,
            alone_w=float(alone_w.sum()),
            lags=tuple(np.where(served, 0.0, 1.0).tolist()),
            lag_w=float((behind * alone_w).sum()),
            lag_cards=float(behind.sum()),
        )


def make_packer(
    kinds: Sequence[SeenKind],
    profiles: Sequence[Profile],
    idle_power_w: float,
    aim: Aim,
    limits: Limits,
    prices: Prices,
) -> Packer:
    """For kinds on one GPU model.

    Raises:
        InputError: an aim without prices.
    """
    pool = Pool(
        gpu_model=kinds[0].model,
        gpus=MOST_JOBS * len(kinds),
        profiles=tuple(profiles),
        limits=limits,
        idle_power_w=idle_power_w,
    )
    named = [
        Kind(name=profile.job, count=MOST_JOBS, is_server=kind.is_server)
        for kind, profile in zip(kinds, profiles, strict=True)
    ]
    return Packer(kinds, set_answers(make_placing(named, [pool], aim, prices), 0))


MOST_KEPT = 20_000
"""Answers that are kept, of each sort; a row has a number for each kind."""
