"""The parts of a GPU's power, as `advisor power components` says them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from advisor.core.interval import Interval

Basis: TypeAlias = Literal["measured", "estimated", "extrapolated"]
"""Read by a sensor, from weights, or from weights that were fitted to nothing like it."""

MARKS: Mapping[Basis, str] = {"measured": "", "estimated": "~", "extrapolated": "?"}
"""Stands before watts."""

NOT_IDENTIFIED = (
    "The parts are not identified: by the same weights totals of work of one kind are off by 13 % "
    "(H100) and 19 % (H200)."
)
"""Stands wherever parts are shown (docs/component-power.md)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerParts:
    """The power of one GPU in parts.

    Attributes:
        power_w: Of the whole GPU; the values of the parts sum to it.
        power_basis: Measured, or estimated by the model in use.
        headroom_w: What is left to the power limit; None: the limit is not known.
        clock_mhz: Mean clock of the SMs, as `power_basis` says.
        components_w: Each part with its bounds.
        memory_basis: How the part `memory` is known.
        others_basis: How all other parts are known.
        unlike: Readings that are unlike all that the weights were fitted to.
    """

    power_w: float
    power_basis: Basis
    headroom_w: float | None
    clock_mhz: float
    components_w: Mapping[str, Interval]
    memory_basis: Basis
    others_basis: Basis
    unlike: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareParts:
    """One job alone at a share."""

    share_percent: float
    power: PowerParts


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitParts:
    """Two jobs at a split.

    Attributes:
        clock_loss_mhz: How far the clock is below the highest one of the GPU model.
        causes_mhz: What each job causes of it, in their order; None: not known.
        jostling: Who lowers the clock, in one sentence.
    """

    split: str
    power: PowerParts
    clock_loss_mhz: float
    causes_mhz: tuple[Interval, ...] | None
    jostling: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedTo:
    """What the weights come from.

    Attributes:
        windows: How many, of jobs alone.
        jobs: How many jobs.
    """

    windows: int
    jobs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentsOfJob:
    """One job alone at each share of its profile."""

    job: str
    gpu_model: str
    power_limit_w: float | None
    weights: FittedTo
    shares: tuple[ShareParts, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentsOfPair:
    """Two jobs together at each split."""

    jobs: tuple[str, ...]
    gpu_model: str
    power_limit_w: float | None
    weights: FittedTo
    splits: tuple[SplitParts, ...]

    @property
    def worst(self) -> SplitParts:
        """The split at which the clock falls most, of those with known causes where there are."""
        known = [one for one in self.splits if one.causes_mhz is not None]
        return max(known or self.splits, key=lambda one: one.clock_loss_mhz)
