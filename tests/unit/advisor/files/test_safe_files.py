"""Folders and files that other users of the host must have no hand in."""

import ctypes
import os
import re
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from other_user import MALLORY, as_user, mallory_does, shared_folder

from advisor import files
from advisor.errors import UnsafeFileError
from advisor.files import (
    PUBLIC_FILE,
    check_parents,
    holders,
    open_file,
    private_file,
    private_folder,
    read_ours,
    read_whole,
    replace_file,
    try_lock,
    writing_private,
)

OURS = re.compile(r"advisor\.db|launches")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("loose_umask")
def test_what_is_made_is_ours_alone(tmp_path: Path) -> None:
    """Whatever the umask, and with all that is missing above."""
    folder = private_folder(tmp_path / "a/b", "c", "d")
    assert folder == tmp_path / "a/b/c/d"
    for path in (tmp_path / "a", tmp_path / "a/b", folder.parent, folder):
        assert mode(path) == 0o700
    private_file(folder / "database")
    with writing_private(folder / "log") as file:
        file.write(b"text")
    assert mode(folder / "database") == mode(folder / "log") == 0o600


@pytest.mark.parametrize(
    ("open_mode", "content"), [(0o755, "somebody's.txt"), (0o1777, "advisor.db"), (0o777, None)]
)
def test_a_folder_that_may_be_there_for_others_stays_open(
    tmp_path: Path, open_mode: int, content: str | None
) -> None:
    """/tmp or /var/lib as a home, by mistake: closed by root, it would take the host down."""
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(open_mode)
    if content:
        (home / content).touch()
    with pytest.raises(UnsafeFileError, match=f"may be there for them.*chmod 0700 {home}"):
        private_folder(home, "launches", ours=OURS)
    assert mode(home) == open_mode & 0o777 | open_mode & 0o1000
    assert not (home / "launches").exists()


def test_a_link_of_our_own_stands_for_its_target(tmp_path: Path) -> None:
    """A home on another disk."""
    (tmp_path / "disk").mkdir(mode=0o755)
    (tmp_path / "home").symlink_to(tmp_path / "disk")
    assert private_folder(tmp_path / "home", ours=OURS) == tmp_path / "disk"
    assert mode(tmp_path / "disk") == 0o700


@pytest.mark.parametrize("kind", ["link", "dangling", "second name", "fifo", "folder"])
def test_only_plain_files_are_opened(tmp_path: Path, kind: str) -> None:
    """A trap is refused at once, and what it leads to is as it was."""
    precious, trap = tmp_path / "notes.txt", tmp_path / "trap"
    precious.write_text("precious")
    makers: dict[str, Callable[[], None]] = {
        "link": lambda: trap.symlink_to(precious),
        "dangling": lambda: trap.symlink_to(tmp_path / "nothing"),
        "second name": lambda: trap.hardlink_to(precious),
        "fifo": lambda: os.mkfifo(trap),
        "folder": trap.mkdir,
    }
    makers[kind]()
    for flags in (os.O_RDONLY, os.O_RDWR | os.O_CREAT):
        with pytest.raises(UnsafeFileError, match="trap is not a plain file"):
            open_file(trap, flags)
    assert precious.read_text() == "precious"
    assert not (tmp_path / "nothing").exists()


def test_a_file_in_the_place_of_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    with pytest.raises(UnsafeFileError, match="home is not a folder"):
        private_folder(tmp_path / "home")


def test_an_open_file_is_emptied_only_after_it_was_looked_at(tmp_path: Path) -> None:
    """`w` empties, `a` and `r+` do not; none of them follows a link."""
    path = tmp_path / "log"
    path.write_text("old")
    with writing_private(path, "ab") as file:
        file.write(b"+new")
    with writing_private(path, "r+") as file:
        assert file.read() == "old+new"
    with writing_private(path) as file:
        file.write(b"!")
    assert path.read_text() == "!"


# two users


def test_a_folder_of_another_user_is_refused() -> None:
    """Anyone who made it can look at, and change, all that is put into it."""
    with shared_folder() as shared:
        mallory_does("mkdir", "-m", "0777", shared / "advisor-0")
        with pytest.raises(
            UnsafeFileError, match=f"another user.*user {MALLORY} and has mode 0777"
        ):
            private_folder(shared / "advisor-0", "mps")
        assert list((shared / "advisor-0").iterdir()) == []


def test_a_link_of_another_user_is_refused() -> None:
    """Even to a folder of our own, which would be filled, and its mode changed."""
    with shared_folder() as shared:
        (shared / "ours").mkdir(mode=0o755)
        (shared / "ours/notes").write_text("precious")
        mallory_does("ln", "-s", shared / "ours", shared / "advisor-0")
        with pytest.raises(UnsafeFileError, match="another user's link"):
            private_folder(shared / "advisor-0")
        mallory_does("ln", "-s", shared / "ours/notes", shared / "advisor.db")
        with pytest.raises(UnsafeFileError, match="not a plain file"):
            private_file(shared / "advisor.db")
        assert (mode(shared / "ours"), (shared / "ours/notes").read_text()) == (0o755, "precious")


