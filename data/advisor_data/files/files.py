"""Records as Parquet, CSV or JSON lines, to take away and to bring in."""

import csv
import io
import json
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from advisor.core.records import Record, SoloPoint
from advisor.errors import InputError, StoreError
from advisor.files.whole_files import PUBLIC_FILE, read_whole, replace_file
from advisor.formats.flat_rows import flat
from advisor.formats.rows import check_columns, column_types, received, record_from_row, to_row
from advisor_data.files import parquet
from advisor_data.store.lines import json_row, warn_torn, whole_lines
from advisor_data.store.points import IDENTITY, checked

MOST_BYTES = 1 << 30
MOST_ROWS = 1_000_000
"""A file is read as a whole, and a point takes about a kilobyte."""

_MOST_COLUMNS = 1000
"""Of CSV; seven jobs have some 150."""

Encode = Callable[[type[Record], Sequence[Record]], bytes]
Decode = Callable[[bytes], Iterator[tuple[str, Mapping[str, Any]]]]

_QUOTE = "'"
_SPECIAL = ("=", "+", "-", "@", "\t", "\r", _QUOTE)
"""A spreadsheet runs a cell that begins so as a formula, and names of runs and units may come from
anybody. A quote before it makes it text; one that is there already gets another."""


def write_points(path: Path, points: Iterable[Record]) -> None:
    """Write points of one kind, in the format that the suffix names: .parquet, .csv or .jsonl.

    What stood at `path` is replaced when the new file is whole and on disk, not before. Without
    points it is a file of solo points.

    Raises:
        InputError: another suffix, points of several kinds, or a point that could not be read back.
        StoreError: the file cannot be written.
    """
    encode, _ = _format(path)
    ready = checked(points)
    data = encode(_only_kind(path, ready), ready)
    with StoreError.instead_of(
        OSError,
        f"{path} cannot be written",
        fix="free space or give another place; what stood there is unchanged",
    ):
        replace_file(path, data, PUBLIC_FILE)


def read_points(path: Path) -> list[Record]:
    """All points of a .parquet, .csv or .jsonl file, or none where one of its rows is bad.

    Rows with a column `launch_id` are observations, others with `jobs` or `job_1` pair points,
    others solo points.

    Raises:
        InputError: the file cannot be read, or a row, named by its number and column, is bad.
    """
    _, decode = _format(path)
    seen: dict[str, tuple[str, Record]] = {}
    with _at(str(path)):
        for number, (place, row) in enumerate(decode(_content(path))):
            _check_rows(number + 1)
            with _at(place):
                point = received(record_from_row(row))
                first_place, first = seen.setdefault(point.point_id, (place, point))
                _check_same(first_place, first, point)
    return [point for _, point in seen.values()]


def _only_kind(path: Path, points: Sequence[Record]) -> type[Record]:
    kinds = {type(point) for point in points} or {SoloPoint}
    if len(kinds) > 1:
        raise InputError(
            f"{path} was to hold points of several kinds",
            why="a file has the columns of one kind",
            fix="write a file for each kind",
        )
    return kinds.pop()


def _content(path: Path) -> bytes:
    with InputError.instead_of(OSError, "cannot be read"):
        data = read_whole(path, MOST_BYTES)
    if path.suffix == ".jsonl" and whole_lines(data)[1] < len(data):
        warn_torn(path)
    return data


def _check_rows(rows: int) -> None:
    if rows > MOST_ROWS:
        raise InputError(
            f"has more than {MOST_ROWS:,} rows",
            why="a file is taken in as a whole or not at all",
            fix="write several smaller files",
        )


def _check_same(first_place: str, first: Record, point: Record) -> None:
    if first != point:
        raise InputError(
            f"the same measurement as {first_place}, with other values",
            why=f"what tells points apart is {', '.join(IDENTITY[type(point)])}",
            fix="give started_at its seconds, or remove one of the two",
        )


def _encode_csv(kind: type[Record], points: Sequence[Record]) -> bytes:
    text = io.StringIO(newline="")
    rows = [{**flat(to_row(point)), "flags": ";".join(point.flags)} for point in points]
    # Of points of two and of three jobs, those of two have no values for the third.
    numbered = max((list(row) for row in rows), key=len, default=list[str]())
    writer = csv.DictWriter(text, numbered or column_types(kind), lineterminator="\n")
    writer.writeheader()
    writer.writerows(map(_to_cells, rows))
    return text.getvalue().encode()


def _decode_csv(data: bytes) -> Iterator[tuple[str, dict[str, str]]]:
    try:
        text = data.decode("utf-8-sig")  # spreadsheets begin a file with a byte order mark
    except UnicodeDecodeError as error:
        raise InputError("not UTF-8", why=str(error), fix="save it as UTF-8") from error
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = next(reader, list[str]())
        _check_header(header)
        with _at(f"line {reader.line_num}"):
            check_columns(header)
        for values in filter(None, reader):
            yield f"line {reader.line_num}", _csv_row(header, values, reader.line_num)
    except csv.Error as error:
        raise InputError(f"line {reader.line_num} is not CSV", why=str(error)) from error


def _check_header(header: list[str]) -> None:
    if not header:
        raise InputError("no header", fix="begin with a line of column names: docs/schema.md")
    if len(header) > _MOST_COLUMNS:
        raise InputError(
            f"{len(header):,} columns", why="no record has so many", fix="see docs/schema.md"
        )
    if twice := sorted({name for name in header if header.count(name) > 1}):
        raise InputError(f"column {', '.join(twice)} stands twice in the header")


def _csv_row(header: list[str], values: list[str], line: int) -> dict[str, str]:
    if len(values) != len(header):
        raise InputError(f"line {line} has {len(values)} values for {len(header)} columns")
    return dict(zip(header, map(_from_cell, values), strict=True))


def _encode_jsonl(_kind: type[Record], points: Sequence[Record]) -> bytes:
    return b"".join(json.dumps(to_row(point)).encode() + b"\n" for point in points)


def _decode_jsonl(data: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in whole_lines(data)[0]:
        with _at(f"line {number}"):
            row = json_row(line)
        yield f"line {number}", row


_FORMATS: dict[str, tuple[Encode, Decode]] = {
    ".parquet": (parquet.encode, parquet.decode),
    ".csv": (_encode_csv, _decode_csv),
    ".jsonl": (_encode_jsonl, _decode_jsonl),
}


def _format(path: Path) -> tuple[Encode, Decode]:
    if path.suffix not in _FORMATS:
        raise InputError(
            f"{path} has no suffix that says what it holds", fix=f"name it {', '.join(_FORMATS)}"
        )
    return _FORMATS[path.suffix]


@contextmanager
def _at(place: str) -> Generator[None]:
    try:
        yield
    except InputError as error:
        raise InputError(f"{place}: {error.what}", why=error.why, fix=error.fix) from error


def _to_cells(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row whose texts no spreadsheet runs; numbers stay as they are."""
    return {
        name: _quoted(value) if isinstance(value, str) else value for name, value in row.items()
    }


def _from_cell(cell: str) -> str:
    """What was written into a cell; one from elsewhere stays as it is."""
    quoted = cell.startswith(_QUOTE) and cell[1:].startswith(_SPECIAL)
    return cell[1:] if quoted else cell


def _quoted(cell: str) -> str:
    return _QUOTE + cell if cell.startswith(_SPECIAL) else cell
