"""Connections to a database: SQLite in one file, or a PostgreSQL server; and its errors as ours."""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Self

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    Insert,
    Table,
    create_engine,
    event,
    make_url,
    update,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from advisor.errors import InputError, StoreError, undone_by
from advisor.installed import install
from advisor_data.store.profile_table import renew_all
from advisor_data.store.schema import SchemaState, schema_state, upgrade
from advisor_data.store.sqlite_file import in_sqlite_file
from advisor_data.store.tables import changes

_DRIVERS = {
    "sqlite": "sqlite",
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
}

_PATIENCE = {"sqlite": ("timeout", 30), "postgresql": ("connect_timeout", 10)}
"""How long to wait for a lock or for the server, s; the URL may give another time."""

_LOCK_S = 30
"""The same for a lock of PostgreSQL, which would wait without end."""

_MIGRATION_LOCK = {
    "sqlite": "BEGIN IMMEDIATE",
    "postgresql": "SELECT pg_advisory_xact_lock(718281828)",
}
"""Two processes that migrate at once go one after the other."""

RESTORE = "keep a copy of it, and restore the last backup: advisor data restore FILE --overwrite"
"""What to do about a damaged SQLite file."""

_FIXES = (
    ("full", "free space and run again; what is stored already is safe"),
    ("locked", "another process is writing: wait for it, or end it"),
    ("lock timeout", "another process holds a lock: wait for it, or end it"),
    (
        "unable to open",
        "check that the folder is there and may be written, which SQLite does to read as well; "
        "what nobody writes to is read by ADVISOR_DATABASE_URL="
        "'sqlite:///file:FILE?immutable=1&uri=true'",
    ),
    ("readonly", "make the file and its folder writable, or give another store"),
    ("malformed", RESTORE),
    ("not a database", "move the file away, or give another store"),
    ("connect", "check that the server runs, and the address, user and password"),
)


class OpenDatabase:
    """A database in use; safe for several processes and threads.

    Where it does not answer a StoreError is raised. What was written before is safe, and the same
    object works again when the database does.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._turn = threading.Lock()

    @contextmanager
    def _reading(self) -> Generator[Connection]:
        with store_errors(self._engine.url), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def _writing(self) -> Generator[Connection]:
        """In one transaction: all of it, or nothing."""
        with store_errors(self._engine.url), self._in_turn(), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def _in_turn(self) -> Generator[None]:
        """SQLite has one writer: others wait here, and leave the connections to who reads."""
        if self._engine.dialect.name != "sqlite":
            yield
        elif self._turn.acquire(timeout=_PATIENCE["sqlite"][1]):
            try:
                yield
            finally:
                self._turn.release()
        else:
            raise SQLAlchemyError("database is locked")

    def close(self) -> None:
        """Close all connections that nobody uses; the others when they are given back."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def open_engine(url: str) -> Engine:
    """Connections to the database at an SQLAlchemy URL, its schema that of this version.

    The schema of an SQLite file is made or raised on the way; a server's never is.

    Raises:
        InputError: the URL is none, or of another database.
        StoreError: the database cannot be used, or its schema is not the one of this version.
        UnsafeFileError: its file belongs to another user, or cannot be closed to others.
    """
    engine = make_engine(url)
    with undone_by(engine.dispose):
        with store_errors(engine.url), engine.connect() as connection:
            state = schema_state(connection)
        if state == "older" and engine.dialect.name == "sqlite":
            _upgrade(engine)
        else:
            refuse_other(state, address(engine.url))
    return engine


def migrate(url: str) -> bool:
    """Bring the schema of a database to that of this version; whether anything had to be done.

    Raises:
        InputError: the URL is none, or of another database.
        StoreError: the database cannot be used, or a newer version has changed its schema.
    """
    engine = make_engine(url)
    try:
        return _upgrade(engine)
    finally:
        engine.dispose()


