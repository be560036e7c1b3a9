"""What only the SQLite store can do or suffer."""

import re
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, text
from store_points import point

from advisor.errors import InputError, StoreError, install
from advisor_data import open_store
from advisor_data.state import ServiceState
from advisor_data.store import VERSION_TABLE, metadata, migrate, revisions


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "points.db"


def test_a_migration_that_fails_leaves_the_old_database(file: Path) -> None:
    """A table in the way stops the migration as a whole: there is no table of ours."""
    with closing(sqlite3.connect(file)) as other, other:
        other.execute("CREATE TABLE pair_points (theirs TEXT)")
    with pytest.raises(StoreError, match="already exists"):
        open_store(f"sqlite:///{file}", file)
    with closing(sqlite3.connect(file)) as other:
        found = other.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        assert found == [("pair_points",)]


def test_another_programs_tables_are_left_alone(file: Path) -> None:
    with closing(sqlite3.connect(file)) as other, other:
        other.execute("CREATE TABLE alembic_version (version_num TEXT)")
        other.execute("INSERT INTO alembic_version VALUES ('theirs')")
    with open_store(f"sqlite:///{file}", file) as store:
        assert store.add([point()]) == 1
    with closing(sqlite3.connect(file)) as other:
        assert other.execute("SELECT * FROM alembic_version").fetchall() == [("theirs",)]


def test_readers_do_not_stop_writers(file: Path) -> None:
    """The file is in write-ahead mode: a point is added while another program reads."""
    with open_store(f"sqlite:///{file}?timeout=0.1", file) as store:
        store.add([point(1)])
        with closing(sqlite3.connect(file, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM solo_points").fetchone()
            assert store.add([point(2)]) == 1


def test_a_locked_file_is_a_store_error_and_works_later(file: Path) -> None:
    """The message says that another process writes; afterwards the same store goes on."""
    with open_store(f"sqlite:///{file}?timeout=0.1", file) as store:
        with closing(sqlite3.connect(file, isolation_level=None)) as writer:
            writer.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError, match="another process is writing"):
                store.add([point()])
        assert store.add([point()]) == 1


def test_writers_that_wait_leave_connections_to_readers(file: Path) -> None:
    """A stopped import once held up all advice: those behind it had every connection there is."""
    with open_store(f"sqlite:///{file}", file) as store, ThreadPoolExecutor(21) as pool:
        with closing(sqlite3.connect(file, isolation_level=None)) as writer:
            writer.execute("BEGIN IMMEDIATE")
            added = [pool.submit(store.add, [point(number)]) for number in range(20)]
            for _ in range(10):
                assert pool.submit(store.solo_points).result(60) == []
        assert [one.result() for one in added] == [1] * 20


def test_nothing_is_kept_in_a_file_that_is_gone(tmp_path: Path) -> None:
    """The kernel would take writes as long as somebody has it open, and they would be lost."""
    home, moved = tmp_path / "home", tmp_path / "moved"
    with open_store(None, home) as store:
        store.add([point(1)])
        home.rename(moved)
        for ask in (lambda: store.add([point(2)]), store.solo_points):
            with pytest.raises(StoreError, match="check that the folder is there"):
                ask()
        with open_store(None, home) as other:
            other.add([point(3)])
        assert (store.add([point(4)]), store.solo_points()) == (1, [point(3), point(4)])
    with open_store(None, moved) as before:
        assert before.solo_points() == [point(1)]


@pytest.mark.usefixtures("small_disk")
def test_a_full_disk_keeps_what_was_stored(file: Path) -> None:
    """The message says to free space; earlier points can be read, a batch is all or nothing."""
    with open_store(f"sqlite:///{file}", file) as store:
        store.add([point(1)])
        with pytest.raises(StoreError, match="free space"):
            store.add(point(number) for number in range(2, 3000))
        assert (store.solo_points(), store.add([point(2)])) == ([point(1)], 1)


@pytest.mark.parametrize(
    ("url", "fix"),
    [
        ("sqlite:///{}/nowhere/points.db", "check that the folder is there"),
        ("sqlite:///{}", "check that the folder is there"),
        ("sqlite:///{}/text.db", "move the file away"),
        ("sqlite:///file:{}/empty.db?mode=ro&uri=true", "writable"),
    ],
    ids=["no folder", "a folder", "no database", "read-only"],
)
def test_a_file_that_cannot_be_used_says_what_to_do(tmp_path: Path, url: str, fix: str) -> None:
    (tmp_path / "text.db").write_text("no database " * 100)
    (tmp_path / "empty.db").touch()
    with pytest.raises(StoreError, match=fix):
        open_store(url.format(tmp_path), tmp_path)


def test_a_page_of_zeros_says_what_to_do(file: Path) -> None:
    with open_store(f"sqlite:///{file}", file) as store:
        store.add([point(number) for number in range(500)])
    with file.open("r+b") as database:
        for page in range(1, file.stat().st_size // 4096):
            database.seek(page * 4096)
            database.write(bytes(4096))
    with (
        pytest.raises(StoreError, match="advisor data restore FILE"),
        open_store(f"sqlite:///{file}", file) as store,
    ):
        store.solo_points()


# which store is opened, and what opening costs


def test_what_is_not_installed_is_said_with_the_pip_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(InputError, match=re.escape(install("postgres"))):
        open_store("postgresql://u@127.0.0.1/x", tmp_path)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        *((url, "sqlite:///FILE") for url in (
            "here.db", "postgresql://u:secret@host:port/x", "://secret"
        )),
        ("mysql://u:secret@host/x", "mysql. write sqlite:///FILE"),
        ("postgresql+asyncpg://u:secret@h/x", "asyncpg. write sqlite:///FILE"),
    ],
)  # fmt: skip
def test_what_is_no_address_is_refused_without_its_password(
    url: str, said: str, tmp_path: Path
) -> None:
    """The message shows how to write an address of SQLite or PostgreSQL, and keeps secrets."""
    with pytest.raises(InputError, match=said) as caught:
        open_store(url, tmp_path)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_a_server_that_is_not_there_is_a_store_error(scheme: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="check that the server runs") as caught:
        open_store(f"{scheme}://u:secret@127.0.0.1:1/x", tmp_path)
    assert "127.0.0.1" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_home_that_cannot_be_made_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="Not a directory"):
        open_store(None, tmp_path / "file" / "home")


