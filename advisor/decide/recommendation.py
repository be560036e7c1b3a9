"""What a recommendation is: the way that was chosen, how, all others, and the reasons."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from advisor.core.finish import Work
from advisor.core.gpu import WHOLE
from advisor.core.interval import Interval
from advisor.core.objectives import DEFAULT_OBJECTIVE, NO_PRICES, Objective, Prices
from advisor.core.split import Sharing, best_within_tie, evenness, split_environments
from advisor.core.units import vendor_of
from advisor.decide.constraints import Violation
from advisor.decide.limits import Limits
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
