"""The file of an SQLite database: for its user alone, durable, and the same one all the time."""

import os
import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Engine, event
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.pool import ConnectionPoolEntry

from advisor.files.safe_files import private_file

_JOURNALS = ("-wal", "-shm", "-journal")
"""What SQLite puts next to its file."""


def in_sqlite_file(engine: Engine) -> None:
    """See to the file of an SQLite database at each connection that is made or used again."""
    url = engine.url
    if url.database and ":memory:" not in url.database:
        # As late as that: who only asks whether there is a database must not make one.
        event.listen(engine, "do_connect", lambda *_: _close_to_others(url))
        _keep_to_file(engine)
    event.listen(engine, "connect", _make_durable)


def sqlite_path(url: URL) -> Path:
    """The file of an SQLite database; SQLite itself also takes addresses of files."""
    return Path((url.database or "").removeprefix("file:"))


def _close_to_others(url: URL) -> None:
    """Tokens, jobs and their secrets are in there; SQLite makes its journals as the file is.

    What it says to a file or folder that is not there, or to a folder, stays its own.
    """
    file = sqlite_path(url)
    if os.path.isdir(file):  # noqa: PTH112 - Path asks and fails where a link may not be followed
        return
    for path in (file, *(file.with_name(file.name + end) for end in _JOURNALS)):
        with suppress(OSError):
            private_file(path, make=path == file and not url.query.get("uri"))


def _keep_to_file(engine: Engine) -> None:
    """Take no connection to a file that was removed or replaced: what it says to keep is lost."""

    def note(_connection: object, record: ConnectionPoolEntry) -> None:
        record.info["file"] = _identity(engine.url)

    def check(_connection: object, record: ConnectionPoolEntry, _proxy: object) -> None:
        if record.info["file"] != _identity(engine.url):
            raise DisconnectionError  # another connection is made, or cannot be

    event.listen(engine, "connect", note)
    event.listen(engine, "checkout", check)


def _identity(url: URL) -> tuple[int, int] | None:
    with suppress(OSError):
        found = os.stat(sqlite_path(url))  # noqa: PTH116 - at each use, and a Path takes longer
        return found.st_dev, found.st_ino
    return None


def _make_durable(connection: Any, _record: object) -> None:
    """One writer next to many readers, and each commit on disk before it returns."""
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
