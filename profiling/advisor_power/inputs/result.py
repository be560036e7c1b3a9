"""What was measured of one case: power, speed, clock, and whether input and output are sound."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from advisor.core.telemetry import NEAR_LIMIT, POWER_CAPS
from advisor.formats.wire import to_plain
from advisor.wire.power import Estimate
from advisor_power.inputs.case import InputCase
from advisor_power.operands.fingerprint import Fingerprint


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputCheck:
    """What the output was, as the workload found it."""

    elements: int
    """Of the output, all of which were looked at."""
    type: str
    nan: int
    infinite: int
    saturated: int
    """Elements at an end of the range of their type."""
    unwritten: int
    """Elements that no launch wrote."""
    rows: int
    """Computed again in float64 on the CPU."""
    compared: int
    """Elements of them that are finite there and within the range of sums."""
    error: float
    """Largest difference of those, relative to the sum of absolute products; 1e9 where one is not
    finite."""
    allowed: float
    """Largest that is rounding."""

    @property
    def finite(self) -> bool:
        """Whether every element is."""
        return not (self.nan or self.infinite)

    @property
    def right(self) -> bool:
        """Whether nothing shows that it is wrong."""
        return not self.unwritten and self.error <= self.allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class OperandState:
    """What filling a matrix did."""

    non_finite: int
    saturated: int
    """Values beyond the range of int8, which became its ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputConditions:
    """Where a case was measured: results of other conditions are not put together."""

    gpu_model: str
    gpu_uuid: str
    driver: str
    units: int | None
    torch: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InputPower:
    """One case on one card; readings that were not available are None.

    Attributes:
        session: Cases of one process, with the references between them.
        measured_at: Begin of the window, ISO 8601, UTC.
        rate: Launches per second.
        counter_power_w: By the energy counter, from tick to tick.
        idle_w: The card with a context before the session, without work.
        temperature_c: At the end of the window.
        settled: Whether power and rate were flat before the window.
        b: None where the work has no second matrix.
        fingerprint: None there, too.
        reference_ratio: Power over that of the reference at the same time, by interpolation
            between those whose clock nothing held back; None where there is none.
    """

    case: InputCase
    conditions: InputConditions
    session: str
    is_reference: bool
    measured_at: str
    power_w: Estimate
    rate: Estimate
    counter_power_w: float | None
    memory_power_w: float | None
    idle_w: float | None
    sm_clock_mhz: float | None
    temperature_c: float | None
    power_limit_w: float | None
    throttle_reasons: tuple[str, ...] | None
    settled: bool
    settle_s: float
    window_s: float
    a: OperandState
    b: OperandState | None
    fingerprint: Fingerprint | None
    outputs: OutputCheck
    reference_ratio: Estimate | None = None

    @property
    def energy_pj(self) -> float:
        """Of one operation, or of one byte that is moved, pJ."""
        return self.power_w.value * self._pj_per_watt

    @property
    def energy_above_idle_pj(self) -> float | None:
        """The same, less the power of the idle card."""
        return (
            None
            if self.idle_w is None
            else (self.power_w.value - self.idle_w) * (self._pj_per_watt)
        )

    @property
    def at_limit(self) -> bool:
        """Whether the power limit holds the clock back: data show as speed, then."""
        limit_w = self.power_limit_w
        near = limit_w is not None and self.power_w.value >= NEAR_LIMIT * limit_w
        return near or not POWER_CAPS.isdisjoint(self.throttle_reasons or ())

    @property
    def throttled(self) -> bool:
        """Whether heat, or anything else but the power limit, holds the clock back."""
        return bool(set(self.throttle_reasons or ()) - POWER_CAPS)

    @property
    def held_back(self) -> bool:
        """Whether the clock was: then data show as speed, and power is no measure of them."""
        return self.at_limit or self.throttled

    @property
    def moment_s(self) -> float:
        """When it was measured, in seconds."""
        return datetime.fromisoformat(self.measured_at).timestamp()

    @property
    def flags(self) -> tuple[str, ...]:
        """What one must know to use it."""
        operands = [operand for operand in (self.a, self.b) if operand is not None]
        found = {
            "non-finite-operands": any(operand.non_finite for operand in operands),
            "saturated-operands": any(operand.saturated for operand in operands),
            "non-finite-outputs": not self.outputs.finite,
            "wrong-outputs": not self.outputs.right,
            "power-limit": self.at_limit,
            "throttled": self.throttled,
            "not-settled": not self.settled,
        }
        return tuple(name for name, is_so in found.items() if is_so)

    @property
    def _pj_per_watt(self) -> float:
        return 1e12 / (self.rate.value * self.case.launch_work)

    def as_json(self) -> dict[str, Any]:
        """All of it, with what follows from it."""
        case, outputs = to_plain(self.case), to_plain(self.outputs)
        m, n, k = self.case.shape
        return {
            **case,
            "shape": {"m": m, "n": n, "k": k},
            **{name: value for name, value in to_plain(self).items() if name != "case"},
            "outputs": outputs | {"finite": self.outputs.finite, "right": self.outputs.right},
            "unit": self.case.unit,
            "work_per_s": self.rate.value * self.case.launch_work,
            "energy_pj": self.energy_pj,
            "energy_above_idle_pj": self.energy_above_idle_pj,
            "at_limit": self.at_limit,
            "flags": list(self.flags),
        }
