"""F7: what collectives draw beside a large matrix product."""

from collections.abc import Mapping

from advisor.wire.kernel_power import Estimate
from advisor_power.kernels.claims.finding import (
    Finding,
    Verdict,
    at_least,
    at_most,
    not_yet,
    percents,
)
from advisor_power.kernels.claims.takeaways import Rise
from advisor_power.kernels.estimates import ratio

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
