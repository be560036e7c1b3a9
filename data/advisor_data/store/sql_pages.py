"""Pages of records out of a database, along its indexes: never more rows than a page has."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, exists, select, tuple_

from advisor.core.observations import Observation, Record
from advisor.core.records import PairPoint, SoloPoint
from advisor.formats.rows import P
from advisor_data.store.pages import MOST_OF_MOMENT, Page, Span, cut
from advisor_data.store.sql_records import read_records
from advisor_data.store.tables import jobs_text, parts_tables, tables

WhereClauses = Sequence[ColumnElement[bool]]


@dataclass(frozen=True, slots=True)
class Listing:
    """Rows of a list, and the column of their moments, in an index behind what they fulfil."""

    conditions: WhereClauses
    moment: ColumnElement[Any]


def of_job(job: str) -> Listing:
    """Solo points of a job."""
    table = tables[SoloPoint]
    return Listing([table.c.job == job], table.c.started_at_us)


def of_pair(jobs: Sequence[str]) -> Listing:
    """Points of exactly these jobs."""
    table = tables[PairPoint]
    return Listing([table.c.jobs == jobs_text(jobs)], table.c.started_at_us)


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
