"""The SQL tables: of records and their parts, with the columns of these; and of a service.

What has to be true of several rows is an index here, so that it holds for several processes.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
)
from sqlalchemy.types import TypeEngine

from advisor.core.records import (
    PARTS,
    Observation,
    ObservedPart,
    PairPoint,
    Part,
    PointPart,
    Record,
    SoloPoint,
)
from advisor.formats.flat_rows import JOBS
from advisor.formats.rows import P, column_types, from_row, to_row
from advisor_data.store.pages import position

VERSION_TABLE = "advisor_schema"
"""Holds the version of the schema, apart from other programs of the same database."""

metadata = MetaData()

_SQL_TYPES: dict[type, type[TypeEngine[Any]]] = {
    str: Text,
    float: Double,
    int: Integer,
    bool: Boolean,
    tuple: Text,
}


def _columns(kind: type[Record] | type[Part]) -> list[Column[Any]]:
    return [
        Column(column, _SQL_TYPES[value_type](), nullable=optional)
        for column, (value_type, optional) in column_types(kind).items()
    ]


def _table(kind: type[Record], name: str, *indexed: tuple[str, ...]) -> Table:
    return Table(
        name,
        metadata,
        Column("point_id", String(32), primary_key=True),
        Column("started_at_us", BigInteger, nullable=False),
        *([Column("jobs", Text, nullable=False)] if kind in PARTS else ()),
        *_columns(kind),
        *(Index(f"ix_{name}_{'_'.join(columns)}", *columns) for columns in indexed),
    )


def _parts_table(kind: type[Part], name: str, *indexed: tuple[str, ...]) -> Table:
    """One row for each part, by the point that it is of and its place there, from 0."""
    return Table(
        name,
        metadata,
        Column("point_id", String(32), primary_key=True),
        Column("position", Integer, primary_key=True, autoincrement=False),
        Column("started_at_us", BigInteger, nullable=False),
        *_columns(kind),
        *(Index(f"ix_{name}_{'_'.join(columns)}", *columns) for columns in indexed),
    )


tables: Mapping[type[Record], Table] = {
    SoloPoint: _table(
        SoloPoint, "solo_points", ("job", "gpu_model"), ("run",), ("job", "started_at_us")
    ),
    PairPoint: _table(PairPoint, "pair_points", ("run",), ("jobs", "started_at_us")),
    Observation: _table(
        Observation,
        "observations",
        ("jobs",),
        ("launch_id",),
        ("started_at_us",),
        ("gpu_model", "started_at_us"),
    ),
}

parts_tables: Mapping[type[Record], Table] = {
    PairPoint: _parts_table(PointPart, "pair_point_parts"),
    Observation: _parts_table(ObservedPart, "observation_parts", ("job", "started_at_us")),
}

_BY_CODE = Text().with_variant(Text(collation="C"), "postgresql")
"""Text in the order of its code points, as Python sorts it; a server may have another order."""

profiles = Table(
    "advisor_profiles",
    metadata,
    Column("job", _BY_CODE, primary_key=True),
    Column("gpu_model", _BY_CODE, primary_key=True),
    Column("shares", Text, nullable=False),
    Column("points", Integer, nullable=False),
    Column("measured_at", Text, nullable=False),
    Column("flags", Text, nullable=False),
    Column("rate_units", Text, nullable=False),
)
"""What lists say of the solo points of a job on a GPU model; written with them."""

changes = Table("advisor_changes", metadata, Column("count", BigInteger, nullable=False))
"""One row: how often something changed that answers are made from."""


# Migrations say among which rows an index is unique. Said here as well, it would make every process
# that opens a store import SQLAlchemy's PostgreSQL, only to check the option's name.
tokens = Table(
    "advisor_tokens",
    metadata,
    Column("secret_sha256", String(64), primary_key=True),
    Column("name", Text, nullable=False),
    Column("scopes", Text, nullable=False),
    Column("created_at", Text, nullable=False),
    Column("expires_at", Text, nullable=True),
    Column("revoked_at", Text, nullable=True),
    Index("ux_advisor_tokens_name", "name", unique=True),
)

launches = Table(
    "advisor_launches",
    metadata,
    Column("launch_id", Text, primary_key=True),
    Column("host", Text, nullable=False),
    Column("gpu", Text, nullable=False),
    Column("gpu_uuid", Text, nullable=True),
    Column("state", Text, nullable=False),
    Column("spec", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("asked_by", Text, nullable=False),
    Column("idempotency_key", Text, nullable=True),
    Column("request_hash", Text, nullable=False),
    Column("created_at", Text, nullable=False),
    Column("updated_at", Text, nullable=False),
    Column("home", Text, nullable=True),
    Index("ux_advisor_launches_gpu", "host", "gpu", unique=True),
    Index("ux_advisor_launches_gpu_uuid", "host", "gpu_uuid", unique=True),
    # No two rows without a key are the same to SQL.
    Index("ux_advisor_launches_key", "asked_by", "idempotency_key", unique=True),
)

audit_log = Table(
    "advisor_audit_log",
    metadata,
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("at", Text, nullable=False),
    Column("who", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("request_id", Text, nullable=False),
    Column("client", Text, nullable=False),
)


def to_sql(record: Record) -> dict[str, Any]:
    """The record as a row of its table; `flags` are joined by ";"."""
    row = {**to_row(record), "flags": ";".join(record.flags), **_place(record)}
    return row if isinstance(record, SoloPoint) else {**row, JOBS: jobs_text(record.jobs)}


def parts_to_sql(record: Record) -> list[dict[str, Any]]:
    """The parts of a record as rows of their table."""
    parts = to_row(record).get(JOBS, ())
    return [{**part, **_place(record), "position": n} for n, part in enumerate(parts)]


def jobs_text(names: Iterable[str]) -> str:
    """Names of jobs in one column, by which the points of exactly these jobs are found."""
    return json.dumps(sorted(names), ensure_ascii=False)


def from_sql(kind: type[P], row: Mapping[Any, Any], parts: Iterable[Mapping[Any, Any]] = ()) -> P:
    """The record of a row of the table of `kind`, and of the rows of its parts in their order."""
    plain = {name: value for name, value in row.items() if name not in _OF_TABLES}
    if kind not in PARTS:
        return from_row(kind, plain)
    jobs = [{n: value for n, value in part.items() if n not in _OF_TABLES} for part in parts]
    return from_row(kind, {**plain, JOBS: jobs})


def _place(record: Record) -> dict[str, Any]:
    return {"point_id": record.point_id, "started_at_us": position(record).started_at_us}


_OF_TABLES = {"point_id", "started_at_us", "position", JOBS}
"""Columns that records do not have: they are made of others."""
