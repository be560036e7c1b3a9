"""Points in a database: SQLite in one file, or a PostgreSQL server."""

from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, delete, select

from advisor.core.records import Observation, Record, SoloPoint
from advisor.formats.rows import P
from advisor_data.store import profile_table
from advisor_data.store.base import Database
from advisor_data.store.pages import Page, Span
from advisor_data.store.points import checked, in_order, only_of
from advisor_data.store.profile_rows import ProfileRow
from advisor_data.store.profile_table import renew
from advisor_data.store.sql_engine import OpenDatabase, count_change, open_engine
from advisor_data.store.sql_records import (
    Listing,
    delete_record,
    insert_records,
    observed,
    of_jobs,
    read_page,
    read_records,
)
from advisor_data.store.tables import tables


class SqlStore(OpenDatabase, Database):
    """A `Database` of tables, see `tables`."""

    def add(self, points: Iterable[Record]) -> int:
        """All or none of them; see `Store`."""
        ordered = _in_writing_order(checked(points))
        if not ordered:
            return 0
        jobs = {point.job for point in ordered if isinstance(point, SoloPoint)}
        with self._writing() as connection:
            if jobs:
                count_change(connection)
            new = sum(insert_records(connection, kind, ordered) for kind in tables)
            renew(connection, jobs)
            return new

    def replace_profile(self, job: str, gpu_model: str | None, points: Iterable[SoloPoint]) -> int:
        """In one transaction; see `Database`."""
        ordered = _in_writing_order(only_of(job, gpu_model, points))
        with self._writing() as connection:
            count_change(connection)
            _delete_profile(connection, job, gpu_model)
            stored = insert_records(connection, SoloPoint, ordered)
            renew(connection, [job])
            return stored

    def delete_profile(self, job: str, gpu_model: str | None = None) -> int:
        """With the row of the list of profiles; see `Database`."""
        with self._writing() as connection:
            count_change(connection)
            deleted = _delete_profile(connection, job, gpu_model)
            renew(connection, [job])
            return deleted

    def delete(self, points: Iterable[Record]) -> int:
        """All or none of them; see `Database`."""
        ordered = _in_writing_order(points)
        with self._writing() as connection:
            count_change(connection)
            deleted = sum(delete_record(connection, point) for point in ordered)
            renew(connection, (point.job for point in ordered if isinstance(point, SoloPoint)))
            return deleted

    def observation_page(self, job: str | None, span: Span) -> Page[Observation]:
        """Reads the rows of the page alone; see `Store`."""
        with self._reading() as connection:
            return read_page(connection, Observation, observed(job), span)

    def profile_names(self, after: str = "", limit: int = 1000) -> list[str]:
        """From the list that each write renews, not from points; see `Store`."""
        with self._reading() as connection:
            return profile_table.names(connection, after, limit)

    def profile_rows(self, first: str, last: str) -> list[ProfileRow]:
        """From the list that each write renews, not from points; see `Store`."""
        with self._reading() as connection:
            return profile_table.read(connection, first, last)

    def _page(self, kind: type[P], jobs: Sequence[str], span: Span) -> Page[P]:
        listing = Listing([of_jobs(kind, jobs)], tables[kind].c.started_at_us)
        with self._reading() as connection:
            return read_page(connection, kind, listing, span)

    def _points(
        self,
        kind: type[P],
        jobs: Sequence[str] | None = None,
        gpu_model: str | None = None,
        run: str | None = None,
    ) -> list[P]:
        table, named = tables[kind], {"gpu_model": gpu_model, "run": run}
        matches = [table.c[name] == text for name, text in named.items() if text is not None]
        if jobs is not None:
            matches.append(of_jobs(kind, jobs))
        with self._reading() as connection:
            return in_order(read_records(connection, kind, select(table).where(*matches)))


def open_sql_store(url: str) -> SqlStore:
    """The store at an SQLAlchemy URL; the schema of an SQLite file is made or raised on the way.

    Raises:
        InputError: the URL is none, or of another database.
        StoreError: the database cannot be used, or its schema is not the one of this version.
    """
    return SqlStore(open_engine(url))


def _in_writing_order(points: Iterable[P]) -> list[P]:
    """One order in all writers, so that two of them cannot wait for each other."""
    return sorted(points, key=lambda point: point.point_id)


def _delete_profile(connection: Connection, job: str, gpu_model: str | None) -> int:
    table = tables[SoloPoint]
    matches = [table.c.job == job]
    if gpu_model is not None:
        matches.append(table.c.gpu_model == gpu_model)
    return connection.execute(delete(table).where(*matches)).rowcount
