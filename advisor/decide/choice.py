"""Which of several ways is taken: the one that is worth most, and in a tie the most even. Pure."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from advisor.core.split import Sharing, best_within_tie, evenness
from advisor.predict.predictions import Prediction

MARGINS: Mapping[Sharing, float] = MappingProxyType(
    {"limited": 0.0, "uncapped": 0.05, "exclusive": 0.0}
)
"""How much more than a split under limits a way must be worth to be taken, relative to it.

Without limits a prediction is off by several times what it is off at a split. One after the other
needs no lead: sharing must pay for what it risks, since a fault of one job can end both.
"""


def choose(
    predictions: Iterable[Prediction],
    value: Callable[[Prediction], float],
    tie: float,
    *,
    mirrored: bool,
) -> Prediction:
    """The one that is worth most, less its lead; see `_rank` for those that are nearly equal.

    Args:
        predictions: At least one, in any order.
        value: What is maximised.
        tie: Relative distance from the largest value that counts as equal to it.
        mirrored: See `advisor.core.split.evenness`.
    """
    return best_within_tie(
        predictions,
        lambda p: value(p) / (1 + MARGINS[p.split.sharing]),
        tie,
        lambda p, objective_value: _rank(p, objective_value, mirrored=mirrored),
    )


def _rank(
    p: Prediction, objective_value: float, *, mirrored: bool
) -> tuple[bool, int, float, float, object]:
    """Of ways worth the same, limits before none, then the most even.

    Sharing that does no more work than one after the other comes last: it has nothing to offer.
    """
    preference, gap, shares = evenness(p.split, mirrored=mirrored)
    pointless = p.split.sharing != "exclusive" and p.result.stp <= 1
    return pointless, preference, gap, -objective_value, shares
