"""What FinGraV found on an MI300X, as claims that figures of another card confirm or refute.

Two of its five takeaways need nothing but what `advisor power kernel` says: equal execution times
come with different power (the first), and light operations take on power of what ran before them
while heavy ones do not (the fourth).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from advisor.wire.kernel_power import CurvePoint, KernelPower

Verdict = Literal["confirmed", "refuted", "open"]

SAME_TIME = 0.02
"""Execution times that differ by less are equal."""

RISES, RISES_NOT, RISING_KERNELS = 0.05, 0.02, 3
"""First takeaway: power rises by 5 % in three of six kernels, or by less than 2 % in all."""

INHERITS, INHERITS_NOT, STANDARD_ERRORS = 0.03, 0.015, 3.0
"""Fourth takeaway: light kernels are 3 % off their own power, heavy ones 1.5 % at most."""

LOOKED_AT_MS = 50.0
"""After what ran before has left the window."""

_BAND = 1.96


@dataclass(frozen=True, slots=True)
class Rise:
    """From the first steady execution to steady power.

    Attributes:
        power: (SSP - SSE) / SSE.
        time: (execution time in steady power - that at SSE) / that at SSE.
    """

    power: float
    time: float


@dataclass(frozen=True, slots=True)
class Shift:
    """Power after another operation against the operation's own steady power.

    Attributes:
        corrected: (deconvolved - own) / own.
        error: Standard error of that.
        raw: The same with power as it was read; None without a reading there.
    """

    corrected: float
    error: float
    raw: float | None


def rise_of(power: KernelPower) -> Rise | None:
    """None where one of the two steady points is not known."""
    sse_w, sse_j, ssp_w = power.sse_power_w, power.sse_energy_j, power.ssp_power_w
    if sse_w is None or sse_j is None or ssp_w is None:
        return None
    sse_ms = sse_j.value / sse_w.value * 1000
    return Rise(power=ssp_w.value / sse_w.value - 1, time=power.execution_ms / sse_ms - 1)


def shift_of(after: KernelPower, own_w: float, settle_ms: float) -> Shift | None:
    """How far power is off the operation's own, once the window is past what was before.

    Args:
        after: The operation after another one.
        own_w: Its own steady power.
        settle_ms: Delay and window of the sensor.
    """
    end_ms = settle_ms + LOOKED_AT_MS
    points = [p for p in after.curve if p.begin_ms >= settle_ms and p.end_ms <= end_ms]
    if not points:
        return None
    corrected_w = sum(p.power_w for p in points) / len(points)
    # Errors of neighbouring bins hang together: taken as one, they are not made too small.
    error_w = sum(p.high_w - p.low_w for p in points) / len(points) / 2 / _BAND
    return Shift(corrected_w / own_w - 1, error_w / own_w, _raw_shift(after.curve, own_w))


def equal_times_differ_in_power(rises: Sequence[Rise]) -> Verdict:
    """The first takeaway, over kernels; those whose times differ say nothing."""
    powers = [abs(rise.power) for rise in rises if abs(rise.time) <= SAME_TIME]
    if sum(power >= RISES for power in powers) >= RISING_KERNELS:
        return "confirmed"
    if len(powers) >= 2 * RISING_KERNELS and all(power < RISES_NOT for power in powers):
        return "refuted"
    return "open"


def light_inherit_heavy_do_not(light: Mapping[str, Shift], heavy: Mapping[str, Shift]) -> Verdict:
    """The fourth takeaway, by name of the kernel; shifts are the corrected ones."""
    if not light or not heavy:
        return "open"
    every = [*light.values(), *heavy.values()]
    if all(abs(shift.corrected) <= INHERITS_NOT for shift in every):
        return "refuted"
    inherits = all(
        abs(s.corrected) >= INHERITS and abs(s.corrected) > STANDARD_ERRORS * s.error
        for s in light.values()
    )
    keeps = all(abs(shift.corrected) <= INHERITS_NOT for shift in heavy.values())
    return "confirmed" if inherits and keeps else "open"


def _raw_shift(curve: Sequence[CurvePoint], own_w: float) -> float | None:
    """As read in the first 50 ms: what the window alone makes of what was before."""
    raw = [p.raw_w for p in curve if p.end_ms <= LOOKED_AT_MS and p.raw_w is not None]
    return sum(raw) / len(raw) / own_w - 1 if raw else None
