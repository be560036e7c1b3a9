"""The queue of `advisor place`: jobs, how many of each, and how much work each has."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from advisor.errors import InputError
from advisor.formats.moments import read_duration

MAX_JOBS = 100_000
"""A larger number is no cluster but a slip of the keyboard."""

_ENTRY = re.compile(r"([^:*\s]+)(?:[:*]([0-9]{1,9}))?(?:\s+(\S+))?")


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """Equal jobs; `work_s` is None where nothing is said of their work."""

    name: str
    count: int = 1
    work_s: float | None = None


def read_entries(texts: Sequence[str], file: Path | None) -> list[QueueEntry]:
    """Jobs in the order in which they were given.

    Args:
        texts: `NAME`, `NAME:40` for forty of them, and `NAME:40 3h` for forty that take 3 h alone.
        file: The same, one on each line; empty lines and what follows a # do not count.

    Raises:
        InputError: no job, both ways at once, what is no name, count and time, or a file that
            cannot be read.
    """
    if file and texts:
        raise InputError("jobs were given twice", fix="name them, or give a file with --jobs")
    places = [("", text) for text in texts]
    if file:
        lines = enumerate(_text(file).splitlines(), start=1)
        stripped = ((f"{file}:{n}: ", line.partition("#")[0].strip()) for n, line in lines)
        places = [(place, text) for place, text in stripped if text]
    entries = [_entry(place, text) for place, text in places]
    if not entries:
        raise InputError("there are no jobs", fix="name them, such as: advisor place gemm:2 triad")
    if sum(entry.count for entry in entries) > MAX_JOBS:
        raise InputError(f"these are more than {MAX_JOBS} jobs", fix="check the counts")
    return entries


def _entry(place: str, text: str) -> QueueEntry:
    found = _ENTRY.fullmatch(text)
    if not found or (count := int(found[2] or 1)) < 1:
        raise _no_entry(place, text)
    try:
        return QueueEntry(found[1], count, read_duration(found[3]) if found[3] else None)
    except InputError as error:
        raise InputError(f"{place}{text}: {error.what}", fix=error.fix) from error


def _no_entry(place: str, text: str) -> InputError:
    name, colon, count = text.partition(":")
    if name and colon:
        return InputError(
            f"{place}{text} has no count: {count!r} is not a whole number above 0",
            fix=f"write {name}:40 for forty of {name}",
        )
    return InputError(
        f"{place}{text} is not a job",
        fix="write NAME, NAME:40 for forty of it, or NAME:40 3h with what each takes alone",
    )


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8 text", fix="save it as UTF-8") from error
    except OSError as error:
        raise InputError(
            f"{file} cannot be read", why=error.strerror or str(error), fix="check its name"
        ) from error
