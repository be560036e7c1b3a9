"""Points in a database: SQLite in one file, or a PostgreSQL server."""

import sqlite3
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any, Self

from sqlalchemy import URL, Connection, Engine, Table, create_engine, event, make_url, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from advisor.errors import InputError, StoreError
from advisor.records import PairPoint, Point, SoloPoint
from advisor.rows import P
from advisor_data.points import checked, in_order, names_of_pair
from advisor_data.schema import SchemaState, schema_state, upgrade
from advisor_data.tables import from_sql, tables, to_sql

_DRIVERS = {
    "sqlite": "sqlite",
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
}

_INSERT = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}

_PATIENCE = {"sqlite": ("timeout", 30), "postgresql": ("connect_timeout", 10)}
"""How long to wait for a lock or for the server, s; the URL may give another time."""

_MIGRATION_LOCK = {
    "sqlite": "BEGIN IMMEDIATE",
    "postgresql": "SELECT pg_advisory_xact_lock(718281828)",
}
"""Two processes that migrate at once go one after the other."""

_FIXES = (
    ("full", "free space and run again; points already stored are safe"),
    ("locked", "another process is writing: wait for it, or end it"),
    ("unable to open", "check that the folder is there and may be written"),
    ("readonly", "make the file and its folder writable, or give another store"),
    ("not a database", "move the file away, or give another store"),
    ("connect", "check that the server runs, and the address, user and password"),
)


class SqlStore:
    """Points in one table per kind; safe for several processes and threads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def add(self, points: Iterable[Point]) -> int:
        """See `Store.add`."""
        # One order in all writers, so that two of them cannot wait for each other.
        ordered = sorted(checked(points), key=lambda point: point.point_id)
        if not ordered:
            return 0
        with _store_errors(self._engine.url), self._engine.begin() as connection:
            return sum(
                self._insert(connection, table, [to_sql(p) for p in ordered if type(p) is kind])
                for kind, table in tables.items()
            )

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

    def close(self) -> None:
        """Closes the connections."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _insert(self, connection: Connection, table: Table, rows: list[dict[str, Any]]) -> int:
        if not rows:
            return 0
        insert = _INSERT[self._engine.dialect.name](table).on_conflict_do_nothing()
        counted = insert.execution_options(preserve_rowcount=True)
        return connection.execute(counted, rows).rowcount

    def _points(self, kind: type[P], **wanted: str | None) -> list[P]:
        table = tables[kind]
        matches = [table.c[name] == text for name, text in wanted.items() if text is not None]
        with _store_errors(self._engine.url), self._engine.connect() as connection:
            rows = connection.execute(select(table).where(*matches)).mappings().all()
        return in_order(from_sql(kind, row) for row in rows)


def open_sql_store(url: str) -> SqlStore:
    """The store at an SQLAlchemy URL; the schema of an SQLite file is made or raised on the way.

    Raises:
        InputError: the URL is none, or of another database.
        StoreError: the database cannot be used, or its schema is not the one of this version.
    """
    engine = _engine(url)
    try:
        with _store_errors(engine.url), engine.connect() as connection:
            state = schema_state(connection)
        if state == "older" and engine.dialect.name == "sqlite":
            _upgrade(engine)
        else:
            _refuse_other(state, engine.url)
    except StoreError:
        engine.dispose()
        raise
    return SqlStore(engine)


def migrate(url: str) -> None:
    """Bring the schema of a database to the one of this version.

    Raises:
        InputError: the URL is none, or of another database.
        StoreError: the database cannot be used, or a newer version has changed its schema.
    """
    engine = _engine(url)
    try:
        _upgrade(engine)
    finally:
        engine.dispose()


def _engine(text: str) -> Engine:
    url = _url(text)
    dialect = url.get_backend_name()
    option, seconds = _PATIENCE[dialect]
    arguments: dict[str, Any] = {} if option in url.query else {option: seconds}
    try:
        engine = create_engine(url, connect_args=arguments, pool_pre_ping=dialect != "sqlite")
    except ImportError as error:
        raise InputError(
            f"the driver for {dialect} is not installed",
            why=str(error),
            fix="pip install 'sm-advisor[postgres]'",
        ) from error
    if dialect == "sqlite":
        event.listen(engine, "connect", _make_durable)
    return engine


def _url(text: str) -> URL:
    try:
        url = make_url(text)
    except (ArgumentError, ValueError) as error:  # not quoted: it may hold a password
        raise InputError(
            "the address of the store is no URL",
            fix="write sqlite:///FILE, postgresql://USER@HOST/DATABASE or files:DIR",
        ) from error
    if url.drivername not in _DRIVERS:
        raise InputError(
            f"points cannot be kept in {url.drivername}",
            fix="use sqlite:///FILE, postgresql://USER@HOST/DATABASE or files:DIR",
        )
    return url.set(drivername=_DRIVERS[url.drivername])


def _make_durable(connection: Any, _record: object) -> None:
    """One writer beside many readers, and each commit on disk before it returns."""
    connection.execute("PRAGMA synchronous=FULL")
    for tries_left in reversed(range(20)):
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            # Where two processes make a new file WAL at once, SQLite refuses one without waiting.
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or not tries_left:
                raise
            time.sleep(0.05)


def _upgrade(engine: Engine) -> None:
    with _store_errors(engine.url), engine.begin() as connection:
        connection.exec_driver_sql(_MIGRATION_LOCK[engine.dialect.name])
        state = schema_state(connection)
        if state == "older":
            upgrade(connection)
        else:
            _refuse_other(state, engine.url)


def _refuse_other(state: SchemaState, url: URL) -> None:
    if state == "older":
        raise StoreError(
            f"the database {url} has no tables of this version",
            why="another program may be using it, so it is not changed on the way",
            fix="run `advisor data migrate`",
        )
    if state == "newer":
        raise StoreError(
            f"the database {url} was changed by a newer version of advisor",
            fix="upgrade advisor: pip install --upgrade sm-advisor",
        )


@contextmanager
def _store_errors(url: URL) -> Generator[None]:
    try:
        yield
    except SQLAlchemyError as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        why = " ".join(str(cause).split())
        fixes = (fix for sign, fix in _FIXES if sign in why)
        fix = next(fixes, "check the database, or give another store")
        raise StoreError(
            f"the database {url} did not answer as it should", why=why, fix=fix
        ) from error
