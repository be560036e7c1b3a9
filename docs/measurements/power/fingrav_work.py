"""What figures say of FinGraV's claims F2, F3, F7 and F8; fingrav_table.py prints it.

F2: power follows the work. F3: light and heavy matrix products draw alike. F7: what collectives
draw beside a large product. F8: how far common ways of reading the power of a kernel lead astray.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from fingrav_findings import (
    Finding,
    Rise,
    Verdict,
    at_least,
    at_most,
    minus,
    not_yet,
    percents,
    ratio,
    watts,
)

from advisor.wire.kernel_power import Estimate, StretchPower
from advisor_power.kernels.runs import STANDARD_ERRORS_95
from advisor_power.sensor.reading_errors import ReadingError

FOLLOWS, FOLLOWS_NOT = 0.8, 0.4
"""Rank correlation of bytes per second with the power of the memory."""

ALIKE, UNLIKE = 0.85, 0.70
"""Power without the memory's of the light product over that of the heavy one."""

LIGHT = 0.60
"""A light product has at most this part of the heavy one's operations per second."""

_FEWEST_RANKED = 4


@dataclass(frozen=True, slots=True)
class WorkPower:
    """What an operation does in a second, and what it draws for that.

    Attributes:
        flop: Of one execution, by definition.
        bytes_held: By the operands of one execution, each once.
    """

    flop: float
    bytes_held: float
    stretch: StretchPower

    @property
    def flop_per_s(self) -> float:
        """By definition of the operation."""
        return self.flop / self.stretch.execution_ms * 1000

    @property
    def bytes_per_s(self) -> float:
        """Of operands; from a cache, where they fit into one."""
        return self.bytes_held / self.stretch.execution_ms * 1000


def power_follows_work(
    compute: Mapping[str, WorkPower],
    memory: Mapping[str, WorkPower],
    largest: str,
    more: Mapping[str, WorkPower],
) -> Finding:
    """The second takeaway.

    Args:
        compute: Operations bound by computing, by name.
        memory: Those bound by memory.
        largest: Of the last, the one that no cache holds.
        more: Operations that only add to the rank correlation, such as those with inputs that no
            cache holds.
    """
    first = {**compute, **memory}
    every = {**first, **more}
    if missing := _missing(every):
        return not_yet("F2", missing)
    if not compute or largest not in memory or len(every) < _FEWEST_RANKED:
        return not_yet("F2", "not all operations were measured")
    least = min((_total(w) for w in compute.values()), key=lambda power: power.value)
    most = max((_total(w) for w in memory.values()), key=lambda power: power.value)
    apart, highest = minus(least, most), max(first, key=lambda name: _memory(first[name]).value)
    follows, by = _rank_correlation(list(every.values()))
    ours = (
        f"compute-bound draw at least {watts(apart)} more; memory's power highest for {highest}, "
        f"{watts(_memory(first[highest]))}; rank correlation {follows.value:.2f} "
        f"[{follows.low:.2f}, {follows.high:.2f}] with {by}, {len(every)} operations"
    )
    verdict: Verdict = "open"
    if at_least(apart, 0) and highest == largest and follows.value >= FOLLOWS:
        verdict = "confirmed"
    elif at_most(apart, 0) or follows.value <= FOLLOWS_NOT:
        verdict = "refuted"
    why = f"memory's power highest for {largest}, correlation >= {FOLLOWS:g}; <= {FOLLOWS_NOT:g}"
    return Finding("F2", ours, verdict, f"all compute-bound above all memory-bound, {why} refutes")


def light_and_heavy_draw_alike(light: WorkPower | None, heavy: WorkPower | None) -> Finding:
    """The third takeaway, of power without the memory's, below the power limit."""
    if light is None or heavy is None:
        return not_yet("F3", "not both products were measured")
    if missing := _missing({"light": light, "heavy": heavy}):
        return not_yet("F3", missing)
    one, other = (minus(_total(work), _memory(work)) for work in (light, heavy))
    alike, speed = ratio(one, other), light.flop_per_s / heavy.flop_per_s
    ours = f"power without memory's {percents(alike)} at {speed:.0%} of the operations per second"
    if light.stretch.power_capped or heavy.stretch.power_capped:
        return not_yet("F3", "the power limit held the clock back", ours)
    if at_most(alike, UNLIKE):
        return Finding("F3", ours, "refuted", f"at most {UNLIKE:.0%} refutes")
    if speed > LIGHT:
        why = f"the light product is not light here: above {LIGHT:.0%} of the operations per second"
        return not_yet("F3", why, ours)
    verdict: Verdict = "confirmed" if at_least(alike, ALIKE) else "open"
    return Finding("F3", ours, verdict, f">= {ALIKE:.0%} at <= {LIGHT:.0%} confirms")


def _missing(works: Mapping[str, WorkPower]) -> str:
    """Why the power of some memory is not known; empty where it is."""
    for name, work in works.items():
        if work.stretch.power_w is None or work.stretch.memory_power_w is None:
            return f"{name}: {work.stretch.no_memory_power}"
    return ""


