"""Power by what the data are, put together into sweeps, as `advisor report power` shows it."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from advisor.wire.kernel_power import Estimate

ClaimVerdict: TypeAlias = Literal["confirmed", "refuted", "open"]
ClaimQuantity: TypeAlias = Literal["ratio", "watts", "energy"]
"""What is compared: power to that of references, watts, or energy above idle for equal work, pJ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepLevel:
    """One level of a sweep over its seeds, with its 95 % interval.

    Attributes:
        level: What the sweep varies, such as the part of zeros.
        value: Of the quantity that is compared.
    """

    level: float
    value: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSweep:
    """One claim on input-dependent power, and what was measured of it.

    Attributes:
        name: T and the number of the paper's takeaway, or N and a number of ours.
        says: The claim in a few words.
        paper: What the paper's data show.
        quantity: What is compared from level to level.
        levels: Those with something to compare, in the order of the sweep.
        left_out: Levels with outputs that are not finite, which say nothing.
        change: Over the sweep, relative, with its 95 % interval; None: too few levels.
        clocks_mhz: Lowest and highest mean clock of a level; None: not read.
    """

    name: str
    says: str
    paper: str
    quantity: ClaimQuantity
    levels: tuple[SweepLevel, ...]
    left_out: int
    change: Estimate | None
    clocks_mhz: tuple[float, float] | None
    verdict: ClaimVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class InputCasePower:
    """Data that belong to no sweep, such as a user's own.

    Attributes:
        case: Operands, shape and type.
        ratio: Power over that of the reference; None: no reference was measured beside it.
        energy_pj: Of one operation, or of one byte that is moved.
    """

    case: str
    power_w: Estimate
    ratio: Estimate | None
    energy_pj: float
    flags: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputReport:
    """What was measured of one type on one card at one number of SMs.

    Attributes:
        units: SMs; None: not known.
        measured_at: The newest window, ISO 8601, UTC.
        sweeps: Those of two levels or more.
        others: What is in none of them.
    """

    gpu_model: str
    gpu_uuid: str
    driver: str
    torch: str
    units: int | None
    dtype: str
    measured_at: str
    sweeps: tuple[InputSweep, ...]
    others: tuple[InputCasePower, ...]
