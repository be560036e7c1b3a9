"""What a store of records answers, and the choice of one; nothing here loads SQLAlchemy."""

import importlib
import importlib.util
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

from advisor.core.observations import Observation, Record
from advisor.core.records import PairPoint, SoloPoint
from advisor.errors import InputError, StoreError
from advisor.files.home import open_home
from advisor.installed import install
from advisor_data.store.file_store import FileStore
from advisor_data.store.pages import Page, Span
from advisor_data.store.profile_rows import ProfileRow

FILES_PREFIX = "files:"


class Store(Protocol):
    """Keeps points, and what launched pairs did; several processes may use the same one at once."""

    def add(self, points: Iterable[Record]) -> int:
        """Keep points, of one kind or mixed; they are on disk when this returns.

        The answer is how many were new; one whose `point_id` is already there changes nothing.

        Raises:
            InputError: a point that could not be read back, such as a negative rate.
            StoreError: the points could not be kept; those kept before are safe.
        """
        ...

    def solo_points(
        self, *, job: str | None = None, gpu_model: str | None = None, run: str | None = None
    ) -> list[SoloPoint]:
        """Points in the order of `started_at`, all or those that match."""
        ...

    def pair_points(
        self,
        *,
        jobs: Sequence[str] | None = None,
        gpu_model: str | None = None,
        run: str | None = None,
    ) -> list[PairPoint]:
        """As `solo_points`, of exactly these jobs together, in whichever order their names come."""
        ...

    def observations(
        self, *, jobs: Sequence[str] | None = None, gpu_model: str | None = None
    ) -> list[Observation]:
        """As `pair_points`, for what launched jobs did."""
        ...

    def solo_page(self, job: str, span: Span) -> Page[SoloPoint]:
        """A page of a job's solo points, the newest first."""
        ...

    def pair_page(self, jobs: Sequence[str], span: Span) -> Page[PairPoint]:
        """A page of what was measured of these jobs together, in whichever order they come."""
        ...

    def observation_page(self, job: str | None, span: Span) -> Page[Observation]:
        """A page of what launched jobs did: those with a job, or all."""
        ...

    def profile_names(self, after: str = "", limit: int = 1000) -> list[str]:
        """Names of jobs with solo points, in order: those behind one, so many at most."""
        ...

    def profile_rows(self, first: str, last: str) -> list[ProfileRow]:
        """What lists say of the jobs whose names lie between two, these as well.

        One row for each job on each GPU model, in their order.
        """
        ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc_info: object) -> None: ...


class Database(Store, Protocol):
    """A store whose points can be replaced and deleted as well."""

    def replace_profile(self, job: str, gpu_model: str | None, points: Iterable[SoloPoint]) -> int:
        """Put these points in the place of all solo points of a job, on one GPU model or on all.

        The answer is how many are kept now.

        Raises:
            InputError: no points, or one of another job or GPU model.
            StoreError: the points could not be kept; the old ones are all there.
        """
        ...

    def delete_profile(self, job: str, gpu_model: str | None = None) -> int:
        """Forget all solo points of a job, of one GPU model or of all; how many went.

        Raises:
            StoreError: they could not be removed.
        """
        ...

    def delete(self, points: Iterable[Record]) -> int:
        """Forget those of these points that are there, of one kind or mixed; how many went.

        Raises:
            StoreError: they could not be removed.
        """
        ...


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
    """Whether there may be points; opening a store makes one where there is none."""
    return url is not None or home.exists()


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
    files, database = home / "points", home / "advisor.db"
    if not _has_sql() or (files.is_dir() and not database.exists()):
        return f"{FILES_PREFIX}{files}"
    with StoreError.instead_of(
        OSError,
        f"the folder {home} cannot be made",
        fix="set ADVISOR_HOME to one that may be written",
    ):
        open_home(home)
    return f"sqlite:///{database}"


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
