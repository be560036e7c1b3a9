"""The SQL table of solo points, its columns taken from the record."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Boolean, Column, Double, Index, Integer, MetaData, String, Table, Text
from sqlalchemy.types import TypeEngine

from advisor.records import SoloPoint
from advisor.rows import column_types, solo_from_row, to_row

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

solo_table = Table(
    "solo_points",
    metadata,
    Column("point_id", String(32), primary_key=True),
    *(
        Column(name, _SQL_TYPES[kind](), nullable=optional)
        for name, (kind, optional) in column_types(SoloPoint).items()
    ),
    Index("ix_solo_points_job_gpu_model", "job", "gpu_model"),
    Index("ix_solo_points_run", "run"),
)


def to_sql(point: SoloPoint) -> dict[str, Any]:
    """The point as a row of `solo_table`; `flags` are joined by ";"."""
    return {**to_row(point), "flags": ";".join(point.flags), "point_id": point.point_id}


def from_sql(row: Mapping[Any, Any]) -> SoloPoint:
    """The point of a row of `solo_table`."""
    return solo_from_row({name: value for name, value in row.items() if name != "point_id"})
