"""Two jobs as a model of pairs takes them: their splits, and what they cost at least.

So the model need not be asked of most of them one by one: what it expects of many at once, without
limits and intervals, shows of nearly all that they gain nothing.
"""

import math
from typing import TypeAlias

import numpy as np

from advisor.core.interval import Interval
from advisor.core.split import NINE, Split
from advisor.place.options import Ints
from advisor.place.problem import Bools
from advisor.place.sets.many import ManyAlone
from advisor.place.sets.placing import Placing
from advisor.predict.predictions import ExpectedPair, are_mirrored, is_within, possible_speed
from advisor.predict.profiles import Floats, Profile
from advisor.validity.safe_splits import safe_splits

OF_BOTH, OF_BOTH_SERVED = 1.0, 0.85
"""Watts of two jobs and of what they lag behind, at least, for each 1 of their watts alone less one
active idle power, which is what two can share; and with a server, which answers in fuller batches.
The model of pairs saw no pair of bundled jobs below (tests/integration/test_place_bound.py)."""

AT_ONCE = 20
"""Pairs that a model is asked of: with more of them its trees are no longer in the caches."""

ROUNDING = 1e-9
"""Of a cost: by so little a model may say less of a pair alone than among others."""

_ANY = Interval(math.inf, math.inf, math.inf)

_Safe: TypeAlias = tuple[Split | None, ...]


class Pairs:
    """Of one pool; by the places of two kinds among those with a profile, the first not above.

    Attributes:
        costs: What they cost at least; shape (there, there).
        roughly: Where that is by what the jobs are alone, and not by what the model expects.
        unasked: Pairs that the model, if there is one, was not asked of.
    """

    def __init__(self, placing: Placing, number: int, many: ManyAlone, floors: Floats) -> None:
        self._placing, self._number, self._floors = placing, number, floors
        pool = placing.pools[number]
        self._model, profiles = pool.of_pairs, pool.profiles
        self._there = [n for n, profile in enumerate(profiles) if profile]
        self._profiles: list[Profile] = [profile for profile in profiles if profile]
        self._safeties = [profile.safety(pool.checked) for profile in self._profiles]
        self._most = np.array([possible_speed(p, _ANY).value for p in self._profiles])
        self._safe: dict[object, _Safe] = {}
        self.costs = _least_costs(placing, many)
        self.roughly: Bools = np.triu(np.ones_like(self.costs, dtype=bool))
        self.unasked: Bools = self.roughly & (self._model is not None)

    def splits(self, a: int, b: int) -> list[Split]:
        """The nine splits at safe counts of units, where both jobs were measured."""
        own = [self._safeties[a], self._safeties[b]]
        both = self._profiles[a], self._profiles[b]
        # Kinds of jobs have the same safe counts more often than not.
        key = *((of.units_total, of.allowed) for of in own), (mirrored := are_mirrored(both))
        if key not in self._safe:
            safe = safe_splits(NINE, own, mirrored=mirrored)
            self._safe[key] = tuple(dict.fromkeys(safe))
        return [split for split in self._safe[key] if split and is_within(split, both)]

    def look_at(self, pairs: Ints) -> None:
        """Say of some what they cost at least by what the model expects; shape (pairs, 2)."""
        if not (model := self._model):
            return
        for start in range(0, len(pairs), AT_ONCE):
            some: list[list[int]] = pairs[start : start + AT_ONCE].tolist()
            asked = [((self._profiles[a], self._profiles[b]), self.splits(a, b)) for a, b in some]
            for (a, b), found in zip(some, model.expected(asked), strict=True):
                self.costs[a, b] = self._least(a, b, found) * (1 - ROUNDING)
                self.roughly[a, b] = False

    def _least(self, a: int, b: int, found: ExpectedPair) -> float:
        """At the cheapest split where both keep their floors as expected."""
        speeds = np.minimum(found.speeds, self._most[[a, b], None])
        kept = (speeds >= self._floors[[a, b], None] * (1 - ROUNDING)).all(axis=0)
        ways = zip(speeds.T[kept].tolist(), found.power_w[kept].tolist(), strict=True)
        kinds = self._there[a], self._there[b]
        costs = (self._placing.cost(self._number, kinds, own, watts) for own, watts in ways)
        return min(costs, default=math.inf)


def _least_costs(placing: Placing, many: ManyAlone) -> Floats:
    """All of their watts, or the power limit, where nothing may lag behind."""
    alone = many.alone
    alone_w, idle_w, served = (of[:-1, 0] for of in (alone.power_w, alone.idle_w, alone.served))
    both_w = alone_w[:, None] + alone_w - np.maximum(idle_w[:, None], idle_w)
    part = np.where(np.maximum(served[:, None], served), OF_BOTH_SERVED, OF_BOTH)
    costs: Floats = placing.per_card + placing.per_w * np.minimum(part * both_w, many.limit_w)
    return costs
