"""The choice of a store; nothing here loads SQLAlchemy."""

import importlib
import importlib.util
import os
from pathlib import Path
from typing import Any

from advisor.errors import InputError, StoreError
from advisor.files.home import open_home
from advisor.installed import install
from advisor_data.store.base import Database, Store
from advisor_data.store.file_store import FileStore

FILES_PREFIX = "files:"


def open_store(url: str | None, home: Path) -> Store:
    """The store at an SQLAlchemy URL of SQLite or PostgreSQL, or `files:DIR` of JSON lines.

    None: `advisor.db` in `home`, which is made when needed; without SQLAlchemy, or where a node
    without it already began the folder `points` there, that folder.

    Raises:
        InputError: the URL is none.
        StoreError: the store cannot be opened, or its schema is not the one of this version.
        UnsafeFileError: the home or the file of the database belongs to another user, or cannot be
            closed to others.
    """
    if url is None:
        url = default_url(home)
    if url.startswith(FILES_PREFIX):
        return FileStore(Path(url.removeprefix(FILES_PREFIX)))
    return _sql("sql_store").open_sql_store(url)


def open_database(url: str | None, home: Path) -> Database:
    """As `open_store`, for those who replace and delete points.

    Raises:
        InputError: also where the points are in files, which only ever grow.
    """
    url = url or default_url(home)
    if url.startswith(FILES_PREFIX):
        raise InputError(
            f"points in {url} cannot be replaced or deleted",
            why="a folder of files only takes points, to be brought into a database",
            fix="remove a file of it by hand, or import them: advisor data import FOLDER/*.jsonl",
        )
    return _sql("sql_store").open_sql_store(url)


def is_begun(url: str | None, home: Path) -> bool:
    """Whether there may be points; opening a store makes one, which not everybody may."""
    may_write = os.access(home, os.W_OK)
    return url is not None or may_write or any(place.exists() for place in _places(home))


def migrate(url: str | None, home: Path) -> bool:
    """Bring the schema of a database to that of this version; nothing to do for files.

    Whether anything had to be done.

    Raises:
        InputError: the URL is none.
        StoreError: the database cannot be reached, or a newer version has changed its schema.
    """
    url = url or default_url(home)
    return not url.startswith(FILES_PREFIX) and bool(_sql("sql_engine").migrate(url))


def default_url(home: Path) -> str:
    """Where records are kept that were given no address; see `open_store`.

    Raises:
        StoreError: the folder cannot be made.
        UnsafeFileError: it belongs to another user, or cannot be closed to others.
    """
    files, database = _places(home)
    if not _has_sql() or (files.is_dir() and not database.exists()):
        return f"{FILES_PREFIX}{files}"
    with StoreError.instead_of(
        OSError,
        f"the folder {home} cannot be made",
        fix="set ADVISOR_HOME to one that may be written",
    ):
        open_home(home)
    return f"sqlite:///{database}"


def _places(home: Path) -> tuple[Path, Path]:
    """Where records are kept in it: the folder of files, and the database."""
    return home / "points", home / "advisor.db"


def _has_sql() -> bool:
    return all(importlib.util.find_spec(name) for name in ("sqlalchemy", "alembic"))


def need_sql() -> None:
    """See to it that a database can be used.

    Raises:
        InputError: SQLAlchemy or Alembic is not installed.
    """
    if not _has_sql():
        raise InputError(
            "a database needs SQLAlchemy and Alembic, which are not installed",
            fix=f"{install('data')}, or use {FILES_PREFIX}DIR",
        )


def _sql(module: str) -> Any:
    need_sql()
    return importlib.import_module(f"advisor_data.store.{module}")
