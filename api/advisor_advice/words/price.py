"""What a way costs, in words."""

from advisor.core.objectives import Prices
from advisor.core.wording import less_or_more


def price_text(prices: Prices, this: tuple[float, float], apart: tuple[float, float]) -> str:
    """What a way costs next to one after the other; of each its seconds and its joules."""
    own, other = (prices.of(held_s, energy_j) for held_s, energy_j in (this, apart))
    each = [f"{prices.gpu_hour:g} a GPU hour"] if prices.gpu_hour else []
    each += [f"{prices.kwh:g} a kWh"] if prices.kwh else []
    saved = less_or_more(1 - own / other, 0)
    return f"{saved}: {_money(own)} instead of {_money(other)} ({', '.join(each)})"


def _money(amount: float) -> str:
    return f"{amount:.2f}" if amount >= 1 else f"{amount:.2g}"
