"""Which of several ways is taken: the one that is worth most, and in a tie the most even. Pure."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from advisor.objectives import Objective
from advisor.predictions import Prediction, Way

LEADS: Mapping[Way, float] = MappingProxyType({"split": 0.0, "uncapped": 0.05, "exclusive": 0.02})
"""How much more than a split a way must be worth to be taken, relative to it.

Without limits a prediction is off by several times what it is off at a split. One after the other
is measured, and expectations are smoother than what they stand for: the best of nine splits turns
out above the largest of nine expected values more often than below it. Leaving workloads out, the
choices from every way reach more of the oracle with these leads than without (docs/decisions.md).
"""

_PREFERENCE: tuple[Way, ...] = ("split", "uncapped", "exclusive")
"""In a tie limits go first: under them neither job can take the other's units."""


def choose(
    predictions: Iterable[Prediction], objective: Objective, tie: float, *, mirrored: bool
) -> Prediction:
    """The one that is worth most, less its lead; of nearly equal ones limits, then the most even.

    Args:
        predictions: At least one, in any order.
        objective: What is maximised.
        tie: Relative distance from the largest value that counts as equal to it.
        mirrored: See `evenness`.
    """
    worths = [(objective.value(p.result) / (1 + LEADS[p.way]), p) for p in predictions]
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
