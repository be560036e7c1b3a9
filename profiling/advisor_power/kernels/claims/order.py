"""F5: does the same work take less energy where light operations come before heavy ones?"""

from collections.abc import Sequence

from advisor.wire.kernel_power import Estimate
from advisor_power.kernels.claims.finding import Finding, Verdict, not_yet, percents
from advisor_power.kernels.estimates import mean_of

SAVES, SAVES_NOT, STANDARD_ERRORS = 0.01, 0.005, 3.0
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
        why = f"{len(pairs)} pairs of blocks, it takes {FEWEST_PAIRS} (order.py)"
        return not_yet("F5", why)
    saved = [1 - light / heavy for light, heavy in pairs]
    found, error = mean_of(saved), _standard_error(saved)
    ours = f"light first saves {percents(found, 2)} of the energy, {len(pairs)} pairs"
    why = (
        f">= {SAVES:.0%} and > {STANDARD_ERRORS:g} standard errors; < {SAVES_NOT:.1%} with its "
        "interval refutes"
    )
    return Finding("F5", ours, _verdict(found, error), why)


def _verdict(saved: Estimate, error: float) -> Verdict:
    if saved.value >= SAVES and saved.value > STANDARD_ERRORS * error:
        return "confirmed"
    return "refuted" if saved.high is not None and saved.high < SAVES_NOT else "open"


def _standard_error(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return (variance / len(values)) ** 0.5
