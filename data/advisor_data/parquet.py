"""Parquet with units and the version of the schema in its metadata; loads pyarrow when called."""

import dataclasses
import importlib
from collections.abc import Iterator
from typing import Any

from advisor.errors import InputError
from advisor.records import SCHEMA_VERSION, SoloPoint
from advisor.rows import column_types, to_row

VERSION_KEY = b"advisor.schema_version"


def encode(points: list[SoloPoint]) -> bytes:
    """The points as the content of a Parquet file."""
    arrow, parquet = _load("pyarrow"), _load("pyarrow.parquet")
    table = arrow.Table.from_pylist([to_row(point) for point in points], schema=_schema(arrow))
    sink = arrow.BufferOutputStream()
    parquet.write_table(table, sink, compression="zstd")
    return sink.getvalue().to_pybytes()


def decode(data: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of a Parquet file, each with its place.

    Raises:
        InputError: no Parquet, or written by a newer version of advisor.
    """
    arrow, parquet = _load("pyarrow"), _load("pyarrow.parquet")
    try:
        table = parquet.read_table(arrow.BufferReader(data))
    except (OSError, arrow.ArrowException) as error:
        raise InputError("not a Parquet file that can be read", why=str(error)) from error
    _check_version(table.schema.metadata)
    for number, row in enumerate(table.to_pylist(), start=1):
        yield f"row {number}", row


def _check_version(metadata: dict[bytes, bytes] | None) -> None:
    version = (metadata or {}).get(VERSION_KEY, b"0")  # a file made elsewhere has none
    if not version.isdigit() or int(version) > SCHEMA_VERSION:
        raise InputError(
            f"has version {version.decode()} of the schema, not {SCHEMA_VERSION} or older",
            fix="upgrade advisor: pip install --upgrade sm-advisor",
        )


def _schema(arrow: Any) -> Any:
    types = {
        str: arrow.string(),
        float: arrow.float64(),
        int: arrow.int64(),
        bool: arrow.bool_(),
        tuple: arrow.list_(arrow.string()),
    }
    notes = {field.name: dict(field.metadata) for field in dataclasses.fields(SoloPoint)}
    fields = [
        arrow.field(name, types[kind], nullable=optional, metadata=notes[name])
        for name, (kind, optional) in column_types().items()
    ]
    return arrow.schema(fields, metadata={VERSION_KEY: str(SCHEMA_VERSION)})


def _load(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InputError(
            "Parquet needs pyarrow, which is not installed",
            why=str(error),
            fix="pip install 'sm-advisor[data]', or use .csv",
        ) from error
