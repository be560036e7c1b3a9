"""What a recommendation is: the way that was chosen, all others, and the reasons."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from advisor.core.finish import Work
from advisor.core.objectives import DEFAULT_OBJECTIVE, Objective
from advisor.core.split import Split, split_environments
from advisor.core.units import vendor_of
from advisor.decide.choice import evenness
from advisor.decide.constraints import Limits, Miss
from advisor.errors import InputError
from advisor.predict.predictions import Interval, Prediction
from advisor.predict.profiles import Profile

TO_THE_END = (DEFAULT_OBJECTIVE, "throughput")
"""Objectives that can be asked for a given work: energy and time until both jobs are done."""

TIE = 0.005
"""Relative difference that is none: half a percent is what a measured value repeats to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Limits):
    """What is wanted.

    Attributes:
        objective: Name of what is maximised.
        fine: Every split of the GPU in steps of its quantum, such as two SMs; else the nine splits.
        tie: Relative distance to the best within which the more even split is taken.
        work: What is to be done until both have ended; None: both run on and on.
    """

    objective: str = DEFAULT_OBJECTIVE
    fine: bool = False
    tie: float = TIE
    work: Work | None = None

    def __post_init__(self) -> None:
        # Without arguments super() does not find the class that slots made.
        super(Request, self).__post_init__()
        if self.work and self.objective not in TO_THE_END:
            raise InputError(
                f"{self.objective} does not depend on how much work there is",
                fix=f"leave out the work, or take {' or '.join(TO_THE_END)}",
            )


@dataclass(frozen=True, slots=True)
class Option:
    """One way of running two jobs on one GPU.

    Attributes:
        worth: By the objective that was asked for.
        misses: Limits that the expected values do not keep; empty: it can be chosen.
    """

    prediction: Prediction
    worth: Interval
    misses: tuple[Miss, ...]

    @property
    def name(self) -> str:
        """Shares as people write them, `uncapped` or `exclusive`."""
        p = self.prediction
        return f"{p.share_a_percent:g}/{p.share_b_percent:g}" if p.way == "split" else p.way

    def gain_over(self, other: "Option") -> float:
        """Relative difference of the worth; 0.1 is a tenth more than the other's."""
        least = other.worth.value
        return self.worth.value / least - 1 if least else float("inf")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Recommendation:
    """The way that does the most and keeps every limit.

    Attributes:
        choice: One of `candidates`.
        candidates: Splits by the share of the first job, then `uncapped` and `exclusive`.
        rules: What each simple rule chooses (advisor.predict.rules), limits or not; None: out
            of reach.
        picks: What would be chosen by each objective that is shown beside the one asked for.
        reasons: Sentences on why.
        warnings: Sentences on what may go wrong.
    """

    a: Profile
    b: Profile
    request: Request
    objective: Objective
    choice: Option
    candidates: tuple[Option, ...]
    rules: Mapping[str, Option | None]
    picks: Mapping[str, Option]
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def profiles(self) -> tuple[Profile, Profile]:
        """Of both jobs."""
        return self.a, self.b

    def environments(self, option: Option) -> tuple[dict[str, str], dict[str, str]]:
        """Variables that limit the first and the second job; none without limits.

        Raises:
            InputError: an AMD GPU of which no profile has the number of CUs.
        """
        p, model = option.prediction, self.a.gpu_model
        if p.way != "split":
            return {}, {}
        total = self.a.units_total or self.b.units_total
        split = Split((p.share_a_percent, p.share_b_percent))
        a, b = split_environments(split, total, vendor_of(model))
        return a, b


def is_mirrored(a: Profile, b: Profile) -> bool:
    """Whether the jobs stand against the order of their names: see `choice.evenness`."""
    return a.job > b.job


def best(options: Iterable[Option], *, mirrored: bool) -> Option:
    """The option that is worth most, limits or not, without a tie."""
    return min(options, key=lambda o: (-o.worth.value, *evenness(o.prediction, mirrored=mirrored)))


def nearest(options: Iterable[Option], *, mirrored: bool) -> Option:
    """Of options that all break limits, the one whose worst miss is the smallest."""
    return min(
        options,
        key=lambda o: (worst_miss(o).by, *evenness(o.prediction, mirrored=mirrored)),
    )


def worst_miss(option: Option) -> Miss:
    """The limit that an option misses by most."""
    return max(option.misses, key=lambda miss: (miss.by, miss.text))
