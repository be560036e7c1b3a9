"""The store of records: a JSON document each, in the table of its kind, and pages of them.

Below it lies the database: its tables, connections to an SQLite file or a PostgreSQL server, its
schema, and copies of an SQLite file that are whole or not made.
"""

import json
import os
import sqlite3
import tempfile
import threading
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import quote

from sqlalchemy import (
    JSON,
    URL,
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Engine,
    Insert,
    Integer,
    MetaData,
    Select,
    Table,
    Text,
    create_engine,
    delete,
    event,
    func,
    insert,
    inspect,
    make_url,
    select,
    text,
    tuple_,
    update,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import ArgumentError, DBAPIError, DisconnectionError, SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry

from advisor.core.records import PARTS, WATCHED, Observation, PairPoint, Record, SoloPoint
from advisor.core.wording import listed
from advisor.errors import DisputedError, InputError, StoreError, install, undone_by
from advisor.files import private_file, sync_folder
from advisor.formats.rows import JOBS, P, checked, column_types, from_row, to_row
from advisor.validity.points import author_of, claim_of, window_of
from advisor_data import default_url
from advisor_data.lists import MOST_OF_MOMENT, Page, ProfileRow, Span, cut, position, profile_rows

VERSION_TABLE = "advisor_schema"
"""Holds the version of the schema, apart from other programs of the same database."""

metadata = MetaData()
"""Tables as statements need them. Migrations make them, with their indexes."""


def _texts(needed: str, optional: str = "") -> list[Column[Any]]:
    return [
        *(Column(name, Text, nullable=False) for name in needed.split()),
        *(Column(name, Text, nullable=True) for name in optional.split()),
    ]


def _records(name: str) -> Table:
    return Table(
        name,
        metadata,
        Column("point_id", Text, primary_key=True),
        *_texts("jobs gpu_model run"),
        Column("started_at_us", BigInteger, nullable=False),
        Column("document", JSON, nullable=False),
    )


tables: Mapping[type[Record], Table] = {
    SoloPoint: _records("solo_points"),
    PairPoint: _records("pair_points"),
    Observation: _records("observations"),
}
"""A record is a JSON document; the columns beside it are those by which records are found."""

profiles = Table(
    "advisor_profiles",
    metadata,
    Column("job", Text, primary_key=True),
    Column("gpu_model", Text, primary_key=True),
    Column("document", JSON, nullable=False),
)
"""A `ProfileRow` of the solo points of each job on each GPU model; written with them."""

changes = Table("advisor_changes", metadata, Column("count", BigInteger, nullable=False))
"""One row: how often something changed that answers are made from."""

tokens = Table(
    "advisor_tokens",
    metadata,
    Column("secret_sha256", Text, primary_key=True),
    *_texts("name scopes created_at", "expires_at revoked_at"),
)

launches = Table(
    "advisor_launches",
    metadata,
    Column("launch_id", Text, primary_key=True),
    *_texts(
        "host gpu state spec status asked_by request_hash created_at updated_at",
        "gpu_uuid idempotency_key home",
    ),
)

audit_log = Table(
    "advisor_audit_log",
    metadata,
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    *_texts("at who action subject outcome request_id client"),
)

_DRIVERS = {
    "sqlite": "sqlite",
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
}

# How long to wait for a lock or for the server, s; the URL may give another time.
_PATIENCE = {"sqlite": ("timeout", 30), "postgresql": ("connect_timeout", 10)}

# The same for a lock of PostgreSQL, which would wait without end.
_LOCK_S = 30

# Two processes that migrate at once go one after the other.
_MIGRATION_LOCK = {
    "sqlite": "BEGIN IMMEDIATE",
    "postgresql": "SELECT pg_advisory_xact_lock(718281828)",
}

# What to do about a damaged SQLite file.
_RESTORE = "keep a copy of it, and restore the last backup: advisor data restore FILE --overwrite"

_FIXES = (
    ("full", "free space and run again; what is stored already is safe"),
    ("locked", "another process is writing: wait for it, or end it"),
    ("lock timeout", "another process holds a lock: wait for it, or end it"),
    (
        "unable to open",
        "check that the folder is there and may be written, which SQLite does to read as well; "
        "a database without writers is read by ADVISOR_DATABASE_URL="
        "'sqlite:///file:FILE?immutable=1&uri=true'",
    ),
    ("readonly", "make the file and its folder writable, or give another store"),
    ("malformed", _RESTORE),
    ("not a database", "move the file away, or give another store"),
    ("connect", "check that the server runs, and the address, user and password"),
)


class OpenDatabase:
    """A database in use; safe for several processes and threads.

    Where it does not answer a StoreError is raised. What was written before is safe, and the same
    object works again when the database does. The schema of an SQLite file is made or raised when
    it is opened; a server's never is.

    Args:
        url: SQLAlchemy URL of SQLite or PostgreSQL; None: `advisor.db` in `home`.
        home: Made where it is not there.

    Raises:
        InputError: the URL is none, or of another database.
        StoreError: the database cannot be used, or its schema is not the one of this version.
        UnsafeFileError: the home or the file belongs to another user, or cannot be closed to
            others.
    """

    def __init__(self, url: str | None, home: Path) -> None:
        self._engine = engine = _make_engine(url or default_url(home))
        self._turn = threading.Lock()
        with undone_by(engine.dispose):
            with self._reading() as connection:
                state = _schema_state(connection)
            if state == "older" and engine.dialect.name == "sqlite":
                _upgrade(engine)
            else:
                _refuse_other(state, _address(engine.url))

    @contextmanager
    def _reading(self) -> Generator[Connection]:
        with _store_errors(self._engine.url), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def _writing(self) -> Generator[Connection]:
        """In one transaction: all of it, or nothing."""
        with _store_errors(self._engine.url), ExitStack() as stack:
            # SQLite has one writer: others wait here, and leave the connections to readers.
            if self._engine.dialect.name == "sqlite":
                if not self._turn.acquire(timeout=_PATIENCE["sqlite"][1]):
                    raise SQLAlchemyError("database is locked")
                stack.callback(self._turn.release)
            yield stack.enter_context(self._engine.begin())

    def close(self) -> None:
        """Close all idle connections; the others when they are given back."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def migrate(url: str | None, home: Path) -> bool:
    """Bring the schema of a database to that of this version; whether anything had to be done.

    The database is that of `advisor_data.open_store`.

    Raises:
        InputError: the URL is none, or of another database.
        StoreError: the database cannot be used, or a newer version has changed its schema.
    """
    engine = _make_engine(url or default_url(home))
    try:
        return _upgrade(engine)
    finally:
        engine.dispose()


def _make_engine(text: str) -> Engine:
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
        _guard_file(engine)
        event.listen(engine, "connect", _make_durable)
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


def _count_change(connection: Connection) -> None:
    """Tell all processes that answers made before this transaction are out of date.

    First thing in a transaction: the others wait here, and so never for each other's rows.
    """
    connection.execute(update(changes).values(count=changes.c.count + 1))


def _address(url: URL) -> str:
    """The URL for a reader: without a password, which may stand among the options too."""
    return str(url.set(query={}))


@contextmanager
def _store_errors(url: URL) -> Generator[None]:
    """Turns what the database says into a StoreError with its own remedy."""
    try:
        yield
    except SQLAlchemyError as error:
        why = " ".join(str(error.orig if isinstance(error, DBAPIError) else error).split())
        fixes = (fix for sign, fix in _FIXES if sign in why)
        fix = next(fixes, "check the database, or give another store")
        raise StoreError(
            f"the database {_address(url)} did not answer as it should", why=why, fix=fix
        ) from error


def _url(text: str) -> URL:
    fix = "write sqlite:///FILE or postgresql://USER@HOST/DATABASE"
    # Its words are not told: they may hold a password.
    with InputError.instead_of(
        (ArgumentError, ValueError), "the address of the store is not a URL", why="", fix=fix
    ):
        url = make_url(text)
    if url.drivername not in _DRIVERS:
        raise InputError(f"points cannot be kept in {url.drivername}", fix=fix)
    return url.set(drivername=_DRIVERS[url.drivername])


def _bound_waits(connection: Any, _record: object) -> None:
    connection.execute(f"SET lock_timeout = '{_LOCK_S}s'")
    connection.commit()


# the file of SQLite: for its user alone, durable, and the same one all the time


def _sqlite_path(url: URL) -> Path:
    """The file of an SQLite database; SQLite itself also takes addresses of files."""
    return Path((url.database or "").removeprefix("file:"))


def _guard_file(engine: Engine) -> None:
    """Close the file to others, and take no connection to one that was removed or replaced."""
    url = engine.url
    if not url.database or ":memory:" in url.database:
        return

    def note(_connection: object, record: ConnectionPoolEntry) -> None:
        record.info["file"] = _identity(url)

    def check(_connection: object, record: ConnectionPoolEntry, _proxy: object) -> None:
        if record.info["file"] != _identity(url):
            raise DisconnectionError  # another connection is made, or cannot be

    def connect(dialect: Any, record: ConnectionPoolEntry, args: Any, options: Any) -> Any:
        _close_to_others(url)
        connection = dialect.connect(*args, **options)
        try:
            connection.execute("PRAGMA schema_version")
        except sqlite3.DatabaseError as error:  # else reported by the first read
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_IOERR:
                # A full disk has no room for what readers share: this one reads alone, and briefly.
                connection.close()
                connection = dialect.connect(*args, **options)
                record.info["alone"] = [*connection.execute("PRAGMA locking_mode=EXCLUSIVE")]
        return connection

    def let_go(_connection: object, record: ConnectionPoolEntry) -> None:
        if "alone" in record.info:
            record.invalidate()

    # As late as that: a look for a database must not make one.
    event.listen(engine, "do_connect", connect)
    event.listen(engine, "checkin", let_go)
    event.listen(engine, "connect", note)
    event.listen(engine, "checkout", check)


def _close_to_others(url: URL) -> None:
    """Tokens, jobs and their secrets are in there; SQLite makes its journals as the file is.

    What it says to a file or folder that is not there, or to a folder, stays its own.
    """
    file = _sqlite_path(url)
    if os.path.isdir(file):  # noqa: PTH112 - Path asks and fails where a link may not be followed
        return
    for path in (file, *(file.with_name(file.name + end) for end in ("-wal", "-shm", "-journal"))):
        with suppress(OSError):
            private_file(path, make=path == file and not url.query.get("uri"))


def _identity(url: URL) -> tuple[int, int] | None:
    with suppress(OSError):
        state = os.stat(_sqlite_path(url))  # noqa: PTH116 - at each use, and a Path takes longer
        return state.st_dev, state.st_ino
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


# the version of the schema

SchemaState = Literal["current", "older", "unreleased", "newer"]

_MIGRATIONS = "advisor_data.migrations"


def _schema_state(connection: Connection) -> SchemaState:
    """How the schema compares with the one of this version.

    An empty database is "older"; one from before the first migration is "unreleased".
    """
    all_revisions = revisions()
    revision = (
        connection.scalar(text(f"SELECT version_num FROM {VERSION_TABLE}"))
        if inspect(connection).has_table(VERSION_TABLE)
        else None
    )
    if revision is not None and revision not in all_revisions:
        return "unreleased" if revision < all_revisions[0] else "newer"
    return "current" if revision == all_revisions[-1] else "older"


def revisions() -> list[str]:
    """Every version of the schema, the newest last: what the names of its migrations begin with."""
    files = (resources.files(_MIGRATIONS) / "versions").iterdir()
    return sorted(f.name.partition("_")[0] for f in files if f.name.endswith(".py"))


def upgrade(connection: Connection) -> None:
    """Run the missing migrations in the transaction of `connection`."""
    # Every process opens a database and few of them raise one; importing Alembic takes 0.12 s.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", _MIGRATIONS.replace(".", ":"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _refuse_other(state: SchemaState, where: str) -> None:
    """See to it that the schema of a database, named by its address or file, is of this version.

    Raises:
        StoreError: it is not.
    """
    faults = {
        "older": StoreError(
            f"the database {where} has no tables of this version",
            why="another program may be using it, so it is not changed on the way",
            fix="run `advisor data migrate`",
        ),
        "unreleased": StoreError(
            f"the database {where} is of a version of advisor from before the first release",
            why="this version cannot raise its tables",
            fix="export each --kind with the version that made it (`advisor data export FILE`), "
            "move the database away, and bring the files in: `advisor data import FILE`",
        ),
        "newer": StoreError(
            f"the database {where} was changed by a newer version of advisor", fix="upgrade advisor"
        ),
    }
    if state in faults:
        raise faults[state]


# Identities in one question; databases bound their number.
_AT_ONCE = 1000


class Store(OpenDatabase):
    """Keeps points, and what launched pairs did; several processes may use the same one at once.

    Methods that write raise a StoreError where they could not; then all is as it was before.
    """

    def add(self, points: Iterable[Record], *, renew: bool = False) -> int:
        """Keep points, of one kind or mixed: all or none; they are on disk when this returns.

        The answer is how many were new; one whose `point_id` is already there changes nothing, but
        with `renew`, or the flag `seen`, it takes the place of the one there.

        Raises:
            InputError: a point that could not be read back, such as a negative rate.
            DisputedError: other values of a sent window are stored.
        """
        ordered = _in_writing_order(checked(points))
        if not ordered:
            return 0
        jobs = {point.job for point in ordered if isinstance(point, SoloPoint)}
        with self._writing() as connection:
            if jobs:
                _count_change(connection)
            # What was seen of a process takes the place of what was seen of its beginning.
            _delete(connection, [p for p in ordered if renew or WATCHED in p.flags])
            _check_undisputed(connection, [point for point in ordered if point.written_by])
            new = sum(_insert(connection, kind, ordered) for kind in tables)
            _renew(connection, jobs)
            return new

    def solo_points(
        self, *, job: str | None = None, gpu_model: str | None = None, run: str | None = None
    ) -> list[SoloPoint]:
        """Points in the order of `started_at`, all or those that match."""
        return self._points(SoloPoint, None if job is None else [job], gpu_model, run)

    def pair_points(
        self,
        *,
        jobs: Sequence[str] | None = None,
        gpu_model: str | None = None,
        run: str | None = None,
    ) -> list[PairPoint]:
        """As `solo_points`, of exactly these jobs together, in whichever order their names come."""
        return self._points(PairPoint, jobs, gpu_model, run)

    def observations(
        self, *, jobs: Sequence[str] | None = None, gpu_model: str | None = None
    ) -> list[Observation]:
        """As `pair_points`, for what launched jobs did."""
        return self._points(Observation, jobs, gpu_model)

    def together(self) -> frozenset[tuple[str, ...]]:
        """Names of jobs, sorted, that were measured or launched together; on any GPU model."""
        texts = set[str]()
        with self._reading() as connection:
            for kind in (PairPoint, Observation):
                # From name to name in the index: a million records are of few sets.
                names = tables[kind].c.jobs
                first = select(func.min(names).label("jobs")).cte("together", recursive=True)
                later = select(func.min(names)).where(names > first.c.jobs).scalar_subquery()
                every = first.union_all(select(later).where(first.c.jobs.is_not(None)))
                texts |= set(connection.execute(select(every.c.jobs)).scalars())
        return frozenset(tuple(json.loads(jobs)) for jobs in texts if jobs)

    def page(self, kind: type[P], jobs: Sequence[str], span: Span) -> Page[P]:
        """A page of the records of exactly these jobs, the newest first; names in any order."""
        return self._page(kind, [_is_of(kind, jobs)], span)

    def observation_page(self, job: str | None, span: Span) -> Page[Observation]:
        """A page of what launched jobs did: those with a job, or all."""
        jobs = tables[Observation].c.jobs
        # LIKE knows no difference between small and capital letters in SQLite.
        named = func.replace(jobs, json.dumps(job, ensure_ascii=False), "") != jobs
        return self._page(Observation, [] if job is None else [named], span)

    def profile_names(self, after: str = "", limit: int = 1000) -> list[str]:
        """Names of jobs with solo points, in order: those behind one, so many at most."""
        job = profiles.c.job
        wanted = select(job).where(job > after).distinct().order_by(job).limit(limit)
        with self._reading() as connection:
            return list(connection.execute(wanted).scalars())

    def profile_rows(self, first: str, last: str) -> list[ProfileRow]:
        """What lists say of the jobs whose names lie between two, these as well.

        One row for each job on each GPU model, in their order; no list reads a million points.
        """
        job, model = profiles.c.job, profiles.c.gpu_model
        wanted = select(profiles.c.document).where(job >= first, job <= last).order_by(job, model)
        with self._reading() as connection:
            return [ProfileRow.of(row) for row in connection.execute(wanted).scalars()]

    def replace_profile(
        self,
        job: str,
        gpu_model: str | None,
        points: Iterable[SoloPoint],
        writer: str | None = None,
    ) -> int:
        """Replace all solo points of a job with these, on one GPU model or on all.

        The answer is how many are kept now. A writer replaces only what it sent itself.

        Raises:
            InputError: no points, or one of another job or GPU model.
            DisputedError: others than the writer sent some of those that are there.
        """
        points_by_id = {point.point_id: point for point in checked(points)}
        ordered = _in_writing_order(points_by_id.values())
        of_profile = f"the profile of {job}" + (f" on {gpu_model}" if gpu_model else "")
        for point in ordered:
            if point.job != job or gpu_model not in (None, point.gpu_model):
                raise InputError(
                    f"a point of {point.job} on {point.gpu_model} is not part of {of_profile}",
                    fix="give points of that job and GPU model only",
                )
        if not ordered:
            raise InputError(
                f"a profile of {job} without points", fix="delete the profile, or give its points"
            )
        with self._writing() as connection:
            _count_change(connection)
            _delete_profile(connection, job, gpu_model, writer)
            _check_undisputed(connection, [point for point in ordered if point.written_by])
            stored = _insert(connection, SoloPoint, ordered)
            _renew(connection, [job])
            return stored

    def delete_profile(
        self, job: str, gpu_model: str | None = None, writer: str | None = None
    ) -> int:
        """Forget all solo points of a job, of one GPU model or of all; how many went.

        Raises:
            DisputedError: others than the writer sent some of them.
        """
        with self._writing() as connection:
            _count_change(connection)
            deleted = _delete_profile(connection, job, gpu_model, writer)
            _renew(connection, [job])
            return deleted

    def delete(self, points: Iterable[Record]) -> int:
        """Forget those of these points that are there, of one kind or mixed; how many went."""
        ordered = _in_writing_order(points)
        with self._writing() as connection:
            _count_change(connection)
            deleted = _delete(connection, ordered)
            _renew(connection, {point.job for point in ordered if isinstance(point, SoloPoint)})
            return deleted

    def _points(
        self,
        kind: type[P],
        jobs: Sequence[str] | None = None,
        gpu_model: str | None = None,
        run: str | None = None,
    ) -> list[P]:
        table, named = tables[kind], {"gpu_model": gpu_model, "run": run}
        matches = [table.c[name] == text for name, text in named.items() if text is not None]
        if jobs is not None:
            matches.append(_is_of(kind, jobs))
        wanted = select(table.c.document).where(*matches)
        with self._reading() as connection:
            return _read(connection, kind, wanted.order_by(table.c.started_at_us, table.c.point_id))

    def _page(self, kind: type[P], matches: Sequence[ColumnElement[bool]], span: Span) -> Page[P]:
        table, matches = tables[kind], list(matches)
        moment, place = table.c.started_at_us, tuple_(table.c.started_at_us, table.c.point_id)
        if span.gpu_model is not None:
            matches.append(table.c.gpu_model == span.gpu_model)
        if span.before_us is not None:
            matches.append(moment < span.before_us)
        if span.after is not None:
            after = span.after.started_at_us, span.after.point_id
            # The first is for the index, which the second alone would not use everywhere.
            matches += [moment <= span.after.started_at_us, place < after]
        most = (
            select(table.c.document)
            .where(*matches)
            .order_by(moment.desc(), table.c.point_id.desc())
            .limit(span.limit + MOST_OF_MOMENT + 1)
        )
        with self._reading() as connection:
            # Row by row: a page mostly ends long before all of one moment that it may have.
            streaming = connection.execution_options(stream_results=True)
            return cut((_record(kind, row) for row in streaming.execute(most).scalars()), span)


def _row_of(record: Record) -> dict[str, Any]:
    """The record as a row of its table."""
    where, document = position(record), _filled(to_row(record))
    if JOBS in document:
        document[JOBS] = [_filled(part) for part in document[JOBS]]
    return {
        "point_id": where.point_id,
        "jobs": _names([record.job] if isinstance(record, SoloPoint) else record.jobs),
        "gpu_model": record.gpu_model,
        "run": record.launch_id if isinstance(record, Observation) else record.run,
        "started_at_us": where.started_at_us,
        "document": document,
    }


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
    with _draft_beside(file) as draft:
        with _raw(engine) as database, closing(sqlite3.connect(draft, timeout=_PATIENCE_S)) as copy:
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
    raised on the way; `file`, from `back_up`, is only read. The database is the one that
    `advisor_data.open_store` opens; `overwrite` replaces one that exists.

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
    with _draft_beside(target) as draft:
        # A copy of the copy, to check and to raise; with all of it, should it be a live database.
        with closing(sqlite3.connect(draft, timeout=_PATIENCE_S)) as ours:
            uri = f"file:{quote(str(file))}?mode=ro"
            with (
                StoreError.instead_of(
                    sqlite3.DatabaseError, f"{file} cannot be read as a database"
                ),
                closing(sqlite3.connect(uri, timeout=_PATIENCE_S, uri=True)) as given,
            ):
                _copy(given, ours)
            _check_whole(ours, file)
            if not ours.execute(
                "SELECT count(*) FROM sqlite_master WHERE name = ?", [VERSION_TABLE]
            ).fetchone()[0]:
                raise InputError(f"{file} is not a copy of an advisor database")
        engine_of_draft = _make_engine(f"sqlite:///{draft}")
        try:
            _upgrade(engine_of_draft, str(file))
            with _store_errors(engine_of_draft.url), engine_of_draft.begin() as connection:
                # Above all counts there were, so that servers see a change: it grows by one a
                # write.
                connection.execute(update(changes).values(count=time.time_ns() // 1000))
        finally:
            engine_of_draft.dispose()
        with closing(sqlite3.connect(draft, timeout=_PATIENCE_S)) as copy, _raw(engine) as database:
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
    damaged = StoreError.instead_of(sqlite3.DatabaseError, f"{file} is damaged", fix=_RESTORE)
    with _store_errors(engine.url), _raw(engine) as database, damaged:
        _check_whole(database, file)


def _upgrade(engine: Engine, where: str = "") -> bool:
    """Whether the schema was an older one, or there was none; `where` is its name in errors."""
    with _store_errors(engine.url), engine.begin() as connection:
        connection.exec_driver_sql(_MIGRATION_LOCK[engine.dialect.name])
        state = _schema_state(connection)
        if state == "older":
            upgrade(connection)
            # Rows of profiles are made anew from all points.
            connection.execute(delete(profiles))
            jobs = connection.execute(select(tables[SoloPoint].c.jobs).distinct()).scalars()
            _renew(connection, [json.loads(names)[0] for names in jobs])
        else:
            _refuse_other(state, where or _address(engine.url))
        return state == "older"


def _filled(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None}


def _record(kind: type[P], document: Mapping[str, Any]) -> P:
    """The record of a document; columns of a newer version are left out."""
    types = column_types(kind)
    row = {name: value for name, value in document.items() if name in types}
    if kind in PARTS:
        of_part = column_types(PARTS[kind])
        row[JOBS] = [{n: v for n, v in part.items() if n in of_part} for part in document[JOBS]]
    return from_row(kind, row)


def _read(connection: Connection, kind: type[P], wanted: Select[Any]) -> list[P]:
    return [_record(kind, document) for document in connection.execute(wanted).scalars()]


def _names(jobs: Iterable[str]) -> str:
    """Names of jobs in one column, by which the records of exactly these jobs are found."""
    return json.dumps(sorted(jobs), ensure_ascii=False)


def _is_of(kind: type[Record], jobs: Iterable[str]) -> ColumnElement[bool]:
    return tables[kind].c.jobs == _names(jobs)


def _in_writing_order(points: Iterable[P]) -> list[P]:
    """One order in all writers, so that two of them cannot wait for each other."""
    return sorted(points, key=lambda point: point.point_id)


def _delete(connection: Connection, records: Iterable[Record]) -> int:
    """Delete the records that are stored; returns their number."""
    return sum(
        connection.execute(delete(table).where(table.c.point_id == record.point_id)).rowcount
        for record in records
        for table in [tables[type(record)]]
    )


def _insert(connection: Connection, kind: type[Record], records: Iterable[Record]) -> int:
    """Put in those of a kind that are not there yet; how many were new."""
    mine = [record for record in records if type(record) is kind]
    # Some are stored just so, but unsigned: imported, or of older versions.
    signed = [record for record in mine if record.written_by]
    stored_ids, table = set[str](), tables[kind]
    for begin in range(0, len(signed), _AT_ONCE):
        some = {
            replace(record, written_by=None): record.point_id
            for record in signed[begin:][:_AT_ONCE]
        }
        ids = [record.point_id for record in some]
        stored = set(
            _read(connection, kind, select(table.c.document).where(table.c.point_id.in_(ids)))
        )
        stored_ids |= {of for record, of in some.items() if record in stored}
    rows = [_row_of(record) for record in mine if record.point_id not in stored_ids]
    return connection.execute(insert_new(connection, tables[kind]), rows).rowcount if rows else 0


def _check_undisputed(connection: Connection, signed: Sequence[Record]) -> None:
    """Keep a sender from voiding a stored window by other values of it.

    Raises:
        DisputedError: so.
    """
    for kind, table in tables.items():
        mine = [record for record in signed if type(record) is kind]
        for begin in range(0, len(mine), _AT_ONCE):
            some = mine[begin:][:_AT_ONCE]
            moments = {position(record).started_at_us for record in some}
            wanted = select(table.c.document).where(table.c.started_at_us.in_(moments))
            first = {window_of(record): record for record in _read(connection, kind, wanted)}
            for record in some:
                there = first.get(window_of(record), record)
                if there.point_id != record.point_id and claim_of(there) != claim_of(record):
                    raise DisputedError(
                        f"{author_of(there)} has sent other values of the window at "
                        f"{record.started_at} on {record.gpu_uuid}",
                        why="a card measures one thing at a time, and what came first counts",
                        fix="measure it again; if the first is wrong, have it removed: advisor "
                        "data delete --written-by NAME",
                    )


def _delete_profile(
    connection: Connection, job: str, gpu_model: str | None, writer: str | None
) -> int:
    matches = [_is_of(SoloPoint, [job])]
    if gpu_model is not None:
        matches.append(tables[SoloPoint].c.gpu_model == gpu_model)
    wanted = select(tables[SoloPoint].c.document).where(*matches)
    stored = _read(connection, SoloPoint, wanted) if writer else ()
    if others := {author_of(point) for point in stored if point.written_by != writer}:
        raise DisputedError(
            f"points of {job} are of {listed(sorted(others))}",
            why=f"{writer} replaces and deletes what it sent itself",
            fix="ask with a token of scope admin, or remove the others: advisor data delete",
        )
    return connection.execute(delete(tables[SoloPoint]).where(*matches)).rowcount


def _renew(connection: Connection, jobs: Iterable[str]) -> None:
    """Make the rows of profiles of these jobs of their points."""
    for job in sorted(jobs):
        connection.execute(delete(profiles).where(profiles.c.job == job))
        wanted = select(tables[SoloPoint].c.document).where(_is_of(SoloPoint, [job]))
        for row in profile_rows(_read(connection, SoloPoint, wanted)):
            named = {"job": job, "gpu_model": row.gpu_model, "document": asdict(row)}
            connection.execute(insert(profiles).values(named))


def _sqlite_file(url: str | None, home: Path) -> tuple[Engine, Path]:
    """Connections to the database, and its file."""
    url = url or default_url(home)
    engine = _make_engine(url)
    if engine.dialect.name != "sqlite" or not engine.url.database:
        raise InputError(
            f"{_address(engine.url)} is not an SQLite file",
            fix="for PostgreSQL: pg_dump and pg_restore, as in docs/state.md",
        )
    return engine, _sqlite_path(engine.url)


def _has_content(file: Path) -> bool:
    return file.exists() and file.stat().st_size > 0


def _copy(source: sqlite3.Connection, target: sqlite3.Connection) -> None:
    """All pages in one step: a writer in between would make it start again, again and again."""
    deadline = time.monotonic() + _PATIENCE_S

    def give_up(status: int, _remaining: int, _total: int) -> None:
        if status in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) and time.monotonic() > deadline:
            raise sqlite3.OperationalError("database is locked")

    source.backup(target, pages=-1, progress=give_up)


def _check_whole(connection: sqlite3.Connection, name: Path) -> None:
    if (report := connection.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
        raise StoreError(f"{name} is damaged", why=" ".join(report.split()), fix=_RESTORE)


@contextmanager
def _raw(engine: Engine) -> Generator[sqlite3.Connection]:
    """One connection of the driver, made as all others of the database are."""
    try:
        with _store_errors(engine.url):
            pooled = engine.raw_connection()
        with closing(pooled):
            connection = pooled.driver_connection
            assert isinstance(connection, sqlite3.Connection)
            yield connection
    finally:
        engine.dispose()


@contextmanager
def _draft_beside(file: Path) -> Generator[Path]:
    """The place of a draft on the same disk, which no other user may read.

    Raises:
        StoreError: what is done there fails.
    """
    with (
        StoreError.instead_of(
            (sqlite3.Error, OSError),
            f"the copy to {file} could not be made",
            fix="free space, wait for other writers, or give another place; nothing was changed",
        ),
        tempfile.TemporaryDirectory(prefix=f".{file.name}.", dir=file.parent) as folder,
    ):
        yield Path(folder) / "copy.db"
