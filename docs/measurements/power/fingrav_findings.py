"""What figures say of FinGraV's claims F1, F4 and F5; fingrav_table.py prints it.

F1: equal execution times come with different power. F4: light operations take on power of what ran
before them, heavy ones do not. F5: the same work takes less energy with the light operation first.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from advisor.wire.kernel_power import CurveBin, Estimate, KernelReport
from advisor_power.kernels.runs import STANDARD_ERRORS_95, around, mean_of, standard_error

Verdict = Literal["confirmed", "refuted", "open"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One claim of the paper beside what was measured.

    Attributes:
        claim: F1 to F8.
        ours: Figures with their 95 % intervals; empty where nothing was measured.
        verdict: By the thresholds that `why` names.
        why: What confirms or refutes it, or what is missing.
    """

    claim: str
    ours: str
    verdict: Verdict
    why: str


def not_yet(claim: str, why: str, ours: str = "") -> Finding:
    """A claim that nothing can be said of."""
    return Finding(claim, ours, "open", why)


def at_least(value: Estimate, threshold: float) -> bool:
    """Whether a value is so large with its whole interval."""
    return (value.value if value.low is None else value.low) >= threshold


def at_most(value: Estimate, threshold: float) -> bool:
    """Whether a value is so small with its whole interval."""
    return (value.value if value.high is None else value.high) <= threshold


def minus(one: Estimate, other: Estimate) -> Estimate:
    """The difference of two independent values."""
    return _combined(one.value - other.value, [(one, 1.0), (other, 1.0)])


def ratio(one: Estimate, other: Estimate) -> Estimate:
    """One of two independent values over the other.

    Raises:
        ZeroDivisionError: the other is 0.
    """
    value = one.value / other.value
    return _combined(value, [(one, 1 / other.value), (other, value / other.value)])


def _combined(value: float, parts: Sequence[tuple[Estimate, float]]) -> Estimate:
    """Half widths add up as squares, each times how much it counts."""
    halves = [None if e.low is None or e.high is None else (e.high - e.low) / 2 for e, _ in parts]
    if None in halves:
        return Estimate(value, None, None)
    squares = [(half * by) ** 2 for half, (_, by) in zip(halves, parts, strict=True) if half]
    return around(value, math.sqrt(sum(squares)))


def percents(value: Estimate, digits: int = 1) -> str:
    """A part as percents, with its interval."""
    if value.low is None or value.high is None:
        return f"{value.value:.{digits}%}"
    return f"{value.value:.{digits}%} [{value.low:.{digits}%}, {value.high:.{digits}%}]"


def watts(value: Estimate) -> str:
    """Power with its interval."""
    if value.low is None or value.high is None:
        return f"{value.value:.0f} W"
    return f"{value.value:.1f} W [{value.low:.1f}, {value.high:.1f}]"


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


def rise_of(power: KernelReport) -> Rise | None:
    """None where one of the two steady points is not known."""
    sse_w, sse_j, ssp_w = power.sse_power_w, power.sse_energy_j, power.ssp_power_w
    if sse_w is None or sse_j is None or ssp_w is None:
        return None
    sse_ms, over = sse_j.value / sse_w.value * 1000, ratio(ssp_w, sse_w)
    half = None if over.high is None else over.high - over.value
    return Rise(power=over.value - 1, time=power.execution_ms / sse_ms - 1, half=half)


def shift_of(after: KernelReport, own_w: float) -> Shift | None:
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


def _raw_shift(curve: Sequence[CurveBin], own_w: float) -> float | None:
    """As read in the first 50 ms: what the window alone makes of what was before."""
    raw = [p.raw_w for p in curve if p.end_ms <= _FIRST_MS and p.raw_w is not None]
    return sum(raw) / len(raw) / own_w - 1 if raw else None


SAVES, SAVES_NOT = 0.01, 0.005
"""Part of the energy of the same work."""

FEWEST_PAIRS = 3


def light_first_saves(light_first_j: Sequence[float], heavy_first_j: Sequence[float]) -> Finding:
    """The fifth takeaway, from blocks of equal work that were run in turn.

    Args:
        light_first_j: Energy of each block with the light operation first.
        heavy_first_j: Of the block beside each, with the heavy one first.
    """
    pairs = list(zip(light_first_j, heavy_first_j, strict=False))
    if len(pairs) < FEWEST_PAIRS:
        why = f"{len(pairs)} pairs of blocks, it takes {FEWEST_PAIRS}"
        return not_yet("F5", why)
    saved = [1 - light / heavy for light, heavy in pairs]
    found, error = mean_of(saved), _standard_error(saved)
    ours = f"light first saves {percents(found, 2)} of the energy, {len(pairs)} pairs"
    why = (
        f">= {SAVES:.0%} and > {STANDARD_ERRORS:g} standard errors; < {SAVES_NOT:.1%} with its "
        "interval refutes"
    )
    return Finding("F5", ours, _order_verdict(found, error), why)


def _order_verdict(saved: Estimate, error: float) -> Verdict:
    if saved.value >= SAVES and saved.value > STANDARD_ERRORS * error:
        return "confirmed"
    return "refuted" if saved.high is not None and saved.high < SAVES_NOT else "open"


def _standard_error(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return (variance / len(values)) ** 0.5
