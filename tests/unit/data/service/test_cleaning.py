"""What is beyond the bounds goes; what runs, and what is kept nowhere else, stays."""

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
from ended_launches import PAIR, ended_launch, launch_id, seen
from other_user import MALLORY

from advisor.errors import StoreError, UnsafeFileError
from advisor.launch.folder import OBSERVATIONS, create_folder, list_folders, remove
from advisor.launch.spec import LaunchSpec
from advisor.settings import read_settings
from advisor.wire.lists import AuditEntry
from advisor_data import Store, open_store
from advisor_data.cleaning import ACTION, Cleaner
from advisor_data.state import LaunchRow, ServiceState, open_service_state

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
def state(home: Path) -> Iterator[ServiceState]:
    with open_service_state(None, home) as opened:
        yield opened


@pytest.fixture
def cleaner(home: Path, store: Store, state: ServiceState) -> Cleaner:
    return Cleaner(root=home / "launches", bounds=BOUNDS, store=store, state=state, who="test")


def left(home: Path) -> list[str]:
    return [folder.launch_id for folder in list_folders(home / "launches")][::-1]


def test_what_ended_long_ago_goes_and_is_told(
    home: Path, cleaner: Cleaner, state: ServiceState, store: Store
) -> None:
    """What its jobs did is in the store then, though nobody had brought it in before."""
    for number, days in ((1, 31), (2, 29), (3, 400)):
        ended_launch(home, number, days, output_bytes=MIB)
    plan = cleaner.clean(dry_run=True)
    assert (plan.dry_run, left(home)) == (True, [launch_id(n) for n in (1, 2, 3)])
    assert not store.observations()
    done = cleaner.clean()
    assert ([one.launch_id for one in done.removed], {one.reason for one in done.removed}) == (
        [launch_id(3), launch_id(1)],
        {"age"},
    )
    assert done.size_bytes >= 2 * MIB
    assert (done.removed, done.kept) == (plan.removed, ())
    assert left(home) == [launch_id(2)]
    assert [o.launch_id for o in store.observations()] == [launch_id(1), launch_id(3)]
    entries = [(e.who, e.action, e.subject, e.outcome) for e in state.audit_log()]
    assert entries == [("test", ACTION, launch_id(n), "done") for n in (1, 3)]
    assert not cleaner.clean().removed


def test_a_launch_that_has_not_ended_stays(home: Path, cleaner: Cleaner) -> None:
    """Accepted and waiting for its supervisor, or with one that lives, whatever its status says."""
    ended_launch(home, 1, 999, state="running")
    create_folder(home / "launches", LaunchSpec(launch_id=launch_id(2), gpu="0", pairs=(PAIR,)))
    last_word = ended_launch(home, 3, 999)
    (last_word.path / "claim").unlink()
    tight = dataclasses.replace(BOUNDS, launch_gib=1e-9, launch_days=1e-9)
    with last_word.supervising():
        found = dataclasses.replace(cleaner, bounds=tight).clean()
    # The first one's supervisor is gone: it has failed.
    assert [one.launch_id for one in found.removed] == [launch_id(1)]
    assert left(home) == [launch_id(2), launch_id(3)]


def test_a_launch_of_which_the_service_knows_no_end_stays(
    home: Path, cleaner: Cleaner, state: ServiceState
) -> None:
    """Its row would be one of a launch that was lost."""
    folder = ended_launch(home, 1, 99)
    row = LaunchRow(
        launch_id=folder.launch_id, host="h", gpu="0", state="running", spec="{}", status="{}",
        asked_by="ci", request_hash="", created_at="", updated_at="", home="",
    )  # fmt: skip
    state.add_launch(row)
    (kept,) = cleaner.clean().kept
    assert "the service has not noticed" in kept.why
    state.update_launch(folder.launch_id, "finished", "{}")
    assert cleaner.clean().removed


def test_a_launch_whose_observations_cannot_be_kept_stays(home: Path, cleaner: Cleaner) -> None:
    """A line that is no observation may be all there is; others go all the same."""
    folder = ended_launch(home, 1, 99)
    (folder.path / OBSERVATIONS).write_text('{"no": "observation"}\n')
    ended_launch(home, 2, 98)
    done = cleaner.clean()
    assert [one.launch_id for one in done.removed] == [launch_id(2)]
    assert "cannot be read" in done.kept[0].why
    assert left(home) == [launch_id(1)]


