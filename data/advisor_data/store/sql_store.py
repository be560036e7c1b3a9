"""Points in a database: SQLite in one file, or a PostgreSQL server."""

from collections.abc import Iterable, Sequence
from typing import Self

from sqlalchemy import Connection, Engine, delete, select

from advisor.core.observations import Observation, Record
from advisor.core.records import PairPoint, SoloPoint
from advisor.formats.rows import P
from advisor_data.store import profile_table
from advisor_data.store.pages import Page, Span
from advisor_data.store.points import checked, in_order, names_of_pair, only_of
from advisor_data.store.profile_rows import ProfileRow
from advisor_data.store.profile_table import renew
from advisor_data.store.sql_engine import count_change, insert_new, open_engine, store_errors
from advisor_data.store.sql_pages import Matches, pairs_with, read_page
from advisor_data.store.tables import from_sql, tables, to_sql


class SqlStore:
    """Points in one table per kind; safe for several processes and threads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def add(self, points: Iterable[Record]) -> int:
        """See `Store.add`."""
        ordered = _in_writing_order(checked(points))
        if not ordered:
            return 0
        jobs = {point.job for point in ordered if isinstance(point, SoloPoint)}
        with store_errors(self._engine.url), self._engine.begin() as connection:
            if jobs:
                count_change(connection)
            new = sum(_insert(connection, kind, ordered) for kind in tables)
            renew(connection, jobs)
            return new

    def replace_profile(self, job: str, gpu_model: str | None, points: Iterable[SoloPoint]) -> int:
        """See `Store.replace_profile`."""
        ordered = _in_writing_order(only_of(job, gpu_model, points))
        with store_errors(self._engine.url), self._engine.begin() as connection:
            count_change(connection)
            _delete_profile(connection, job, gpu_model)
            stored = _insert(connection, SoloPoint, ordered)
            renew(connection, [job])
            return stored

    def delete_profile(self, job: str, gpu_model: str | None = None) -> int:
        """See `Store.delete_profile`."""
        with store_errors(self._engine.url), self._engine.begin() as connection:
            count_change(connection)
            deleted = _delete_profile(connection, job, gpu_model)
            renew(connection, [job])
            return deleted

    def delete(self, points: Iterable[Record]) -> int:
        """See `Store.delete`."""
        ordered = _in_writing_order(points)
        with store_errors(self._engine.url), self._engine.begin() as connection:
            count_change(connection)
            deleted = sum(_delete(connection, point) for point in ordered)
            renew(connection, (point.job for point in ordered if isinstance(point, SoloPoint)))
            return deleted

    def solo_points(
        self, *, job: str | None = None, gpu_model: str | None = None, run: str | None = None
    ) -> list[SoloPoint]:
        """See `Store.solo_points`."""
        return self._points(SoloPoint, job=job, gpu_model=gpu_model, run=run)

    def pair_points(
        self,
        *,
        pair: tuple[str, str] | None = None,
        gpu_model: str | None = None,
        run: str | None = None,
    ) -> list[PairPoint]:
        """See `Store.pair_points`."""
        return self._points(PairPoint, **names_of_pair(pair), gpu_model=gpu_model, run=run)

    def observations(
        self, *, pair: tuple[str, str] | None = None, gpu_model: str | None = None
    ) -> list[Observation]:
        """See `Store.observations`."""
        return self._points(Observation, **names_of_pair(pair), gpu_model=gpu_model)

    def solo_page(self, job: str, span: Span) -> Page[SoloPoint]:
        """See `Store.solo_page`."""
        return self._page(SoloPoint, [[tables[SoloPoint].c.job == job]], span)

    def pair_page(self, pair: tuple[str, str], span: Span) -> Page[PairPoint]:
        """See `Store.pair_page`."""
        table = tables[PairPoint]
        job_a, job_b = sorted(pair)
        return self._page(PairPoint, [[table.c.job_a == job_a, table.c.job_b == job_b]], span)

    def observation_page(self, job: str | None, span: Span) -> Page[Observation]:
        """See `Store.observation_page`."""
        return self._page(Observation, pairs_with(job), span)

    def profile_names(self, after: str = "", limit: int = 1000) -> list[str]:
        """See `Store.profile_names`."""
        with store_errors(self._engine.url), self._engine.connect() as connection:
            return profile_table.names(connection, after, limit)

    def profile_rows(self, first: str, last: str) -> list[ProfileRow]:
        """See `Store.profile_rows`."""
        with store_errors(self._engine.url), self._engine.connect() as connection:
            return profile_table.read(connection, first, last)

    def close(self) -> None:
        """Closes the connections."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _page(self, kind: type[P], of: Sequence[Matches], span: Span) -> Page[P]:
        with store_errors(self._engine.url), self._engine.connect() as connection:
            return read_page(connection, kind, of, span)

    def _points(self, kind: type[P], **wanted: str | None) -> list[P]:
        table = tables[kind]
        matches = [table.c[name] == text for name, text in wanted.items() if text is not None]
        with store_errors(self._engine.url), self._engine.connect() as connection:
            rows = connection.execute(select(table).where(*matches)).mappings().all()
        return in_order(from_sql(kind, row) for row in rows)


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


def _insert(connection: Connection, kind: type[Record], points: Iterable[Record]) -> int:
    rows = [to_sql(point) for point in points if type(point) is kind]
    if not rows:
        return 0
    return connection.execute(insert_new(connection, tables[kind]), rows).rowcount


def _delete(connection: Connection, point: Record) -> int:
    table = tables[type(point)]
    return connection.execute(delete(table).where(table.c.point_id == point.point_id)).rowcount


def _delete_profile(connection: Connection, job: str, gpu_model: str | None) -> int:
    table = tables[SoloPoint]
    matches = [table.c.job == job]
    if gpu_model is not None:
        matches.append(table.c.gpu_model == gpu_model)
    return connection.execute(delete(table).where(*matches)).rowcount
