"""Records as plain values, as files, requests and databases carry them, and back, checked."""

import dataclasses
import functools
import json
import math
import types
from collections.abc import Callable, Iterable, Mapping, Set
from datetime import UTC, datetime
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from advisor.core.gpu import ADVISED_JOBS, MOST_JOBS
from advisor.core.job import Verdict
from advisor.core.records import (
    OBSERVATION_WORDS,
    PARTS,
    Observation,
    PairPoint,
    Part,
    Record,
    SoloPoint,
)
from advisor.errors import InputError, placed
from advisor.formats.moments import is_utc, moment_fault
from advisor.wire.answers import column as with_word

# The list of parts in a row that is not flat.
JOBS = "jobs"

# A column that a flat row of several jobs has.
FIRST_JOB = "job_1"

_COLUMNS = frozenset(f.name for kind in PARTS.values() for f in dataclasses.fields(kind))


def flat_name(column: str, number: int) -> str:
    """The column of one job's part, such as `share_1_percent` for `share_percent`."""
    return with_word(column, str(number))


def flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with numbered columns instead of its list of jobs; one without jobs as it is."""
    numbered = {
        flat_name(name, number): value
        for number, part in enumerate(row.get(JOBS, ()), start=1)
        for name, value in part.items()
    }
    return {**numbered, **{name: value for name, value in row.items() if name != JOBS}}


def _nested(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row with a list of jobs; the opposite of `flat`.

    A job without any value is none: files have columns for the most jobs of all rows.
    """
    if JOBS in row or FIRST_JOB not in row:
        return row
    rest: dict[str, Any] = {}
    parts: dict[int, dict[str, Any]] = {}
    for name, value in row.items():
        if (place := part_column(name)) is None:
            rest[name] = value
        elif not _is_empty(value):
            parts.setdefault(place[0], {})[place[1]] = value
    return {JOBS: [part for _, part in sorted(parts.items())], **rest}


@functools.lru_cache(maxsize=1000)
def part_column(name: str) -> tuple[int, str] | None:
    """Whose column a flat one is, from 0, and which: `(0, "rate")` for `rate_1`; None: no job's."""
    words = name.split("_")
    for number, word in enumerate(words):
        column = "_".join(words[:number] + words[number + 1 :])
        is_number = word.isascii() and word.isdecimal() and word[0] != "0"
        if is_number and with_word(column, word) == name:
            return (int(word) - 1, column) if column in _COLUMNS else None
    return None


def _is_empty(value: Any) -> bool:
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))


P = TypeVar("P", bound=Record)


def to_row(point: Record) -> dict[str, Any]:
    """The point as plain JSON values: `flags` is a list, and so are its parts, named `jobs`."""
    jobs = {} if isinstance(point, SoloPoint) else {JOBS: [_plain(part) for part in point.parts]}
    return {**jobs, **_plain(point), "flags": list(point.flags)}


def check_columns(names: Iterable[str]) -> None:
    """Refuse the columns of a file that no record has: it may have no row that would say so.

    Raises:
        InputError: said so.
    """
    row = dict.fromkeys(names)
    _check_columns(kind_of(row), _nested(row).keys() - {JOBS})


def kind_of(row: Mapping[str, Any]) -> type[Record]:
    """The kind of record that the columns tell.

    A row with `launch_id` is an observation, another one with `jobs` or numbered jobs a pair.
    """
    if "launch_id" in row:
        return Observation
    return PairPoint if JOBS in row or FIRST_JOB in row else SoloPoint


@functools.cache
def column_types(kind: type[Record] | type[Part]) -> dict[str, tuple[type, bool]]:
    """Type of each column's values, in order, and whether a column may be without a value.

    The parts of a record are no column: theirs are those of `PARTS[kind]`.
    """
    return {
        name: (next(a for a in get_args(hint) if a is not types.NoneType), True)
        if isinstance(hint, types.UnionType)
        else (get_origin(hint) or hint, False)
        for name, hint in get_type_hints(kind).items()
        if name != "parts"
    }


