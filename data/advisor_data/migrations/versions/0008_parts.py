"""Parts of records in tables of their own: any number of jobs, where two had columns of theirs.

Written once and then left as it is: what a column is today stands in advisor_data/store/tables.py.
"""

import json
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.types import TypeEngine

revision = "0008"
down_revision = "0007"

REAL: TypeEngine[float] = sa.Double()

Columns = Mapping[str, tuple[str, TypeEngine[Any], bool]]
"""Columns of parts: the old name with {} for the letter, the type, and whether it may be empty."""

BOTH: Columns = {
    "job": ("job_{}", sa.Text(), False),
    "share_percent": ("share_{}_percent", REAL, False),
    "units": ("units_{}", sa.Integer(), True),
    "rate": ("rate_{}", REAL, True),
    "rate_unit": ("rate_unit_{}", sa.Text(), False),
    "results": ("results_{}", sa.Text(), True),
}
OF_POINTS: Columns = {
    **BOTH,
    "rate_stderr": ("rate_{}_stderr", REAL, True),
    "memory_used_mib": ("memory_used_{}_mib", REAL, True),
    "cpu_percent": ("job_{}_cpu_percent", REAL, True),
    "job_hash": ("job_{}_hash", sa.Text(), True),
    "offered_rate": ("offered_rate_{}", REAL, True),
    "latency_p50_ms": ("latency_p50_{}_ms", REAL, True),
    "latency_p99_ms": ("latency_p99_{}_ms", REAL, True),
}
OF_OBSERVATIONS: Columns = {
    **BOTH,
    "solo_rate": ("solo_rate_{}", REAL, True),
    "solo_power_w": ("solo_power_{}_w", REAL, True),
    "predicted_rate": ("predicted_rate_{}", REAL, True),
}
OLD_INDEXES = {
    "pair_points": ["job_a_job_b", "job_a_job_b_started_at_us"],
    "observations": ["job_a_job_b", "job_a_started_at_us", "job_b_started_at_us"],
}


def upgrade() -> None:
    ended_first = sa.Column("ended_first", sa.Boolean(), nullable=False)
    _make_parts("pair_point_parts", OF_POINTS)
    _make_parts("observation_parts", OF_OBSERVATIONS, ended_first)
    for position, letter in enumerate("ab"):
        _copy("pair_points", "pair_point_parts", OF_POINTS, position, {})
        ended = sa.column("first_ended", sa.Text()).in_([f"job_{letter}", "both"])
        more = {"ended_first": ended}
        _copy("observations", "observation_parts", OF_OBSERVATIONS, position, more)
    for table in ("pair_points", "observations"):
        _name_jobs(table)
    _drop("pair_points", OF_POINTS)
    _drop("observations", OF_OBSERVATIONS, "first_ended")
    columns = ["job", "started_at_us"]
    op.create_index("ix_observation_parts_job_started_at_us", "observation_parts", columns)
    op.create_index("ix_pair_points_jobs_started_at_us", "pair_points", ["jobs", "started_at_us"])
    op.create_index("ix_observations_jobs", "observations", ["jobs"])


def _make_parts(name: str, columns: Columns, *more: sa.Column[Any]) -> None:
    op.create_table(
        name,
        sa.Column("point_id", sa.String(32), primary_key=True),
        sa.Column("position", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("started_at_us", sa.BigInteger(), nullable=False),
        *(sa.Column(new, kind, nullable=empty) for new, (_, kind, empty) in columns.items()),
        *more,
    )


def _copy(
    old: str, new: str, columns: Columns, position: int, more: Mapping[str, sa.ColumnElement[Any]]
) -> None:
    """The part of one job of all records."""
    letter = "ab"[position]
    given: dict[str, sa.ColumnElement[Any]] = {
        "point_id": sa.column("point_id"),
        "position": sa.literal_column(str(position)),
        "started_at_us": sa.column("started_at_us"),
        **{name: sa.column(was.format(letter)) for name, (was, _, _) in columns.items()},
        **more,
    }
    parts = _table(new, *given)
    rows = sa.select(*given.values()).select_from(sa.table(old))
    op.execute(parts.insert().from_select(list(given), rows))


def _name_jobs(name: str) -> None:
    """The names of all jobs of a record in one column, by the index of both."""
    column = sa.Column("jobs", sa.Text(), nullable=False, server_default="")
    op.add_column(name, column)
    table = _table(name, "job_a", "job_b", "jobs")
    change = (
        table.update()
        .where(table.c.job_a == sa.bindparam("a"), table.c.job_b == sa.bindparam("b"))
        .values(jobs=sa.bindparam("names"))
    )
    pairs = op.get_bind().execute(sa.select(table.c.job_a, table.c.job_b).distinct()).all()
    rows = [{"a": a, "b": b, "names": json.dumps([a, b], ensure_ascii=False)} for a, b in pairs]
    if rows:
        op.get_bind().execute(change, rows)


def _table(name: str, *columns: str) -> sa.TableClause:
    of: list[sa.ColumnClause[Any]] = [sa.column(column) for column in columns]
    return sa.table(name, *of)


def _drop(name: str, columns: Columns, *more: str) -> None:
    for index in OLD_INDEXES[name]:
        op.drop_index(f"ix_{name}_{index}", name)
    old = [was.format(letter) for was, _, _ in columns.values() for letter in "ab"]
    with op.batch_alter_table(name) as batch:
        for column in (*old, *more):
            batch.drop_column(column)


def downgrade() -> None:
    raise NotImplementedError("records of three jobs have no place there: restore a backup")
