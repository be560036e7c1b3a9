"""A file of JSON lines that only grows; needs the standard library alone."""

import fcntl
import functools
import json
import os
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from advisor.errors import InputError, StoreError
from advisor.files.safe_files import PRIVATE_FILE, make_folder
from advisor.files.whole_files import sync_folder
from advisor.formats.rows import P, from_row, to_row
from advisor_data.store.lines import json_row, warn_torn, whole_lines

_warn_once = functools.cache(warn_torn)

_PARSED_LINES = 10_000
"""Lines that a process reads again, at each point that it adds to a long run, are parsed once."""


def append_new(path: Path, points: Sequence[P]) -> int:
    """Append the points that are not in the file yet, and count them; several processes may do so.

    They are of one kind, as all in the file, which is made where there is none, and on disk when
    this returns. A last line that a crash cut off is taken away.

    Raises:
        StoreError: the file is damaged, or could not take the points: then it took none.
    """
    with _locked(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, fcntl.LOCK_EX) as descriptor:
        data = _content(descriptor)
        lines, end = whole_lines(data)
        known = {point.point_id for point in _points(path, type(points[0]), lines)}
        new = {p.point_id: p for p in points if p.point_id not in known}
        text = b"".join(json.dumps(to_row(point)).encode() + b"\n" for point in new.values())
        if text and end and not data[:end].endswith(b"\n"):
            text = b"\n" + text
        _append(descriptor, path, end, text)
    return len(new)


def read_all(path: Path, kind: type[P]) -> list[P]:
    """All points of a file, in the order in which they were added; a torn last line is left out.

    Raises:
        StoreError: the file is damaged, or cannot be read.
    """
    with _locked(path, os.O_RDONLY, fcntl.LOCK_SH) as descriptor:
        data = _content(descriptor)
    lines, end = whole_lines(data)
    if end < len(data):
        _warn_once(path)
    return _points(path, kind, lines)


def file_errors(path: Path) -> AbstractContextManager[None]:
    """Turns what the system says of `path` into a StoreError."""
    fix = "check that the folder is there and may be written, or give another store"
    return StoreError.instead_of(OSError, f"{path} cannot be used", fix=fix)


def _points(path: Path, kind: type[P], lines: Sequence[tuple[int, bytes]]) -> list[P]:
    return [_point(path, kind, number, line) for number, line in lines]


def _point(path: Path, kind: type[P], number: int, line: bytes) -> P:
    try:
        return _parsed(kind, line)
    except InputError as error:
        raise StoreError(
            f"{path} is damaged in line {number}",
            why=str(error),
            fix="repair that line, or move the file away; other files are not touched",
        ) from error


@functools.lru_cache(maxsize=_PARSED_LINES)
def _parsed(kind: type[P], line: bytes) -> P:
    return from_row(kind, json_row(line))


def _append(descriptor: int, path: Path, end: int, text: bytes) -> None:
    """Write behind the whole lines: all of it, or nothing where the disk is full."""
    try:
        os.ftruncate(descriptor, end)
        rest = text
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    except OSError as error:
        os.ftruncate(descriptor, end)
        raise StoreError(
            f"{path} could not take the points",
            why=error.strerror or str(error),
            fix="free space and run again; points already written are safe",
        ) from error


def _content(descriptor: int) -> bytes:
    return b"".join(iter(lambda: os.read(descriptor, 1 << 20), b""))


@contextmanager
def _locked(path: Path, flags: int, lock: int) -> Generator[int]:
    with file_errors(path):
        if is_new := bool(flags & os.O_CREAT) and not path.exists():
            make_folder(path.parent)
        descriptor = os.open(path, flags, PRIVATE_FILE)
        try:
            fcntl.flock(descriptor, lock)
            if is_new:
                sync_folder(path.parent)
            yield descriptor
        finally:
            os.close(descriptor)
