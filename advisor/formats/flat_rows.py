"""Rows of several jobs in formats without lists, such as CSV and data frames: numbered columns.

What a part has stands once for each job, with the number of the job: `job_1`, `share_1_percent`,
`rate_1`, `job_2` ...
"""

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

from advisor.core.records import PARTS
from advisor.wire.frames import column as with_word

JOBS = "jobs"
"""The list of parts in a row that is not flat."""

FIRST_JOB = "job_1"
"""A flat row of several jobs has this column."""

_COLUMNS = frozenset(f.name for kind in PARTS.values() for f in dataclasses.fields(kind))


def flat_name(column: str, number: int) -> str:
    """The column of one job's part, such as `share_1_percent` for `share_percent`."""
    return with_word(column, str(number))


def flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with numbered columns instead of its list of jobs; one without jobs as it is."""
    parts = enumerate(row.get(JOBS, ()), start=1)
    numbered = {flat_name(name, n): value for n, part in parts for name, value in part.items()}
    return {**numbered, **{name: value for name, value in row.items() if name != JOBS}}


def nested(row: Mapping[str, Any]) -> Mapping[str, Any]:
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
    """Whose column a flat one is, from 0, and which: `(0, "rate")` for `rate_1`; None: nobody's."""
    words = name.split("_")
    for number, word in enumerate(words):
        column = "_".join(words[:number] + words[number + 1 :])
        if (position := _position(word)) is not None and with_word(column, word) == name:
            return (position, column) if column in _COLUMNS else None
    return None


def _position(word: str) -> int | None:
    return int(word) - 1 if word.isascii() and word.isdecimal() and word[0] != "0" else None


def _is_empty(value: Any) -> bool:
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))
