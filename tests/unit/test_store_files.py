"""What only the store of JSON lines can do or suffer."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_points import point

from advisor.errors import StoreError
from advisor.rows import to_row
from advisor_data.file_store import FileStore

LINES = [json.dumps(to_row(point(number))).encode() + b"\n" for number in range(3)]


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "points")


@pytest.fixture
def file(store: FileStore) -> Path:
    store.folder.mkdir()
    return store.folder / "solo-r1.jsonl"


def test_a_torn_line_is_left_out_and_reported_once(
    store: FileStore, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A crash in the middle of a line costs that line and no other."""
    file.write_bytes(LINES[0] + LINES[1][:-20])
    assert store.solo_points() == store.solo_points() == [point(0)]
    assert [record.message for record in caplog.records] == [
        f"{file}: the last line was cut off by a crash and is left out"
    ]


@pytest.mark.parametrize("tail", [LINES[1][:-20], b"\0" * 40, b"{"])
def test_a_new_point_does_not_glue_onto_a_torn_line(
    store: FileStore, file: Path, tail: bytes
) -> None:
    """The next append replaces what a crash or a power cut left behind."""
    file.write_bytes(LINES[0] + tail)
    assert store.add([point(2)]) == 1
    assert file.read_bytes() == LINES[0] + LINES[2]


def test_a_whole_line_without_its_end_is_kept(store: FileStore, file: Path) -> None:
    """A file whose editor dropped the last line end loses nothing."""
    file.write_bytes(LINES[0] + LINES[1].rstrip())
    assert store.solo_points() == [point(0), point(1)]
    assert store.add([point(2)]) == 1
    assert file.read_bytes() == b"".join(LINES)


@settings(deadline=None)
@given(st.integers(0, sum(map(len, LINES))))
def test_a_file_cut_anywhere_can_be_completed(
    tmp_path_factory: pytest.TempPathFactory, length: int
) -> None:
    """Wherever a crash cuts the file, whole lines are read and adding again restores the rest."""
    store = FileStore(tmp_path_factory.mktemp("cut"))
    (store.folder / "solo-r1.jsonl").write_bytes(b"".join(LINES)[:length])
    points = [point(number) for number in range(3)]
    kept = store.solo_points()
    assert kept == points[: len(kept)]
    assert len(kept) >= b"".join(LINES)[:length].count(b"\n")
    assert store.add(points) == 3 - len(kept)
    assert store.solo_points() == points


@pytest.mark.parametrize("line", [b"{\n", b"[]\n", b'{"rate": 1}\n', b"\0\0\n"])
def test_damage_inside_a_file_is_named_and_left_alone(
    store: FileStore, file: Path, line: bytes
) -> None:
    """Neither reading nor adding passes over a line that no crash explains."""
    file.write_bytes(LINES[0] + line + LINES[1])
    before = file.read_bytes()
    with pytest.raises(StoreError, match=r"solo-r1\.jsonl is damaged in line 2"):
        store.solo_points()
    with pytest.raises(StoreError, match="line 2"):
        store.add([point(2)])
    assert file.read_bytes() == before


def test_a_full_disk_keeps_whole_lines(
    store: FileStore, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message counts what was kept, no torn line stays, and adding again completes it."""
    store.add([point(0)])
    space = len(LINES[0]) + 30

    def write(descriptor: int, data: bytes) -> int:
        nonlocal space
        if space == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken, space = data[:space], max(0, space - len(data))
        return real_write(descriptor, taken)

    real_write = os.write
    with monkeypatch.context() as full:
        full.setattr(os, "write", write)
        with pytest.raises(StoreError, match=r"took 1 of 2 points\. No space left") as caught:
            store.add([point(1), point(2)])
    assert "points already written are safe" in str(caught.value)
    assert file.read_bytes() == LINES[0] + LINES[1]
    assert store.add([point(1), point(2)]) == 1


def test_a_file_that_may_not_grow_keeps_whole_lines(store: FileStore, file: Path) -> None:
    """The same with a limit of the kernel, which cuts the write itself."""
    limit = len(LINES[0]) * 5 // 2
    script = (
        "import resource, sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\n"
        "from store_points import point\n"
        "from advisor_data.file_store import FileStore\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n"
        "FileStore(Path(sys.argv[2])).add(point(number) for number in range(3))\n"
    )
    command = [sys.executable, "-c", script, str(Path(__file__).parent), str(store.folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "took 2 of 3 points. File too large" in done.stderr
    assert file.read_bytes() == LINES[0] + LINES[1]


def test_points_that_did_not_reach_the_disk_are_not_claimed(
    store: FileStore, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`add` fails when the disk refuses the flush, and what was there before stays."""
    store.add([point(0)])

    def fsync(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as failing:
        failing.setattr(os, "fsync", fsync)
        with pytest.raises(StoreError, match="Input/output error"):
            store.add([point(1)])
    assert file.read_bytes() == LINES[0]


def test_a_run_cannot_leave_the_folder(store: FileStore) -> None:
    """Names of runs that look like paths are files of the folder like any other."""
    runs = ["../../up", "/etc/up", "..", "a b", "100%"]
    store.add(point(run=run) for run in runs)
    assert len(list(store.folder.iterdir())) == len(runs)
    assert [store.solo_points(run=run)[0].run for run in runs] == runs


def test_a_folder_that_cannot_be_used_is_a_store_error(tmp_path: Path) -> None:
    """The message names the path and the cause, for writing and for reading."""
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="Not a directory"):
        FileStore(tmp_path / "file").solo_points()
    with pytest.raises(StoreError, match="Not a directory"):
        FileStore(tmp_path / "file" / "points").add([point()])
