"""New SQLite databases of tests: the migrations run in the first of a process."""

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Connection, inspect

from advisor.core.records import Record
from advisor_data import open_store
from advisor_data.store import upgrade


@contextmanager
def tables_made_once() -> Generator[None]:
    """Meanwhile a file without tables gets those that the migrations made in the first one."""
    made: list[str] = []

    def upgrade_or_copy(connection: Connection) -> None:
        if connection.dialect.name != "sqlite" or inspect(connection).get_table_names():
            upgrade(connection)
        elif made:
            for statement in made:
                connection.exec_driver_sql(statement)
        else:
            upgrade(connection)
            file = connection.connection.driver_connection
            assert isinstance(file, sqlite3.Connection)
            made.extend(s for s in file.iterdump() if s not in {"BEGIN TRANSACTION;", "COMMIT;"})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("advisor_data.store.upgrade", upgrade_or_copy)
        yield


def keep(home: Path, *records: Record) -> None:
    """Add records to the store of a home."""
    with open_store(None, home) as store:
        store.add([*records])


def make_home(home: Path) -> Path:
    """A home as commands leave it: with a database, whose migrations each new process runs anew."""
    open_store(None, home).close()
    return home
