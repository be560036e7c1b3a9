"""Where points are kept: a database, files to exchange, and the bundled measurements."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.errors import StoreError
from advisor.files import open_home

if TYPE_CHECKING:
    from advisor_data.store import Store
else:
    Store = Any  # for annotations: importing the class loads SQLAlchemy, which takes 0.2 s

__all__ = ["Store", "default_url", "is_begun", "open_store"]


def open_store(url: str | None, home: Path) -> Store:
    """The store at an SQLAlchemy URL of SQLite or PostgreSQL; None: `advisor.db` in `home`.

    An SQLite file and the home are made where they are not there.

    Raises:
        InputError: the URL is none.
        StoreError: the store cannot be opened, or its schema is not the one of this version.
        UnsafeFileError: the home or the file of the database belongs to another user, or cannot be
            closed to others.
    """
    from advisor_data.store import Store

    return Store(url, home)


def is_begun(url: str | None, home: Path) -> bool:
    """Whether there may be points; opening a store makes one, which not everybody may."""
    return url is not None or os.access(home, os.W_OK) or (home / _DATABASE).exists()


def default_url(home: Path) -> str:
    """The URL of the database in a home, which is made where it is not there.

    Raises:
        StoreError: the folder cannot be made.
        UnsafeFileError: it belongs to another user, or cannot be closed to others.
    """
    with StoreError.instead_of(
        OSError,
        f"the folder {home} cannot be made",
        fix="set ADVISOR_HOME to one that may be written",
    ):
        open_home(home)
    return f"sqlite:///{home / _DATABASE}"


_DATABASE = "advisor.db"
