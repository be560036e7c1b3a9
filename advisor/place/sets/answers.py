"""What each set of a pool gives and costs, and whether it keeps every limit: asked once of each."""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations_with_replacement

import numpy as np

from advisor.core.gpu import MEMORY_PART, WHOLE
from advisor.core.split import ADVISED_JOBS, MOST_JOBS, Split, without_limits
from advisor.decide.constraints import violations, violations_alone
from advisor.decide.limits import (
    UNSURE_BELOW,
    Limits,
    check_limits,
    floor,
    must_be_sure,
    with_card_memory,
)
from advisor.place.options import Ints
from advisor.place.problem import Bools
from advisor.place.sets.many import LEVELS, NONE, ManyAlone, Sets, many_alone, nothing
from advisor.place.sets.pairs import Pairs
from advisor.place.sets.placing import PlacedSet, Placing, Pool
from advisor.predict.predictions import Prediction, Predictor
from advisor.predict.profiles import Floats, Profile
from advisor.predict.set_law import HELD, SPEED_ERRORS
from advisor.predict.sets import SetPredictor

_LAW = SetPredictor()


@dataclass(slots=True, eq=False)
class SetAnswers:
    """Of one pool; keeps what was asked.

    Attributes:
        there: Kinds with a profile; `many` knows them in this order, and an empty seat after them,
            as do the arrays below.
        counts: How many jobs of each.
        floors: Least speed that each must keep.
        sure: Whether the low end of its speed must.
        two: What is known of each two of them.
        ceiling_w: Most power of a card; infinite where nobody asked for one.
        levels: Of the sets that the law was asked of, and that keep every limit.
    """

    placing: Placing
    number: int
    there: tuple[int, ...]
    many: ManyAlone
    counts: Floats = field(init=False)
    floors: Floats = field(init=False)
    sure: Bools = field(init=False)
    two: Pairs = field(init=False)
    levels: dict[PlacedSet, int] = field(default_factory=dict[PlacedSet, int])
    _memory_mib: Floats = field(init=False)
    _most_p99_ms: Floats = field(init=False)
    _limits: Limits = field(init=False)
    _limits_of_sets: Limits = field(init=False)
    ceiling_w: float = field(init=False)
    heads: Sets | None = None
    _filling: Sets | None = None
    _known: dict[tuple[tuple[int, ...], int], PlacedSet | None] = field(
        default_factory=dict[tuple[tuple[int, ...], int], PlacedSet | None]
    )

    def __post_init__(self) -> None:
        profiles = [self._profile(kind) for kind in self.there]
        self._limits = limits = with_card_memory(self.pool.limits, self.pool.gpu_model)
        self._limits_of_sets = replace(limits, unsure_below=UNSURE_BELOW)
        self.ceiling_w = (limits.max_power_w or np.inf) * (1 + 1e-9)
        self.counts = np.append(self.placing.counts[list(self.there)], 0.0)
        self.floors = np.array([*(floor(profile, limits) for profile in profiles), 0.0])
        self.sure = np.array([*(must_be_sure(profile, limits) for profile in profiles), False])
        self._memory_mib = np.array([*(p.memory_used_mib or 0.0 for p in profiles), 0.0])
        most_ms = [limits.longest_p99_ms(profile) or np.inf for profile in profiles]
        self._most_p99_ms = np.array([*most_ms, np.inf])
        self.two = Pairs(self.placing, self.number, self.many, self.floors)

    @property
    def pool(self) -> Pool:
        """Its cards."""
        return self.placing.pools[self.number]

    def of(self, kinds: tuple[int, ...]) -> PlacedSet | None:
        """One job alone, or two, kinds ascending; None: it keeps not all limits."""
        if len(kinds) == ADVISED_JOBS and self.pool.of_pairs:
            return self._known_or((kinds, NONE), self.pool.of_pairs)
        return self.by_law(kinds)

    def is_of_law(self, size: int) -> bool:
        """Whether the law of sets says what so many jobs do, at its levels."""
        return size > ADVISED_JOBS or (size == ADVISED_JOBS and not self.pool.of_pairs)

    def by_law(self, kinds: tuple[int, ...], level: int = 0) -> PlacedSet | None:
        """By the law of sets; jobs that fill the GPU are limited to a level."""
        found = self._known_or((kinds, level), _LAW)
        if found:
            self.levels[found] = level
        return found

    def _known_or(self, key: tuple[tuple[int, ...], int], by: Predictor) -> PlacedSet | None:
        if key not in self._known:
            self._known[key] = self._asked(*key, by)
        return self._known[key]

    def leave(self, counts: Floats) -> None:
        """Look for sets of so many jobs of each kind of the placing."""
        self.counts = np.append(counts[list(self.there)], 0.0)
        self.heads = self._filling = None

    def singles(self) -> Iterator[PlacedSet]:
        """Each kind alone, where it may."""
        return (one for kind in self.there if (one := self.of((kind,))))

    def copies(self) -> Iterator[PlacedSet]:
        """Three of one kind and more, as many as may share a card."""
        for kind in self.there:
            for number in range(
                ADVISED_JOBS + 1, min(MOST_JOBS, self.placing.kinds[kind].count) + 1
            ):
                if (one := self.by_law((kind,) * number)) is None:
                    break
                yield one

    def pairs(self) -> Iterator[PlacedSet]:
        """Of all kinds, where a model of pairs knows them; else they are sets like others."""
        if self.pool.of_pairs:
            counts = self.placing.counts
            for pair in combinations_with_replacement(self.there, 2):
                if pair[0] != pair[1] or counts[pair[0]] > 1:
                    found = self.of(pair)
                    if found:
                        yield found

    def pair(self, a: int, b: int) -> PlacedSet | None:
        """As the model of pairs says; by their places."""
        self.two.unasked[a, b] = False
        return self.of((self.there[a], self.there[b]))

    def placed(self, places: Sequence[int], level: int) -> PlacedSet | None:
        """Of kinds by their places among those that are there; at a level, where the law says."""
        kinds = tuple(sorted(self.there[place] for place in places))
        return self.by_law(kinds, level) if self.is_of_law(len(kinds)) else self.of(kinds)

    def without(self, one: PlacedSet, kind: int) -> PlacedSet | None:
        """A larger set less one job of a kind, as costs least; None: they keep not all limits."""
        kinds = list(one.kinds)
        kinds.remove(kind)
        left = tuple(kinds)
        if not self.is_of_law(len(left)):
            return self.of(left)
        ways = filter(None, (self.by_law(left, level) for level in range(len(LEVELS))))
        return min(ways, key=lambda found: found.cost, default=None)

    def kept(self, sets: Sets) -> Ints:
        """Which of them keep memory, numbers, floors and tails; larger ones of those that do."""
        if not len(sets.size):
            return sets.size
        most_mib = self._limits.memory_mib or np.inf
        added = sets.rows[np.arange(len(sets.size)), sets.size - 1]
        fits: Bools = self._memory_mib[sets.rows].sum(axis=1) <= MEMORY_PART * most_mib
        fits &= (sets.rows == added[:, None]).sum(axis=1) <= self.counts[added]
        chosen = np.flatnonzero(fits)
        sets = sets.only(chosen)
        rates = self.many.at(sets.rows, sets.level)
        unsure = self.sure[sets.rows] | (rates.low < UNSURE_BELOW * rates.speed)
        decisive = np.where(unsure, rates.low, rates.speed)
        kept = (decisive >= self.floors[sets.rows] - 1e-9).all(axis=1)
        if np.isfinite(self._most_p99_ms).any():
            p99_ms = self.many.p99_ms(sets.rows, sets.level)
            kept &= (p99_ms <= self._most_p99_ms[sets.rows] * (1 + 1e-9)).all(axis=1)
        return chosen[kept]

    def within_power(self, sets: Sets) -> Ints:
        """Which of them keep the ceiling of watts; larger ones may where they do not."""
        there = np.arange(len(sets.size))
        if self.ceiling_w == np.inf:
            return there
        jobs = np.flatnonzero(sets.size)
        over = self.many.at(sets.rows[jobs], sets.level[jobs]).power_w > self.ceiling_w
        return np.delete(there, jobs[over])

    def costs(self, sets: Sets) -> Floats:
        """Of sets, whatever limits they keep; shape (sets,)."""
        rates, placing = self.many.at(sets.rows, sets.level), self.placing
        there = list(self.there)
        lag = np.append(placing.lag[there], 0.0)[sets.rows]
        paces = np.append(placing.paces[self.number, there], 0.0)[sets.rows]
        behind = (lag * (1 - paces * rates.speed)).sum(axis=1)
        costs: Floats = placing.per_card + placing.per_w * rates.power_w + behind
        return costs

    def filling(self) -> Sets:
        """All sets of jobs that fill the GPU, at every level; and of none, at the first."""
        if self._filling is None:
            fills = np.flatnonzero((self.many.alone.fills[:-1, 0] > 0) & (self.counts[:-1] > 0))
            found, grown = [nothing(len(self.there))], nothing(len(self.there), len(LEVELS))
            while len(grown.size) and grown.size[0] < MOST_JOBS:
                parent, place = np.nonzero(np.arange(len(fills)) >= grown.last[:, None])
                grown = grown.with_one_more(parent, fills[place], place)
                grown = grown.only(self.kept(grown))
                found.append(grown)
            self._filling = functools.reduce(Sets.and_also, found)
        return replace(self._filling, last=np.zeros_like(self._filling.last))

    def may_be_joined(self, sets: Sets) -> Bools:
        """By jobs that do not fill the GPU: beside too many that do, nobody knows their speed."""
        alone, seats = self.many.alone, (sets.rows, sets.level[:, None])
        held: Bools = (alone.sm * alone.fills)[seats].sum(axis=1) < HELD
        others = self.floors[:-1][alone.fills[:-1, 0] == 0]
        return held | bool(others.min(initial=1.0) <= SPEED_ERRORS["filling"][0])

    def _profile(self, kind: int) -> Profile:
        found = self.pool.profiles[kind]
        assert found is not None
        return found

    def _asked(self, kinds: tuple[int, ...], level: int, by: Predictor) -> PlacedSet | None:
        profiles = [self._profile(kind) for kind in kinds]
        limits = self._limits if level == NONE else self._limits_of_sets
        if len(kinds) == 1:
            return self._alone(kinds, profiles[0], limits)
        splits = self.ways(kinds, profiles, level)
        told = by.predict(profiles, splits) if splits else ()
        costs = [self._cost(kinds, found) for found in told]
        for cost, _, found in sorted(zip(costs, range(len(costs)), told, strict=True)):
            if not violations(found, profiles, limits):
                return self._placed(kinds, profiles, found, cost[0])
        return None

    def _cost(self, kinds: tuple[int, ...], found: Prediction) -> tuple[float, float]:
        """And watts, which decide where costs are equal."""
        speeds, watts = [part.speed.value for part in found.parts], found.power_w.value
        return self.placing.cost(self.number, kinds, speeds, watts), watts

    def _alone(self, kinds: tuple[int, ...], profile: Profile, limits: Limits) -> PlacedSet | None:
        too_much = limits.memory_mib and (profile.memory_used_mib or 0) > limits.memory_mib
        if too_much or violations_alone(profile, limits):
            return None
        watts = profile.whole_gpu_power_w
        return PlacedSet(
            kinds=kinds,
            pool=self.number,
            split=None,
            speeds=(1.0,),
            p99_ms=(profile.serving and profile.serving.p99_alone_ms(WHOLE),),
            power_w=watts,
            cost=self.placing.cost(self.number, kinds, (1.0,), watts),
        )

    def ways(self, kinds: tuple[int, ...], profiles: Sequence[Profile], level: int) -> list[Split]:
        """Of two jobs for the model of pairs, the nine splits; else the one at this level."""
        places = [self.there.index(kind) for kind in kinds]
        if level == NONE:
            return self.two.splits(places[0], places[-1])
        shares = tuple(map(float, self.many.shares[places, level]))
        limited = min(shares) < WHOLE
        return [Split(shares) if limited else without_limits("uncapped", len(kinds))]

    def _placed(
        self,
        kinds: tuple[int, ...],
        profiles: Sequence[Profile],
        found: Prediction,
        cost: float,
    ) -> PlacedSet:
        seats = zip(profiles, found.parts, found.split.shares, strict=True)
        tails = [part.p99_ms(profile, found.split, share) for profile, part, share in seats]
        return PlacedSet(
            kinds=kinds,
            pool=self.number,
            split=found.split,
            speeds=tuple(part.speed.value for part in found.parts),
            p99_ms=tuple(tail and tail.high for tail in tails),
            power_w=found.power_w.value,
            cost=cost,
        )


def set_answers(placing: Placing, number: int) -> SetAnswers:
    """Of one of the pools.

    Raises:
        InputError: a limit for no job that is there.
    """
    pool = placing.pools[number]
    there = tuple(n for n, profile in enumerate(pool.profiles) if profile is not None)
    profiles = [profile for profile in pool.profiles if profile is not None]
    check_limits(pool.limits, profiles)
    return SetAnswers(placing, number, there, many_alone(profiles, pool.checked))
