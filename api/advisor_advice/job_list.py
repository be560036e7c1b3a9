"""Rows of the jobs that are defined or measured: what `advisor jobs` and the service list."""

from collections.abc import Collection, Sequence

from advisor.wire.lists import JobRow, PointsOrigin
from advisor_data.store.profile_rows import ProfileRow


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
