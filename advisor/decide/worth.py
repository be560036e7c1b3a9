"""What sharing saves in GPU time, energy and money, and where it is a question of prices. Pure."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from advisor.core.interval import Interval
from advisor.core.objectives import Prices
from advisor.core.split import Sharing
from advisor.decide.recommendation import RatedSplit
from advisor.predict.predictions import Prediction

MOST_MORE_ENERGY = 0.1
"""Where sharing takes more energy, up to this part more, and saves GPU time, it is a question of
prices: at 2.50 for a GPU hour and 0.15 for a kWh energy is a thirtieth of the cost."""

LEAST_TIME_SAVED = 0.05
"""Part of the GPU time that makes it a question at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """Parts that are saved for the same work, against one after the other; below 0 it takes more.

    Attributes:
        gpu_time: Of the hours that a GPU is held.
        energy: With the watts of the server, where they are set.
        energy_idle: The same against a card each, where the cards that become free idle.
        cost: None: nothing has a price.
    """

    gpu_time: Interval
    energy: Interval
    energy_idle: Interval
    cost: Interval | None


def worth_of(p: Prediction, prices: Prices, idle_w: float = 0.0) -> Worth:
    """What a way saves; free cards draw idle power, W."""
    energy = p.energy_saved
    if prices.host_w:
        energy = p.range_of(lambda result: prices.with_host(result).energy_saved)
    cost = p.range_of(lambda result: _saved(prices.cost_ratio(result))) if prices.are_set else None
    time = Interval(_saved(p.stp.value), _saved(p.stp.low), _saved(p.stp.high))
    result = prices.with_host(p.result)
    # One after the other takes one card as well: nothing becomes free.
    freed_w = 0.0 if p.split.sharing == "exclusive" else idle_w
    more = result.energy_saved - result.energy_saved_beside(freed_w) if freed_w else 0.0
    idle = Interval(energy.value - more, energy.low - more, energy.high - more)
    return Worth(gpu_time=time, energy=energy, energy_idle=idle, cost=cost)


def their_call(
    options: Iterable[RatedSplit], prices: Prices, sharings: Collection[Sharing]
) -> RatedSplit | None:
    """The way that saves most GPU time for little more energy, where jobs are not to share.

    None: no way of these sharings that keeps the limits saves enough.
    """
    saved = {
        id(o): worth_of(o.prediction, prices)
        for o in options
        if o.sharing in sharings and not o.violations
    }
    open_ways = [
        o
        for o in options
        if (w := saved.get(id(o)))
        and w.gpu_time.value >= LEAST_TIME_SAVED
        and w.energy.value >= -MOST_MORE_ENERGY
    ]
    return max(open_ways, key=lambda o: saved[id(o)].gpu_time.value, default=None)


def _saved(ratio: float) -> float:
    return 1 - 1 / ratio if ratio > 0 else -float("inf")
