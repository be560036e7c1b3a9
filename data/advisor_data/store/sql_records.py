"""Records in a database: each in the table of its kind, and its parts in another one."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, RowMapping, Select, delete, exists, select, tuple_

from advisor.core.records import Observation, Record, SoloPoint
from advisor.formats.rows import P
from advisor_data.store.pages import MOST_OF_MOMENT, Page, Span, cut
from advisor_data.store.sql_engine import insert_new
from advisor_data.store.tables import (
    from_sql,
    jobs_text,
    parts_tables,
    parts_to_sql,
    tables,
    to_sql,
)

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


WhereClauses = Sequence[ColumnElement[bool]]


@dataclass(frozen=True, slots=True)
class Listing:
    """Rows of a list, and the column of their moments, in an index behind what they fulfil."""

    conditions: WhereClauses
    moment: ColumnElement[Any]


def of_jobs(kind: type[Record], jobs: Sequence[str]) -> ColumnElement[bool]:
    """Solo points of a job, or records of exactly these jobs together."""
    table = tables[kind]
    return table.c.job == jobs[0] if kind is SoloPoint else table.c.jobs == jobs_text(jobs)


def observed(job: str | None) -> Listing:
    """Observations with a job, whatever ran next to it; all with None."""
    table = tables[Observation]
    if job is None:
        return Listing([], table.c.started_at_us)
    part, before = (parts_tables[Observation].alias(name) for name in ("part", "before"))
    # Parts of one name stand side by side: of a job next to itself the first one counts.
    same_before = exists().where(
        before.c.point_id == part.c.point_id,
        before.c.position == part.c.position - 1,
        before.c.job == part.c.job,
    )
    conditions = [part.c.job == job, part.c.point_id == table.c.point_id, ~same_before]
    return Listing(conditions, part.c.started_at_us)


def read_page(connection: Connection, kind: type[P], listing: Listing, span: Span) -> Page[P]:
    """A page of a list of records of a kind."""
    moment = listing.moment
    inside = [*listing.conditions, *_within(kind, moment, span)]
    last_us = _at(connection, moment, inside, span.limit)
    older = None if last_us is None else _at(connection, moment, [*inside, moment < last_us], 1)
    # The first moment that the page does not need is read as well: it tells that there is more.
    read = inside if older is None else [*inside, moment >= older]
    newest = (moment.desc(), tables[kind].c.point_id.desc())
    most = span.limit + MOST_OF_MOMENT + 1
    wanted = select(tables[kind]).where(*read).order_by(*newest).limit(most)
    return cut(read_records(connection, kind, wanted), span)


def _within(kind: type[Record], moment: ColumnElement[Any], span: Span) -> WhereClauses:
    table = tables[kind]
    found: list[ColumnElement[bool]] = []
    if span.gpu_model is not None:
        found.append(table.c.gpu_model == span.gpu_model)
    if span.before_us is not None:
        found.append(moment < span.before_us)
    if span.after is not None:
        place = (span.after.started_at_us, span.after.point_id)
        # The first is for the index, which the second alone would not use everywhere.
        found += [moment <= span.after.started_at_us, tuple_(moment, table.c.point_id) < place]
    return found


def _at(
    connection: Connection, moment: ColumnElement[Any], conditions: WhereClauses, place: int
) -> int | None:
    """The moment of the row at a place, from 1; None: the list ends before."""
    newest = select(moment).where(*conditions).order_by(moment.desc())
    return connection.execute(newest.offset(place - 1).limit(1)).scalar()