def test_a_file_of_another_user_is_no_database_of_ours() -> None:
    with shared_folder() as shared:
        mallory_does("touch", shared / "advisor.db")
        with pytest.raises(UnsafeFileError, match="belongs to another user"):
            private_file(shared / "advisor.db")


def test_a_private_folder_says_who_may_enter() -> None:
    """The other user reads whose it is, not a traceback of the system."""
    with shared_folder() as shared:
        private_folder(shared / "home")
        said = as_user(MALLORY, lambda: private_folder(shared / "home"))
        assert "belongs to another user" in str(said)


def test_a_folder_above_that_others_may_change_is_refused() -> None:
    """They would rename ours and put theirs in its place."""
    with shared_folder() as shared:
        check_parents(shared / "x/locks")
        mallory_does("mkdir", shared / "hers")
        with pytest.raises(UnsafeFileError, match="hers, in which other users may replace it"):
            check_parents(shared / "hers/locks")
        shared.chmod(0o777)
        with pytest.raises(UnsafeFileError, match="user 0 and has mode 0777"):
            check_parents(shared / "locks")


def test_the_root_of_the_host_is_trusted_in_a_container_without_root() -> None:
    """There / and /tmp belong to a number that stands for nobody in particular."""

    def in_a_namespace() -> str:
        library = ctypes.CDLL(None)
        library.prctl(4, 1)  # PR_SET_DUMPABLE: what is ours in /proc stays ours
        if library.unshare(0x10000000):  # CLONE_NEWUSER
            return "not allowed"
        Path("/proc/self/uid_map").write_text(f"1000 {MALLORY} 1")
        assert (os.geteuid(), Path("/tmp").stat().st_uid) == (1000, 65534)
        check_parents(Path("/tmp/advisor-1000/locks"))
        return "trusted"

    with shared_folder():
        said = as_user(MALLORY, in_a_namespace)
    if said == "not allowed":
        pytest.skip("user namespaces are off")
    assert said == "trusted"


# files that are there whole or not at all


def test_a_file_is_replaced_and_its_mode_is_as_asked(tmp_path: Path) -> None:
    """The old content is gone, no draft is left, and the umask takes its part."""
    before = os.umask(0o022)
    try:
        for mode, seen in ((PUBLIC_FILE, 0o644), (0o600, 0o600)):
            assert replace_file(tmp_path / "file", b"new", mode).read_bytes() == b"new"
            assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == seen
    finally:
        os.umask(before)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_file_and_name_are_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """First the content, then the name: a power cut leaves the old file or the new one."""
    steps: list[str] = []
    rename = Path.replace

    def fsync(descriptor: int) -> None:
        steps.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "content")

    def replace(path: Path, target: Path) -> Path:
        steps.append("name")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    for durable in (True, False):
        replace_file(tmp_path / "file", b"data", durable=durable)
    assert steps == ["content", "name", "folder", "name"]


def test_a_file_is_whole_between_threads(tmp_path: Path) -> None:
    """Threads that write and read one name meet in no draft, and leave none behind."""
    file, values = tmp_path / "file", [bytes([n]) * 50_000 for n in range(4)]
    replace_file(file, values[0])

    def write_and_read(value: bytes) -> bool:
        for _ in range(50):
            replace_file(file, value, durable=False)
            if file.read_bytes() not in values:
                return False
        return True

    with ThreadPoolExecutor(len(values)) as pool:
        assert all(pool.map(write_and_read, values))
    assert [*tmp_path.iterdir()] == [file]


def test_a_read_has_an_end(tmp_path: Path) -> None:
    """Nothing waits for a FIFO, and nothing larger than meant is read."""
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(OSError, match="not a regular file"):
        read_whole(tmp_path / "fifo", 10)
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(OSError, match="larger than 10 bytes"):
        read_whole(tmp_path / "sparse", 10)
    (tmp_path / "ten").write_text("0123456789")
    assert read_whole(tmp_path / "ten", 10) == b"0123456789"


@pytest.mark.parametrize("trap", ["fifo", "link", "folder", "theirs", "large"])
def test_a_record_is_a_file_of_ours(
    tmp_path: Path, trap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a job puts in its place is no record, and is not waited for."""
    path = tmp_path / "record"
    if trap == "fifo":
        os.mkfifo(path)
    elif trap == "link":
        path.symlink_to("/proc/self/status")
    elif trap == "folder":
        path.mkdir()
    else:
        path.write_bytes(bytes(11))
        user = os.geteuid() + (trap == "theirs")
        monkeypatch.setattr(os, "geteuid", lambda: user)
    opened = [*Path("/proc/self/fd").iterdir()]
    with pytest.raises(OSError, match=r"regular file|symbolic|larger than 10"):
        read_ours(path, 10)
    assert [*Path("/proc/self/fd").iterdir()] == opened


# locks on files


def test_one_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    with path.open() as second:
        with path.open() as first:
            assert try_lock(first)
            assert not try_lock(second)
        assert try_lock(second)


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="the kernel names no holders")
def test_holder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lock"
    path.touch()
    with path.open() as held, path.open() as looking:
        assert holders(looking) == []
        assert try_lock(held)
        assert holders(looking) == [os.getpid()]
        monkeypatch.setattr(files, "_LOCKS", tmp_path / "missing")
        assert holders(looking) == []