def from_row(kind: type[P], row: Mapping[str, Any]) -> P:
    """A record of `kind` from plain values, as files, requests and databases bring them.

    NaN and empty strings mean "not available". `flags` may be a list or a string with ";". The jobs
    of a pair or an observation may come in any order, in a list `jobs` or in numbered columns
    (`advisor.formats.rows`).

    Raises:
        InputError: an unknown or missing column, a wrong type, or a value out of range.
    """
    if kind not in PARTS:
        return kind(**_values(kind, row))
    plain = dict(_nested(row))
    jobs = plain.pop(JOBS, None)
    point = cast("Any", kind)(**_values(kind, plain), parts=_parts(PARTS[kind], jobs))
    if kind is Observation:
        for name, words in OBSERVATION_WORDS.items():
            if (word := getattr(point, name)) not in words:
                raise InputError(f"{name} is {word!r}", fix=f"one of {', '.join(words)}")
    return point


def checked(points: Iterable[P]) -> list[P]:
    """The points as they will be read back.

    Raises:
        InputError: a point that could be written but not read, such as one with a negative rate.
    """
    return [from_row(type(point), to_row(point)) for point in points]


def json_row(line: bytes) -> dict[str, Any]:
    """The row that a line of JSON holds.

    Raises:
        InputError: the line is not a JSON object.
    """
    with InputError.instead_of((ValueError, RecursionError), "no JSON", fix="repair the line"):
        row: Any = json.loads(line)
    if not isinstance(row, dict):
        raise InputError("no JSON object", fix="see docs/schema.md")
    return cast("dict[str, Any]", row)


_LONGEST_S = 366 * 86400.0


def received(point: P) -> P:
    """A record that was sent, if it can be used.

    One of a moment that has not come would be the newest forever. What is stored already is read
    whatever it says.

    Raises:
        InputError: its moment has not come, it is of more than `MOST_JOBS`, or its window is empty
            or longer than a year.
    """
    jobs = 1 if isinstance(point, SoloPoint) else len(point.parts)
    if jobs > MOST_JOBS:
        raise InputError(f"{jobs} jobs ran together", fix=f"send sets of at most {MOST_JOBS} jobs")
    # Jobs of a launch that ended at once never ran together, nor did those of a pair that failed.
    is_observation = isinstance(point, Observation)
    length_s = point.overlap_s if is_observation else point.window_s
    if length_s > _LONGEST_S or not (length_s or is_observation or "failed" in point.flags):
        raise InputError(
            f"{'overlap_s' if is_observation else 'window_s'} is {length_s:g}",
            fix="give the seconds that were measured, a year at most",
        )
    if fault := moment_fault(point.started_at, datetime.now(UTC)):
        raise InputError(fault, fix="write it as 2026-01-31T12:00:00+00:00")
    return point


def _plain(record: Record | Part) -> dict[str, Any]:
    return {name: getattr(record, name) for name in column_types(type(record))}


def _parts(kind: type[Part], jobs: Any) -> tuple[Part, ...]:
    if not isinstance(jobs, list) or len(cast("list[Any]", jobs)) < ADVISED_JOBS:
        raise InputError(
            "jobs is not a list of two jobs or more",
            fix='write "jobs": [{"job": ..., "share_percent": ...}, ...], or in a flat format '
            "job_1, share_1_percent, job_2, share_2_percent: docs/schema.md",
        )
    return tuple(_part(kind, n, job) for n, job in enumerate(cast("list[Any]", jobs), start=1))


def _part(kind: type[Part], number: int, row: Any) -> Part:
    with placed(f"job {number} of the row"):
        if not isinstance(row, Mapping):
            raise InputError("is not an object", fix="see docs/schema.md")
        return kind(**_values(kind, cast("Mapping[str, Any]", row)))


