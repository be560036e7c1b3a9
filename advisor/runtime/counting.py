"""Reads the progress of a running job: from its counter file or from its output."""

import re
import struct
from pathlib import Path
from typing import Protocol

from advisor.errors import JobError
from advisor.job import Progress


class Counter(Protocol):
    """Total progress so far."""

    def read(self) -> float:
        """Progress since the job started, in the job's unit."""
        ...


class CounterFile:
    """The 8-byte count in `ADVISOR_PROGRESS_FILE`, times the progress of one count."""

    def __init__(self, path: Path, scale: float = 1) -> None:
        self._file = path.open("rb", buffering=0)
        self._scale = scale

    def read(self) -> float:
        self._file.seek(0)
        return struct.unpack("<q", self._file.read(8))[0] * self._scale


class OutputCounter:
    """A pattern matched against each complete line of the job's output file."""

    def __init__(self, path: Path, pattern: str, *, cumulative: bool) -> None:
        self._file = path.open("rb")
        self._pattern = re.compile(pattern)
        self._cumulative = cumulative
        self._rest = b""
        self._total = 0.0

    def read(self) -> float:
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        for line in lines:
            self._take(line.decode(errors="replace"))
        return self._total

    def _take(self, line: str) -> None:
        match = self._pattern.search(line)
        if match is None:
            return
        number = _number(match.group(1)) if self._pattern.groups else 1.0
        # A pattern without a group counts lines, whatever `cumulative` says.
        replace = self._cumulative and self._pattern.groups
        self._total = number if replace else self._total + number


def open_counter(progress: Progress, counter_path: Path, output_path: Path) -> Counter:
    """The counter that `progress` asks for; both files must exist."""
    if progress.kind == "output" and progress.pattern is not None:
        return OutputCounter(output_path, progress.pattern, cumulative=progress.cumulative)
    return CounterFile(counter_path, progress.per_run if progress.kind == "runs" else 1)


def _number(text: str) -> float:
    try:
        return float(text.replace(",", ""))
    except ValueError as error:
        raise JobError(
            f"the progress pattern caught '{text}', which is no number",
            fix="put the group of the pattern around the number alone",
        ) from error