def _total(work: WorkPower) -> Estimate:
    assert work.stretch.power_w is not None  # seen to in _missing
    return work.stretch.power_w


def _memory(work: WorkPower) -> Estimate:
    assert work.stretch.memory_power_w is not None  # seen to in _missing
    return work.stretch.memory_power_w


def _rank_correlation(works: Sequence[WorkPower]) -> tuple[Estimate, str]:
    """Spearman's, of traffic with the memory's power, and which traffic.

    Its interval is that of Bonett and Wright (Psychometrika 65, 2000).
    """
    counted = [work.stretch.dram_active_percent for work in works]
    known = [percent for percent in counted if percent is not None]
    if len(known) == len(works):
        traffic, by = known, "the counter of memory traffic"
    else:
        traffic, by = [work.bytes_per_s for work in works], "bytes of operands per second"
    one, other = _ranks(traffic), _ranks([_memory(work).value for work in works])
    r = float(np.corrcoef(one, other)[0, 1]) if np.ptp(one) and np.ptp(other) else 0.0
    half = STANDARD_ERRORS_95 * math.sqrt((1 + r * r / 2) / (len(works) - 3))
    middle = math.atanh(max(-0.999999, min(0.999999, r)))
    return Estimate(r, math.tanh(middle - half), math.tanh(middle + half)), by


def _ranks(values: Sequence[float]) -> np.ndarray:
    """Equal values share the mean of their ranks."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[place]


FEW = 0.50
"""Collectives bound by latency draw less than this part of the product's total."""

SAME = 0.02
"""Power of a collective at SSE and at SSP differs by no more than this part."""


def collectives_draw_little(
    latency: Mapping[str, Estimate],
    bandwidth: Mapping[str, Estimate],
    product_w: Estimate | None,
    rises: Mapping[str, Rise],
) -> Finding:
    """What the paper says of communication.

    Args:
        latency: Total power by name of the collective, of those bound by latency, W.
        bandwidth: Of those bound by bandwidth, W.
        product_w: Total power of the large matrix product on the same card.
        rises: From SSE to SSP, by name of the collective.
    """
    if product_w is None or not latency or not bandwidth:
        return not_yet("F7", "it takes a host with two GPUs: not measured")
    low = [ratio(watts, product_w) for watts in latency.values()]
    high = [ratio(watts, product_w) for watts in bandwidth.values()]
    most, least = max(low, key=_value), min(high, key=_value)
    top = max(high, key=_value)
    ours = (
        f"of the product's total: latency-bound at most {percents(most)}, bandwidth-bound "
        f"{percents(least)} to {percents(top)}; SSE to SSP: {_rises_text(rises)}"
    )
    between = most.value < least.value and at_most(top, 1.0)
    same = all(abs(rise.power) <= SAME for rise in rises.values())
    verdict: Verdict = "open"
    if at_most(most, FEW) and between and rises and same:
        verdict = "confirmed"
    elif at_least(most, FEW) or at_least(top, 1.0) or any(_surely_rises(r) for r in rises.values()):
        verdict = "refuted"
    why = f"latency-bound < {FEW:.0%}, bandwidth-bound between that and the product"
    return Finding("F7", ours, verdict, f"{why}, SSE and SSP within {SAME:.0%}")


def _value(estimate: Estimate) -> float:
    return estimate.value


def _surely_rises(rise: Rise) -> bool:
    return abs(rise.power) - (rise.half or 0.0) > SAME


def _rises_text(rises: Mapping[str, Rise]) -> str:
    return ", ".join(f"{name} {rise.power:+.1%}" for name, rise in rises.items()) or "not measured"


MISLEADS, HARDLY = 0.20, 0.03
"""Median error of the worst common way, and what is still within the bar of two instruments."""


def naive_readings_mislead(errors: Sequence[ReadingError]) -> Finding:
    """Of all ways but ours, by length of the kernel; ours must not mislead itself."""
    common = [error for error in errors if error.way != "ours"]
    ours = [error for error in errors if error.way == "ours"]
    if not common or not ours:
        return not_yet("F8", "no recording with runs of short kernels was given")
    worst = max(common, key=lambda error: error.median)
    own = max(ours, key=lambda error: error.median)
    text = (
        f"worst: {worst.way} reading of {worst.kernel_s * 1000:g} ms kernels, {worst.median:.0%} "
        f"median, {worst.p95:.0%} at the 95th percentile of {worst.readings}; ours {own.median:.1%}"
    )
    verdict: Verdict = "open"
    if worst.median >= MISLEADS and own.median <= HARDLY:
        verdict = "confirmed"
    elif worst.median <= HARDLY:
        verdict = "refuted"
    why = f"worst median >= {MISLEADS:.0%} beside ours <= {HARDLY:.0%}; worst <= {HARDLY:.0%}"
    return Finding("F8", text, verdict, f"{why} refutes")
