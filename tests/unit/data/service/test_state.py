"""Tokens, launches, the audit log and the count of changes, in SQLite and in PostgreSQL."""

import dataclasses
import re
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from launch_writer import row
from reading import some
from sqlalchemy import create_engine
from store_points import observation, pair_point, point

from advisor.errors import AdvisorError, BusyError, IdempotencyError, InputError
from advisor.formats.moments import now
from advisor.launch.status import OVER
from advisor_data import migrate, open_store
from advisor_data.state import AuditEntry, LaunchRow, ServiceState, open_service_state

WRITER = Path(__file__).parents[3] / "fakes/launch_writer.py"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return request.getfixturevalue("postgres_url")
    return f"sqlite:///{tmp_path}/state.db"


@pytest.fixture
def state(url: str, tmp_path: Path) -> Iterator[ServiceState]:
    with open_service_state(url, tmp_path) as opened:
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
    assert len(secret) == 47
    assert state.find_tokens([secret]).get(secret) == token
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
    with open_service_state(None, tmp_path) as state:
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
    assert state.launch("nobody") is None
    assert state.launch("1\0") is None


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
    open_service_state(url, tmp_path).close()
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
    with open_service_state(url, tmp_path) as state:
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