def _values(kind: type[Record] | type[Part], row: Mapping[str, Any]) -> dict[str, Any]:
    """Checked values of the columns that have one."""
    _check_columns(kind, row.keys())
    types = column_types(kind)
    given = ((name, value) for name, value in row.items() if value is not None)
    values = {name: _value(name, types[name][0], value) for name, value in given}
    values = {name: value for name, value in values.items() if value is not None}
    if missing := [name for name in _required(kind) if name not in values]:
        raise InputError(f"missing column or value: {', '.join(missing)}", fix="see docs/schema.md")
    return values


def _check_columns(kind: type[Record] | type[Part], names: Set[str]) -> None:
    if unknown := sorted(names - column_types(kind).keys()):
        raise InputError(f"unknown column {', '.join(unknown)}", fix="see docs/schema.md")


@functools.cache
def _required(kind: type[Record] | type[Part]) -> tuple[str, ...]:
    return tuple(
        f.name
        for f in dataclasses.fields(kind)
        if f.name in column_types(kind) and f.default is dataclasses.MISSING
    )


def _value(name: str, target: type, value: Any) -> Any:
    if target is float is type(value) and 0 <= value < math.inf and name != "share_percent":
        return value  # most values: good as it is
    if _is_empty(value):
        return None
    convert, expected = _TYPES[target]
    try:
        converted = convert(value)
    except (TypeError, ValueError, OverflowError, KeyError) as error:
        raise InputError(f"{name} is {value!r}, not {expected}") from error
    if target is float and math.isnan(converted):  # "nan" as text
        return None
    if isinstance(converted, float) and not math.isfinite(converted):
        raise InputError(f"{name} is {converted}", fix="leave it empty where there is no reading")
    if isinstance(converted, int | float) and converted < 0 and not name.endswith(SIGNED):
        raise InputError(f"{name} is {converted}, below 0")
    if isinstance(converted, int) and converted > LARGEST_INTEGER:
        raise InputError(f"{name} is {converted}, above {LARGEST_INTEGER}")
    if name == "results" and converted not in get_args(Verdict):
        raise InputError(f"{name} is {converted!r}", fix=f"one of {', '.join(get_args(Verdict))}")
    if name == "share_percent" and not 0 < converted <= 100:
        raise InputError(f"{name} is {converted}", fix="give a share above 0 and at most 100")
    if name == "started_at" and not is_utc(str(converted)):
        raise InputError(
            f"started_at is {converted!r}, not a moment in UTC",
            fix="write it as 2026-01-31T12:00:00+00:00",
        )
    return converted


def _text(value: Any) -> str:
    # Line ends, NUL and lone surrogates cannot be kept by every store and file format.
    if not isinstance(value, str) or not value.isprintable():
        raise TypeError(value)
    return str(value)


def _number(value: Any) -> float:
    if isinstance(value, bool):
        raise TypeError(value)
    return float(value)


def _whole(value: Any) -> int:
    number = _number(value)
    if not number.is_integer():
        raise ValueError(value)
    return int(number)


def _flags(value: Any) -> tuple[str, ...]:
    items = value.split(";") if isinstance(value, str) else [_text(item) for item in value]
    if not isinstance(value, str) and any(";" in item for item in items):
        raise ValueError(value)
    return tuple(_text(item) for item in items if item)


_TRUTHS = {"true": True, "false": False, "1": True, "0": False, "1.0": True, "0.0": False}

_TYPES: dict[type, tuple[Callable[[Any], Any], str]] = {
    str: (_text, "a line of text"),
    float: (_number, "a number"),
    int: (_whole, "a whole number"),
    bool: (lambda value: _TRUTHS[str(value).lower()], "true or false"),
    tuple: (_flags, 'a list of words or words joined by ";"'),
}


SIGNED = ("_c", "energy_saved", "energy_saved_to_end")
"""How columns end whose values may be below 0."""

LARGEST_INTEGER = 2**31 - 1
"""What an SQL INTEGER holds."""
