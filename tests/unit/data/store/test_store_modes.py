"""Databases, journals and copies are for their owner alone, whatever the umask."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from other_user import mallory_does, shared_folder
from store_points import point

from advisor.errors import UnsafeFileError
from advisor.formats.moments import now
from advisor_data import open_store
from advisor_data.backup import back_up, restore
from advisor_data.state import AuditEntry, open_service_state

pytestmark = pytest.mark.usefixtures("loose_umask")


def modes(folder: Path) -> dict[str, int]:
    found = [folder, *folder.rglob("*")]
    return {path.name: path.stat().st_mode & 0o777 for path in found}


def opened(home: Path) -> set[str]:
    return {name for name, mode in modes(home).items() if mode & 0o077}


def test_a_new_home_is_ours_alone(tmp_path: Path) -> None:
    """With its write-ahead log, which has the same secrets."""
    with open_store(None, tmp_path / "home") as store, open_service_state(None, tmp_path / "home"):
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
        with open_service_state(None, home) as state:
            state.make_token("ci", ["read"])
            assert len(store.solo_points()) == 1
        assert opened(home) == set()


def test_a_database_elsewhere_is_closed_and_its_folder_left_alone(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    with open_store(f"sqlite:///{tmp_path}/shared/points.db", tmp_path) as store:
        store.add([point(1)])
        assert opened(tmp_path / "shared") == {"shared"}


def test_a_copy_and_what_is_restored_are_ours_alone(tmp_path: Path) -> None:
    with open_service_state(None, tmp_path / "home") as state:
        state.audit(AuditEntry(at=now(), who="ci", action="a", subject="s", outcome="ok"))
    back_up(None, tmp_path / "home", tmp_path / "copy.db")
    restore(None, tmp_path / "new", tmp_path / "copy.db")
    assert opened(tmp_path / "new") == set()
    assert modes(tmp_path)["copy.db"] == 0o600


def test_a_home_of_another_user_is_refused() -> None:
    """She may read what is put there, whatever its mode: the folder is hers."""
    with shared_folder() as shared:
        mallory_does("mkdir", "-m", "0777", shared / "home")
        with pytest.raises(UnsafeFileError, match="another user"):
            open_store(None, shared / "home")
        mallory_does("touch", shared / "points.db")
        with pytest.raises(UnsafeFileError, match="another user"):
            open_store(f"sqlite:///{shared}/points.db", shared)
        mallory_does("ln", "-s", shared / "home/x", shared / "linked.db")
        with pytest.raises(UnsafeFileError, match="plain file"):
            open_store(f"sqlite:///{shared}/linked.db", shared)


WRITE = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('BEGIN IMMEDIATE')"


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
