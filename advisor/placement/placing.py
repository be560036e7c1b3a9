"""The placement problem, jobs that run from now on or a queue of work, and what sets cost.

Jobs that run from now on share a GPU in sets of up to seven. A server runs on; a batch job has its
work done at the speed that it keeps, and what it lags behind is charged as if a GPU of its own did
it later. So sets are compared for the same work, as `advisor.core.objectives` does.

A queue is work that ends, counted in seconds that a job takes alone on a whole GPU. At most two of
its jobs share a GPU, until both have ended: what three do once one has ended was not measured.

Cost and limits of a set are each worked out once. A search looks at hundreds of thousands of sets.
This is for finding them: all jobs of a set that fill the GPU get the same limit, a `level`; the
others get none. Two jobs are looked at with priority and at the nine splits, too. What is planned
is decided on, one set at a time, as `advisor recommend` does (`SetAnswers.of`).

So the model need not be asked of most of them one by one: what it expects of many at once, without
limits and intervals, shows of nearly all that they gain nothing.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from advisor.core.gpu import (
    ADVISED_JOBS,
    MEMORY_PART,
    MOST_JOBS,
    NINE,
    WHOLE,
    Split,
    without_limits,
)
from advisor.core.objectives import (
    ADVISED,
    AIMS,
    COST,
    DEFAULT_OBJECTIVE,
    FEWEST_CARDS,
    NORMAL_90,
    Prices,
    Work,
)
from advisor.decide.decision import HOUR_S, Decision, Outlook, below_normal, decide, limits_of
from advisor.decide.limits import (
    CHANCES,
    P99_WEIGHTS,
    TO_THE_END,
    Request,
    sure_speeds,
    weights_of,
)
from advisor.errors import InputError, NoSplitError
from advisor.predict.predictions import (
    PairPredictor,
    Prediction,
    Predictions,
    are_mirrored,
    is_within,
    possible_speeds,
)
from advisor.predict.profiles import Floats, Profile
from advisor.predict.sets import (
    P99_ENDS,
    TAILS,
    JobsAlone,
    OptionPredictor,
    SetPredictor,
    alone_at,
    fills,
    power_w,
)
from advisor.validity.safe_counts import CheckedCounts, safe_splits

Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]

Ask: TypeAlias = Callable[[Sequence[Profile], Work | None], Decision | None]
"""Decides on jobs on one GPU, as `advisor recommend` does; None: no option keeps the limits."""

MOST_KINDS = 300
"""Jobs of a queue that differ in name or work: 45,150 pairs of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Jobs that are interchangeable.

    Attributes:
        is_server: Whether requests arrive whether it runs or not: placed before all others.
        work_s: Of a job of a queue, s alone on a whole GPU; None: it runs from now on.
    """

    name: str
    count: int
    is_server: bool = False
    work_s: float | None = None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Pool:
    """Cards of one GPU model.

    Attributes:
        profiles: One for each kind, in their order; None: it cannot run there.
        limits: What every set keeps there.
        of_pairs: Predictor of two jobs; None: the law of sets predicts them, too.
        ask: Decides on each set that is planned; None: `decider_of` these predictors.
        running: Kinds of the jobs that run on its one card and keep their shares; `ask` decides on
            them and one more job. Such pools come last.
        now: What these do without it.
    """

    gpu_model: str
    gpus: int
    profiles: tuple[Profile | None, ...]
    limits: Request
    idle_power_w: float
    of_pairs: PairPredictor | None = None
    checked: CheckedCounts | None = None
    ask: Ask | None = None
    running: tuple[int, ...] = ()
    now: Prediction | None = None

    @property
    def decider(self) -> Ask:
        """Decides on each set that is planned."""
        predictor = OptionPredictor(self.of_pairs) if self.of_pairs else SetPredictor()

        def ask(profiles: Sequence[Profile], work: Work | None) -> Decision | None:
            try:
                request = replace(self.limits.of(profiles), work=work)
                return decide(Outlook(profiles, predictor, self.checked), request)
            except NoSplitError:
                return None

        return self.ask or ask


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Placing:
    """The jobs, the GPUs, and the costs.

    Attributes:
        per_card: Cost of holding a card.
        per_w: Of each watt that it draws.
        lag: Cost of an hour of work of a kind alone on its cheapest GPU; shape
            (kinds,).
        paces: Rate of each kind on a card of a pool, for each 1 on its slowest GPU model, 0 where
            it cannot run; shape (pools, kinds).
        queue: Kind of each job of a queue, in its order; empty: the jobs run from now on.
        at_once: The cards are held and jobs wait for them: no card stays empty that a job could
            have, and the plan depends on no clock.
    """

    kinds: tuple[Kind, ...]
    pools: tuple[Pool, ...]
    aim: str
    per_card: float
    per_w: float
    lag: Floats
    paces: Floats
    queue: tuple[int, ...] = ()
    at_once: bool = False

    @property
    def counts(self) -> Floats:
        """How many jobs of each kind."""
        return np.array([kind.count for kind in self.kinds], dtype=float)

    def cost(self, pool: int, kinds: Sequence[int], speeds: Sequence[float], watts: float) -> float:
        """Cost of one set an hour: its GPU, its watts, and the work that its jobs lag behind."""
        behind = sum(
            (1 - speed * self.paces[pool, kind]) * self.lag[kind]
            for kind, speed in zip(kinds, speeds, strict=True)
        )
        return float(self.per_card + self.per_w * watts + behind)

    def alone_w(self, pool: int, kind: int) -> float:
        """Power of a job alone on a GPU, W; infinite where it cannot run."""
        profile = self.pools[pool].profiles[kind]
        return profile.whole_gpu_power_w if profile else np.inf

    def alone_to_the_end(self, pool: int, kind: int) -> tuple[float, float]:
        """Seconds and joules that a job of a queue takes alone on a GPU."""
        work_s = self.kinds[kind].work_s or 0.0
        return work_s, work_s * self.alone_w(pool, kind)

    def spent(self, held_s: Floats | float, energy_j: Floats | float) -> Floats:
        """Cost of holding a GPU for some seconds and of the joules it takes; arrays or numbers.

        As `advisor.decide` counts work to its end, times a constant.
        """
        return np.asarray(self.per_card * held_s + self.per_w * energy_j) / HOUR_S

    @classmethod
    def of(
        cls,
        kinds: Sequence[Kind],
        pools: Sequence[Pool],
        aim: str,
        prices: Prices | None = None,
        queue: Sequence[int] = (),
        *,
        at_once: bool = False,
    ) -> "Placing":
        """A placement problem with its costs by objective.

        Raises:
            InputError: no such aim, no price, nothing to place, a kind without a profile, or a
                queue of too many kinds.
        """
        aims = TO_THE_END if queue else AIMS
        if aim not in aims:
            raise InputError(
                f"{'a queue is' if queue else 'jobs are'} not placed by {aim}",
                why="a plan is counted in energy, time or money, added up over GPUs",
                fix=f"use {', '.join(aims)}; a minimum speed protects each job",
            )
        if queue and len(kinds) > MOST_KINDS:
            raise InputError(
                f"these are {len(kinds)} jobs that differ in name or work",
                why=f"every pair of them is looked at, so at most {MOST_KINDS} are taken",
                fix="round the work of each job, or place them in parts",
            )
        if not kinds or sum(pool.gpus for pool in pools) < 1:
            raise InputError("there is nothing to place, or no GPU")
        for n, kind in enumerate(kinds):
            if all(pool.profiles[n] is None for pool in pools):
                raise InputError(
                    f"{kind.name} has no profile on any of these GPU models",
                    fix=f"measure it: advisor profile {kind.name}",
                )
        per_card, per_w = _weights(aim, prices or Prices())
        paces = _paces(kinds, pools)
        costs = [
            [per_card + per_w * p.whole_gpu_power_w if p else np.inf for p in pool.profiles]
            for pool in pools
        ]
        alone = np.array(costs) / np.maximum(paces, 1e-9)
        # By fewest GPUs, only --min-speed bounds how far work may lag behind.
        return cls(
            kinds=tuple(kinds),
            pools=tuple(pools),
            aim=aim,
            per_card=per_card,
            per_w=per_w,
            lag=np.zeros(len(kinds)) if aim == FEWEST_CARDS else alone.min(axis=0),
            paces=paces,
            queue=tuple(queue),
            at_once=at_once,
        )

    def joining(self, number: int) -> "Iterator[PlacedSet]":
        """Each kind that may join the jobs on the card of a pool, at what that adds to the cost."""
        pool = self.pools[number]

        def cost(kinds: Sequence[int], of: Prediction) -> float:
            speeds = [part.speed.value for part in of.parts]
            return self.cost(number, kinds, speeds, of.power_w.value)

        assert pool.now
        now = cost(pool.running, pool.now)
        profiles = [profile for kind in pool.running if (profile := pool.profiles[kind])]
        for kind, profile in enumerate(pool.profiles):
            if not self.kinds[kind].count or profile is None:
                continue
            decision = pool.decider([*profiles, profile], None)
            if decision is None or decision.choice is None:
                continue
            prediction = decision.choice.prediction
            yield PlacedSet(
                kinds=(kind,),
                pool=number,
                split=prediction.split,
                speeds=(prediction.parts[-1].speed.value,),
                p99_ms=(None,),
                power_w=prediction.power_w.value,
                cost=cost((*pool.running, kind), prediction) - now,
                decision=decision,
            )


def _weights(aim: str, prices: Prices) -> tuple[float, float]:
    if aim == DEFAULT_OBJECTIVE:
        return prices.host_w, 1.0
    if aim != COST:
        return 1.0, 0.0
    prices.priced(ADVISED[aim])  # refuses it where nothing has a price
    return prices.of_hour(0.0), prices.kwh / 1000


def _paces(kinds: Sequence[Kind], pools: Sequence[Pool]) -> Floats:
    rates = np.array([[p.whole_gpu_rate if p else 0.0 for p in pool.profiles] for pool in pools])
    paces = rates / np.where(rates > 0, rates, np.inf).min(axis=0)
    # A server answers what arrives, wherever it runs.
    return np.where(np.array([kind.is_server for kind in kinds]) & (paces > 0), 1.0, paces)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedSet:
    """Jobs that share a GPU, or one alone.

    Attributes:
        kinds: Index of each job's kind, ascending.
        pool: Index of the pool.
        split: None for a job alone.
        speeds: Relative to its own alone on that card.
        p99_ms: Of servers, where it is known: the high end.
        cost: Of an hour of it, or of its work to the end, as `Placing` counts.
        times_s: Of a queue: from the start until each has ended.
        energy_j: Of a queue: of the GPU until all have ended.
        decision: The source of these values; None for a job alone and during the search.
    """

    kinds: tuple[int, ...]
    pool: int
    split: Split | None
    speeds: tuple[float, ...]
    p99_ms: tuple[float | None, ...]
    power_w: float
    cost: float
    times_s: tuple[float, ...] = ()
    energy_j: float = 0.0
    decision: Decision | None = field(default=None, compare=False)

    @property
    def time_s(self) -> float:
        """Of a queue: how long it holds its GPU."""
        return max(self.times_s)


LEVELS = (WHOLE, 80.0, 60.0, 45.0, 30.0)
"""Limits of the jobs that fill a GPU, percent; the first is none."""

NINE_SPLITS = -1
"""Stands for a level: two jobs as the model of pairs says, and with priority."""


class _ManyAlone:
    """Kinds of jobs alone, one profile each, at each level; the last row is an empty seat.

    Attributes:
        shares: Limit of each kind at each level: safe, and within its profile.
        alone: There; shape (kinds + 1, levels) each.
        doubt: Of the rates there (`Profile.doubt`).
    """

    def __init__(self, profiles: Sequence[Profile], checked: CheckedCounts | None) -> None:
        shares = np.array([_levels(profile, checked) for profile in profiles])
        alone = alone_at(profiles, shares)
        doubt = [p.doubt_at(of_job)[0] for p, of_job in zip(profiles, shares, strict=True)]
        seated = {
            field_.name: _with_empty_seat(getattr(alone, field_.name))
            for field_ in fields(JobsAlone)
        }
        limits = [profile.power_limit_w for profile in profiles if profile.power_limit_w]
        self.shares, self.doubt = _with_empty_seat(shares), _with_empty_seat(np.array(doubt))
        self.alone, self.limit_w = JobsAlone(**seated), min(limits, default=np.inf)

    def at(self, sets: Ints, level: Ints) -> tuple[Floats, Floats, Floats]:
        """What sets, shape (sets, seats), do, each at its level, shape (sets,).

        Returns:
            Relative speed of each job and the low end of its interval, of a server before chance
            (`Serving.served`), shape (sets, seats); and watts, shape (sets,).
        """
        alone = self.alone.seated(sets.T, level)
        could = alone.at_limit(alone.could, self.limit_w)
        speed = np.minimum(could, alone.rate)
        kept = alone.kept(speed)
        off = np.log(alone.speed_ends(alone.classes)[0]), NORMAL_90 * self.doubt[sets.T, level]
        low = could * np.exp(-np.hypot(*off))
        watts = power_w(
            kept, alone.power_w, alone.idle_w, self.limit_w, alone.saved(), is_sliced=False
        )
        return speed.T, low.T, watts

    def p99_ms(self, sets: Ints, level: Ints, weights: Floats) -> Floats:
        """Of each server, 0 where it is not known; shape (sets, seats).

        `weights` say how far towards the high end each must keep its limit, 0: as expected.
        """
        alone = self.alone.seated(sets.T, level)
        high = P99_ENDS[alone.classes, 2]
        tails_ms = np.where(np.isfinite(alone.p99_ms), alone.p99_ms, 0.0)
        return (high**weights.T * TAILS.longer(alone) * tails_ms).T


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Sets:
    """Many sets while they are grown.

    Attributes:
        rows: Kinds of jobs, seats from the left, then empty ones; shape (sets, seats).
        size: How many jobs.
        last: Place of the job that joined last, in the order in which jobs join.
    """

    rows: Ints
    level: Ints
    size: Ints
    last: Ints

    def only(self, chosen: Ints | Bools) -> "Sets":
        """Some of them."""
        return Sets(**{name: values[chosen] for name, values in self._columns()})

    def and_also(self, others: "Sets") -> "Sets":
        """These, then others."""
        pairs = zip(self._columns(), others._columns(), strict=True)
        return Sets(**{name: np.concatenate([mine, other]) for (name, mine), (_, other) in pairs})

    def with_another(self, parent: Ints, kinds: Ints, last: Ints) -> "Sets":
        """Each of one of these and a further job."""
        grown = self.only(parent)
        grown.rows[np.arange(len(parent)), grown.size] = kinds
        return replace(grown, size=grown.size + 1, last=last)

    def different(self) -> "Sets":
        """Of those with the same jobs and level one."""
        same = np.column_stack([np.sort(self.rows, axis=1), self.level])
        return self.only(np.unique(same, axis=0, return_index=True)[1])

    def _columns(self) -> list[tuple[str, Any]]:
        return [(field.name, getattr(self, field.name)) for field in fields(self)]


def _nothing(empty: int, levels: int = 1) -> Sets:
    """A set of no job at each level; `empty` is the index of an empty seat."""
    none = np.zeros(levels, dtype=np.int64)
    return Sets(
        rows=np.full((levels, MOST_JOBS), empty), level=np.arange(levels), size=none, last=none
    )


def _levels(profile: Profile, checked: CheckedCounts | None) -> list[float]:
    """The limits of a decision that are nearest, for a job that fills the GPU; none for another."""
    limits = limits_of(profile, checked) if fills(profile) else ()
    return [WHOLE, *(min(limits, key=lambda s: abs(s - n), default=WHOLE) for n in LEVELS[1:])]


def _with_empty_seat(values: Floats) -> Floats:
    return np.concatenate([values, np.zeros_like(values[:1])])


# Pairs that a model is asked of: with more of them its trees are no longer in the caches. And of a
# cost, by how little a model may say less of a pair alone than among others.
_AT_ONCE, _ROUNDING = 20, 1e-9


class _Pairs:
    """Of one pool; by the places of two kinds among those with a profile, the first not above.

    Attributes:
        costs: What they cost at least; shape (there, there).
        roughly: Where that is by what the jobs are alone, and not by what the model expects.
        unasked: Pairs that the model, if there is one, was not asked of.
    """

    def __init__(self, placing: Placing, number: int, many: _ManyAlone, floors: Floats) -> None:
        self._placing, self._number, self._floors = placing, number, floors
        pool = placing.pools[number]
        self._model, profiles, self._checked = pool.of_pairs, pool.profiles, pool.checked
        self._there = [n for n, profile in enumerate(profiles) if profile]
        self._profiles: list[Profile] = [profile for profile in profiles if profile]
        self._safeties = [profile.safety(pool.checked) for profile in self._profiles]
        self._most = np.array(
            [possible_speeds(p, np.full((3, 1), math.inf))[0, 0] for p in self._profiles]
        )
        self._safe = dict[object, tuple[Split | None, ...]]()
        self._apart_costs = placing.per_card + placing.per_w * np.array(
            [profile.whole_gpu_power_w for profile in self._profiles]
        )
        self._may_be_alone: Bools = np.array(
            [not pool.limits.violations_alone(profile) for profile in self._profiles], dtype=bool
        )
        self._least_gain = (1 + pool.limits.policy.min_gain) * (1 - _ROUNDING)
        self.costs = _least_costs(placing, many, self._profiles)
        self.roughly: Bools = np.triu(np.ones_like(self.costs, dtype=bool))
        self.unasked: Bools = self.roughly & (self._model is not None)

    def splits(self, a: int, b: int) -> list[Split]:
        """The nine splits at safe counts of units, where both jobs were measured."""
        safeties = [self._safeties[a], self._safeties[b]]
        both = self._profiles[a], self._profiles[b]
        # Kinds of jobs have the same safe counts more often than not.
        key = *((of.units_total, of.allowed) for of in safeties), (mirrored := are_mirrored(both))
        if key not in self._safe:
            self._safe[key] = tuple(dict.fromkeys(safe_splits(NINE, safeties, mirrored=mirrored)))
        return [split for split in self._safe[key] if split and is_within(split, both)]

    def look_at(self, pairs: Ints) -> None:
        """Say of some what they cost at least by what the model expects; shape (pairs, 2)."""
        if not (model := self._model):
            return
        for start in range(0, len(pairs), _AT_ONCE):
            some: list[list[int]] = pairs[start : start + _AT_ONCE].tolist()
            queries = [((self._profiles[a], self._profiles[b]), self.splits(a, b)) for a, b in some]
            for (a, b), expected in zip(some, model.expected(queries), strict=True):
                least = [self._least(a, b, *expected)]
                if (p := self.below_normal(a, b)) is not None:
                    least.append(self._least(a, b, p.speeds[0], p.power_w[0]))
                self.costs[a, b] = min(least) * (1 - _ROUNDING)
                self.roughly[a, b] = False

    def below_normal(self, a: int, b: int) -> Predictions | None:
        """Both with the one that fills below normal priority, by the law; None: that is no way."""
        both = self._profiles[a], self._profiles[b]
        splits = below_normal(both, self._checked)
        return _PHYSICS.predict(both, splits) if splits else None

    def gains(self, places: Sequence[int], speeds: Floats, watts: Floats) -> Bools:
        """Whether work of jobs costs enough more one after the other, where that is possible.

        Of their speeds, shape (jobs, ways), and watts, shape (ways,).
        """
        placing, seats = self._placing, list(places)
        if not self._may_be_alone[seats].all():
            return np.ones_like(watts, dtype=bool)
        apart = (speeds * self._apart_costs[seats, None]).sum(axis=0)
        return apart >= self._least_gain * (placing.per_card + placing.per_w * watts)

    def _least(self, a: int, b: int, expected: Floats, power_w: Floats) -> float:
        speeds = np.minimum(expected, self._most[[a, b], None])
        kept = (speeds >= self._floors[[a, b], None] * (1 - _ROUNDING)).all(axis=0)
        kept &= self.gains((a, b), speeds, power_w)
        points = zip(speeds.T[kept].tolist(), power_w[kept].tolist(), strict=True)
        cost = functools.partial(self._placing.cost, self._number, (self._there[a], self._there[b]))
        return min(itertools.starmap(cost, points), default=math.inf)


def _least_costs(placing: Placing, many: _ManyAlone, profiles: Sequence[Profile]) -> Floats:
    """All of their watts, or the power limit, where nothing may lag behind."""
    alone_w, idle_w = (of[:-1, 0] for of in (many.alone.power_w, many.alone.idle_w))
    both_w = alone_w[:, None] + alone_w - np.maximum(idle_w[:, None], idle_w)
    uneven = np.array([profile.in_bursts or profile.serving is not None for profile in profiles])
    # Watts of two jobs and of what they lag behind, at least, for each 1 of their watts alone less
    # one active idle power, which is what two can share; without a server, which answers in fuller
    # batches, and without a job that computes in bursts, nearly all. No pair of bundled jobs is
    # expected below (tests/integration/test_place_command.py).
    part = np.where(uneven[:, None] | uneven, 0.82, 0.99)
    return placing.per_card + placing.per_w * part * np.minimum(both_w, many.limit_w)


_PHYSICS = SetPredictor()


class SetAnswers:
    """Of one pool; keeps what was asked.

    Attributes:
        of: Says of kinds, ascending, what one job does alone, or what is decided on several; None:
            they do not share.
        by_physics: The estimate of the search, by kinds and level of the jobs that fill the GPU.
        profiles: Of the kinds that have one.
        there: These kinds; `many` knows them in this order, and an empty seat after them,
            as do the arrays below.
        counts: How many jobs of each.
        floors: Least speed that each must keep.
        ceiling_w: Most power of a card; infinite without a request.

    Raises:
        InputError: a limit for no job that is there.
    """

    def __init__(self, placing: Placing, number: int) -> None:
        self.placing, self.number, self.pool = placing, number, placing.pools[number]
        self.profiles = {n: profile for n, profile in enumerate(self.pool.profiles) if profile}
        self.there = tuple(self.profiles)
        self.of, self.by_physics = functools.cache(self._of), functools.cache(self._by_physics)
        self.heads: Sets | None = None
        self._filling: Sets | None = None
        self._ask = self.pool.decider
        profiles = [*self.profiles.values()]
        self.pool.limits.check_limits(profiles)
        self.many = _ManyAlone(profiles, self.pool.checked)
        self._limits = limits = self.pool.limits.with_card_memory(self.pool.gpu_model)
        # How far towards its low end a speed must keep its floor, of logarithms.
        self.weight = weights_of(limits.policy.chance)[0]
        self.ceiling_w = (limits.max_power_w or np.inf) * (1 + 1e-9)
        self.counts = np.append(self.placing.counts[list(self.there)], 0.0)
        self.floors = np.array([*(limits.floor(profile) for profile in profiles), 0.0])
        self._memory_mib = np.array([*(p.memory_used_mib or 0.0 for p in profiles), 0.0])
        self._most_p99_ms = np.array(
            [*(limits.longest_p99_ms(profile) or np.inf for profile in profiles), np.inf]
        )
        self._p99_chances = np.array(
            [*(limits.p99_chance(profile, [profile]) for profile in profiles), 0.5]
        )

    @functools.cached_property
    def two(self) -> _Pairs:
        """What is known of each two of them."""
        return _Pairs(self.placing, self.number, self.many, self.floors)

    def leave(self, counts: Floats) -> None:
        """Look for sets of so many jobs of each kind of the placing."""
        self.counts = np.append(counts[list(self.there)], 0.0)
        self.heads = self._filling = None

    def singles(self) -> Iterator[PlacedSet]:
        """Each kind alone, where it may."""
        return (single for kind in self.there if (single := self.of((kind,))))

    def copies(self) -> Iterator[PlacedSet]:
        """Three of one kind and more, as many as may share a GPU."""
        for kind in self.there:
            for number in range(
                ADVISED_JOBS + 1, min(MOST_JOBS, self.placing.kinds[kind].count) + 1
            ):
                if (copies := self.by_physics((kind,) * number)) is None:
                    break
                yield copies

    def pairs(self) -> Iterator[PlacedSet]:
        """Of all kinds."""
        counts = self.placing.counts
        for pair in itertools.combinations_with_replacement(self.there, 2):
            if (pair[0] != pair[1] or counts[pair[0]] > 1) and (shared_pair := self.of(pair)):
                yield shared_pair

    def pair(self, a: int, b: int) -> PlacedSet | None:
        """As the model of pairs says, and with priority; by their places."""
        self.two.unasked[a, b] = False
        return self.by_physics((self.there[a], self.there[b]), NINE_SPLITS)

    def kinds(self, places: Sequence[int]) -> tuple[int, ...]:
        """Indices are into the kinds that this pool can run."""
        return tuple(sorted(self.there[place] for place in places))

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
        speed, low, _ = self.many.at(sets.rows, sets.level)
        decisive = sure_speeds(speed, low, self._limits.policy.chance)
        kept = (decisive >= self.floors[sets.rows] - 1e-9).all(axis=1)
        if np.isfinite(self._most_p99_ms).any():
            p99_ms = self.many.p99_ms(sets.rows, sets.level, self._p99_weights(sets.rows))
            kept &= (p99_ms <= self._most_p99_ms[sets.rows] * (1 + 1e-9)).all(axis=1)
        return chosen[kept]

    def _p99_weights(self, rows: Ints) -> Floats:
        """How far to its high end each p99 must keep its limit, as `Request.p99_chance` has it."""
        alike = np.tril(rows[:, :, None] == rows[:, None], -1).any(axis=2)
        servers = (np.isfinite(self._most_p99_ms[rows]) & ~alike).sum(axis=1)
        chances: Floats = self._p99_chances[rows] ** (1 / np.maximum(1, servers))[:, None]
        return np.maximum(0.0, np.interp(chances, CHANCES, P99_WEIGHTS))

    def within_power(self, sets: Sets) -> Ints:
        """Which of them keep the ceiling of watts; larger ones may where they do not."""
        there = np.arange(len(sets.size))
        if self.ceiling_w == np.inf:
            return there
        jobs = np.flatnonzero(sets.size)
        _, _, watts = self.many.at(sets.rows[jobs], sets.level[jobs])
        return np.delete(there, jobs[watts > self.ceiling_w])

    def costs(self, sets: Sets) -> Floats:
        """Of sets, whatever limits they keep; shape (sets,)."""
        (speed, _, watts), placing = self.many.at(sets.rows, sets.level), self.placing
        there = list(self.there)
        lag = np.append(placing.lag[there], 0.0)[sets.rows]
        paces = np.append(placing.paces[self.number, there], 0.0)[sets.rows]
        return placing.per_card + placing.per_w * watts + (lag * (1 - paces * speed)).sum(axis=1)

    def filling(self) -> Sets:
        """All sets of jobs that fill the GPU, at every level; and of none, at the first."""
        if self._filling is None:
            fills = np.flatnonzero((self.many.alone.fills[:-1, 0] > 0) & (self.counts[:-1] > 0))
            filling, grown = [_nothing(len(self.there))], _nothing(len(self.there), len(LEVELS))
            while len(grown.size) and grown.size[0] < MOST_JOBS:
                parent, place = np.nonzero(np.arange(len(fills)) >= grown.last[:, None])
                grown = grown.with_another(parent, fills[place], place)
                grown = grown.only(self.kept(grown))
                filling.append(grown)
            self._filling = functools.reduce(Sets.and_also, filling)
        return replace(self._filling, last=np.zeros_like(self._filling.last))

    def _of(self, kinds: tuple[int, ...]) -> PlacedSet | None:
        profiles = [self.profiles[kind] for kind in kinds]
        if len(kinds) == 1:
            return self._alone(kinds, profiles[0], self._limits)
        decision = self._ask(profiles, None)
        choice = decision and decision.choice
        return choice and self.placed(kinds, choice.prediction, decision)

    def _by_physics(self, kinds: tuple[int, ...], level: int = 0) -> PlacedSet | None:
        profiles = [self.profiles[kind] for kind in kinds]
        predictions = self._predictions(kinds, profiles, level)
        for prediction in sorted(predictions, key=lambda p: self._cost(kinds, p)):
            if self._may_share(kinds, prediction, profiles):
                return self.placed(kinds, prediction, None)
        return None

    def _cost(self, kinds: tuple[int, ...], prediction: Prediction) -> tuple[float, float]:
        """And watts, which decide where costs are equal."""
        speeds, watts = [part.speed.value for part in prediction.parts], prediction.power_w.value
        return self.placing.cost(self.number, kinds, speeds, watts), watts

    def _may_share(
        self, kinds: tuple[int, ...], prediction: Prediction, profiles: Sequence[Profile]
    ) -> bool:
        """Whether it keeps the limits and, where each job may run alone, saves enough."""
        places = [self.there.index(kind) for kind in kinds]
        speeds = np.array([[part.speed.value] for part in prediction.parts])
        gains = self.two.gains(places, speeds, np.array([prediction.power_w.value]))
        (broken,) = self._limits.violations(Predictions.of([prediction]), profiles)
        return bool(gains[0]) and not broken

    def _predictions(
        self, kinds: tuple[int, ...], profiles: Sequence[Profile], level: int
    ) -> Iterable[Prediction]:
        """By the law at a level; or two jobs by the model of pairs, and with priority."""
        if level != NINE_SPLITS:
            return _PHYSICS.predict(profiles, [self.split_at(kinds, level)])
        (a, b), model = (self.there.index(kind) for kind in kinds), self.pool.of_pairs
        splits = self.two.splits(a, b)
        predictions = [model.predict(profiles, splits)] if model and splits else []
        return itertools.chain(*predictions, self.two.below_normal(a, b) or ())

    def _alone(self, kinds: tuple[int, ...], profile: Profile, limits: Request) -> PlacedSet | None:
        too_much = limits.memory_mib and (profile.memory_used_mib or 0) > limits.memory_mib
        if too_much or limits.violations_alone(profile):
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

    def split_at(self, kinds: tuple[int, ...], level: int) -> Split:
        """The split at a level."""
        places = [self.there.index(kind) for kind in kinds]
        shares = tuple(map(float, self.many.shares[places, level]))
        return Split(shares) if min(shares) < WHOLE else without_limits("uncapped", len(kinds))

    def placed(
        self, kinds: tuple[int, ...], prediction: Prediction, decision: Decision | None
    ) -> PlacedSet:
        """A set that runs from now on, with its prediction and decision."""
        return PlacedSet(
            kinds=kinds,
            pool=self.number,
            split=prediction.split,
            speeds=tuple(part.speed.value for part in prediction.parts),
            p99_ms=tuple(p.latency_p99_ms and p.latency_p99_ms.high for p in prediction.parts),
            power_w=prediction.power_w.value,
            cost=self._cost(kinds, prediction)[0],
            decision=decision,
        )
