"""Records as Parquet, CSV or JSON lines, to take away and to bring in."""

import csv
import dataclasses
import importlib
import io
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from advisor.core.records import (
    PARTS,
    SCHEMA_VERSION,
    UNCOUNTED_UNIT,
    Observation,
    PairPoint,
    Part,
    Record,
    SoloPoint,
    grouped,
)
from advisor.core.wording import listed
from advisor.errors import AdvisorError, InputError, StoreError, install, placed
from advisor.files import PUBLIC_FILE, read_whole, replace_file
from advisor.formats.rows import (
    JOBS,
    check_columns,
    checked,
    column_types,
    flat,
    from_row,
    json_row,
    kind_of,
    received,
    to_row,
)
from advisor.validity.points import why_no_profile
from advisor_data.bundled import bundled_solo_points
from advisor_data.lists import ProfileRow

_log = logging.getLogger(__name__)

# Names of files begin with these.
_KIND_NAMES: Mapping[type[Record], str] = {
    SoloPoint: "solo",
    PairPoint: "pair",
    Observation: "observation",
}

IDENTITY: Mapping[type[Record], tuple[str, ...]] = {
    SoloPoint: ("run", "job", "gpu_uuid", "share_percent", "started_at", "written_by"),
    PairPoint: (
        "run",
        "jobs.job",
        "gpu_uuid",
        "mode",
        "jobs.share_percent",
        "started_at",
        "written_by",
    ),
    Observation: ("launch_id", "jobs.job", "gpu_uuid", "started_at", "written_by"),
}
"""Columns that tell two measurements apart, `jobs.` those of each job; `point_id` is their hash."""

VERSION_KEY = b"advisor.schema_version"
KIND_KEY = b"advisor.kind"


def _encode_parquet(kind: type[Record], points: Sequence[Record]) -> bytes:
    """Points of one kind as the content of a Parquet file."""
    arrow, parquet = _load("pyarrow"), _load("pyarrow.parquet")
    fields = _fields(arrow, kind)
    if kind in PARTS:
        part = arrow.struct(_fields(arrow, PARTS[kind]))
        fields.insert(0, arrow.field(JOBS, arrow.list_(part), nullable=False))
    about = {VERSION_KEY: str(SCHEMA_VERSION), KIND_KEY: _KIND_NAMES[kind]}
    table = arrow.Table.from_pylist(
        [to_row(point) for point in points], schema=arrow.schema(fields, metadata=about)
    )
    sink = arrow.BufferOutputStream()
    parquet.write_table(table, sink, compression="zstd")
    return sink.getvalue().to_pybytes()