def test_importing_the_package_loads_nothing_heavy() -> None:
    """Commands that open no store do not pay for SQL and tables."""
    script = (
        "import sys, advisor_data, advisor_data.files, advisor_data.bundled;"
        "print(*{'sqlalchemy', 'alembic', 'pandas', 'pyarrow', 'psycopg'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""


# databases, journals and copies are for their owner alone, whatever the umask


def modes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o777 for path in [folder, *folder.rglob("*")]}


def opened(home: Path) -> set[str]:
    return {name for name, mode in modes(home).items() if mode & 0o077}


@pytest.mark.usefixtures("loose_umask")
def test_a_new_home_is_ours_alone(tmp_path: Path) -> None:
    """With its write-ahead log, which has the same secrets."""
    with open_store(None, tmp_path / "home") as store, ServiceState(None, tmp_path / "home"):
        store.add([point(1)])
        assert {"home", "advisor.db", "advisor.db-wal"} <= modes(tmp_path / "home").keys()
        assert opened(tmp_path / "home") == set()


def test_an_old_home_is_closed_with_all_its_journals(tmp_path: Path) -> None:
    """As versions before left it: 0755 and 0644, and a server may still be at it."""
    home = tmp_path / "home"
    with open_store(None, home) as store:
        store.add([point(1)])
        for path in (home, *home.iterdir()):
            path.chmod(0o755 if path.is_dir() else 0o644)
        with ServiceState(None, home) as state:
            state.make_token("ci", ["read"])
            assert len(store.solo_points()) == 1
        assert opened(home) == set()


WRITE = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('BEGIN IMMEDIATE')"


@pytest.mark.usefixtures("loose_umask")
def test_looking_at_a_database_lets_go_of_no_lock(tmp_path: Path) -> None:
    """Linux takes all locks of a process on a file away when it closes any descriptor of it."""
    file = tmp_path / "points.db"
    with open_store(f"sqlite:///{file}", tmp_path), closing(sqlite3.connect(file)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        open_store(f"sqlite:///{file}", tmp_path).close()
        other = subprocess.run(
            [sys.executable, "-c", WRITE, file], capture_output=True, text=True, check=False
        )
    assert "database is locked" in other.stderr


# the schema of a database: made by migrations, and refused where it is of another version


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        empty: str = request.getfixturevalue("postgres_empty")
        return empty.replace("postgresql:", "postgresql+psycopg:")
    return f"sqlite:///{tmp_path}/store.db"


def _is_no_index(_name: object, kind: str, _parents: object) -> bool:
    return kind != "index"


@pytest.mark.slow
def test_migrations_make_the_tables_of_the_code(url: str, tmp_path: Path) -> None:
    assert migrate(url, tmp_path)
    engine = create_engine(url)
    with engine.connect() as connection:
        opts = {"version_table": VERSION_TABLE, "include_name": _is_no_index}
        assert compare_metadata(MigrationContext.configure(connection, opts=opts), metadata) == []
    engine.dispose()


@pytest.mark.parametrize(
    ("version", "remedy"),
    [("0012", r"data export FILE.*data import FILE"), ("9999", "upgrade advisor")],
    ids=["before the first release", "newer"],
)
def test_a_database_of_another_version_is_refused(
    url: str, tmp_path: Path, version: str, remedy: str
) -> None:
    """Nothing in it is changed, and the message says how its points come over."""
    migrate(url, tmp_path)
    with open_store(url, tmp_path) as store:
        store.add([point()])
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '{version}'"))
    for use in (lambda: open_store(url, tmp_path), lambda: migrate(url, tmp_path)):
        with pytest.raises(StoreError, match=remedy):
            use()
    with engine.begin() as connection:
        assert (
            connection.scalar(text("SELECT count(*) FROM solo_points")),
            connection.scalar(text(f"SELECT version_num FROM {VERSION_TABLE}")),
        ) == (1, version)
    engine.dispose()


def test_versions_are_those_of_the_migrations() -> None:
    """Names of files and what Alembic reads in them agree, so the one is as good as the other."""
    config = Config()
    config.set_main_option("script_location", "advisor_data:migrations")
    scripts = ScriptDirectory.from_config(config)
    assert [script.revision for script in scripts.walk_revisions()] == revisions()[::-1]


def test_a_database_that_is_current_is_opened_without_alembic(tmp_path: Path) -> None:
    """Every process opens one; few of them raise it, and most have no PostgreSQL."""
    url = f"sqlite:///{tmp_path}/store.db"
    migrate(url, tmp_path)
    script = (
        "import sys; from pathlib import Path; from advisor_data import open_store; "
        f"open_store({url!r}, Path({str(tmp_path)!r})).close(); "
        "print({'alembic', 'sqlalchemy.dialects.postgresql'} & {*sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"
