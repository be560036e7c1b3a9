"""What the service keeps: tokens, launches, audit log, count of changes; copies of all of it."""

import dataclasses
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from ended_launches import PAIR, ended_launch, launch_id, seen
from launch_writer import row
from other_user import MALLORY
from postgres import Server
from reading import some
from sqlalchemy import create_engine
from store_points import observation, pair_point, point

from advisor.errors import (
    AdvisorError,
    BusyError,
    IdempotencyError,
    InputError,
    StoreError,
    UnsafeFileError,
)
from advisor.formats.moments import now
from advisor.launch.folder import OBSERVATIONS, create_folder, list_folders, remove
from advisor.launch.spec import OVER, LaunchSpec
from advisor.settings import read_settings
from advisor_data import Store, open_store
from advisor_data.state import ACTION, AuditEntry, LaunchRow, ServiceState, clean_launches
from advisor_data.store import VERSION_TABLE, back_up, migrate, restore

WRITER = Path(__file__).parents[3] / "fakes/launch_writer.py"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return request.getfixturevalue("postgres_url")
    return f"sqlite:///{tmp_path}/state.db"


@pytest.fixture
def state(url: str, tmp_path: Path) -> Iterator[ServiceState]:
    with ServiceState(url, tmp_path) as opened:
        yield opened


def entry(number: int, **fields: Any) -> AuditEntry:
    values: dict[str, Any] = {"at": now(), "who": "ci", "action": "launch.create", "outcome": "ok"}
    values |= {"subject": str(number), **fields}
    return AuditEntry(**values)


def later(**time: int) -> str:
    return (datetime.now(UTC) + timedelta(**time)).isoformat()


@pytest.mark.slow
def test_a_token_is_found_by_its_secret_alone(state: ServiceState) -> None:
    """Anyone who has the secret is known by name and scopes; nobody else is."""
    token, secret = state.make_token("ci", ["launch", "read", "read"], later(days=90))
    assert token.scopes == ("read", "launch")
    assert secret.startswith("adv_")
    assert (len(secret), state.find_tokens([secret]).get(secret)) == (47, token)
    wrong = ["", "adv_", secret[:-1], f"{secret}=", secret.swapcase(), "ü", "\udcff", "x" * 10**6]
    assert [state.find_tokens([text]).get(text) for text in wrong] == [None] * len(wrong)


def test_a_secret_is_kept_nowhere(state: ServiceState, url: str, tmp_path: Path) -> None:
    """Who reads the whole database can use no token."""
    _, secret = state.make_token("ci", ["read"])
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as connection:
        (found,) = connection.exec_driver_sql("SELECT * FROM advisor_tokens").all()
    engine.dispose()
    assert secret not in str(found)
    assert not [file for file in tmp_path.rglob("*") if secret.encode() in file.read_bytes()]


