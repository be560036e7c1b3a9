"""Copies of an SQLite database while others use it, and back again; all of it or nothing."""

import sqlite3
import tempfile
import time
from collections.abc import Generator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import Engine, make_url, update

from advisor.errors import InputError, StoreError
from advisor.files import sync_folder
from advisor_data import default_url
from advisor_data.store import (
    RESTORE,
    VERSION_TABLE,
    address,
    changes,
    make_engine,
    migrate,
    refuse_other,
    schema_state,
    sqlite_path,
    store_errors,
)

# How long a copy waits for another writer.
_PATIENCE_S = 30.0


def back_up(url: str | None, home: Path, file: Path) -> int:
    """Copy the database into one file, as it is at one moment; others go on reading and writing.

    What stood at `file` is replaced when the copy is whole, checked and on disk, not before; only
    its owner may read it. The schema is copied as it is, so this can come before an upgrade. The
    database is that of `advisor_data.open_store`; the answer is the size of the copy, bytes.

    Raises:
        InputError: the store is not an SQLite file, not there, or `file` itself.
        StoreError: the copy could not be made; what stood at `file` is unchanged.
    """
    engine, source = _sqlite_file(url, home)
    if not _has_content(source):
        raise InputError(f"there is no database at {source}")
    if file.exists() and file.samefile(source):
        raise InputError(f"{file} is the database itself", fix="give another name")
    with _errors(file), _folder_beside(file) as folder:
        draft = folder / "copy.db"
        with _raw(engine) as database, closing(_connect(draft)) as copy:
            _copy(database, copy)
            # In write-ahead mode it could not be read from a medium that cannot be written.
            copy.execute("PRAGMA journal_mode=DELETE")
            _check_whole(copy, source)
        draft.chmod(0o600)  # it names tokens, and who did what
        draft.replace(file)
        sync_folder(file.parent)
        return file.stat().st_size


def restore(url: str | None, home: Path, file: Path, *, overwrite: bool = False) -> None:
    """Make the database what a copy says; it is the old or the new one, never something between.

    Servers that use it go on with the new content, and notice it. A copy of an older schema is
    raised on the way; `file`, from `back_up`, is only read. Where there is a database already, all
    that is in it goes, if `overwrite` says so. It is that of `advisor_data.open_store`.

    Raises:
        InputError: the store is not an SQLite file; there is a database already; `file` is no copy.
        StoreError: the copy is damaged or of a newer version, or could not be brought in; the
            database is unchanged.
    """
    engine, target = _sqlite_file(url, home)
    if _has_content(target) and not overwrite:
        raise InputError(
            f"there is a database at {target} already",
            why="a restore would put the copy in its place",
            fix="keep it first: advisor data backup FILE; then restore with --overwrite",
        )
    if not file.is_file():
        raise InputError(f"there is no file {file}")
    with _errors(target), _folder_beside(target) as folder:
        draft = folder / "copy.db"
        _take(file, draft)
        _make_current(file, draft)
        with closing(_connect(draft)) as copy, _raw(engine) as database:
            _copy(copy, database)


def check_database(url: str | None, home: Path) -> None:
    """Look at every page of a database, as far as SQLite can tell a good one from a bad one.

    Nothing where there is no SQLite file; a server has checks of its own.

    Raises:
        StoreError: it is damaged, or cannot be read.
    """
    url = url or default_url(home)
    if make_url(url).get_backend_name() != "sqlite":
        return
    engine, file = _sqlite_file(url, home)
    if not _has_content(file):
        return
    damaged = StoreError.instead_of(sqlite3.DatabaseError, f"{file} is damaged", fix=RESTORE)
    with store_errors(engine.url), _raw(engine) as database, damaged:
        _check_whole(database, file)


def _sqlite_file(url: str | None, home: Path) -> tuple[Engine, Path]:
    """Connections to the database, and its file."""
    url = url or default_url(home)
    engine = make_engine(url)
    if engine.dialect.name != "sqlite" or not engine.url.database:
        raise InputError(
            f"{address(engine.url)} is not an SQLite file",
            fix="for PostgreSQL: pg_dump and pg_restore, as in docs/state.md",
        )
    return engine, sqlite_path(engine.url)


def _has_content(file: Path) -> bool:
    return file.exists() and file.stat().st_size > 0


def _take(file: Path, draft: Path) -> None:
    """A copy of the copy, to check and to raise; with all of it, should it be a live database."""
    with closing(_connect(draft)) as ours:
        uri = f"file:{quote(str(file))}?mode=ro"
        with (
            StoreError.instead_of(sqlite3.DatabaseError, f"{file} cannot be read as a database"),
            closing(sqlite3.connect(uri, timeout=_PATIENCE_S, uri=True)) as given,
        ):
            _copy(given, ours)
        _check_whole(ours, file)
        named = "SELECT count(*) FROM sqlite_master WHERE name = ?"
        if not ours.execute(named, [VERSION_TABLE]).fetchone()[0]:
            raise InputError(f"{file} is not a copy of an advisor database")


def _make_current(file: Path, draft: Path) -> None:
    engine = make_engine(f"sqlite:///{draft}")
    try:
        with store_errors(engine.url), engine.connect() as connection:
            if (state := schema_state(connection)) != "older":
                refuse_other(state, str(file))
        migrate(f"sqlite:///{draft}")
        with store_errors(engine.url), engine.begin() as connection:
            # Above all counts there were, so that servers see a change: it grows by one a write.
            connection.execute(update(changes).values(count=time.time_ns() // 1000))
    finally:
        engine.dispose()


def _copy(source: sqlite3.Connection, target: sqlite3.Connection) -> None:
    """All pages in one step: a writer in between would make it start again, again and again."""
    deadline = time.monotonic() + _PATIENCE_S

    def give_up(status: int, _remaining: int, _total: int) -> None:
        waits = status in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
        if waits and time.monotonic() > deadline:
            raise sqlite3.OperationalError("database is locked")

    source.backup(target, pages=-1, progress=give_up)


def _check_whole(connection: sqlite3.Connection, name: Path) -> None:
    if (found := connection.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
        raise StoreError(f"{name} is damaged", why=" ".join(found.split()), fix=RESTORE)


def _connect(file: Path) -> sqlite3.Connection:
    return sqlite3.connect(file, timeout=_PATIENCE_S)


@contextmanager
def _raw(engine: Engine) -> Generator[sqlite3.Connection]:
    """One connection of the driver, made as all others of the database are."""
    try:
        with store_errors(engine.url):
            pooled = engine.raw_connection()
        with closing(pooled):
            connection = pooled.driver_connection
            assert isinstance(connection, sqlite3.Connection)
            yield connection
    finally:
        engine.dispose()


@contextmanager
def _folder_beside(file: Path) -> Generator[Path]:
    """A folder for drafts on the same disk; nobody else may read what is in it."""
    with tempfile.TemporaryDirectory(prefix=f".{file.name}.", dir=file.parent) as folder:
        yield Path(folder)


def _errors(file: Path) -> AbstractContextManager[None]:
    what = f"the copy to {file} could not be made"
    fix = "free space, wait for other writers, or give another place; nothing was changed"
    return StoreError.instead_of((sqlite3.Error, OSError), what, fix=fix)
