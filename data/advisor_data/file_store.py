"""Points as append-only files of JSON lines, one file per run; needs the standard library alone."""

import fcntl
import json
import logging
import os
from collections import defaultdict
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, cast
from urllib.parse import quote

from advisor.errors import InputError, StoreError
from advisor.records import SoloPoint
from advisor.rows import solo_from_row, to_row
from advisor_data.points import checked, in_order

_log = logging.getLogger(__name__)


class FileStore:
    """A folder with one file `solo-<run>.jsonl` per run.

    Every append is flushed to disk before `add` returns, so a killed process loses nothing that
    was added. Writers lock the file; a line that a crash cut off is left out when reading.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._reported: set[Path] = set()

    def add(self, points: Iterable[SoloPoint]) -> int:
        """See `Store.add`."""
        by_run: defaultdict[str, list[SoloPoint]] = defaultdict(list)
        for point in checked(points):
            by_run[point.run].append(point)
        return sum(_add_to(self._path(run), group) for run, group in by_run.items())

    def solo_points(
        self, *, job: str | None = None, gpu_model: str | None = None, run: str | None = None
    ) -> list[SoloPoint]:
        """See `Store.solo_points`."""
        found = [p for path in self._paths(run) for p in self._read(path)]
        wanted = (p for p in found if job in (None, p.job) and gpu_model in (None, p.gpu_model))
        return in_order(wanted)

    def close(self) -> None:
        """Nothing is held between calls."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _path(self, run: str) -> Path:
        return self.folder / f"solo-{quote(run, safe='')}.jsonl"

    def _paths(self, run: str | None) -> list[Path]:
        if not self.folder.exists():
            return []
        with _file_errors(self.folder):
            here = [path for path in self.folder.iterdir() if path.match("solo-*.jsonl")]
        return [path for path in sorted(here) if run is None or path == self._path(run)]

    def _read(self, path: Path) -> list[SoloPoint]:
        with _locked(path, os.O_RDONLY, fcntl.LOCK_SH) as descriptor:
            data = _content(descriptor)
        points, end = _parse_stored(data, path)
        if end < len(data) and path not in self._reported:
            self._reported.add(path)
            warn_torn(path)
        return points


def whole_lines(data: bytes) -> tuple[list[tuple[int, bytes]], int]:
    """Numbered lines that are not empty, and how many bytes the whole lines take.

    Text after the last line end that is no JSON was cut off by a crash and is left out.
    """
    end = data.rfind(b"\n") + 1
    if _is_json(data[end:]):
        end = len(data)
    numbered = enumerate(data[:end].split(b"\n"), start=1)
    return [(number, line) for number, line in numbered if line.strip()], end


def json_row(line: bytes) -> dict[str, Any]:
    """The row that a line holds.

    Raises:
        InputError: the line is no JSON object.
    """
    try:
        row: Any = json.loads(line)
    except ValueError as error:
        raise InputError("no JSON", why=str(error), fix="repair the line") from error
    if not isinstance(row, dict):
        raise InputError("no JSON object", fix="see docs/schema.md")
    return cast("dict[str, Any]", row)


def warn_torn(path: Path) -> None:
    """Tells that the end of a file was left out."""
    _log.warning("%s: the last line was cut off by a crash and is left out", path)


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _parse_stored(data: bytes, path: Path) -> tuple[list[SoloPoint], int]:
    lines, end = whole_lines(data)
    return [_stored_point(path, number, line) for number, line in lines], end


def _stored_point(path: Path, number: int, line: bytes) -> SoloPoint:
    try:
        return solo_from_row(json_row(line))
    except InputError as error:
        raise StoreError(
            f"{path} is damaged in line {number}",
            why=str(error),
            fix="repair that line, or move the file away; other files are not touched",
        ) from error


def _add_to(path: Path, points: list[SoloPoint]) -> int:
    with _locked(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, fcntl.LOCK_EX) as descriptor:
        data = _content(descriptor)
        stored, end = _parse_stored(data, path)
        known = {point.point_id for point in stored}
        new = {p.point_id: p for p in points if p.point_id not in known}
        lines = [json.dumps(to_row(point)).encode() + b"\n" for point in new.values()]
        if lines and data[:end] and not data[:end].endswith(b"\n"):
            lines[0] = b"\n" + lines[0]
        _append(descriptor, path, end, lines)
    return len(lines)


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


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _content(descriptor: int) -> bytes:
    return b"".join(iter(lambda: os.read(descriptor, 1 << 20), b""))


@contextmanager
def _locked(path: Path, flags: int, lock: int) -> Generator[int]:
    with _file_errors(path):
        if is_new := bool(flags & os.O_CREAT) and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, flags, 0o666)
        try:
            fcntl.flock(descriptor, lock)
            if is_new:
                _sync_folder(path.parent)
            yield descriptor
        finally:
            os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    """Makes the name of a new file survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _file_errors(path: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"{path} cannot be used",
            why=error.strerror or str(error),
            fix="check that the folder is there and may be written, or give another store",
        ) from error
