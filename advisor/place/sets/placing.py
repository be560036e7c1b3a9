"""Jobs that run together from now on: which of them share a card, on GPUs of one model or several.

A server runs on; a batch job has its work done at the speed that it keeps, and what it lags behind
is charged as if a card of its own did it later. So sets are compared for the same work, as
`advisor.core.objectives` does, and what a set costs is a number of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.core.objectives import ADVISED, AIMS, Aim, Prices, priced
from advisor.core.split import Split
from advisor.decide.limits import Request
from advisor.errors import InputError
from advisor.predict.predictions import PairPredictor
from advisor.predict.profiles import Floats, Profile
from advisor.validity.safe_counts import CheckedCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Jobs that are interchangeable.

    Attributes:
        is_server: Whether requests arrive whether it runs or not: placed before all others.
    """

    name: str
    count: int
    is_server: bool = False


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Pool:
    """Cards of one GPU model.

    Attributes:
        profiles: One for each kind, in their order; None: it cannot run there.
        limits: What every set keeps there.
        of_pairs: Predictor of two jobs; None: the law of sets says them, too.
    """

    gpu_model: str
    gpus: int
    profiles: tuple[Profile | None, ...]
    limits: Request
    idle_power_w: float
    of_pairs: PairPredictor | None = None
    checked: CheckedCounts | None = None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Placing:
    """What is to be placed, where, and what counts.

    Attributes:
        per_card: Cost of holding a card.
        per_w: Of each watt that it draws.
        lag: Cost of all the work of a kind, done later on the cheapest card of its own; shape
            (kinds,).
        paces: Rate of each kind on a card of a pool, for each 1 on its slowest GPU model, 0 where
            it cannot run; shape (pools, kinds).
    """

    kinds: tuple[Kind, ...]
    pools: tuple[Pool, ...]
    aim: Aim
    per_card: float
    per_w: float
    lag: Floats
    paces: Floats

    @property
    def counts(self) -> Floats:
        """How many jobs of each kind."""
        return np.array([kind.count for kind in self.kinds], dtype=float)

    def cost(self, pool: int, kinds: Sequence[int], speeds: Sequence[float], watts: float) -> float:
        """Of one set: its card, its watts, and what its jobs lag behind."""
        seats = zip(kinds, speeds, strict=True)
        behind = sum((1 - speed * self.paces[pool, kind]) * self.lag[kind] for kind, speed in seats)
        return float(self.per_card + self.per_w * watts + behind)


def make_placing(
    kinds: Sequence[Kind], pools: Sequence[Pool], aim: str, prices: Prices | None = None
) -> Placing:
    """What is to be placed, by an aim.

    Raises:
        InputError: no such aim, no price, nothing to place, or a kind without a profile.
    """
    if aim not in AIMS:
        raise InputError(f"running jobs are not placed by {aim}", fix=f"use {', '.join(AIMS)}")
    if not kinds or sum(pool.gpus for pool in pools) < 1:
        raise InputError("there is nothing to place, or no GPU")
    for n, kind in enumerate(kinds):
        if all(pool.profiles[n] is None for pool in pools):
            fix = f"measure it: advisor profile {kind.name}"
            raise InputError(f"{kind.name} has no profile on any of these GPU models", fix=fix)
    per_card, per_w = _weights(aim, prices or Prices())
    paces = _paces(kinds, pools)
    costs = [
        [per_card + per_w * p.whole_gpu_power_w if p else np.inf for p in pool.profiles]
        for pool in pools
    ]
    alone = np.array(costs) / np.maximum(paces, 1e-9)
    # Where cards alone count, work that lags behind is for --min-speed to say.
    lag = np.zeros(len(kinds)) if aim == "fewest-cards" else alone.min(axis=0)
    return Placing(
        kinds=tuple(kinds),
        pools=tuple(pools),
        aim=aim,
        per_card=per_card,
        per_w=per_w,
        lag=lag,
        paces=paces,
    )


def _weights(aim: Aim, prices: Prices) -> tuple[float, float]:
    if aim == "fewest-cards":
        return 1.0, 0.0
    if aim == "least-energy":
        return prices.host_w, 1.0
    priced(ADVISED[aim], prices)  # refuses it where nothing has a price
    return prices.of_hour(0.0), prices.kwh / 1000


def _paces(kinds: Sequence[Kind], pools: Sequence[Pool]) -> Floats:
    rates = np.array([[p.whole_gpu_rate if p else 0.0 for p in pool.profiles] for pool in pools])
    paces = rates / np.where(rates > 0, rates, np.inf).min(axis=0)
    # A server answers what arrives, wherever it runs.
    served = np.array([kind.is_server for kind in kinds])
    return np.where(served & (paces > 0), 1.0, paces)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedSet:
    """Jobs that share a card, or one alone.

    Attributes:
        kinds: Index of each job's kind, ascending.
        pool: Index of the pool.
        split: None for a job alone.
        speeds: Relative to its own alone on that card.
        p99_ms: Of servers, where it is known: the high end.
        cost: Of an hour of it, as `Placing` counts.
    """

    kinds: tuple[int, ...]
    pool: int
    split: Split | None
    speeds: tuple[float, ...]
    p99_ms: tuple[float | None, ...]
    power_w: float
    cost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningPlan:
    """Who shares a card with whom.

    Attributes:
        sets: How many cards have each, those with the most jobs first.
        waiting: Jobs without a card, by kind: none is left, or none on which they keep the limits.
        waiting_cost: What they are counted with in the cost.
        bound: No plan costs less.
        timed_out: Whether the time limit ended the search for sets.
    """

    placing: Placing
    sets: Mapping[PlacedSet, int]
    waiting: Mapping[int, int]
    waiting_cost: float
    cost: float
    bound: float
    timed_out: bool

    @property
    def gap(self) -> float:
        """By which part of its cost a plan could at most be better."""
        return 1 - self.bound / self.cost

    @property
    def cards(self) -> int:
        """In use."""
        return sum(self.sets.values())

    @property
    def power_w(self) -> float:
        """Of the cards in use."""
        return sum(count * one.power_w for one, count in self.sets.items())

    @property
    def seated(self) -> int:
        """Jobs that have a card, or a part of one."""
        return sum(count * len(one.kinds) for one, count in self.sets.items())

    @property
    def same_work_w(self) -> float:
        """Watts of the same work on a card each."""
        watts = 0.0
        for one, count in self.sets.items():
            profiles = self.placing.pools[one.pool].profiles
            for kind, speed in zip(one.kinds, one.speeds, strict=True):
                profile = profiles[kind]
                watts += count * speed * (profile.whole_gpu_power_w if profile else np.inf)
        return watts

    @property
    def same_work_cards(self) -> float:
        """Cards that the same work takes with a card each; a server has one all the time."""
        return sum(
            count * (1.0 if self.placing.kinds[kind].is_server else speed)
            for one, count in self.sets.items()
            for kind, speed in zip(one.kinds, one.speeds, strict=True)
        )