def test_a_launch_whose_store_is_full_stays(
    home: Path, cleaner: Cleaner, store: Store, monkeypatch: pytest.MonkeyPatch
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
    done = cleaner.clean()
    assert ([one.launch_id for one in done.removed], [one.why for one in done.kept]) == (
        [launch_id(2)],
        ["the disk is full."],
    )


# folders that are not what they seem


def test_a_link_is_not_followed(home: Path, tmp_path: Path, cleaner: Cleaner) -> None:
    """Neither one in the place of a launch, nor one inside it, nor one of half a removal."""
    elsewhere = ended_launch(tmp_path / "other", 1, 99)
    (ended_launch(home, 2, 99).path / "0-b").symlink_to(elsewhere.path)
    (home / "launches" / launch_id(1)).symlink_to(elsewhere.path)
    (home / "launches" / ".half.removed").symlink_to(elsewhere.path)
    plan, done = cleaner.clean(dry_run=True), cleaner.clean()
    for found in (plan, done):
        assert [one.launch_id for one in found.removed] == [launch_id(2)]
    assert [(one.launch_id, one.why[:21]) for one in done.kept] == [
        (".half.removed", "it cannot be removed:")
    ]
    assert launch_id(1) in left(home)
    assert (elsewhere.path / OBSERVATIONS).exists()
    assert (elsewhere.path / "0-a/output.log").exists()


def test_an_observation_file_that_is_a_link_is_not_read(
    home: Path, tmp_path: Path, cleaner: Cleaner
) -> None:
    folder = ended_launch(home, 1, 99)
    (tmp_path / "secret").write_text("{}\n")
    (folder.path / OBSERVATIONS).unlink()
    (folder.path / OBSERVATIONS).symlink_to(tmp_path / "secret")
    (kept,) = cleaner.clean().kept
    assert "not a plain file" in kept.why


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be two users")
def test_a_root_of_another_user_is_refused(home: Path, cleaner: Cleaner) -> None:
    ended_launch(home, 1, 99)
    os.chown(home / "launches", MALLORY, MALLORY)
    with pytest.raises(UnsafeFileError, match="belongs to another user"):
        cleaner.clean()


# faults half way


def test_a_removal_that_was_killed_is_finished(
    home: Path, cleaner: Cleaner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launch is no longer listed before its first file goes; the next time removes the rest."""
    folder = ended_launch(home, 1, 99)
    with monkeypatch.context() as killed:
        killed.setattr("advisor.launch.folder.shutil.rmtree", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            remove(folder.path)
    half = home / "launches" / f".{folder.launch_id}.removed"
    assert (half.exists(), left(home)) == (True, [])
    done = cleaner.clean()
    assert (done.removed, done.kept, half.exists()) == ((), (), False)


def test_two_at_once_remove_each_launch_once(
    home: Path, cleaner: Cleaner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person and the service may clean at the same moment."""
    ended_launch(home, 1, 99)

    def late(folder: Path) -> None:
        remove(folder)
        remove(folder)

    monkeypatch.setattr("advisor_data.cleaning.remove", late)
    assert not cleaner.clean().kept
    assert left(home) == []


# the audit log


def test_old_entries_of_the_audit_log_go_and_that_is_in_it(state: ServiceState) -> None:
    for day in range(1, 6):
        at = f"2026-01-0{day}T12:00:00.000+00:00"
        state.audit(AuditEntry(at=at, who="ci", action="x", subject="y", outcome="done"))
    assert state.prune_audit_log("2026-01-03T12:00:00.000+00:00", "service") == 2
    newest, *others = state.audit_log()
    assert (newest.who, newest.action) == ("service", "audit.prune")
    assert newest.subject.startswith("2 entries before 2026-01-03")
    assert ([entry.at[:10] for entry in others], [entry.number for entry in others]) == (
        ["2026-01-05", "2026-01-04", "2026-01-03"],
        [5, 4, 3],
    )
    assert (
        state.prune_audit_log("2026-01-03T12:00:00.000+00:00", "service"),
        len(state.audit_log()),
    ) == (0, 4)
