"""What a job's own results said at the counts of units at which it was measured alone."""

from collections.abc import Iterable
from typing import Any

from advisor.records import SoloPoint


def own_results(points: Iterable[SoloPoint]) -> tuple[frozenset[int], frozenset[int]]:
    """Counts at which results were read as right, and those at which they were wrong.

    A count with both is wrong. Points of which no results were read say nothing, nor do those that
    differ without either being known as right.
    """
    known = [(_results(point), point.units_granted) for point in points]
    right = frozenset(units for results, units in known if results == "right" and units)
    wrong = frozenset(units for results, units in known if results == "wrong" and units)
    return right - wrong, wrong


def _results(point: SoloPoint) -> str | None:
    """The column `results`; None where points do not have it."""
    found: Any = getattr(point, "results", None)
    return found
