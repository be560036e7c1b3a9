"""Whether measured levels of a sweep confirm a claim, refute it, or leave it open.

Confirmed: the sign that was claimed, 2 % or more, and over four standard errors. Refuted: less than
1 %, or the other sign by over four standard errors. Otherwise open, as what a higher clock may have
done is.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from advisor.wire.power import ClaimQuantity, ClaimVerdict
from advisor_power.inputs.result import InputPower
from advisor_power.kernels.estimates import standard_error

Pattern: TypeAlias = Literal["rises", "falls", "flat", "peaks"]

CLEAR, NOTHING, STANDARD_ERRORS = 0.02, 0.01, 4.0

SAME_CLOCK = 0.01
"""Clocks that differ by more are not the same: a higher one takes a higher voltage."""


@dataclass(frozen=True, slots=True)
class Level:
    """One level of a sweep over its seeds."""

    value: float
    """Mean of the quantity that is compared."""
    error: float
    """Its standard error: of the windows, or of the scatter of seeds where that is larger."""
    clock_mhz: float | None = None
    """Mean; None where it was not read."""


@dataclass(frozen=True, slots=True)
class SweepChange:
    """Of a sweep, relative."""

    value: float
    """From the first level to the last; of a peak what it is above the higher end; of what should
    be flat the largest, with its sign."""
    error: float
    clock: float = 0.0
    """Of the clock from one level to the other; 0 where it was not read."""

    @property
    def by_clock(self) -> bool:
        """Whether the clock may be why: more at a higher clock, which takes a higher voltage."""
        return abs(self.clock) >= SAME_CLOCK and self.clock * self.value > 0


def quantity_of(results: Sequence[InputPower], *, in_watts: bool = False) -> ClaimQuantity:
    """Energy where the clock was held back anywhere, by the power limit or by heat.

    Power is not comparable there: what draws more runs slower. Energy is that above the idle card,
    of which a slow product has more; a lower clock also means a lower voltage, so that what draws
    more differs by a little more than is seen. Where every reference was held back, nothing has a
    ratio, and energy is what is left.
    """
    if any(result.held_back for result in results):
        return "energy"
    if in_watts:
        return "watts"
    ratios = [result.reference_ratio for result in results]
    return "energy" if ratios and not any(ratios) else "ratio"


def level_of(results: Sequence[InputPower], quantity: ClaimQuantity) -> Level | None:
    """The level that results of several seeds make; None where what is compared is not known."""
    known = [estimate for r in results if (estimate := _quantity(r, quantity)) is not None]
    if not known:
        return None
    values, count = [value for value, _ in known], len(known)
    within = math.hypot(*(error for _, error in known)) / count
    between = statistics.stdev(values) / math.sqrt(count) if count > 1 else 0.0
    clocks = [r.sm_clock_mhz for r in results if r.sm_clock_mhz is not None]
    clock_mhz = statistics.fmean(clocks) if clocks else None
    return Level(statistics.fmean(values), max(within, between), clock_mhz)


def change_of(levels: Mapping[float, Level], pattern: Pattern) -> SweepChange | None:
    """How far a sweep goes; None with fewer levels than that takes."""
    ordered = list(levels.values())
    if len(ordered) < (3 if pattern == "peaks" else 2):
        return None
    first, last = ordered[0], ordered[-1]
    if pattern == "peaks":
        peak = max(ordered[1:-1], key=lambda level: level.value)
        return min((relative(end, peak) for end in (first, last)), key=lambda c: c.value)
    if pattern == "flat":
        return max((relative(first, level) for level in ordered[1:]), key=lambda c: abs(c.value))
    return relative(first, last)


def verdict_of(change: SweepChange | None, pattern: Pattern) -> ClaimVerdict:
    """What a change says of a claim."""
    if change is None or (change.by_clock and abs(change.value) >= NOTHING):
        return "open"
    sure = abs(change.value) > STANDARD_ERRORS * change.error
    if pattern == "flat":
        if abs(change.value) < NOTHING:
            return "confirmed"
        return "refuted" if sure and abs(change.value) >= CLEAR else "open"
    claimed = -change.value if pattern == "falls" else change.value
    if sure and claimed >= CLEAR:
        return "confirmed"
    if abs(claimed) < NOTHING or (claimed < 0 and (sure or pattern == "peaks")):
        return "refuted"
    return "open"


def relative(first: Level, other: Level) -> SweepChange:
    """From one level to another one."""
    ratio = other.value / first.value
    error = ratio * math.hypot(first.error / first.value, other.error / other.value)
    if first.clock_mhz is None or other.clock_mhz is None:
        return SweepChange(ratio - 1, error)
    return SweepChange(ratio - 1, error, other.clock_mhz / first.clock_mhz - 1)


def _quantity(result: InputPower, quantity: ClaimQuantity) -> tuple[float, float] | None:
    """Value and standard error."""
    power_w = result.power_w
    if quantity == "watts":
        return power_w.value, standard_error(power_w)
    if quantity == "energy":
        energy_pj = result.energy_above_idle_pj
        if energy_pj is None or result.idle_w is None:
            return None
        of_power = standard_error(power_w) / (power_w.value - result.idle_w)
        of_rate = standard_error(result.rate) / result.rate.value
        return energy_pj, energy_pj * math.hypot(of_power, of_rate)
    ratio = result.reference_ratio
    return None if ratio is None else (ratio.value, standard_error(ratio))
