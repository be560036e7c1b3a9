"""A recommendation: request, options, decision, and what an option saves. Pure."""

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from advisor.core.gpu import WHOLE, vendor_of
from advisor.core.interval import Interval
from advisor.core.objectives import (
    DEFAULT_OBJECTIVE,
    NO_PRICES,
    Finish,
    Objective,
    Prices,
    Rest,
    SplitResult,
    Work,
    finish,
    one_after_the_other,
    work_of,
)
from advisor.core.split import Sharing, best_within_tie, evenness, split_environments
from advisor.decide.limits import Limits, Violation
from advisor.errors import InputError
from advisor.predict.predictions import Prediction
from advisor.predict.profiles import Profile

TO_THE_END = (DEFAULT_OBJECTIVE, "throughput")
"""Objectives that can be asked for a given work: energy and time until both jobs are done."""

TIE = 0.005
"""Relative difference that is none: half a percent is what a measured value repeats to."""


TURNS_MARGIN = 0.05
"""How much more than under MPS turns must be worth, of two jobs or more: few were measured, and
contexts start slowly there."""

MARGINS: Mapping[Sharing, float] = MappingProxyType(
    {"limited": 0.0, "uncapped": 0.05, "time-sliced": TURNS_MARGIN, "exclusive": 0.0}
)
"""How much more than a split under limits a way must be worth to be taken, relative to it.

Without limits a prediction is off by several times what it is off at a split. One after the other
needs no lead: sharing must pay for what it risks, since a fault of one job can end all.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Limits):
    """What is wanted.

    Attributes:
        fine: Every split of the GPU in steps of its quantum, such as two SMs; else the nine splits.
        tie: Relative distance to the best within which the more even split is taken.
        work: What is to be done until both have ended; None: both run on and on.
        prices: Of GPU hours and energy, and the watts of the server.
        min_gain: Least gain over one after the other for which jobs share; 0.1 is a tenth.
    """

    objective: str = DEFAULT_OBJECTIVE
    fine: bool = False
    tie: float = TIE
    work: Work | None = None
    prices: Prices = NO_PRICES
    min_gain: float = 0.0

    def of(self, profiles: Iterable[Profile]) -> "Request":
        """The same of these jobs alone: limits by name are theirs."""
        names = {profile.job for profile in profiles}
        speeds, p99s_ms = (
            {job: value for job, value in by_name.items() if job in names}
            for by_name in (self.min_speed, self.max_p99_ms)
        )
        return replace(self, min_speed=speeds, max_p99_ms=p99s_ms)

    def __post_init__(self) -> None:
        # Without arguments super() does not find the class that slots made.
        super(Request, self).__post_init__()
        if self.work and self.objective not in TO_THE_END:
            raise InputError(
                f"{self.objective} does not depend on how much work there is",
                fix=f"leave out the work, or take {' or '.join(TO_THE_END)}",
            )


@dataclass(frozen=True, slots=True)
class RatedSplit:
    """One way of running jobs on one GPU.

    Attributes:
        objective_value: By the objective that was asked for.
        violations: Limits that the expected values do not keep; empty: it can be chosen.
    """

    prediction: Prediction
    objective_value: Interval
    violations: tuple[Violation, ...]

    @property
    def name(self) -> str:
        """The split as people write it: 30/70, `uncapped` or `exclusive`."""
        return str(self.prediction.split)

    @property
    def sharing(self) -> Sharing:
        """How the jobs use the GPU."""
        return self.prediction.split.sharing

    def gain_over(self, other: "RatedSplit") -> float:
        """Relative difference of the value; 0.1 is a tenth more than the other's."""
        least = other.objective_value.value
        return self.objective_value.value / least - 1 if least else float("inf")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Decision:
    """The way that does the most and keeps every limit.

    Attributes:
        profiles: Of the jobs, in the order asked.
        choice: One of `candidates`.
        candidates: Splits by the share of the first job, then `uncapped` and `exclusive`.
        picks: What would be chosen by each objective that is shown next to the one asked for.
        call: Where jobs are not to share, a way that saves GPU time for little more energy, so that
            prices decide; None: there is none.
    """

    profiles: tuple[Profile, ...]
    request: Request
    objective: Objective
    choice: RatedSplit
    candidates: tuple[RatedSplit, ...]
    picks: Mapping[str, RatedSplit]
    call: RatedSplit | None = None
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def exclusive(self) -> RatedSplit:
        """One job after the other."""
        return self.candidates[-1]


def choose(
    predictions: Iterable[Prediction],
    value: Callable[[Prediction], float],
    tie: float,
    *,
    mirrored: bool,
) -> Prediction:
    """The one that is worth most, less its lead; see `_rank` for those that are nearly equal.

    The tie is as in `best_within_tie`, and `mirrored` as in `evenness`.
    """
    return best_within_tie(
        predictions,
        lambda p: value(p) / (1 + MARGINS[p.split.sharing]),
        tie,
        lambda p, objective_value: _rank(p, objective_value, mirrored=mirrored),
    )