def make_engine(text: str) -> Engine:
    """Connections to the database at an SQLAlchemy URL, whatever its schema.

    Raises:
        InputError: the URL is none, or of another database; or its driver is not installed.
    """
    url = _url(text)
    dialect = url.get_backend_name()
    option, seconds = _PATIENCE[dialect]
    arguments: dict[str, Any] = {} if option in url.query else {option: seconds}
    with InputError.instead_of(
        ImportError, f"the driver for {dialect} is not installed", fix=install("postgres")
    ):
        engine = create_engine(url, connect_args=arguments, pool_pre_ping=dialect != "sqlite")
    if dialect == "sqlite":
        in_sqlite_file(engine)
    else:
        event.listen(engine, "connect", _bound_waits)
    return engine


def insert_new(connection: Connection, table: Table) -> Insert:
    """An INSERT that leaves out the rows that are there, and counts the others."""
    if connection.dialect.name == "sqlite":
        insert = sqlite.insert(table).on_conflict_do_nothing()
    else:
        # Most processes have no use for it, and it takes a tenth of their start.
        from sqlalchemy.dialects import postgresql

        insert = postgresql.insert(table).on_conflict_do_nothing()
    return insert.execution_options(preserve_rowcount=True)


def count_change(connection: Connection) -> None:
    """Tell all processes that answers made before this transaction are out of date.

    First thing in a transaction: the others wait here, and so never for each other's rows.
    """
    connection.execute(update(changes).values(count=changes.c.count + 1))


def refuse_other(state: SchemaState, where: str) -> None:
    """See to it that the schema of a database, named by its address or file, is of this version.

    Raises:
        StoreError: it is not.
    """
    if state == "older":
        raise StoreError(
            f"the database {where} has no tables of this version",
            why="another program may be using it, so it is not changed on the way",
            fix="run `advisor data migrate`",
        )
    if state == "unreleased":
        raise StoreError(
            f"the database {where} is of a version of advisor from before the first release",
            why="this version cannot raise its tables",
            fix="export each --kind with the version that made it (`advisor data export FILE`), "
            "move the database away, and bring the files in: `advisor data import FILE`",
        )
    if state == "newer":
        raise StoreError(
            f"the database {where} was changed by a newer version of advisor", fix="upgrade advisor"
        )


def address(url: URL) -> str:
    """The URL for a reader: without a password, which may stand among the options too."""
    return str(url.set(query={}))


@contextmanager
def store_errors(url: URL) -> Generator[None]:
    """Turns what the database says into a StoreError with its own remedy."""
    try:
        yield
    except SQLAlchemyError as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        why = " ".join(str(cause).split())
        fixes = (fix for sign, fix in _FIXES if sign in why)
        fix = next(fixes, "check the database, or give another store")
        raise StoreError(
            f"the database {address(url)} did not answer as it should", why=why, fix=fix
        ) from error


def _url(text: str) -> URL:
    try:
        url = make_url(text)
    except (ArgumentError, ValueError) as error:  # not quoted: it may hold a password
        raise InputError(
            "the address of the store is not a URL",
            fix="write sqlite:///FILE, postgresql://USER@HOST/DATABASE or files:DIR",
        ) from error
    if url.drivername not in _DRIVERS:
        raise InputError(
            f"points cannot be kept in {url.drivername}",
            fix="use sqlite:///FILE, postgresql://USER@HOST/DATABASE or files:DIR",
        )
    return url.set(drivername=_DRIVERS[url.drivername])


def _bound_waits(connection: Any, _record: object) -> None:
    connection.execute(f"SET lock_timeout = '{_LOCK_S}s'")
    connection.commit()


def _upgrade(engine: Engine) -> bool:
    """Whether the schema was an older one, or there was none."""
    with store_errors(engine.url), engine.begin() as connection:
        connection.exec_driver_sql(_MIGRATION_LOCK[engine.dialect.name])
        state = schema_state(connection)
        if state == "older":
            upgrade(connection)
            renew_all(connection)
        else:
            refuse_other(state, address(engine.url))
        return state == "older"
