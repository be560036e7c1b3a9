"""Hosts whose points disagree with those of all other hosts of the site.

A host disagrees where the median of its points lies beyond the same bound of the champion's
intervals, of rates or of power: more than half of its points, where one in twenty should. Whether
the host or the world has changed, its neighbours tell: if theirs disagree as well, a driver or a
library has changed everywhere, and the points are news. So the only host of a site is never judged.
"""

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence

from advisor.core.records import PairPoint
from advisor_training.retrain.refused import Refused, refuse
from advisor_training.retrain.surprises import Surprise

LEAST_POINTS = 20
LEAST_PAIRS = 3
"""Of a host that is judged, or that others are judged by: one strange job is no strange host."""


def disagreeing(new: Sequence[Surprise], known: Sequence[Surprise]) -> Iterator[Refused]:
    """New points of hosts that disagree, where another host does not.

    Args:
        new: Of points that are not learned yet.
        known: Of the site's own learned points; they stand for hosts without enough new ones.
    """
    of_new = _by_host(new)
    medians = {h: _medians(found) for h, found in (_by_host(known) | of_new).items()}
    strange = {host for host, found in medians.items() if _beyond(found)}
    if len(strange) == len(medians):
        return
    for host in sorted(strange & of_new.keys()):
        what, off = max(medians[host].items(), key=lambda item: abs(item[1]))
        why = f"{what} of host {host} {'above' if off > 0 else 'below'} all others of this site"
        yield from (refuse(one.point, "disagreeing-host", why) for one in of_new[host])


def host_of(point: PairPoint) -> str:
    """The host of a point; its card where the host is not known."""
    return point.host or point.gpu_uuid


def _by_host(found: Iterable[Surprise]) -> dict[str, list[Surprise]]:
    """Of hosts with enough points."""
    groups: dict[str, list[Surprise]] = {}
    for one in found:
        groups.setdefault(host_of(one.point), []).append(one)
    return {host: group for host, group in groups.items() if _are_enough(group)}


def _are_enough(group: Sequence[Surprise]) -> bool:
    return len(group) >= LEAST_POINTS and len({one.point.jobs for one in group}) >= LEAST_PAIRS


def _medians(found: Sequence[Surprise]) -> Mapping[str, float]:
    """Signed, in units of the intervals."""
    return {
        "rates": statistics.median(rate for one in found for rate in one.rates),
        "power": statistics.median(one.power for one in found),
    }


def _beyond(medians: Mapping[str, float]) -> bool:
    return any(abs(median) > 1 for median in medians.values())
