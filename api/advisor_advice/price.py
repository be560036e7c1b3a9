"""Costs in words; light, since launching needs no numpy."""

from advisor.core.objectives import Prices
from advisor.core.wording import less_or_more


def price_text(prices: Prices, this: tuple[float, float], apart: tuple[float, float]) -> str:
    """Cost of a way and of one after the other, each from its seconds and joules."""
    own, other = (prices.of(held_s, energy_j) for held_s, energy_j in (this, apart))
    each = [f"{prices.gpu_hour:g} a GPU hour"] if prices.gpu_hour else []
    each += [f"{prices.kwh:g} a kWh"] if prices.kwh else []
    costs = " instead of ".join(f"{c:.2f}" if c >= 1 else f"{c:.2g}" for c in (own, other))
    return f"{less_or_more(1 - own / other, 0)}: {costs} ({', '.join(each)})"
