"""Results of two jobs, from plain numbers."""

from typing import Any

from advisor.core.objectives import PartResult, SplitResult


def pair_result(
    *,
    rate_a: float,
    rate_b: float,
    solo_rate_a: float = 1.0,
    solo_rate_b: float = 1.0,
    solo_power_a_w: float,
    solo_power_b_w: float,
    power_w: float,
) -> SplitResult:
    parts = (
        PartResult(rate_a, solo_rate_a, solo_power_a_w),
        PartResult(rate_b, solo_rate_b, solo_power_b_w),
    )
    return SplitResult(parts, power_w)


def changed(result: SplitResult, **changes: Any) -> SplitResult:
    """The same result with other numbers, named as for `pair_result`."""
    a, b = result.parts
    numbers = {
        "rate_a": a.rate,
        "rate_b": b.rate,
        "solo_rate_a": a.solo_rate,
        "solo_rate_b": b.solo_rate,
        "solo_power_a_w": a.solo_power_w,
        "solo_power_b_w": b.solo_power_w,
        "power_w": result.power_w,
    }
    return pair_result(**(numbers | changes))


def swapped(result: SplitResult) -> SplitResult:
    return SplitResult(result.parts[::-1], result.power_w)
