"""The placement problem: jobs that run from now on, or a queue of work.

Jobs that run from now on share a GPU in sets of up to seven. A server runs on; a batch job has its
work done at the speed that it keeps, and what it lags behind is charged as if a GPU of its own did
it later. So sets are compared for the same work, as `advisor.core.objectives` does.

A queue is work that ends, counted in seconds that a job takes alone on a whole GPU. At most two of
its jobs share a GPU, until both have ended: what three do once one has ended was not measured.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from advisor.core.gpu import Split
from advisor.core.objectives import (
    ADVISED,
    AIMS,
    COST,
    DEFAULT_OBJECTIVE,
    FEWEST_CARDS,
    Prices,
    Work,
    priced,
)
from advisor.decide.decision import Decision, Outlook, decide
from advisor.decide.limits import TO_THE_END, Request
from advisor.errors import InputError, NoSplitError
from advisor.predict.predictions import PairPredictor, Prediction
from advisor.predict.profiles import Floats, Profile
from advisor.predict.sets import AnyWay, SetPredictor
from advisor.validity.safe_counts import CheckedCounts

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
        ask: Decides on each set that is planned; None: `asked_of` these predictors.
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
    def asked(self) -> Ask:
        """Decides on each set that is planned."""
        of_any = AnyWay(self.of_pairs) if self.of_pairs else SetPredictor()
        return self.ask or _asked_of(of_any, self.limits, self.checked)


def _asked_of(
    predictor: AnyWay | SetPredictor, limits: Request, checked: CheckedCounts | None
) -> Ask:
    def ask(profiles: Sequence[Profile], work: Work | None) -> Decision | None:
        try:
            request = replace(limits.of(profiles), work=work)
            return decide(Outlook(profiles, predictor, checked), request)
        except NoSplitError:
            return None

    return ask


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
        seats = zip(kinds, speeds, strict=True)
        behind = sum((1 - speed * self.paces[pool, kind]) * self.lag[kind] for kind, speed in seats)
        return float(self.per_card + self.per_w * watts + behind)

    def alone_to_the_end(self, pool: int, kind: int) -> tuple[float, float]:
        """Seconds and joules that a job of a queue takes alone on a GPU."""
        profile, work_s = self.pools[pool].profiles[kind], self.kinds[kind].work_s or 0.0
        return work_s, work_s * (profile.whole_gpu_power_w if profile else np.inf)

    def spent(self, held_s: Floats | float, energy_j: Floats | float) -> Floats:
        """Cost of holding a GPU for some seconds and of the joules it takes; arrays or numbers.

        As `advisor.decide` counts work to its end, times a constant.
        """
        return np.asarray(self.per_card * held_s + self.per_w * energy_j) / HOUR_S


HOUR_S = 3600.0


def make_placing(
    kinds: Sequence[Kind],
    pools: Sequence[Pool],
    aim: str,
    prices: Prices | None = None,
    queue: Sequence[int] = (),
    *,
    at_once: bool = False,
) -> Placing:
    """A placement problem with its costs by objective.

    Raises:
        InputError: no such aim, no price, nothing to place, a kind without a profile, or a queue
            of too many kinds.
    """
    aims = TO_THE_END if queue else AIMS
    if aim not in aims:
        raise InputError(
            f"{'a queue is' if queue else 'jobs are'} not placed by {aim}",
            why="what is placed is counted in energy, time or money, added up over GPUs",
            fix=f"use {', '.join(aims)}; --min-speed protects each job",
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
            fix = f"measure it: advisor profile {kind.name}"
            raise InputError(f"{kind.name} has no profile on any of these GPU models", fix=fix)
    per_card, per_w = _weights(aim, prices or Prices())
    paces = _paces(kinds, pools)
    costs = [
        [per_card + per_w * p.whole_gpu_power_w if p else np.inf for p in pool.profiles]
        for pool in pools
    ]
    alone = np.array(costs) / np.maximum(paces, 1e-9)
    # By fewest GPUs, only --min-speed bounds how far work may lag behind.
    lag = np.zeros(len(kinds)) if aim == FEWEST_CARDS else alone.min(axis=0)
    return Placing(
        kinds=tuple(kinds),
        pools=tuple(pools),
        aim=aim,
        per_card=per_card,
        per_w=per_w,
        lag=lag,
        paces=paces,
        queue=tuple(queue),
        at_once=at_once,
    )


def _weights(aim: str, prices: Prices) -> tuple[float, float]:
    if aim == DEFAULT_OBJECTIVE:
        return prices.host_w, 1.0
    if aim != COST:
        return 1.0, 0.0
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
