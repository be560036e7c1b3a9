"""What a job's own results said at the counts of units at which it was measured alone."""

from collections.abc import Iterable

from advisor.core.records import SoloPoint


def own_results(points: Iterable[SoloPoint]) -> tuple[frozenset[int], frozenset[int]]:
    """Counts at which results were read as right, and those at which they were wrong.

    Results that are not finite are wrong, and so are those that differ from the full GPU's by more
    than the job tolerates. A count with both is wrong. Points of which no results were read say
    nothing.
    """
    counts: dict[str | None, set[int]] = {}
    for point in points:
        if point.units_granted:
            counts.setdefault(point.results, set()).add(point.units_granted)
    right, wrong, differ = (counts.get(name, set()) for name in ("right", "wrong", "differ"))
    return frozenset(right - wrong - differ), frozenset(wrong | differ)
