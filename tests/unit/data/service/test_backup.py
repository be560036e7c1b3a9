"""Backup and restore of the whole state, with servers at work."""

import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from launch_writer import row
from postgres import Server
from reading import some
from store_points import observation, pair_point, point

from advisor.errors import InputError, StoreError
from advisor_data import open_store
from advisor_data.backup import back_up, restore
from advisor_data.database import VERSION_TABLE
from advisor_data.state import open_service_state

ROOT = Path(__file__).parents[4]


def url_of(file: Path) -> str:
    return f"sqlite:///{file}"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    file = tmp_path / "data" / "advisor.db"
    file.parent.mkdir()
    fill(url_of(file))
    return file


def fill(url: str) -> None:
    with open_store(url, Path()) as store, open_service_state(url, Path()) as state:
        store.add([point(1), pair_point(1), observation(1)])
        state.make_token("ci", ["read"])
        state.add_launch(row("1", "node1"))


def check_filled(url: str) -> None:
    with open_store(url, Path()) as store, open_service_state(url, Path()) as state:
        assert [*store.solo_points(), *store.pair_points(), *store.observations()] == [
            point(1), pair_point(1), observation(1)
        ]  # fmt: skip
        assert [token.name for token in state.tokens()] == ["ci"]
        assert [found.launch_id for found in state.launches()] == ["1"]


@pytest.mark.usefixtures("loose_umask")
def test_everything_comes_back(database: Path, tmp_path: Path) -> None:
    """A copy restored elsewhere has all kinds of rows; the copy is one private file.

    It needs no files next to it: a medium that is read-only is enough.
    """
    copy, other = tmp_path / "copy.db", tmp_path / "other.db"
    assert back_up(url_of(database), Path(), copy) == copy.stat().st_size
    with closing(sqlite3.connect(f"file:{copy}?immutable=1", uri=True)) as read:
        assert (
            read.execute("PRAGMA journal_mode").fetchone(),
            read.execute("SELECT count(*) FROM solo_points").fetchone(),
        ) == (("delete",), (1,))
    restore(url_of(other), Path(), copy)
    assert {path.stat().st_mode & 0o777 for path in (copy, other)} == {0o600}
    check_filled(url_of(other))
    assert {path.name for path in tmp_path.iterdir()} == {"data", "copy.db", "other.db"}


