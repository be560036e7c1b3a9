"""F8: how far common ways of reading the power of a kernel lead astray."""

from collections.abc import Sequence

from advisor_power.kernels.claims.finding import Finding, Verdict, not_yet
from advisor_power.sensor.reading_errors import ReadingError

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
