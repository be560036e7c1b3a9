"""F1 and F4: power at equal execution times, and power of what ran before.

Equal execution times come with different power (the first takeaway), and light operations take on
power of what ran before them while heavy ones do not (the fourth).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from advisor.wire.kernel_power import CurvePoint, KernelPower
from advisor_power.kernels.claims.finding import Finding, Verdict, not_yet
from advisor_power.kernels.estimates import STANDARD_ERRORS_95, ratio, standard_error

SAME_TIME = 0.02
"""Execution times that differ by less are equal."""

RISES, RISES_NOT, RISING_KERNELS = 0.05, 0.02, 3
"""First takeaway: power rises by 5 % in three of six kernels, or by less than 2 % in all."""

INHERITS, INHERITS_NOT, STANDARD_ERRORS = 0.03, 0.015, 3.0
"""Fourth takeaway: light kernels are 3 % off their own power, heavy ones 1.5 % at most."""

_FIRST_MS = 50.0


@dataclass(frozen=True, slots=True)
class Rise:
    """From the first steady execution to steady power.

    Attributes:
        power: (SSP - SSE) / SSE.
        time: (execution time in steady power - that at SSE) / that at SSE.
        half: Half of the 95 % interval of `power`; None where it is not known.
    """

    power: float
    time: float
    half: float | None = None


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
    sse_ms, over = sse_j.value / sse_w.value * 1000, ratio(ssp_w, sse_w)
    half = None if over.high is None else over.high - over.value
    return Rise(power=over.value - 1, time=power.execution_ms / sse_ms - 1, half=half)


def shift_of(after: KernelPower, own_w: float) -> Shift | None:
    """How far power is off the operation's own, once what was before has left the sensor.

    Args:
        after: The operation after another one.
        own_w: Its own steady power.
    """
    found = after.settled_power_w
    if found is None or found.high is None:
        return None
    error_w = standard_error(found)
    return Shift(found.value / own_w - 1, error_w / own_w, _raw_shift(after.curve, own_w))


def equal_times_differ_in_power(rises: Mapping[str, Rise]) -> Finding:
    """The first takeaway, by name of the kernel; those whose times differ say nothing."""
    equal = {name: rise for name, rise in rises.items() if abs(rise.time) <= SAME_TIME}
    if not rises:
        return not_yet("F1", "no kernel has both steady points")
    ours = "; ".join(f"{name} {_rise_text(rise)}" for name, rise in rises.items())
    why = f">= {RISES:.0%} in {RISING_KERNELS} kernels at equal times; < {RISES_NOT:.0%} in all"
    return Finding("F1", ours, _rise_verdict(list(equal.values())), f"{why} refutes")


def light_inherit_heavy_do_not(light: Mapping[str, Shift], heavy: Mapping[str, Shift]) -> Finding:
    """The fourth takeaway, by name of the kernel; shifts are the corrected ones."""
    if not light or not heavy:
        return not_yet("F4", "not both light and heavy kernels were measured after another one")
    ours = "; ".join(f"{name} {_shift_text(shift)}" for name, shift in {**light, **heavy}.items())
    why = (
        f"light off their own power by >= {INHERITS:.0%} and > {STANDARD_ERRORS:g} standard "
        f"errors, heavy by <= {INHERITS_NOT:.1%}; all by no more than that refutes"
    )
    return Finding("F4", ours, _shift_verdict(light, heavy), why)


def _rise_verdict(equal: Sequence[Rise]) -> Verdict:
    powers = [abs(rise.power) for rise in equal]
    if sum(power >= RISES for power in powers) >= RISING_KERNELS:
        return "confirmed"
    if len(powers) >= 2 * RISING_KERNELS and all(power < RISES_NOT for power in powers):
        return "refuted"
    return "open"


def _shift_verdict(light: Mapping[str, Shift], heavy: Mapping[str, Shift]) -> Verdict:
    every = [*light.values(), *heavy.values()]
    if all(abs(shift.corrected) <= INHERITS_NOT for shift in every):
        return "refuted"
    inherits = all(
        abs(s.corrected) >= INHERITS and abs(s.corrected) > STANDARD_ERRORS * s.error
        for s in light.values()
    )
    keeps = all(abs(shift.corrected) <= INHERITS_NOT for shift in heavy.values())
    return "confirmed" if inherits and keeps else "open"


def _rise_text(rise: Rise) -> str:
    within = "" if rise.half is None else f" ± {rise.half:.1%}"
    times = "" if abs(rise.time) <= SAME_TIME else f" (time {rise.time:+.1%})"
    return f"{rise.power:+.1%}{within}{times}"


def _shift_text(shift: Shift) -> str:
    raw = "" if shift.raw is None else f", as read {shift.raw:+.0%}"
    return f"{shift.corrected:+.1%} ± {STANDARD_ERRORS_95 * shift.error:.1%}{raw}"


def _raw_shift(curve: Sequence[CurvePoint], own_w: float) -> float | None:
    """As read in the first 50 ms: what the window alone makes of what was before."""
    raw = [p.raw_w for p in curve if p.end_ms <= _FIRST_MS and p.raw_w is not None]
    return sum(raw) / len(raw) / own_w - 1 if raw else None
