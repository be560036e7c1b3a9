"""Records in a database: each in the table of its kind, and its parts in another one."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, RowMapping, Select, delete, select

from advisor.core.observations import Record
from advisor.formats.rows import P
from advisor_data.store.sql_engine import insert_new
from advisor_data.store.tables import from_sql, parts_tables, parts_to_sql, tables, to_sql

_AT_ONCE = 1000
"""Identities in one question; databases bound their number."""


def insert_records(connection: Connection, kind: type[Record], records: Iterable[Record]) -> int:
    """Put in those of a kind that are not there yet; how many were new."""
    mine = [record for record in records if type(record) is kind]
    known = _known_unsigned(connection, kind, mine)
    mine = [record for record in mine if record.point_id not in known]
    if not mine:
        return 0
    rows = [to_sql(record) for record in mine]
    new = connection.execute(insert_new(connection, tables[kind]), rows).rowcount
    if kind in parts_tables:
        # Behind their records, as in a deletion, so that two writers wait at the same row.
        parts = [row for record in mine for row in parts_to_sql(record)]
        connection.execute(insert_new(connection, parts_tables[kind]), parts)
    return new


def _known_unsigned(
    connection: Connection, kind: type[Record], records: Sequence[Record]
) -> set[str]:
    """Identities of those that are stored just so, but unsigned: imported, or of older versions."""
    signed = [record for record in records if record.written_by]
    found, table = set[str](), tables[kind]
    for begin in range(0, len(signed), _AT_ONCE):
        some = {replace(one, written_by=None): one.point_id for one in signed[begin:][:_AT_ONCE]}
        wanted = select(table).where(table.c.point_id.in_([one.point_id for one in some]))
        stored = set(read_records(connection, kind, wanted))
        found |= {of for one, of in some.items() if one in stored}
    return found


def delete_record(connection: Connection, record: Record) -> int:
    """Take a record out with its parts; how many went."""
    kind = type(record)
    table = tables[kind]
    gone = connection.execute(delete(table).where(table.c.point_id == record.point_id)).rowcount
    if kind in parts_tables:
        parts = parts_tables[kind]
        connection.execute(delete(parts).where(parts.c.point_id == record.point_id))
    return gone


def read_records(connection: Connection, kind: type[P], wanted: Select[Any]) -> list[P]:
    """The records of the rows of their table that `wanted` chooses with all columns, in order."""
    rows = connection.execute(wanted).mappings().all()
    if kind not in parts_tables:
        return [from_sql(kind, row) for row in rows]
    parts = _parts(connection, kind, wanted)
    # A record that another process deletes or adds between the two reads has no parts, or no row.
    found = ((row, parts.get(row["point_id"])) for row in rows)
    return [from_sql(kind, row, theirs) for row, theirs in found if theirs]


def _parts(
    connection: Connection, kind: type[Record], wanted: Select[Any]
) -> dict[str, list[RowMapping]]:
    """The parts of the same rows in their order, by the identity of their record."""
    parts = parts_tables[kind]
    ids = wanted.with_only_columns(tables[kind].c.point_id)
    found: dict[str, list[RowMapping]] = {}
    for row in connection.execute(select(parts).where(parts.c.point_id.in_(ids))).mappings():
        found.setdefault(row["point_id"], []).append(row)
    return {of: sorted(rows, key=lambda row: row["position"]) for of, rows in found.items()}
