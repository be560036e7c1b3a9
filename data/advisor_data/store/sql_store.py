"""Points in a database: SQLite in one file, or a PostgreSQL server."""

from collections.abc import Iterable, Sequence
from typing import Self

from sqlalchemy import Connection, Engine, delete, select

from advisor.core.observations import Observation, Record
from advisor.core.records import PairPoint, SoloPoint
from advisor.formats.rows import P
from advisor_data.store import profile_table
from advisor_data.store.pages import Page, Span
from advisor_data.store.points import checked, in_order, only_of
from advisor_data.store.profile_rows import ProfileRow
from advisor_data.store.profile_table import renew
from advisor_data.store.sql_engine import count_change, open_engine, store_errors
from advisor_data.store.sql_pages import Listing, observed, of_job, of_pair, read_page
from advisor_data.store.sql_records import delete_record, insert_records, read_records
from advisor_data.store.tables import jobs_text, tables


class SqlStore:
    """A `Database` of tables, see `tables`; safe for several processes and threads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def add(self, points: Iterable[Record]) -> int:
        """All or none of them; see `Store`."""
        ordered = _in_writing_order(checked(points))
        if not ordered:
            return 0
        jobs = {point.job for point in ordered if isinstance(point, SoloPoint)}
        with store_errors(self._engine.url), self._engine.begin() as connection:
            if jobs:
                count_change(connection)
            new = sum(insert_records(connection, kind, ordered) for kind in tables)
            renew(connection, jobs)
            return new

    def replace_profile(self, job: str, gpu_model: str | None, points: Iterable[SoloPoint]) -> int:
        """In one transaction; see `Database`."""
        ordered = _in_writing_order(only_of(job, gpu_model, points))
        with store_errors(self._engine.url), self._engine.begin() as connection:
            count_change(connection)
            _delete_profile(connection, job, gpu_model)
            stored = insert_records(connection, SoloPoint, ordered)
            renew(connection, [job])
            return stored

    def delete_profile(self, job: str, gpu_model: str | None = None) -> int:
        """With the row of the list of profiles; see `Database`."""
        with store_errors(self._engine.url), self._engine.begin() as connection:
            count_change(connection)
            deleted = _delete_profile(connection, job, gpu_model)
            renew(connection, [job])
            return deleted

    def delete(self, points: Iterable[Record]) -> int:
        """All or none of them; see `Database`."""
        ordered = _in_writing_order(points)
        with store_errors(self._engine.url), self._engine.begin() as connection:
            count_change(connection)
            deleted = sum(delete_record(connection, point) for point in ordered)
            renew(connection, (point.job for point in ordered if isinstance(point, SoloPoint)))
            return deleted

    def solo_points(
        self, *, job: str | None = None, gpu_model: str | None = None, run: str | None = None
    ) -> list[SoloPoint]:
        return self._points(SoloPoint, job=job, gpu_model=gpu_model, run=run)

    def pair_points(
        self,
        *,
        jobs: Sequence[str] | None = None,
        gpu_model: str | None = None,
        run: str | None = None,
    ) -> list[PairPoint]:
        """Of these jobs in any order, of a GPU model and of a run, where these are named."""
        return self._points(PairPoint, jobs=_text(jobs), gpu_model=gpu_model, run=run)

    def observations(
        self, *, jobs: Sequence[str] | None = None, gpu_model: str | None = None
    ) -> list[Observation]:
        return self._points(Observation, jobs=_text(jobs), gpu_model=gpu_model)

    def solo_page(self, job: str, span: Span) -> Page[SoloPoint]:
        return self._page(SoloPoint, of_job(job), span)

    def pair_page(self, jobs: Sequence[str], span: Span) -> Page[PairPoint]:
        return self._page(PairPoint, of_pair(jobs), span)

    def observation_page(self, job: str | None, span: Span) -> Page[Observation]:
        return self._page(Observation, observed(job), span)

    def profile_names(self, after: str = "", limit: int = 1000) -> list[str]:
        with store_errors(self._engine.url), self._engine.connect() as connection:
            return profile_table.names(connection, after, limit)

    def profile_rows(self, first: str, last: str) -> list[ProfileRow]:
        with store_errors(self._engine.url), self._engine.connect() as connection:
            return profile_table.read(connection, first, last)

    def close(self) -> None:
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _page(self, kind: type[P], of: Listing, span: Span) -> Page[P]:
        with store_errors(self._engine.url), self._engine.connect() as connection:
            return read_page(connection, kind, of, span)

    def _points(self, kind: type[P], **wanted: str | None) -> list[P]:
        table = tables[kind]
        matches = [table.c[name] == text for name, text in wanted.items() if text is not None]
        with store_errors(self._engine.url), self._engine.connect() as connection:
            return in_order(read_records(connection, kind, select(table).where(*matches)))


def open_sql_store(url: str) -> SqlStore:
    """The store at an SQLAlchemy URL; the schema of an SQLite file is made or raised on the way.

    Raises:
        InputError: the URL is none, or of another database.
        StoreError: the database cannot be used, or its schema is not the one of this version.
    """
    return SqlStore(open_engine(url))


def _text(jobs: Sequence[str] | None) -> str | None:
    return None if jobs is None else jobs_text(jobs)


def _in_writing_order(points: Iterable[P]) -> list[P]:
    """One order in all writers, so that two of them cannot wait for each other."""
    return sorted(points, key=lambda point: point.point_id)


def _delete_profile(connection: Connection, job: str, gpu_model: str | None) -> int:
    table = tables[SoloPoint]
    matches = [table.c.job == job]
    if gpu_model is not None:
        matches.append(table.c.gpu_model == gpu_model)
    return connection.execute(delete(table).where(*matches)).rowcount
