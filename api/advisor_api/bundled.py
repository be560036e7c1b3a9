"""The measurements that come with advisor, read once and kept."""

import functools
from collections.abc import Iterable, Mapping
from itertools import chain, combinations

from advisor.core.records import PairPoint, SoloPoint, grouped
from advisor_advice.conditions import ProfilesOfJob, profiles_by_name
from advisor_data import lists
from advisor_data.bundled import bundled_points_together, bundled_solo_points


@functools.cache
def solo_points() -> tuple[SoloPoint, ...]:
    """Of all jobs."""
    return tuple(bundled_solo_points())


@functools.cache
def profiles() -> Mapping[str, ProfilesOfJob]:
    """Of all jobs, by name."""
    points = solo_points()
    return profiles_by_name(points, {point.job for point in points}, bundled=True)


@functools.cache
def profile_rows() -> tuple[lists.ProfileRow, ...]:
    """What lists say of them, by job and GPU model."""
    return tuple(lists.profile_rows(solo_points()))


@functools.cache
def points_together() -> Mapping[tuple[str, ...], list[PairPoint]]:
    """Of pairs and sets, by the names of their jobs, in their order."""
    return grouped(bundled_points_together(), lambda point: point.jobs)


def points_among(jobs: Iterable[str], *, any_of: bool) -> list[PairPoint]:
    """Of two or more of these jobs, each as often as it is named; `any_of`: in any number."""
    names, by_set = sorted(jobs), points_together()
    fewer = chain.from_iterable(combinations(names, n) for n in range(2, len(names) + 1))
    sets = filter({*names}.issuperset, by_set) if any_of else dict.fromkeys(fewer)
    return [point for of in sets for point in by_set.get(of, ())]
