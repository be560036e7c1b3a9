"""What really happens on a GPU. `Site`: measured pairs, jobs alone, and no model is asked.

Two kinds of jobs share a GPU only where that pair was measured on that GPU model, at shares at
which it was measured. Nothing is known of other pairs, so no policy may use them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from advisor.core.objectives import Rest

WHOLE = 100.0
"""Share of a job without a limit: two of them are `uncapped`."""

Shares = tuple[float, float]
Kinds = tuple[str, str]

Members = tuple[tuple[str, float], ...]
"""Jobs on one GPU by kind and share, sorted."""


@dataclass(frozen=True, slots=True)
class Way:
    """Jobs on one GPU, in the order of `Members`.

    Attributes:
        speeds: Relative speed of each; 1 of one that serves, which ends no sooner or later.
        tails: p99 of each that serves for each 1 ms alone; 0 of others. Empty: nobody serves.
        misses: Whether each that serves misses what it promises. Empty: nobody serves.
    """

    speeds: tuple[float, ...]
    power_w: float
    tails: tuple[float, ...] = ()
    misses: tuple[bool, ...] = ()


class Truth(Protocol):
    """What jobs do on one GPU model."""

    @property
    def idle_power_w(self) -> float:
        """Of a GPU without jobs."""
        ...

    def together(self, members: Members) -> Way:
        """What one job or more do on one GPU."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """All that is true of one GPU model.

    Attributes:
        alone: What a job does alone at a share, by its kind and the share.
        ways: By kinds and shares; both orders of two kinds are there.
        measured_as: Number of the measurement in the data that a pair's ways are of.
    """

    gpu_model: str
    idle_power_w: float
    alone: Mapping[tuple[str, float], Rest]
    ways: Mapping[Kinds, Mapping[Shares, Way]]
    measured_as: Mapping[Kinds, int]

    @property
    def kinds(self) -> list[str]:
        """Kinds of jobs, sorted: those of the measured pairs."""
        return sorted({kind for pair in self.ways for kind in pair})

    def together(self, members: Members) -> Way:
        """One job or two that were measured together."""
        if len(members) == 1:
            alone = self.alone[members[0]]
            return Way((alone.speed,), alone.power_w)
        (a, s), (b, t) = members
        return self.ways[a, b][s, t]
