"""Reads the progress of a running job: from its counter file or from its output."""

import math
import re
import struct
from pathlib import Path

from advisor.core.job import ProgressSettings
from advisor.errors import JobError
from advisor.runtime.jobs.matching import OutputMatches
from advisor.runtime.jobs.output import number_of

_THOUSANDS = re.compile(r",\d{3}(?!\d)")


class CounterFile:
    """The 8-byte count in `ADVISOR_PROGRESS_FILE`, times the progress of one count."""

    def __init__(self, path: Path, scale: float = 1) -> None:
        self._file = path.open("rb", buffering=0)
        self._scale = scale

    def read(self) -> float:
        """Progress since the job started, in the job's unit."""
        self._file.seek(0)
        count = self._file.read(8)
        if len(count) < 8:
            raise JobError(
                f"the progress file has {len(count)} bytes, not 8",
                why="the job emptied it",
                fix="write the count in place, as docs/progress.md shows",
            )
        return struct.unpack("<q", count)[0] * self._scale

    def close(self) -> None:
        """Let go of the file, into which the job may go on counting."""
        self._file.close()


class OutputCounter:
    """A pattern matched against each complete line of the job's output file."""

    def __init__(self, path: Path, pattern: str, *, cumulative: bool) -> None:
        self._matches = OutputMatches(path, pattern)
        self._cumulative = cumulative
        self._total = 0.0

    def read(self) -> float:
        """Progress since the job started, in the job's unit."""
        for match in self._matches.read():
            self._take(match)
        return self._total

    def close(self) -> None:
        """Let go of the output; lines behind the last `read` are not counted."""
        self._matches.close()

    def _take(self, match: re.Match[str]) -> None:
        groups = match.re.groups
        # The last group is the only one, or with index 0 the whole match.
        caught: str | None = match.group(groups)
        if caught is None:
            return
        number = _finite(caught) if groups else 1.0
        # A pattern without a group counts lines, whatever `cumulative` says.
        if self._cumulative and groups:
            cut = _THOUSANDS.match(match.string, match.end(groups))
            self._total = _forward(self._total, number, match.string.strip() if cut else "")
        else:
            self._total += number


def open_counter(
    progress: ProgressSettings, counter_path: Path, output_path: Path
) -> CounterFile | OutputCounter:
    """The counter that `progress` asks for; both files must exist."""
    if progress.kind == "output" and progress.pattern is not None:
        return OutputCounter(output_path, progress.pattern, cumulative=progress.cumulative)
    return CounterFile(counter_path, progress.per_run if progress.kind == "runs" else 1)


def _forward(before: float, now: float, cut_line: str) -> float:
    """`now`, where it did not go back: a count that starts again would make a wrong rate.

    The line is given where the pattern caught what stands before a comma.
    """
    if now < before and cut_line:
        raise JobError(
            f"the job's count went back from {before:g} to {now:g}",
            why=f"the pattern stops at the comma of {cut_line!r}",
            fix=r"let it take commas, too: 'step ([\d,]+)'",
        )
    if now < before:
        raise JobError(
            f"the job's count went back from {before:g} to {now:g}",
            why="it starts again, perhaps with each epoch",
            fix="count lines (a pattern without a group), or set cumulative: false where each "
            "line tells its own progress",
        )
    return now


def _finite(text: str) -> float:
    if math.isfinite(number := number_of(text)):
        return number
    raise JobError(
        f"the progress pattern caught '{text}', which is not a number",
        fix="put the group of the pattern around the number alone",
    )
