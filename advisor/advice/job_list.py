"""Rows of the jobs that are defined or measured: what `advisor jobs` and the service list."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from advisor_data.store.profile_rows import ProfileRow


def job_rows(names: Iterable[str], profiles: Sequence[ProfileRow]) -> list[dict[str, Any]]:
    """One row for each job on each GPU model; jobs without a profile have no model."""
    measured = {row.job for row in profiles}
    rows = [_plain(row) for row in profiles]
    return rows + [_unmeasured(name) for name in names if name not in measured]


def job_rows_with_source(
    defined: Collection[str], stored: Sequence[ProfileRow], bundled: Sequence[ProfileRow]
) -> list[dict[str, Any]]:
    """As `job_rows`, by name, with `source` and `launchable` in each row.

    A bundled profile stands where a job has none of its own: that is what is used then.

    Args:
        defined: Names of the jobs that have a job file, so that they can be launched.
        stored: Of the points measured here.
        bundled: Of the points that came with advisor.
    """
    profiled = {row.job for row in stored if row.whole}
    theirs = [row for row in bundled if row.job not in profiled]
    rows = [{**_plain(row), "source": "stored"} for row in stored]
    rows += [{**_plain(row), "source": "bundled"} for row in theirs]
    measured = {row["job"] for row in rows}
    rows += [{**_unmeasured(n), "source": None} for n in set(defined) if n not in measured]
    rows = [{**row, "launchable": row["job"] in defined} for row in rows]
    return sorted(rows, key=lambda row: (row["job"], row["gpu_model"] or ""))


def _plain(row: ProfileRow) -> dict[str, Any]:
    return {
        "job": row.job,
        "gpu_model": row.gpu_model,
        "shares": list(row.shares),
        "points": row.points,
        "measured_at": row.measured_at,
        "flags": list(row.flags),
    }


def _unmeasured(name: str) -> dict[str, Any]:
    nothing: dict[str, Any] = {"shares": [], "points": 0, "measured_at": None, "flags": []}
    return {"job": name, "gpu_model": None, **nothing}
