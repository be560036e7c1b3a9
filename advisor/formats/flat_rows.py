"""Rows of several jobs in formats without lists, such as CSV and data frames: numbered columns.

What a part has stands once for each job, with the number of the job: `job_1`, `share_1_percent`,
`rate_1`, `job_2` ... Up to version 5 of the schema there were two jobs, and letters in the place of
the numbers; those columns are read as well.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

from advisor.core.observations import PARTS
from advisor.errors import InputError

JOBS = "jobs"
"""The list of parts in a row that is not flat."""

FIRST_JOB = ("job_1", "job_a")
"""A flat row of several jobs has one of these columns."""

_ENDS = {"percent", "mib", "ms", "w", "stderr", "hash"}
"""The number stands before these last words of a name."""

_LETTERS = {"a": 0, "b": 1}

_OLD_PLACES = {"job_a_cpu_percent": (0, "cpu_percent"), "job_b_cpu_percent": (1, "cpu_percent")}
"""Columns up to version 5 that follow no rule."""

_FIRST_ENDED: Mapping[str, tuple[int, ...]] = {
    "job_a": (0,), "job_b": (1,), "both": (0, 1), "none": (),
}  # fmt: skip
"""Which jobs ended first, by the one column that held it up to version 5."""

_COLUMNS = frozenset(f.name for kind in PARTS.values() for f in dataclasses.fields(kind))


def flat_name(column: str, number: int) -> str:
    """The column of one job's part, such as `share_1_percent` for `share_percent`."""
    return _with(column, str(number))


def flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with numbered columns instead of its list of jobs; one without jobs as it is."""
    parts = enumerate(row.get(JOBS, ()), start=1)
    numbered = {flat_name(name, n): value for n, part in parts for name, value in part.items()}
    return {**numbered, **{name: value for name, value in row.items() if name != JOBS}}


def nested(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row with a list of jobs; the opposite of `flat`.

    A job without any value is none: files have columns for the most jobs of all rows.

    Raises:
        InputError: `first_ended` of an old row is none of its words.
    """
    if JOBS in row or not any(name in row for name in FIRST_JOB):
        return row
    rest: dict[str, Any] = {}
    parts: dict[int, dict[str, Any]] = {}
    for name, value in row.items():
        if (place := part_column(name)) is None:
            rest[name] = value
        elif not _is_empty(value):
            parts.setdefault(place[0], {})[place[1]] = value
    for position in _ended_first(rest.pop("first_ended", None)):
        parts.setdefault(position, {})["ended_first"] = True
    return {JOBS: [part for _, part in sorted(parts.items())], **rest}


@functools.lru_cache(maxsize=1000)
def part_column(name: str) -> tuple[int, str] | None:
    """Whose column a flat one is, from 0, and which: `(0, "rate")` for `rate_1`; None: nobody's."""
    if name in _OLD_PLACES:
        return _OLD_PLACES[name]
    words = name.split("_")
    for number, word in enumerate(words):
        column = "_".join(words[:number] + words[number + 1 :])
        if (position := _position(word)) is not None and _with(column, word) == name:
            return (position, column) if column in _COLUMNS else None
    return None


def _with(column: str, seat: str) -> str:
    head, _, end = column.rpartition("_")
    return f"{head}_{seat}_{end}" if end in _ENDS else f"{column}_{seat}"


def _position(word: str) -> int | None:
    if word in _LETTERS:
        return _LETTERS[word]
    return int(word) - 1 if word.isascii() and word.isdecimal() and word[0] != "0" else None


def _ended_first(word: Any) -> tuple[int, ...]:
    if _is_empty(word):
        return ()
    if word not in _FIRST_ENDED:
        raise InputError(f"first_ended is {word!r}", fix=f"one of {', '.join(_FIRST_ENDED)}")
    return _FIRST_ENDED[word]


def _is_empty(value: Any) -> bool:
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))
