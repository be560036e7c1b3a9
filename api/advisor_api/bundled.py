"""The measurements that come with advisor, read once and kept."""

import functools
import itertools
from collections.abc import Iterable, Mapping, Set

from advisor.core.records import PairPoint, SoloPoint
from advisor_advice.profiles import ProfilesOfJob, known_profiles
from advisor_data.bundled import bundled_pair_points, bundled_points_together, bundled_solo_points
from advisor_data.lists import ProfileRow
from advisor_data.lists import profile_rows as rows_of


@functools.cache
def solo_points() -> tuple[SoloPoint, ...]:
    """Of all jobs."""
    return tuple(bundled_solo_points())


@functools.cache
def profiles() -> Mapping[str, ProfilesOfJob]:
    """Of all jobs, by name."""
    points = solo_points()
    return known_profiles(points, {point.job for point in points}, bundled=True)


@functools.cache
def profile_rows() -> tuple[ProfileRow, ...]:
    """What lists say of them, by job and GPU model."""
    return tuple(rows_of(solo_points()))


@functools.cache
def pair_points() -> Mapping[tuple[str, ...], list[PairPoint]]:
    """By the names of their jobs, in their order."""
    return _by_jobs(bundled_pair_points())


@functools.cache
def points_together() -> Mapping[tuple[str, ...], list[PairPoint]]:
    """The same of pairs and sets."""
    return _by_jobs(bundled_points_together())


def points_among(jobs: Set[str]) -> list[PairPoint]:
    """Of pairs and sets of these jobs and no others."""
    near = itertools.chain.from_iterable(_by_first().get(job, ()) for job in sorted(jobs))
    return [point for names, points in near if names <= jobs for point in points]


@functools.cache
def _by_first() -> Mapping[str, list[tuple[frozenset[str], list[PairPoint]]]]:
    """Points by their first job: what a few jobs did is among a few of hundreds of sets."""
    found: dict[str, list[tuple[frozenset[str], list[PairPoint]]]] = {}
    for jobs, points in points_together().items():
        found.setdefault(jobs[0], []).append((frozenset(jobs), points))
    return found


def _by_jobs(points: Iterable[PairPoint]) -> Mapping[tuple[str, ...], list[PairPoint]]:
    found: dict[tuple[str, ...], list[PairPoint]] = {}
    for point in points:
        found.setdefault(point.jobs, []).append(point)
    return found
