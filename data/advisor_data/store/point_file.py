"""One file of JSON lines with records of one kind; needs the standard library alone."""

import fcntl
import json
import os
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic

from advisor.core.observations import Record
from advisor.errors import InputError, StoreError
from advisor.files.safe_files import PRIVATE_FILE, make_folder
from advisor.files.whole_files import replace_file, sync_folder
from advisor.formats.rows import P, from_row, to_row
from advisor_data.store.lines import json_row, warn_torn, whole_lines

_TAIL_BYTES = 4096
"""How much of the known lines is compared with the file: some lines, so that moments differ."""


class PointFile(Generic[P]):
    """Points of one kind, one per line; several processes may add to the same file at once.

    Every append is flushed to disk before `add` returns. Writers lock the file. A line that was
    read or written by one `add` is not parsed again by the next.
    """

    def __init__(self, path: Path, kind: type[P]) -> None:
        self.path = path
        self._kind = kind
        self._known: _Known | None = None
        self._torn_reported = False

    def add(self, points: Sequence[P]) -> int:
        """Append the points that are not in the file yet.

        Returns:
            How many were new.

        Raises:
            StoreError: the file is damaged, or could not take all points.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
        with _locked(self.path, flags, fcntl.LOCK_EX) as descriptor:
            known = self._take_known(descriptor)
            data = _content(descriptor, known.size)
            stored, end = self._parse(data, known.lines)
            known.grow(data[:end], (point.point_id for point in stored))
            new = {p.point_id: p for p in points if p.point_id not in known.ids}
            lines = [json.dumps(to_row(point)).encode() + b"\n" for point in new.values()]
            if lines and known.size and not known.tail.endswith(b"\n"):
                lines[0] = b"\n" + lines[0]
            _append(descriptor, self.path, known.size, lines)
            known.grow(b"".join(lines), new)
            self._known = known
        return len(lines)

    def change(self, is_old: Callable[[P], bool], new: Sequence[P]) -> int:
        """Take points out and put others in, in one step: the file before or the one after stands.

        Returns:
            How many were taken out.

        Raises:
            StoreError: the file is damaged, or the new one could not be written.
        """
        flags = os.O_RDWR | (os.O_CREAT if new else 0)
        with _locked(self.path, flags, fcntl.LOCK_EX) as descriptor:
            stored, _ = self._parse(_content(descriptor, 0), 0)
            coming = {point.point_id for point in new}
            kept = [p for p in stored if p.point_id not in coming and not is_old(p)]
            if new or len(kept) < len(stored):
                self._known = None
                _replace(self.path, [*kept, *new])
        return sum(is_old(point) for point in stored)

    def read(self) -> list[P]:
        """All points, in the order in which they were added; a torn last line is left out.

        Raises:
            StoreError: the file is damaged, or cannot be read.
        """
        with _locked(self.path, os.O_RDONLY, fcntl.LOCK_SH) as descriptor:
            data = _content(descriptor, 0)
        points, end = self._parse(data, 0)
        if end < len(data) and not self._torn_reported:
            self._torn_reported = True
            warn_torn(self.path)
        return points

    def _take_known(self, descriptor: int) -> "_Known":
        """What is known of the file; forgotten here, lest an error or Ctrl-C leave it half true."""
        known, self._known = self._known, None
        return known if known and known.is_start_of(descriptor) else _Known(_inode(descriptor))

    def _parse(self, data: bytes, lines_before: int) -> tuple[list[P], int]:
        lines, end = whole_lines(data)
        return [self._point(lines_before + number, line) for number, line in lines], end

    def _point(self, number: int, line: bytes) -> P:
        try:
            return from_row(self._kind, json_row(line))
        except InputError as error:
            raise StoreError(
                f"{self.path} is damaged in line {number}",
                why=str(error),
                fix="repair that line, or move the file away; other files are not touched",
            ) from error


@dataclass(slots=True)
class _Known:
    """The lines with which a file begins, in bytes and in number, and the ids of their points."""

    inode: tuple[int, int]
    size: int = 0
    lines: int = 0
    tail: bytes = b""
    ids: set[str] = field(default_factory=set[str])

    def is_start_of(self, descriptor: int) -> bool:
        """Whether the file was not replaced, cut or rewritten since."""
        start = self.size - len(self.tail)
        return self.inode == _inode(descriptor) and self.tail == os.pread(
            descriptor, len(self.tail), start
        )

    def grow(self, text: bytes, ids: Iterable[str]) -> None:
        """Take in the text that follows, and the ids of its points."""
        self.size += len(text)
        self.lines += text.count(b"\n")
        self.tail = (self.tail + text)[-_TAIL_BYTES:]
        self.ids.update(ids)


def _append(descriptor: int, path: Path, start: int, lines: list[bytes]) -> None:
    """Write lines after byte `start`; on a full disk whole lines stay and the rest is cut."""
    kept = 0
    try:
        os.ftruncate(descriptor, start)
        for line in lines:
            _write_all(descriptor, line)
            kept += 1
        os.fsync(descriptor)
    except OSError as error:
        if kept == len(lines):  # written, but not known to be on disk
            kept = 0
        os.ftruncate(descriptor, start + sum(map(len, lines[:kept])))
        os.fsync(descriptor)
        raise StoreError(
            f"{path} took {kept} of {len(lines)} points",
            why=error.strerror or str(error),
            fix="free space and run again; points already written are safe",
        ) from error


def _replace(path: Path, points: Iterable[Record]) -> None:
    """Put a new file in the place of one whose lock is held."""
    replace_file(path, b"".join(json.dumps(to_row(p)).encode() + b"\n" for p in points))


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _content(descriptor: int, start: int) -> bytes:
    os.lseek(descriptor, start, os.SEEK_SET)
    return b"".join(iter(lambda: os.read(descriptor, 1 << 20), b""))


def _inode(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


@contextmanager
def _locked(path: Path, flags: int, lock: int) -> Generator[int]:
    with file_errors(path):
        if is_new := bool(flags & os.O_CREAT) and not path.exists():
            make_folder(path.parent)
        descriptor = _open_locked(path, flags, lock)
        try:
            if is_new:
                sync_folder(path.parent)
            yield descriptor
        finally:
            os.close(descriptor)


def _open_locked(path: Path, flags: int, lock: int) -> int:
    """Opens and locks the file that stands at `path`, not one that was replaced meanwhile."""
    while True:
        descriptor = os.open(path, flags, PRIVATE_FILE)
        try:
            fcntl.flock(descriptor, lock)
            status = path.stat()
            if (status.st_dev, status.st_ino) == _inode(descriptor):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


@contextmanager
def file_errors(path: Path) -> Generator[None]:
    """Turns what the system says of `path` into a StoreError."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"{path} cannot be used",
            why=error.strerror or str(error),
            fix="check that the folder is there and may be written, or give another store",
        ) from error
