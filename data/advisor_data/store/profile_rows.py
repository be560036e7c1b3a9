"""What lists say of the solo points of a job on a GPU model."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from advisor.core.gpu import WHOLE
from advisor.core.records import SoloPoint
from advisor.validity.points import with_solo_flags
from advisor.wire.lists import JobRow, PointsOrigin

LAST_NAME = "\U0010ffff"
"""Behind the names of all jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRow:
    """The points of a job on a GPU model, in one row.

    Attributes:
        shares: Measured, percent, ascending.
        measured_at: When the last one started, ISO 8601.
        flags: Of any of them, sorted.
        rate_units: Of any of them, sorted; one, unless they were measured long apart.
    """

    job: str
    gpu_model: str
    shares: tuple[float, ...]
    points: int
    measured_at: str
    flags: tuple[str, ...]
    rate_units: tuple[str, ...]

    @property
    def whole(self) -> bool:
        """Whether the whole GPU and another share were measured, as predictions need."""
        return WHOLE in self.shares and len(self.shares) > 1


def profile_rows(points: Iterable[SoloPoint]) -> list[ProfileRow]:
    """One row for each job on each GPU model, in their order."""
    groups: defaultdict[tuple[str, str], list[SoloPoint]] = defaultdict(list)
    for point in with_solo_flags(points):
        groups[point.job, point.gpu_model].append(point)
    return [_row(job, gpu_model, group) for (job, gpu_model), group in sorted(groups.items())]


def _row(job: str, gpu_model: str, points: Sequence[SoloPoint]) -> ProfileRow:
    return ProfileRow(
        job=job,
        gpu_model=gpu_model,
        shares=tuple(sorted({p.share_percent for p in points})),
        points=len(points),
        measured_at=max(p.started_at for p in points),
        flags=tuple(sorted({flag for p in points for flag in p.flags})),
        rate_units=tuple(sorted({p.rate_unit for p in points})),
    )


def job_rows(
    defined: Collection[str], stored: Sequence[ProfileRow], bundled: Sequence[ProfileRow] = ()
) -> tuple[JobRow, ...]:
    """One row for each job on each GPU model, by name; jobs without a profile have no model.

    A bundled profile stands where a job has none of its own: that is what is used then.
    """
    profiled = {row.job for row in stored if row.whole}
    theirs = [row for row in bundled if row.job not in profiled]
    rows = [_measured(row, "stored", defined) for row in stored]
    rows += [_measured(row, "bundled", defined) for row in theirs]
    measured = {row.job for row in rows}
    rows += [JobRow(job=name, launchable=True) for name in set(defined) - measured]
    return tuple(sorted(rows, key=lambda row: (row.job, row.gpu_model or "")))


def _measured(row: ProfileRow, source: PointsOrigin, defined: Collection[str]) -> JobRow:
    return JobRow(
        job=row.job,
        gpu_model=row.gpu_model,
        shares=tuple(row.shares),
        points=row.points,
        measured_at=row.measured_at,
        flags=tuple(row.flags),
        source=source,
        launchable=row.job in defined,
    )
