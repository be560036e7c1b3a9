"""Records as files of JSON lines, for nodes without SQLAlchemy; needs the standard library alone.

An outbox: records are added and read, and a database takes the files in (`advisor data import`).
"""

import fcntl
import functools
import json
import os
from collections import defaultdict
from collections.abc import Generator, Iterable, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

from advisor.core.records import Observation, Record, SoloPoint
from advisor.errors import InputError, StoreError
from advisor.files.safe_files import PRIVATE_FILE, make_folder
from advisor.files.whole_files import sync_folder
from advisor.formats.rows import P, from_row, to_row
from advisor_data.store.base import Store
from advisor_data.store.lines import json_row, warn_torn, whole_lines
from advisor_data.store.pages import Page, Span, page_of
from advisor_data.store.points import KIND_NAMES, checked, in_order
from advisor_data.store.profile_rows import ProfileRow, profile_rows


class FileStore(Store):
    """A folder with a `solo-<run>.jsonl` and a `pair-<run>.jsonl` per run.

    What launched jobs did is in one `observation-<month>.jsonl` per month.

    Every append is flushed to disk before `add` returns, so a killed process loses nothing that
    was added. Writers lock the file; a line that a crash cut off is left out when reading.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, points: Iterable[Record]) -> int:
        """Each file that is appended to is on disk before the next; see `Store`."""
        groups: defaultdict[Path, list[Record]] = defaultdict(list)
        for point in checked(points):
            groups[self._path(type(point), _group(point))].append(point)
        return sum(_append_new(path, group) for path, group in groups.items())

    def observation_page(self, job: str | None, span: Span) -> Page[Observation]:
        """Reads the files of all months; see `Store`."""
        return page_of((o for o in self.observations() if job is None or job in o.jobs), span)

    def profile_names(self, after: str = "", limit: int = 1000) -> list[str]:
        """Reads all solo points; see `Store`."""
        return sorted({p.job for p in self.solo_points() if p.job > after})[:limit]

    def profile_rows(self, first: str, last: str) -> list[ProfileRow]:
        """Reads all solo points, as files keep no list of them; see `Store`."""
        return profile_rows(p for p in self.solo_points() if first <= p.job <= last)

    def _page(self, kind: type[P], jobs: Sequence[str], span: Span) -> Page[P]:
        return page_of(self._points(kind, jobs), span)

    def _points(
        self,
        kind: type[P],
        jobs: Sequence[str] | None = None,
        gpu_model: str | None = None,
        run: str | None = None,
    ) -> list[P]:
        found = (point for path in self._paths(kind, run) for point in read_all(path, kind))
        return in_order(
            point
            for point in found
            if gpu_model in (None, point.gpu_model) and (jobs is None or _is_of(point, jobs))
        )

    def _paths(self, kind: type[Record], run: str | None) -> list[Path]:
        if not self.folder.exists():
            return []
        with _file_errors(self.folder):
            here = [p for p in self.folder.iterdir() if p.match(f"{KIND_NAMES[kind]}-*.jsonl")]
        return [path for path in sorted(here) if run is None or path == self._path(kind, run)]

    def _path(self, kind: type[Record], group: str) -> Path:
        return self.folder / f"{KIND_NAMES[kind]}-{quote(group, safe='')}.jsonl"


def _group(record: Record) -> str:
    if isinstance(record, Observation):
        return f"{datetime.fromisoformat(record.started_at):%Y-%m}"
    return record.run


def _is_of(record: Record, jobs: Sequence[str]) -> bool:
    names = (record.job,) if isinstance(record, SoloPoint) else record.jobs
    return names == tuple(sorted(jobs))


_warn_once = functools.cache(warn_torn)

_PARSED_LINES = 10_000
"""Lines that a process reads again, at each point that it adds to a long run, are parsed once."""


def _append_new(path: Path, points: Sequence[P]) -> int:
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


def _file_errors(path: Path) -> AbstractContextManager[None]:
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
    with _file_errors(path):
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
