"""What only the SQLite store can do or suffer."""

import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from store_points import point

from advisor.errors import StoreError
from advisor_data import open_store


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
                time.sleep(0.05)
                assert pool.submit(store.solo_points).result(20) == []
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
        assert store.add([point(4)]) == 1
        assert store.solo_points() == [point(3), point(4)]
    with open_store(None, moved) as before:
        assert before.solo_points() == [point(1)]


@pytest.mark.usefixtures("small_disk")
def test_a_full_disk_keeps_what_was_stored(file: Path) -> None:
    """The message says to free space; earlier points can be read, a batch is all or nothing."""
    with open_store(f"sqlite:///{file}", file) as store:
        store.add([point(1)])
        with pytest.raises(StoreError, match="free space"):
            store.add(point(number) for number in range(2, 3000))
        assert store.solo_points() == [point(1)]
        assert store.add([point(2)]) == 1


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


def test_a_database_that_lost_its_table_is_a_store_error(file: Path) -> None:
    with open_store(f"sqlite:///{file}", file) as store:
        with closing(sqlite3.connect(file)) as other:
            other.execute("DROP TABLE solo_points")
        with pytest.raises(StoreError, match="no such table"):
            store.solo_points()
