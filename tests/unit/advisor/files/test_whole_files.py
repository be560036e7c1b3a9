"""Files that are there whole or not at all."""

import os
import stat
from pathlib import Path

import pytest

from advisor.files import PUBLIC_FILE, read_whole, replace_file


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
        folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        steps.append("folder" if folder else "content")

    def replace(path: Path, target: Path) -> Path:
        steps.append("name")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    replace_file(tmp_path / "file", b"data")
    assert steps == ["content", "name", "folder"]
    steps.clear()
    replace_file(tmp_path / "file", b"data", durable=False)
    assert steps == ["name"]


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_file(tmp_path / "file", b"old")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        replace_file(tmp_path / "file", b"new")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"file": b"old"}


def test_a_link_in_the_place_of_the_draft_is_not_followed(tmp_path: Path) -> None:
    """Somebody who knows the name of the draft cannot have us write elsewhere."""
    (tmp_path / "other").write_bytes(b"theirs")
    (tmp_path / f".file.{os.getpid()}.part").symlink_to(tmp_path / "other")
    replace_file(tmp_path / "file", b"ours")
    assert (tmp_path / "other").read_bytes() == b"theirs"
    assert (tmp_path / "file").read_bytes() == b"ours"


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
