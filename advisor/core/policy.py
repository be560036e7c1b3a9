"""The policy: how options compare, and what every job keeps unless a request says otherwise."""

from dataclasses import dataclass, replace
from math import inf

from advisor.core.objectives import COST, DEFAULT_OBJECTIVE, NO_PRICES, Prices
from advisor.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The defaults of every answer; settings and requests replace single fields.

    Attributes:
        objective: Name of the number that decides; None: cost where prices are set, else energy.
        min_speed: Relative speed that each job keeps, 0 to 1. Without one, the split that saves
            most of a measured pair leaves the slower job a third of its speed on average.
        p99_times_alone: Longest p99 latency of a server, in times of its own alone; 0: no limit.
        min_gain: Least gain over a GPU for each job for which jobs share: a fault of one can end
            all of them.
        chance: An option is offered where it keeps each floor with this chance, 0.5 to below 1.
        tie: Relative difference that is none: a measured value repeats to half a percent.
    """

    objective: str | None = None
    min_speed: float = 0.4
    p99_times_alone: float = 5.0
    min_gain: float = 0.01
    chance: float = 0.9
    tie: float = 0.005
    prices: Prices = NO_PRICES

    def __post_init__(self) -> None:
        for name, least, most in (
            ("min_speed", 0.0, 1.0),
            ("p99_times_alone", 0.0, inf),
            ("min_gain", 0.0, 10.0),
            ("chance", 0.5, 0.999),
            ("tie", 0.0, 0.999),
        ):
            # "not within" is true of NaN as well.
            if not least <= (value := getattr(self, name)) <= most:
                raise InputError(
                    f"{name} is {value:g}", fix=f"give a number from {least:g} to {most:g}"
                )

    @property
    def deciding(self) -> str:
        """Name of the objective that decides."""
        return self.objective or (COST if self.prices.are_set else DEFAULT_OBJECTIVE)

    def with_(self, objective: str | None, min_gain: float | None) -> "Policy":
        """The same with what a request says of two of its fields; None: nothing."""
        gain = self.min_gain if min_gain is None else min_gain
        return replace(self, objective=objective or self.objective, min_gain=gain)


POLICY = Policy()
