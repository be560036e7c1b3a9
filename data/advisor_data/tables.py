"""The SQL tables of points, one per kind, their columns taken from the records."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Boolean, Column, Double, Index, Integer, MetaData, String, Table, Text
from sqlalchemy.types import TypeEngine

from advisor.records import PairPoint, Point, SoloPoint
from advisor.rows import P, column_types, from_row, to_row
from advisor_data.points import KIND_NAMES

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


def _table(kind: type[Point], *indexed: tuple[str, ...]) -> Table:
    name = f"{KIND_NAMES[kind]}_points"
    return Table(
        name,
        metadata,
        Column("point_id", String(32), primary_key=True),
        *(
            Column(column, _SQL_TYPES[value_type](), nullable=optional)
            for column, (value_type, optional) in column_types(kind).items()
        ),
        *(Index(f"ix_{name}_{'_'.join(columns)}", *columns) for columns in indexed),
    )


tables: Mapping[type[Point], Table] = {
    SoloPoint: _table(SoloPoint, ("job", "gpu_model"), ("run",)),
    PairPoint: _table(PairPoint, ("job_a", "job_b"), ("run",)),
}


def to_sql(point: Point) -> dict[str, Any]:
    """The point as a row of its table; `flags` are joined by ";"."""
    return {**to_row(point), "flags": ";".join(point.flags), "point_id": point.point_id}


def from_sql(kind: type[P], row: Mapping[Any, Any]) -> P:
    """The point of a row of the table of `kind`."""
    return from_row(kind, {name: value for name, value in row.items() if name != "point_id"})
