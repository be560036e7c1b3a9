"""Which solo points profiles are made of, why some make none, and where results were right."""

from collections.abc import Iterable

from advisor.core.flags import RESULTS_ONLY, WRONG
from advisor.core.gpu import WHOLE
from advisor.core.records import SoloPoint
from advisor.validity.degenerate import with_solo_flags

NO_PROFILE = WRONG | {RESULTS_ONLY}
"""Flags of points that are in no profile."""


def is_usable(point: SoloPoint) -> bool:
    """Whether it has what predictions divide by: a rate and a power."""
    return point.rate > 0 and (point.power_w or 0) > 0


def why_no_profile(points: Iterable[SoloPoint]) -> str | None:
    """Why points of one job on one GPU model make no profile; None where they make one."""
    known = with_solo_flags(points)
    shares = {point.share_percent for point in known if not _fault(point)}
    if WHOLE in shares and len(shares) > 1:
        return None
    if WHOLE in shares:
        return f"only the one at {WHOLE:g} % can be used, and a smaller share is needed, too"
    whole = [_fault(point) for point in known if point.share_percent == WHOLE]
    if not whole:
        return f"there is no point at {WHOLE:g} %"
    return f"at {WHOLE:g} % {', '.join(sorted(set(whole)))}"


def _fault(point: SoloPoint) -> str:
    """What keeps a point out of a profile; empty where nothing does."""
    if point.rate <= 0:
        return "rate is 0"
    if not point.power_w:
        return "power_w is missing" if point.power_w is None else "power_w is 0"
    if flags := NO_PROFILE.intersection(point.flags):
        return f"the point is flagged {', '.join(sorted(flags))}"
    return ""


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
