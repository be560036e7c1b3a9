"""Pages of records out of a database, along its indexes: never more rows than a page has."""

from collections.abc import Sequence

from sqlalchemy import ColumnElement, Connection, Table, select, tuple_

from advisor.core.observations import Observation
from advisor.formats.rows import P
from advisor_data.store.pages import MOST_OF_MOMENT, Page, Span, cut, position
from advisor_data.store.tables import from_sql, tables

Matches = Sequence[ColumnElement[bool]]
"""What all rows of a list fulfil."""


def read_page(connection: Connection, kind: type[P], of: Sequence[Matches], span: Span) -> Page[P]:
    """A page of the rows that fulfil one of some conditions.

    Args:
        connection: To the database.
        kind: Of the records.
        of: Each along an index of its own; no row fulfils two of them.
        span: Which rows.
    """
    table = tables[kind]
    lists = [[*matches, *_within(table, span)] for matches in of]
    last_us = _at(connection, table, lists, span.limit)
    older = [[*m, table.c.started_at_us < last_us] for m in lists] if last_us is not None else []
    # The first moment that the page does not need is read as well: it tells that there is more.
    least_us = _at(connection, table, older, 1)
    if least_us is not None:
        lists = [[*matches, table.c.started_at_us >= least_us] for matches in lists]
    found = [record for m in lists for record in _records(connection, kind, m, span.limit)]
    return cut(sorted(found, key=position, reverse=True), span)


def pairs_with(job: str | None) -> list[Matches]:
    """Observations of pairs with a job, on either side; of all pairs with None."""
    table = tables[Observation]
    if job is None:
        return [[]]
    return [[table.c.job_a == job], [table.c.job_b == job, table.c.job_a != job]]


def _within(table: Table, span: Span) -> list[ColumnElement[bool]]:
    moment = table.c.started_at_us
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


def _at(connection: Connection, table: Table, lists: Sequence[Matches], place: int) -> int | None:
    """The moment of the record at a place, from 1, of all lists together; None: they end before."""
    moment = table.c.started_at_us
    newest = (
        select(moment).where(*matches).order_by(moment.desc()).limit(place) for matches in lists
    )
    moments = sorted((us for m in newest for us in connection.execute(m).scalars()), reverse=True)
    return moments[place - 1] if len(moments) >= place else None


def _records(connection: Connection, kind: type[P], matches: Matches, limit: int) -> list[P]:
    table = tables[kind]
    newest = (table.c.started_at_us.desc(), table.c.point_id.desc())
    most = limit + MOST_OF_MOMENT + 1
    wanted = select(table).where(*matches).order_by(*newest).limit(most)
    return [from_sql(kind, row) for row in connection.execute(wanted).mappings()]