def _rank(
    p: Prediction, objective_value: float, *, mirrored: bool
) -> tuple[bool, int, float, float, object]:
    """Of ways worth the same, limits before none, then the most even.

    Sharing that does no more work than one after the other comes last: it has nothing to offer.
    """
    preference, gap, shares = evenness(p.split, mirrored=mirrored)
    pointless = p.split.sharing != "exclusive" and p.result.stp <= 1
    return pointless, preference, gap, -objective_value, shares


def best(options: Iterable[RatedSplit], *, mirrored: bool) -> RatedSplit:
    """The option with the highest value, limits or not, without a tie."""
    return best_within_tie(
        options,
        lambda o: o.objective_value.value,
        0.0,
        lambda o, _: evenness(o.prediction.split, mirrored=mirrored),
    )


def nearest(options: Iterable[RatedSplit], *, mirrored: bool) -> RatedSplit:
    """Of options that all break limits, the one whose worst miss is the smallest."""
    return min(
        options,
        key=lambda o: (worst_violation(o).by, *evenness(o.prediction.split, mirrored=mirrored)),
    )


def worst_violation(option: RatedSplit) -> Violation:
    """The limit that an option misses by most."""
    return max(option.violations, key=lambda violation: (violation.by, violation.text))


def environments(profiles: Sequence[Profile], option: RatedSplit) -> tuple[dict[str, str], ...]:
    """Variables that limit each job; none for one without a limit.

    Raises:
        InputError: an AMD GPU of which no profile has the number of CUs.
    """
    split = option.prediction.split
    total = next((p.units_total for p in profiles if p.units_total), None)
    found = split_environments(split, total, vendor_of(profiles[0].gpu_model))
    return tuple(
        {} if share == WHOLE else variables
        for share, variables in zip(split.shares, found, strict=True)
    )


MOST_MORE_ENERGY = 0.1
"""Where sharing takes more energy, up to this part more, and saves GPU time, it is a question of
prices: at 2.50 for a GPU hour and 0.15 for a kWh energy is a thirtieth of the cost."""

LEAST_TIME_SAVED = 0.05
"""Part of the GPU time that makes it a question at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Worth:
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


def worth_of(p: Prediction, prices: Prices, idle_w: float = 0.0) -> _Worth:
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
    return _Worth(gpu_time=time, energy=energy, energy_idle=idle, cost=cost)


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


HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _WorkToTheEnd:
    """One amount of work, done in several ways.

    Attributes:
        work: What was asked for; else what the chosen way does in an hour.
        choice: The chosen way; where one job ends first, the other goes on under its limit.
        restarted: The same, the other restarted without a limit; None where both end together.
        exclusive: One job after the other.
    """

    work: Work
    choice: Finish
    restarted: Finish | None
    exclusive: Finish


def same_work(r: Decision) -> _WorkToTheEnd:
    """The work of a recommendation, in the recommended way and one job after the other."""
    p = r.choice.prediction
    work = r.request.work or work_of(p.result, HOUR_S)
    chosen = _to_the_end(p, p.result, r.profiles, work)
    restarted = finish(p.result, work) if p.split.is_limited and r.request.work else None
    return _WorkToTheEnd(
        work=work,
        choice=chosen,
        restarted=restarted,
        exclusive=one_after_the_other(r.exclusive.prediction.result, work),
    )


def gain_to_the_end(
    p: Prediction, profiles: Sequence[Profile], work: Work, objective: Objective
) -> Callable[[SplitResult], float]:
    """Energy (or time) of the work one after the other, for each one that it takes this way."""

    def gain(result: SplitResult) -> float:
        this, alone = _to_the_end(p, result, profiles, work), one_after_the_other(result, work)
        if objective.name == DEFAULT_OBJECTIVE:
            return alone.energy_j / this.energy_j
        return alone.time_s / this.time_s

    return gain


def _to_the_end(
    p: Prediction, result: SplitResult, profiles: Sequence[Profile], work: Work
) -> Finish:
    """All jobs until they are done; the limit of the one that goes on stays."""
    if p.split.sharing == "exclusive":
        return one_after_the_other(result, work)
    if not p.split.is_limited:
        return finish(result, work)
    return finish(result, work, list(map(_alone, profiles, p.split.shares)))


@functools.lru_cache(maxsize=4096)
def _alone(profile: Profile, share: float) -> Rest:
    """A job alone under its limit, from its profile."""
    at = profile.at([share])
    return Rest(float(at["rate"][0]) / profile.whole_gpu_rate, float(at["power_w"][0]))
