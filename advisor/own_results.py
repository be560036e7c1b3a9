"""What a job's own results said at the counts of units at which it was measured alone."""

from collections.abc import Iterable
from typing import Any

from advisor.records import SoloPoint


def own_results(points: Iterable[SoloPoint]) -> tuple[frozenset[int], frozenset[int]]:
    """Counts at which results were read as right, and those at which they were wrong.

    A count with both is wrong, and one at which results once differed is not right. Points of which
    no results were read say nothing.
    """
    counts: dict[str | None, set[int]] = {}
    for point in points:
        if point.units_granted:
            counts.setdefault(_results(point), set()).add(point.units_granted)
    right, wrong, differ = (counts.get(name, set()) for name in ("right", "wrong", "differ"))
    return frozenset(right - wrong - differ), frozenset(wrong)


def _results(point: SoloPoint) -> str | None:
    """The column `results`; None where points do not have it."""
    found: Any = getattr(point, "results", None)
    return found
