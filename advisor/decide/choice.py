"""Which of several ways is taken: the one that is worth most, and in a tie the most even. Pure."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from advisor.predict.predictions import Prediction, Way

LEADS: Mapping[Way, float] = MappingProxyType({"split": 0.0, "uncapped": 0.05, "exclusive": 0.0})
"""How much more than a split a way must be worth to be taken, relative to it.

Without limits a prediction is off by several times what it is off at a split. One after the other
needs no lead: sharing must pay for what it risks, since a fault of one job can end both.
"""

_PREFERENCE: tuple[Way, ...] = ("split", "uncapped", "exclusive")
"""In a tie limits go first: under them neither job can take the other's units."""


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
        mirrored: See `evenness`.
    """
    worths = [(value(p) / (1 + LEADS[p.way]), p) for p in predictions]
    least = max(worth for worth, _ in worths) * (1 - tie)
    tied = [(worth, p) for worth, p in worths if worth >= least]

    return min(tied, key=lambda item: _rank(*item, mirrored=mirrored))[1]


def _rank(worth: float, p: Prediction, *, mirrored: bool) -> tuple[float, ...]:
    """Of ways worth the same, limits before none, then the most even.

    Sharing that does no more work than one after the other comes last: it has nothing to offer.
    """
    preference, gap, first = evenness(p, mirrored=mirrored)
    pointless = p.way != "exclusive" and p.result.stp <= 1
    return pointless, preference, gap, -worth, first


def evenness(p: Prediction, *, mirrored: bool) -> tuple[int, float, float]:
    """What orders ways that are worth the same, the smallest first; no two have the same.

    Args:
        p: One way.
        mirrored: Of two mirror images the one comes first that gives the second job the smaller
            share, not the first job. Whoever says so of one order of two names, and not of the
            other, gets the same answer whichever job is called the first.
    """
    gap = abs(p.share_a_percent - p.share_b_percent)
    return _PREFERENCE.index(p.way), gap, p.share_b_percent if mirrored else p.share_a_percent
