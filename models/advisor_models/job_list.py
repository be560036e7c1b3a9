"""Rows of the jobs that are defined or measured: what `advisor jobs` and the service list."""

from collections.abc import Iterable, Sequence
from typing import Any

from advisor.degenerate import with_solo_flags
from advisor.gpu import WHOLE
from advisor.records import SoloPoint


def job_rows(names: Sequence[str], points: Iterable[SoloPoint]) -> list[dict[str, Any]]:
    """One row for each job on each GPU model; jobs without a profile have no model."""
    profiles: dict[tuple[str, str], list[SoloPoint]] = {}
    for point in with_solo_flags(points):
        profiles.setdefault((point.job, point.gpu_model), []).append(point)
    rows = [_row(job, model, rows) for (job, model), rows in sorted(profiles.items())]
    measured = {row["job"] for row in rows}
    return rows + [_row(name, None, []) for name in names if name not in measured]


def job_rows_with_source(
    names: Sequence[str], stored: Iterable[SoloPoint], bundled: Iterable[SoloPoint]
) -> list[dict[str, Any]]:
    """As `job_rows`, by name, with `source` and `launchable` in each row.

    A bundled profile stands where a job has none of its own: that is what is used then.

    Args:
        names: Of the jobs that have a job file, so that they can be launched.
        stored: Points measured here.
        bundled: Points that came with advisor.
    """
    mine = [{**row, "source": "stored"} for row in job_rows([], stored)]
    profiled = {row["job"] for row in mine if _makes_a_profile(row)}
    theirs = [{**row, "source": "bundled"} for row in job_rows([], bundled)]
    rows = mine + [row for row in theirs if row["job"] not in profiled]
    measured, defined = {row["job"] for row in rows}, set(names)
    rows += [{**_row(n, None, []), "source": None} for n in defined if n not in measured]
    rows = [{**row, "launchable": row["job"] in defined} for row in rows]
    return sorted(rows, key=lambda row: (row["job"], row["gpu_model"] or ""))


def _makes_a_profile(row: dict[str, Any]) -> bool:
    return WHOLE in row["shares"] and len(row["shares"]) > 1


def _row(job: str, gpu_model: str | None, points: Sequence[SoloPoint]) -> dict[str, Any]:
    return {
        "job": job,
        "gpu_model": gpu_model,
        "shares": sorted({p.share_percent for p in points}),
        "points": len(points),
        "measured_at": max((p.started_at for p in points), default=None),
        "flags": sorted({flag for p in points for flag in p.flags}),
    }