def _decode_parquet(data: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of a Parquet file, each with its place.

    Raises:
        InputError: no Parquet, or written by a newer version of advisor.
    """
    arrow, parquet = _load("pyarrow"), _load("pyarrow.parquet")
    with InputError.instead_of(
        (OSError, arrow.ArrowException), "not a Parquet file that can be read"
    ):
        # Not read_table, which starts the data set reader and its threads: 0.2 s for one file.
        file = parquet.ParquetFile(arrow.BufferReader(data))
        metadata: dict[bytes, bytes] = file.schema_arrow.metadata or {}
        version = metadata.get(VERSION_KEY, b"0")  # a file made elsewhere has none
        if not version.isdigit() or int(version) > SCHEMA_VERSION:
            raise InputError(
                f"has version {version.decode()} of the schema, not {SCHEMA_VERSION} or older",
                fix="upgrade advisor",
            )
        check_columns(file.schema_arrow.names)
        # A few kilobytes may stand for millions of rows: the count stops in time.
        batches = file.iter_batches(batch_size=1000, use_threads=False)
        rows = (row for batch in batches for row in batch.to_pylist())
        yield from ((f"row {number}", row) for number, row in enumerate(rows, start=1))


def _fields(arrow: Any, kind: type[Record] | type[Part]) -> list[Any]:
    types = {
        str: arrow.string(),
        float: arrow.float64(),
        int: arrow.int64(),
        bool: arrow.bool_(),
        tuple: arrow.list_(arrow.string()),
    }
    notes = {field.name: dict(field.metadata) for field in dataclasses.fields(kind)}
    return [
        arrow.field(name, types[value_type], nullable=optional, metadata=notes[name])
        for name, (value_type, optional) in column_types(kind).items()
    ]


def _load(name: str) -> Any:
    with InputError.instead_of(
        ImportError,
        "Parquet needs pyarrow, which is not installed",
        fix=f"{install('parquet')}, or use .csv or .jsonl",
    ):
        return importlib.import_module(name)


MOST_BYTES = 1 << 30
MOST_ROWS = 1_000_000
"""A file is read as a whole, and a point takes about a kilobyte."""


Encode = Callable[[type[Record], Sequence[Record]], bytes]
Decode = Callable[[bytes], Iterator[tuple[str, Mapping[str, Any]]]]

_QUOTE = "'"
# A spreadsheet runs a cell that begins so as a formula, and names of runs and units may come from
# anybody. A quote before it makes it text; one that is there already gets another.
_SPECIAL = ("=", "+", "-", "@", "\t", "\r", _QUOTE)


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
    kinds = {type(point) for point in ready} or {SoloPoint}
    if len(kinds) > 1:
        raise InputError(
            f"{path} was to hold points of several kinds",
            why="a file has the columns of one kind",
            fix="write a file for each kind",
        )
    data = encode(kinds.pop(), ready)
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
    first_by_id: dict[str, tuple[str, Record]] = {}
    with placed(str(path)):
        for number, (place, row) in enumerate(decode(_content(path))):
            if number >= MOST_ROWS:
                raise InputError(
                    f"has more than {MOST_ROWS:,} rows",
                    why="a file is taken in as a whole or not at all",
                    fix="write several smaller files",
                )
            with placed(place):
                point = received(from_row(kind_of(row), row))
                first_place, first = first_by_id.setdefault(point.point_id, (place, point))
                if first != point:
                    raise InputError(
                        f"the same measurement as {first_place}, with other values",
                        why=f"what tells points apart is {', '.join(IDENTITY[type(point)])}",
                        fix="give started_at its seconds, or remove one of the two",
                    )
    return [point for _, point in first_by_id.values()]


def _content(path: Path) -> bytes:
    with InputError.instead_of(OSError, "cannot be read"):
        data = read_whole(path, MOST_BYTES)
    last = data[data.rfind(b"\n") + 1 :]
    if path.suffix == ".jsonl" and last:
        try:
            json.loads(last)
        except (ValueError, RecursionError):
            _log.warning("%s: the last line was cut off by a crash and is left out", path)
            return data.removesuffix(last)
    return data


def _encode_csv(kind: type[Record], points: Sequence[Record]) -> bytes:
    text = io.StringIO(newline="")
    rows = [{**flat(to_row(point)), "flags": ";".join(point.flags)} for point in points]
    # Of points of two and of three jobs, those of two have no values for the third.
    numbered = max((list(row) for row in rows), key=len, default=list[str]())
    writer = csv.DictWriter(text, numbered or column_types(kind), lineterminator="\n")
    writer.writeheader()
    # Texts are such that no spreadsheet runs them; numbers stay as they are.
    writer.writerows(
        {
            name: _QUOTE + value if isinstance(value, str) and value.startswith(_SPECIAL) else value
            for name, value in row.items()
        }
        for row in rows
    )
    return text.getvalue().encode()


def _decode_csv(data: bytes) -> Iterator[tuple[str, dict[str, str]]]:
    with InputError.instead_of(UnicodeDecodeError, "not UTF-8", fix="save it as UTF-8"):
        text = data.decode("utf-8-sig")  # spreadsheets begin a file with a byte order mark
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = next(reader, list[str]())
        if not header:
            raise InputError("no header", fix="begin with a line of column names: docs/schema.md")
        if len(header) > 1000:
            raise InputError(
                f"{len(header):,} columns", why="no record has so many", fix="see docs/schema.md"
            )
        if twice := sorted({name for name in header if header.count(name) > 1}):
            raise InputError(f"column {', '.join(twice)} stands twice in the header")
        with placed(f"line {reader.line_num}"):
            check_columns(header)
        for values in filter(None, reader):
            line = f"line {reader.line_num}"
            if len(values) != len(header):
                raise InputError(f"{line} has {len(values)} values for {len(header)} columns")
            yield line, dict(zip(header, map(_from_cell, values), strict=True))
    except csv.Error as error:
        raise InputError(f"line {reader.line_num} is not CSV", why=str(error)) from error


def _decode_jsonl(data: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in enumerate(data.split(b"\n"), start=1):
        if line.strip():
            with placed(f"line {number}"):
                row = json_row(line)
            yield f"line {number}", row


_FORMATS: dict[str, tuple[Encode, Decode]] = {
    ".parquet": (_encode_parquet, _decode_parquet),
    ".csv": (_encode_csv, _decode_csv),
    ".jsonl": (
        lambda _, points: b"".join(json.dumps(to_row(p)).encode() + b"\n" for p in points),
        _decode_jsonl,
    ),
}


def _format(path: Path) -> tuple[Encode, Decode]:
    if path.suffix not in _FORMATS:
        raise InputError(
            f"{path} has no suffix that says what it holds", fix=f"name it {', '.join(_FORMATS)}"
        )
    return _FORMATS[path.suffix]


def _from_cell(cell: str) -> str:
    """What was written into a cell; one from elsewhere stays as it is."""
    return cell[1:] if cell.startswith(_QUOTE) and cell[1:].startswith(_SPECIAL) else cell


# A job and a GPU model.
_Key = tuple[str, str]


def check_import(points: Sequence[Record], stored: Iterable[ProfileRow] = ()) -> None:
    """Refuse points that would be wrong without a word, next to those stored of the same jobs.

    Raises:
        InputError: a share that is a fraction, or a second unit of the rates of one job.
    """
    for point in points:
        # A CU mask of one unit is less than 1 %; MPS takes whole percentages.
        if point.mode != "mps":
            continue
        for part in (point,) if isinstance(point, SoloPoint) else point.parts:
            if (share := part.share_percent) < 1:
                beside = "" if isinstance(point, SoloPoint) else f" in {' + '.join(point.jobs)}"
                raise InputError(
                    f"share_percent of {part.job}{beside} is {share:g}, less than 1 %",
                    why="shares are in percent, and this looks like a part of 1",
                    fix=f"write {100 * share:g}",
                )
    groups = grouped(_solo(points), _key)
    units = {key: {point.rate_unit for point in group} for key, group in groups.items()}
    for row in stored:
        units.setdefault((row.job, row.gpu_model), set()).update(row.rate_units)
    for (job, gpu_model), names in units.items():
        if len(names - {UNCOUNTED_UNIT}) > 1:
            raise InputError(
                f"rates of {job} on {gpu_model} are in {listed(sorted(names))}",
                why="rates of one job must share a unit",
                fix=f"convert them, or remove the stored ones: advisor data delete --job {job}",
            )


def import_notes(points: Iterable[Record], stored: Iterable[SoloPoint]) -> list[str]:
    """What the person who imported solo points should know of the profiles that they make.

    `stored` are all solo points of these jobs, with those.
    """
    groups, keys = grouped(stored, _key), dict.fromkeys(map(_key, _solo(points)))
    bundled = frozenset[_Key]()
    if keys:
        with suppress(AdvisorError):  # its files cannot be read
            bundled = frozenset(map(_key, bundled_solo_points()))
    return [
        f"{job} on {gpu_model}: {note}"
        for job, gpu_model in keys
        for note in _notes(groups[job, gpu_model], hides=(job, gpu_model) in bundled)
    ]


def _notes(points: Sequence[SoloPoint], *, hides: bool) -> Iterable[str]:
    if why := why_no_profile(points):
        yield f"no profile yet: {why}"
        return
    yield from (
        f"{column} is missing; {instead}"
        for column, instead in _STAND_INS.items()
        if all(getattr(point, column) is None for point in points)
    )
    if hides:
        yield "used from now on instead of the bundled profile; advisor data delete undoes that"


# Columns that a profile can do without, and what is done then.
_STAND_INS: Mapping[str, str] = {
    "idle_power_w": "that of other profiles is taken",
    "power_limit_w": "watts are compared with the most that was drawn",
    "memory_used_mib": "without it the memory left for other jobs is unknown",
}


def _key(point: SoloPoint) -> _Key:
    return point.job, point.gpu_model


def _solo(points: Iterable[Record]) -> Iterable[SoloPoint]:
    return (point for point in points if isinstance(point, SoloPoint))
