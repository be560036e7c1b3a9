"""Which model was the champion when: JSON lines that are only ever added to.

The history is the only record of the champion, so a promotion is one line: a process that is
killed leaves it whole or not there. A last line without its end was cut off and counts for nothing.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from advisor.errors import ModelError
from advisor.formats.wire import read, write
from advisor.wire.lists import Action


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One change of the champion.

    Attributes:
        at: ISO 8601, UTC.
        version: The new champion; None is the bundled model.
        figures: Of the new champion's evaluation.
    """

    at: str
    action: Action
    version: str | None
    replaced: str | None
    figures: Mapping[str, float]


def read_history(path: Path) -> list[HistoryEntry]:
    """All changes, the oldest first.

    Raises:
        ModelError: it cannot be read, or a line is no change.
    """
    with ModelError.instead_of(OSError, f"{path} cannot be read"):
        data = path.read_bytes() if path.exists() else b""
    lines = enumerate(data[: _whole(data)].splitlines(), start=1)
    return [_change(path, number, line) for number, line in lines]


def append(path: Path, change: HistoryEntry) -> None:
    """Add a change; it is on disk when this returns. Only one process at a time may do so.

    Raises:
        OSError: it cannot be written; then the history is as it was.
    """
    line = write(change).encode() + b"\n"
    with path.open("ab+") as file:
        file.seek(0)
        end = _whole(file.read())
        # What a killed process left of its line.
        file.truncate(end)
        try:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        except OSError:
            file.truncate(end)
            raise


def standing(changes: Iterable[HistoryEntry]) -> list[HistoryEntry]:
    """The promotions that were not taken back: two rollbacks go two back, not there and back."""
    found: list[HistoryEntry] = []
    for change in changes:
        found = [*found, change] if change.action == "promote" else found[:-1]
    return found


def _whole(data: bytes) -> int:
    """Length of the lines that have their end."""
    return data.rfind(b"\n") + 1


def _change(path: Path, number: int, line: bytes) -> HistoryEntry:
    with ModelError.instead_of(
        ValueError,
        f"{path}, line {number} is not a change of the champion",
        fix="repair the line, or move the file away: the bundled model is used then",
    ):
        return read(HistoryEntry, line)