def test_a_token_that_has_ended_is_not_found(
    state: ServiceState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Revoked or expired, it stays in the list, and its name can be given again."""
    first, secret = state.make_token("ci", ["read"])
    with pytest.raises(InputError, match="advisor tokens revoke ci"):
        state.make_token("ci", ["admin"])
    state.revoke_token("ci")
    with pytest.raises(InputError, match="no valid token 'ci'"):
        state.revoke_token("ci")
    second, other = state.make_token("ci", ["write"], later(days=1))
    assert state.find_tokens([secret, other]) == {other: second}
    listed = {(token.created_at, token.revoked_at is None) for token in state.tokens()}
    assert listed == {(first.created_at, False), (second.created_at, True)}
    monkeypatch.setattr("advisor_data.state.now", lambda: later(days=2))
    assert state.find_tokens([other]) == {}
    state.make_token("ci", ["read"])


@pytest.mark.parametrize(
    ("name", "scopes", "end", "complaint"),
    [
        ("", ["read"], None, "not a valid token name"),
        ("line\n", ["read"], None, "not a valid token name"),
        ("x" * 65, ["read"], None, "not a valid token name"),
        ("Anonymous", ["read"], None, "not a valid token name"),
        ("ci", [], None, "give one or more of read, write, launch, admin"),
        ("ci", ["read", "root"], None, "not all known"),
        ("ci", ["read"], "2099-01-01T00:00:00", "not a time in UTC. write it as 2026"),
        ("ci", ["read"], "0001-01-01T00:00:00+12:00", "not a time in UTC"),
        ("ci", ["read"], "2020-01-01T00:00:00Z", "would have expired"),
    ],
)
def test_a_token_that_makes_no_sense_is_not_made(
    tmp_path: Path, name: str, scopes: list[str], end: str | None, complaint: str
) -> None:
    with ServiceState(None, tmp_path) as state:
        with pytest.raises(InputError, match=complaint):
            state.make_token(name, scopes, end)
        assert state.tokens() == []


def test_one_launch_at_a_time_on_a_gpu(state: ServiceState) -> None:
    """A GPU is free again when its launch is over; other GPUs and hosts always are.

    Who asks for it by its UUID finds it taken by who asked by its index.
    """
    first, second = row("1", "node1"), row("2", "node1")
    assert state.add_launch(first) == first
    for other in (dataclasses.replace(row("3", "node1"), gpu="1"), row("4", "node2")):
        state.add_launch(other)
    with pytest.raises(BusyError, match="GPU 0 of node1 is held by the launch 1"):
        state.add_launch(second)
    assert state.update_launch("1", "running", '{"a": 1}')
    with pytest.raises(BusyError):
        state.add_launch(second)
    assert state.update_launch("1", "failed", '{"a": 2}')
    state.add_launch(second)
    found = some(state.launch("1"))
    assert (found.state, found.status) == ("failed", '{"a": 2}')
    assert found.updated_at > first.updated_at
    state.add_launch(dataclasses.replace(row("5", "node3"), gpu_uuid="GPU-1"))
    with pytest.raises(BusyError, match="held by the launch 5"):
        state.add_launch(dataclasses.replace(row("6", "node3"), gpu="GPU-1", gpu_uuid="GPU-1"))


def test_asking_again_with_the_same_key_launches_once(state: ServiceState) -> None:
    """Also when the launch is over, or the GPU is busy; another asker's key is another key."""
    first = dataclasses.replace(row("1", "node1"), idempotency_key="k", request_hash="h")
    again = dataclasses.replace(first, launch_id="2")
    state.add_launch(first)
    assert state.add_launch(again) == first
    with pytest.raises(IdempotencyError, match="asked for with it") as caught:
        state.add_launch(dataclasses.replace(again, request_hash="other"))
    assert caught.value.code == "idempotency-conflict"
    with pytest.raises(BusyError):
        state.add_launch(dataclasses.replace(again, asked_by="else"))
    state.update_launch("1", "finished", "{}")
    assert state.add_launch(again).launch_id == "1"
    state.add_launch(dataclasses.replace(again, asked_by="else"))
    with pytest.raises(InputError, match="there is a launch 2"):
        state.add_launch(row("2", "node3"))


def test_a_launch_that_is_over_stays_over(state: ServiceState) -> None:
    state.add_launch(row("1", "node1"))
    assert state.update_launch("1", "stopped", '{"last": true}')
    assert not state.update_launch("1", "running", "{}")
    assert not state.update_launch("nobody", "running", "{}")
    assert [(r.state, r.status) for r in state.launches()] == [("stopped", '{"last": true}')]
    assert (state.launch("nobody"), state.launch("1\0")) == (None, None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wanted", "numbers"),
    [
        ({}, "76543210"),
        ({"limit": 3}, "765"),
        ({"limit": 3, "before": "2026-5"}, "432"),
        ({"home": "home of node1"}, "7531"),
        ({"active_only": True}, "7"),
        ({"home": "home of node0", "active_only": True}, ""),
    ],
)
def test_launches_come_in_pages(state: ServiceState, wanted: dict[str, Any], numbers: str) -> None:
    for number in range(8):
        state.add_launch(row(f"2026-{number}", f"node{number % 2}"))
        if number < 7:
            state.update_launch(f"2026-{number}", "finished", "{}")
    found = [launch.launch_id for launch in state.launches(**wanted)]
    assert found == [f"2026-{number}" for number in numbers]


def test_the_database_knows_when_a_launch_is_over(tmp_path: Path) -> None:
    """The index that keeps a GPU for one launch has the words of the states, no others."""
    migrate(f"sqlite:///{tmp_path}/store.db", tmp_path)
    asked = "SELECT sql FROM sqlite_master WHERE name = 'ux_advisor_launches_gpu'"
    with closing(sqlite3.connect(tmp_path / "store.db")) as database:
        ((made,),) = database.execute(asked).fetchall()
    condition = made.partition(" WHERE ")[2]
    assert condition.startswith("state NOT IN (")
    assert set(re.findall(r"'(.*?)'", condition)) == OVER


def test_the_audit_log_grows_only(state: ServiceState) -> None:
    """Entries come back newest first, numbered, in pages; nothing changes one."""
    for number in range(5):
        state.audit(entry(number))
    log = state.audit_log()
    assert [(e.number, e.subject) for e in log] == list(zip((5, 4, 3, 2, 1), "43210", strict=True))
    assert state.audit_log(limit=2, before=4) == log[2:4]
    assert (state.audit_log(before=-(10**30)), state.audit_log(before=10**30)) == ([], log)


def test_an_audit_entry_is_one_line(state: ServiceState) -> None:
    """What a client made up forges no second entry, and cannot break the database."""
    state.audit(entry(0, subject="job\n\0\udcff\x1b[2J", client="x" * 10_000))
    (kept,) = state.audit_log()
    assert (kept.subject, kept.client) == ("job????[2J", "x" * 500)


def test_changes_of_profiles_are_counted(state: ServiceState, url: str, tmp_path: Path) -> None:
    """A server sees every change that answers depend on, by whomever, and only those."""
    counts = [state.change_count()]
    with open_store(url, tmp_path) as store:
        for change in (
            lambda: store.add([point(1)]),
            lambda: store.replace_profile("gemm", None, [point(2)]),
            lambda: store.delete_profile("gemm"),
        ):
            change()
            counts.append(state.change_count())
        assert counts == sorted(set(counts))
        store.add([pair_point(1), observation(1)])
        store.add([])
        with pytest.raises(AdvisorError):
            store.replace_profile("gemm", None, [])
    before = state.change_count()
    state.make_token("ci", ["read"])
    state.add_launch(row("1", "node1"))
    state.audit(entry(1))
    assert state.change_count() == before


@pytest.mark.slow
def test_two_servers_race_for_one_gpu(url: str, tmp_path: Path) -> None:
    """However close they come, one of them launches on each GPU; the other is told it is busy."""
    ServiceState(url, tmp_path).close()
    command = [sys.executable, str(WRITER), "race", url, "40"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    both: list[Any] = [subprocess.Popen(command, **pipes, text=True) for _ in range(2)]
    assert [process.stdout.readline() for process in both] == ["ready\n"] * 2
    for process in both:
        process.stdin.write("\n")
        process.stdin.flush()
    said = [process.communicate(timeout=50)[0].splitlines() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    won = [line.split()[0] for lines in said for line in lines]
    assert sorted(won) == sorted(map(str, range(40)))
    with ServiceState(url, tmp_path) as state:
        assert len(state.launches()) == 40


def test_many_threads_race_for_one_key(state: ServiceState) -> None:
    """A client that sends its request ten times at once has one launch, and ten times its id."""
    rows = [
        dataclasses.replace(row(str(n), "node1"), idempotency_key="k", request_hash="h")
        for n in range(10)
    ]
    start = threading.Barrier(len(rows))

    def ask(mine: LaunchRow) -> str:
        start.wait()
        return state.add_launch(mine).launch_id

    with ThreadPoolExecutor(len(rows)) as threads:
        assert len(set(threads.map(ask, rows))) == 1


# Backup and restore of the whole state, with servers at work.


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
    with open_store(url, Path()) as store, ServiceState(url, Path()) as state:
        store.add([point(1), pair_point(1), observation(1)])
        state.make_token("ci", ["read"])
        state.add_launch(row("1", "node1"))


def check_filled(url: str) -> None:
    with open_store(url, Path()) as store, ServiceState(url, Path()) as state:
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
    with open_store(url, Path()) as store, ServiceState(url, Path()) as state:
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
from advisor_data import store
copy = store._copy
def slow(source, target):
    print("copying", flush=True)
    copy(source, target)
store._copy = slow
while True:
    store.restore(sys.argv[1], Path(), Path(sys.argv[2]), overwrite=True)
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
from advisor_data import store
copy, copies = store._copy, []
def limited(source, target):
    copies.append(target)
    if len(copies) == 2:  # the first one is the draft
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
    copy(source, target)
store._copy = limited
try:
    store.restore(sys.argv[1], Path(), Path(sys.argv[2]), overwrite=True)
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
    monkeypatch.setattr("advisor_data.store._PATIENCE_S", 0.2)
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
    with ServiceState(restored, tmp_path) as state:
        state.make_token("new", ["read"])


# What is beyond the bounds goes; what runs, and what is kept nowhere else, stays.


MIB = 2**20
BOUNDS = read_settings(
    {"HOME": "/", "ADVISOR_KEEP_LAUNCHES_DAYS": "30", "ADVISOR_KEEP_LAUNCHES_GIB": "0"}
).retention


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def store(home: Path) -> Iterator[Store]:
    with open_store(None, home) as opened:
        yield opened


@pytest.fixture
def kept_state(home: Path) -> Iterator[ServiceState]:
    with ServiceState(None, home) as opened:
        yield opened


@pytest.fixture
def clean(home: Path, store: Store, kept_state: ServiceState) -> Callable[..., Any]:
    of_test = partial(clean_launches, store=store, state=kept_state, who="test")
    return partial(of_test, home / "launches", bounds=BOUNDS)


def left(home: Path) -> list[str]:
    return [folder.launch_id for folder in list_folders(home / "launches")][::-1]


def test_what_ended_long_ago_goes_and_is_told(
    home: Path, clean: Callable[..., Any], kept_state: ServiceState, store: Store
) -> None:
    """What its jobs did is in the store then, though nobody had brought it in before."""
    for number, days in ((1, 31), (2, 29), (3, 400)):
        ended_launch(home, number, days, output_bytes=MIB)
    plan = clean(dry_run=True)
    assert (plan.dry_run, left(home)) == (True, [launch_id(n) for n in (1, 2, 3)])
    assert not store.observations()
    done = clean()
    assert ([one.launch_id for one in done.removed], {one.reason for one in done.removed}) == (
        [launch_id(3), launch_id(1)],
        {"age"},
    )
    assert sum(one.size_bytes for one in done.removed) >= 2 * MIB
    assert (done.removed, done.kept) == (plan.removed, ())
    assert left(home) == [launch_id(2)]
    assert [o.launch_id for o in store.observations()] == [launch_id(1), launch_id(3)]
    entries = [(e.who, e.action, e.subject, e.outcome) for e in kept_state.audit_log()]
    assert entries == [("test", ACTION, launch_id(n), "done") for n in (1, 3)]
    assert not clean().removed


def test_a_launch_that_has_not_ended_stays(home: Path, clean: Callable[..., Any]) -> None:
    """Accepted and waiting for its supervisor, or with one that lives, whatever its status says."""
    ended_launch(home, 1, 999, state="running")
    create_folder(home / "launches", LaunchSpec(launch_id=launch_id(2), gpu="0", pairs=(PAIR,)))
    last_word = ended_launch(home, 3, 999)
    (last_word.path / "claim").unlink()
    tight = dataclasses.replace(BOUNDS, launch_gib=1e-9, launch_days=1e-9)
    with last_word.supervising():
        found = clean(bounds=tight)
    # The first one's supervisor is gone: it has failed.
    assert [one.launch_id for one in found.removed] == [launch_id(1)]
    assert left(home) == [launch_id(2), launch_id(3)]


def test_a_launch_of_which_the_service_knows_no_end_stays(
    home: Path, clean: Callable[..., Any], kept_state: ServiceState
) -> None:
    """Its row would be one of a launch that was lost."""
    folder = ended_launch(home, 1, 99)
    row = LaunchRow(
        launch_id=folder.launch_id, host="h", gpu="0", state="running", spec="{}", status="{}",
        asked_by="ci", request_hash="", created_at="", updated_at="", home="",
    )  # fmt: skip
    kept_state.add_launch(row)
    (kept,) = clean().kept
    assert "the service has not noticed" in kept.why
    kept_state.update_launch(folder.launch_id, "finished", "{}")
    assert clean().removed


def test_a_launch_whose_observations_cannot_be_kept_stays(
    home: Path, clean: Callable[..., Any]
) -> None:
    """A line that is no observation may be all there is; others go all the same."""
    (ended_launch(home, 1, 99).path / OBSERVATIONS).write_text('{"no": "observation"}\n')
    ended_launch(home, 2, 98)
    done = clean()
    assert [one.launch_id for one in done.removed] == [launch_id(2)]
    assert "cannot be read" in done.kept[0].why
    assert left(home) == [launch_id(1)]


def test_a_launch_whose_store_is_full_stays(
    home: Path, clean: Callable[..., Any], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is in the store already needs no room to go: a full disk can be cleaned."""
    store.add([seen(2)])
    for number in (1, 2):
        ended_launch(home, number, 99)

    def full(points: list[object]) -> int:
        if points:
            raise StoreError("the disk is full")
        return 0

    monkeypatch.setattr(store, "add", full)
    done = clean()
    assert ([one.launch_id for one in done.removed], [one.why for one in done.kept]) == (
        [launch_id(2)],
        ["the disk is full."],
    )


# folders that are not what they seem


def test_a_link_is_not_followed(home: Path, tmp_path: Path, clean: Callable[..., Any]) -> None:
    """Neither one in the place of a launch, nor one inside it, nor one of half a removal."""
    elsewhere = ended_launch(tmp_path / "other", 1, 99)
    (ended_launch(home, 2, 99).path / "0-b").symlink_to(elsewhere.path)
    (home / "launches" / launch_id(1)).symlink_to(elsewhere.path)
    (home / "launches" / ".half.removed").symlink_to(elsewhere.path)
    plan, done = clean(dry_run=True), clean()
    for found in (plan, done):
        assert [one.launch_id for one in found.removed] == [launch_id(2)]
    assert [(one.launch_id, one.why[:21]) for one in done.kept] == [
        (".half.removed", "it cannot be removed:")
    ]
    assert launch_id(1) in left(home)
    assert (elsewhere.path / OBSERVATIONS).exists()
    assert (elsewhere.path / "0-a/output.log").exists()


def test_an_observation_file_that_is_a_link_is_not_read(
    home: Path, tmp_path: Path, clean: Callable[..., Any]
) -> None:
    folder = ended_launch(home, 1, 99)
    (tmp_path / "secret").write_text("{}\n")
    (folder.path / OBSERVATIONS).unlink()
    (folder.path / OBSERVATIONS).symlink_to(tmp_path / "secret")
    (kept,) = clean().kept
    assert "symbolic links" in kept.why


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be two users")
def test_a_root_of_another_user_is_refused(home: Path, clean: Callable[..., Any]) -> None:
    ended_launch(home, 1, 99)
    os.chown(home / "launches", MALLORY, MALLORY)
    with pytest.raises(UnsafeFileError, match="belongs to another user"):
        clean()


# faults half way


def test_a_removal_that_was_killed_is_finished(
    home: Path, clean: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launch is no longer listed before its first file goes; the next time removes the rest."""
    folder = ended_launch(home, 1, 99)
    with monkeypatch.context() as killed:
        killed.setattr("advisor.launch.folder.shutil.rmtree", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            remove(folder.path)
    half = home / "launches" / f".{folder.launch_id}.removed"
    assert (half.exists(), left(home)) == (True, [])
    done = clean()
    assert (done.removed, done.kept, half.exists()) == ((), (), False)


def test_two_at_once_remove_each_launch_once(
    home: Path, clean: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person and the service may clean at the same moment."""
    ended_launch(home, 1, 99)

    def late(folder: Path) -> None:
        remove(folder)
        remove(folder)

    monkeypatch.setattr("advisor_data.state.remove", late)
    assert not clean().kept
    assert left(home) == []


# the audit log


def test_old_entries_of_the_audit_log_go_and_that_is_in_it(kept_state: ServiceState) -> None:
    for day in range(1, 6):
        at = f"2026-01-0{day}T12:00:00.000+00:00"
        kept_state.audit(AuditEntry(at=at, who="ci", action="x", subject="y", outcome="done"))
    assert kept_state.prune_audit_log("2026-01-03T12:00:00.000+00:00", "service") == 2
    newest, *others = kept_state.audit_log()
    assert (newest.who, newest.action) == ("service", "audit.prune")
    assert newest.subject.startswith("2 entries before 2026-01-03")
    assert ([entry.at[:10] for entry in others], [entry.number for entry in others]) == (
        ["2026-01-05", "2026-01-04", "2026-01-03"],
        [5, 4, 3],
    )
    assert (
        kept_state.prune_audit_log("2026-01-03T12:00:00.000+00:00", "service"),
        len(kept_state.audit_log()),
    ) == (0, 4)
