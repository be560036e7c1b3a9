"""What is wrong with points that people wrote by hand, before and after they are taken in."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from advisor.core.records import Record, SoloPoint
from advisor.core.wording import listed
from advisor.errors import AdvisorError, InputError
from advisor.validity.points import why_no_profile
from advisor_data.files.bundled import bundled_solo_points
from advisor_data.store.profile_rows import ProfileRow

_Key = tuple[str, str]
"""A job and a GPU model."""


def check_import(points: Sequence[Record], stored: Iterable[ProfileRow] = ()) -> None:
    """Refuse points that would be wrong without a word, next to those stored of the same jobs.

    Raises:
        InputError: a share that is a fraction, or a second unit of the rates of one job.
    """
    for point in points:
        _check_shares(point)
    units: dict[_Key, set[str]] = {}
    for point in _solo(points):
        units.setdefault((point.job, point.gpu_model), set()).add(point.rate_unit)
    for row in stored:
        units.setdefault((row.job, row.gpu_model), set()).update(row.rate_units)
    for (job, gpu_model), names in units.items():
        if len(names) > 1:
            raise InputError(
                f"rates of {job} on {gpu_model} are in {listed(sorted(names))}",
                why="rates of one job must share a unit",
                fix=f"convert them, or remove the stored ones: advisor data delete --job {job}",
            )


def import_notes(points: Iterable[Record], stored: Iterable[SoloPoint]) -> list[str]:
    """What the person who imported solo points should know of the profiles that they make.

    `stored` are all solo points of these jobs, with those.
    """
    groups: dict[_Key, list[SoloPoint]] = {}
    for point in stored:
        groups.setdefault((point.job, point.gpu_model), []).append(point)
    keys = dict.fromkeys((point.job, point.gpu_model) for point in _solo(points))
    bundled = _bundled() if keys else frozenset[_Key]()
    return [
        f"{job} on {gpu_model}: {note}"
        for job, gpu_model in keys
        for note in _notes(groups[job, gpu_model], hides=(job, gpu_model) in bundled)
    ]


def _notes(points: Sequence[SoloPoint], *, hides: bool) -> Iterable[str]:
    if why := why_no_profile(points):
        yield f"no profile yet: {why}"
        return
    for column, instead in _STAND_INS.items():
        if all(getattr(point, column) is None for point in points):
            yield f"{column} is missing; {instead}"
    if hides:
        yield "used from now on instead of the bundled profile; advisor data delete undoes that"


_STAND_INS: Mapping[str, str] = {
    "idle_power_w": "that of other profiles is taken",
    "power_limit_w": "watts are compared with the most that was drawn",
    "memory_used_mib": "without it nobody knows what fits next to it",
}
"""Columns that a profile can do without, and what is done then."""


def _check_shares(point: Record) -> None:
    # A CU mask of one unit is less than 1 %; MPS takes whole percentages.
    if point.mode != "mps":
        return
    for part in (point,) if isinstance(point, SoloPoint) else point.parts:
        if (share := part.share_percent) < 1:
            beside = "" if isinstance(point, SoloPoint) else f" in {' + '.join(point.jobs)}"
            raise InputError(
                f"share_percent of {part.job}{beside} is {share:g}, less than 1 %",
                why="shares are in percent, and this looks like a part of 1",
                fix=f"write {100 * share:g}",
            )


def _solo(points: Iterable[Record]) -> Iterable[SoloPoint]:
    return (point for point in points if isinstance(point, SoloPoint))


def _bundled() -> frozenset[_Key]:
    """Which profiles come with advisor; none where its files cannot be read."""
    with suppress(AdvisorError):
        return frozenset((point.job, point.gpu_model) for point in bundled_solo_points())
    return frozenset()