def test_a_backup_while_a_server_writes_is_one_moment(database: Path, tmp_path: Path) -> None:
    """Each copy has every write that was done before it began, each one whole, and opens."""
    program = ROOT / "tests/fakes/launch_writer.py"
    command = [sys.executable, str(program), "write", url_of(database), "100000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            for number in range(3):
                done = int(some(process.stdout).readline())
                copy = tmp_path / f"copy{number}.db"
                back_up(url_of(database), Path(), copy)
                with closing(sqlite3.connect(copy)) as read:
                    (launches,) = read.execute("SELECT count(*) FROM advisor_launches").fetchone()
                    (entries,) = read.execute("SELECT count(*) FROM advisor_audit_log").fetchone()
                # The writer adds a launch, then its entry.
                assert entries >= done + 1
                assert launches - 1 - entries in (0, 1)
        finally:
            process.kill()


def test_a_damaged_database_never_replaces_a_good_copy(database: Path, tmp_path: Path) -> None:
    """What cannot be read in full is reported, and the copy of yesterday stays."""
    copy = tmp_path / "copy.db"
    back_up(url_of(database), Path(), copy)
    before = copy.read_bytes()
    with closing(sqlite3.connect(database)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        asked = "SELECT rootpage FROM sqlite_master WHERE name = 'solo_points'"
        (page,) = other.execute(asked).fetchone()
    with database.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 4096)
    with pytest.raises(StoreError, match="damaged"):
        back_up(url_of(database), Path(), copy)
    assert copy.read_bytes() == before


def test_a_server_goes_on_with_what_was_restored(database: Path, tmp_path: Path) -> None:
    """It holds its connections through the restore, sees the new content, and notices."""
    copy, url = tmp_path / "copy.db", url_of(database)
    back_up(url, Path(), copy)
    with open_store(url, Path()) as store, open_service_state(url, Path()) as state:
        store.replace_profile("gemm", None, [point(7)])
        counts = [state.change_count()]
        for _ in range(2):
            restore(url, Path(), copy, overwrite=True)
            counts.append(state.change_count())
        assert counts == sorted(set(counts))
        assert (store.solo_points(), store.add([point(8)])) == ([point(1)], 1)
        assert state.change_count() == counts[-1] + 1


def run_sql(copy: Path, statement: str) -> None:
    with closing(sqlite3.connect(copy)) as other, other:
        other.execute(statement)


def another(copy: Path) -> None:
    copy.unlink()
    run_sql(copy, "CREATE TABLE theirs (x)")


NEWER = f"UPDATE {VERSION_TABLE} SET version_num = '9999'"


SPOILED: dict[str, tuple[Callable[[Path], object], str]] = {
    "newer": (lambda copy: run_sql(copy, NEWER), "newer version of advisor"),
    "cut": (lambda copy: os.truncate(copy, copy.stat().st_size // 2), r"copy\.db"),
    "text": (lambda copy: copy.write_text("no database " * 100), "cannot be read as a database"),
    "empty": (lambda copy: copy.write_bytes(b""), "not a copy of an advisor database"),
    "another": (another, "not a copy of an advisor database"),
    "gone": (Path.unlink, "there is no file"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("spoil", "complaint"), SPOILED.values(), ids=SPOILED)
def test_a_bad_copy_is_refused_before_anything_changes(
    database: Path, tmp_path: Path, spoil: Callable[[Path], object], complaint: str
) -> None:
    copy = tmp_path / "copy.db"
    back_up(url_of(database), Path(), copy)
    spoil(copy)
    with pytest.raises((StoreError, InputError), match=complaint):
        restore(url_of(database), Path(), copy, overwrite=True)
    check_filled(url_of(database))
    left = {path.name for path in database.parent.iterdir()}
    assert left <= {"advisor.db", "advisor.db-wal", "advisor.db-shm"}


KILLED = """
import os, signal, sys, time
from pathlib import Path
from advisor_data import backup
copy = backup._copy
def slow(source, target):
    print("copying", flush=True)
    copy(source, target)
backup._copy = slow
while True:
    backup.restore(sys.argv[1], Path(), Path(sys.argv[2]), overwrite=True)
"""


@pytest.mark.slow
def test_kill_9_of_a_restore_leaves_old_or_new(database: Path, tmp_path: Path) -> None:
    """Killed at any moment, the database opens and is whole."""
    with open_store(url_of(database), Path()) as store:
        store.add(point(number, job="sort") for number in range(3000))
    copy = tmp_path / "copy.db"
    back_up(url_of(database), Path(), copy)
    for delay_s in (0.0, 0.01, 0.03):
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, url_of(database), str(copy)],
            stdout=subprocess.PIPE,
            text=True,
        )
        some(process.stdout).readline()
        some(process.stdout).readline()
        threading.Event().wait(delay_s)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=50)
        with closing(sqlite3.connect(database)) as read:
            assert (
                read.execute("PRAGMA integrity_check").fetchone(),
                read.execute("SELECT count(*) FROM solo_points").fetchone(),
            ) == (("ok",), (3001,))


FULL = """
import resource, sys
from pathlib import Path
from advisor.errors import StoreError
from advisor_data import backup
copy, copies = backup._copy, []
def limited(source, target):
    copies.append(target)
    if len(copies) == 2:  # the first one is the draft
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
    copy(source, target)
backup._copy = limited
try:
    backup.restore(sys.argv[1], Path(), Path(sys.argv[2]), overwrite=True)
except StoreError as error:
    print(error)
"""


@pytest.mark.slow
def test_a_restore_onto_a_full_disk_keeps_the_old_database(database: Path, tmp_path: Path) -> None:
    """What does not fit changes nothing, and there is a message."""
    copy, large = tmp_path / "copy.db", tmp_path / "large.db"
    with open_store(url_of(large), Path()) as store:
        store.add(point(number) for number in range(3000))
    back_up(url_of(large), Path(), copy)
    done = subprocess.run(
        [sys.executable, "-c", FULL, url_of(database), str(copy)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "could not be made" in done.stdout
    check_filled(url_of(database))


def test_a_writer_that_does_not_end_stops_a_restore(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits, then says that the database is locked, and changes nothing."""
    copy = tmp_path / "copy.db"
    back_up(url_of(database), Path(), copy)
    monkeypatch.setattr("advisor_data.backup._PATIENCE_S", 0.2)
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked"):
            restore(f"{url_of(database)}?timeout=0.1", Path(), copy, overwrite=True)
    check_filled(url_of(database))


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("postgresql://u:secret@127.0.0.1:1/x", "pg_dump and pg_restore"),
        ("sqlite:///{}/nowhere.db", "there is no database"),
    ],
)
def test_what_cannot_be_backed_up_says_what_to_do(tmp_path: Path, url: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint) as caught:
        back_up(url.format(tmp_path), tmp_path, tmp_path / "copy.db")
    assert "secret" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_database_is_not_backed_up_onto_itself(database: Path) -> None:
    """Not under another name for the same file either."""
    link = database.parent / "link.db"
    link.symlink_to(database)
    for name in (database, link):
        with pytest.raises(InputError, match="itself"):
            back_up(url_of(database), Path(), name)
    check_filled(url_of(database))


@pytest.mark.slow
@pytest.mark.postgres
def test_a_postgresql_database_is_backed_up_as_the_page_says(
    postgres_server: Server, postgres_url: str, tmp_path: Path
) -> None:
    """The commands of docs/state.md, word for word, bring everything into a new database."""
    fill(postgres_url)
    page = (ROOT / "docs/state.md").read_text()
    blocks = [b for b in re.findall(r"```sh\n(.*?)```", page, flags=re.DOTALL) if "pg_" in b]
    assert len(blocks) == 2
    restored = postgres_server.url("advisor_restored")
    programs = [postgres_server.programs, Path(sys.executable).parent]
    environment = {
        **os.environ,
        "PATH": ":".join([*map(str, programs), os.environ["PATH"]]),
        "ADVISOR_HOME": str(tmp_path / "home"),
        "ADVISOR_DATABASE_URL": postgres_url,
        "MAINTENANCE_URL": postgres_server.url("postgres"),
        "RESTORED_URL": restored,
    }
    for block in blocks:
        command = ["bash", "-euc", block]
        subprocess.run(command, cwd=tmp_path, env=environment, check=True, timeout=50)
    check_filled(restored)
    with open_service_state(restored, tmp_path) as state:
        state.make_token("new", ["read"])
