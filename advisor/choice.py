"""Which of several ways is taken: the one that is worth most, and in a tie the most even. Pure."""

from collections.abc import Iterable

from advisor.objectives import Objective
from advisor.predictions import Prediction, Way

_PREFERENCE: tuple[Way, ...] = ("split", "uncapped", "exclusive")
"""In a tie limits go first: under them neither job can take the other's units."""


def choose(
    predictions: Iterable[Prediction], objective: Objective, tie: float, *, mirrored: bool
) -> Prediction:
    """The one that is worth most; of nearly equal ones limits before none, then the most even.

    Args:
        predictions: At least one, in any order.
        objective: What is maximised.
        tie: Relative distance from the largest value that counts as equal to it.
        mirrored: See `evenness`.
    """
    worths = [(objective.value(p.result), p) for p in predictions]
    least = max(worth for worth, _ in worths) * (1 - tie)
    tied = [(worth, p) for worth, p in worths if worth >= least]

    def rank(item: tuple[float, Prediction]) -> tuple[float, ...]:
        preference, gap, first = evenness(item[1], mirrored=mirrored)
        return preference, gap, -item[0], first

    return min(tied, key=rank)[1]


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
