"""What lists say of each profile, kept next to the points: no list reads a million of them.

A row is made of the points of a job on a GPU model in the transaction that changes these. A change
of what `profile_row` says needs a migration, however empty: after each, all rows are made again.
"""

import dataclasses
import json
from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, RowMapping, delete, insert, select

from advisor.core.records import SoloPoint
from advisor.validity.points import ARITHMETIC
from advisor_data.store.profile_rows import ProfileRow, profile_rows
from advisor_data.store.tables import from_sql, profiles, tables

_NEEDED = (
    *(f.name for f in dataclasses.fields(SoloPoint) if f.default is dataclasses.MISSING),
    *("rate_unit", "power_w", "idle_power_w", "sm_clock_mhz", "results", "flags", *ARITHMETIC),
)
"""Columns that flags of whole sweeps are made of."""

_LISTS = ("shares", "flags", "rate_units")
"""Columns that are kept as JSON."""


def renew(connection: Connection, jobs: Iterable[str]) -> None:
    """Make the rows of these jobs of their points."""
    for job in sorted(set(jobs)):
        connection.execute(delete(profiles).where(profiles.c.job == job))
        if rows := profile_rows(_points(connection, job)):
            connection.execute(insert(profiles), [_values(row) for row in rows])


def renew_all(connection: Connection) -> None:
    """Make the rows of all jobs."""
    connection.execute(delete(profiles))
    jobs = select(tables[SoloPoint].c.job).distinct()
    renew(connection, connection.execute(jobs).scalars().all())


def names(connection: Connection, after: str, limit: int) -> list[str]:
    """Names of jobs with a profile, in their order."""
    job = profiles.c.job
    wanted = select(job).where(job > after).distinct().order_by(job).limit(limit)
    return list(connection.execute(wanted).scalars())


def read(connection: Connection, first: str, last: str) -> list[ProfileRow]:
    """Rows of the jobs from one name to another, by job and GPU model."""
    job, model = profiles.c.job, profiles.c.gpu_model
    wanted = select(profiles).where(job >= first, job <= last).order_by(job, model)
    return [_row(found) for found in connection.execute(wanted).mappings()]


def _points(connection: Connection, job: str) -> list[SoloPoint]:
    table = tables[SoloPoint]
    wanted = select(*(table.c[name] for name in _NEEDED)).where(table.c.job == job)
    return [from_sql(SoloPoint, row) for row in connection.execute(wanted).mappings()]


def _values(row: ProfileRow) -> dict[str, Any]:
    plain = dataclasses.asdict(row)
    return {**plain, **{name: json.dumps(plain[name]) for name in _LISTS}}


def _row(found: RowMapping) -> ProfileRow:
    lists: dict[str, Any] = {name: tuple(json.loads(found[name])) for name in _LISTS}
    return ProfileRow(**{**found, **lists})
