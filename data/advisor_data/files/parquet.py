"""Parquet with units, kind of points and version of the schema in its metadata.

Loads pyarrow when called.
"""

import dataclasses
import importlib
from collections.abc import Iterator, Sequence
from typing import Any

from advisor.core.records import PARTS, SCHEMA_VERSION, Part, Record
from advisor.errors import InputError
from advisor.formats.flat_rows import JOBS
from advisor.formats.rows import check_columns, column_types, to_row
from advisor.installed import install
from advisor_data.store.points import KIND_NAMES

VERSION_KEY = b"advisor.schema_version"
KIND_KEY = b"advisor.kind"

_BATCH_ROWS = 1000


def encode(kind: type[Record], points: Sequence[Record]) -> bytes:
    """Points of one kind as the content of a Parquet file."""
    arrow, parquet = _load("pyarrow"), _load("pyarrow.parquet")
    rows = [to_row(point) for point in points]
    table = arrow.Table.from_pylist(rows, schema=_schema(arrow, kind))
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
        # Not read_table, which starts the data set reader and its threads: 0.2 s for one file.
        file = parquet.ParquetFile(arrow.BufferReader(data))
        _check_version(file.schema_arrow.metadata)
        check_columns(file.schema_arrow.names)
        # A few kilobytes may stand for millions of rows: anyone who counts them stops in time.
        batches = file.iter_batches(batch_size=_BATCH_ROWS, use_threads=False)
        rows = (row for batch in batches for row in batch.to_pylist())
        for number, row in enumerate(rows, start=1):
            yield f"row {number}", row
    except (OSError, arrow.ArrowException) as error:
        raise InputError("not a Parquet file that can be read", why=str(error)) from error


def _check_version(metadata: dict[bytes, bytes] | None) -> None:
    version = (metadata or {}).get(VERSION_KEY, b"0")  # a file made elsewhere has none
    if not version.isdigit() or int(version) > SCHEMA_VERSION:
        raise InputError(
            f"has version {version.decode()} of the schema, not {SCHEMA_VERSION} or older",
            fix="upgrade advisor",
        )


def _schema(arrow: Any, kind: type[Record]) -> Any:
    fields = _fields(arrow, kind)
    if kind in PARTS:
        part = arrow.struct(_fields(arrow, PARTS[kind]))
        fields.insert(0, arrow.field(JOBS, arrow.list_(part), nullable=False))
    about = {VERSION_KEY: str(SCHEMA_VERSION), KIND_KEY: KIND_NAMES[kind]}
    return arrow.schema(fields, metadata=about)


def _fields(arrow: Any, kind: type[Record] | type[Part]) -> list[Any]:
    types = {
        str: arrow.string(),
        float: arrow.float64(),
        int: arrow.int64(),
        bool: arrow.bool_(),
        tuple: arrow.list_(arrow.string()),
    }
    notes = {field.name: dict(field.metadata) for field in dataclasses.fields(kind)}
    return [
        arrow.field(name, types[value_type], nullable=optional, metadata=notes[name])
        for name, (value_type, optional) in column_types(kind).items()
    ]


def _load(name: str) -> Any:
    with InputError.instead_of(
        ImportError,
        "Parquet needs pyarrow, which is not installed",
        fix=f"{install('parquet')}, or use .csv or .jsonl",
    ):
        return importlib.import_module(name)
