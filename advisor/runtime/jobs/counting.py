"""Counts the progress of a running job, by its counter file or by its output.

A fault of the reading, such as a pattern that takes too long, is a `JobError` of that look. It says
nothing of the job, which runs on; the total stays right, or lacks what was never seen.
"""

import math
import re
import struct
from dataclasses import dataclass
from pathlib import Path

from advisor.core.job import ProgressSettings
from advisor.errors import JobError
from advisor.runtime.jobs.matching import OutputMatches
from advisor.runtime.jobs.output import number_of
from advisor.runtime.jobs.reports import read_fault

_THOUSANDS = re.compile(r",\d{3}(?!\d)")
_OF_TOTAL = re.compile(r"\s*(?:/|(?:out )?of\s)\s*(\d[\d,.]*[kKMGT]?)")

_RISES_NEAR, _RISES_FAR = 2, 4
"""Rising numbers, the first included, after which a smaller one was a new start: below half of the
last number, and above it, where ranks of one job that are not in step write such numbers, too."""

_SIBLING = 0.2
"""Relative difference of a bar's totals from epoch to epoch, as where batches are of tokens; those
of validation and training differ by more."""

_LEAST_LIFE = 20
"""Numbers after which another bar is the work, where the first one had fewer."""

_SOON = 5
"""Numbers of a new start within which the count may turn out to have gone on beside it."""


@dataclass(slots=True)
class _Run:
    """One counter from its start on.

    Attributes:
        of: Its total, as in `3/60`; None: it has none.
        seen: How many different numbers it has shown.
        step: Its largest rise.
    """

    of: float | None
    last: float
    seen: int = 1
    step: float = 0.0

    @property
    def is_full(self) -> bool:
        return self.of is not None and self.last >= self.of

    @property
    def left(self) -> float:
        """Work that was done and not shown: a run that starts again went to its end."""
        left = (self.of or 0.0) - self.last
        return left if 0 < left <= self.step else 0.0

    def rise_to(self, number: float) -> float:
        """Take a number that is no smaller; the progress since the last one."""
        rise = number - self.last
        self.seen += rise > 0
        self.last, self.step = number, max(self.step, rise)
        return rise


class Tally:
    """The total of a count that may start again, as with each epoch.

    A smaller number that is followed by rising ones is a new start and adds to the total; a bar
    that was full needs no second number. Numbers with another total, such as `2/5` of a validation
    between `59/60` and `60/60`, are of another counter: the one that goes on is the work. The total
    never falls.

    Attributes:
        total: Progress so far, in the unit of the numbers.
    """

    def __init__(self) -> None:
        self.total = 0.0
        self._sum = 0.0
        self._run: _Run | None = None
        self._low: list[float] = []
        self._before: tuple[float, float] | None = None
        self._second, self._sure_at = -math.inf, 0
        self._other: _Run | None = None
        self._former: dict[float | None, tuple[_Run, float]] = {}
        self._besides = set[float | None]()

    def add(self, number: float, total: float | None = None) -> None:
        """Take the next number that the job showed.

        Args:
            number: Progress since its last start.
            total: The number at which it is full, as 60 in `3/60`; None: it shows none.
        """
        if self._run is None:
            self._run = _Run(total, number)
            self._sum = number
        elif total == self._run.of:
            self._other = None
            self._go_on(self._run, number)
        elif total not in self._besides:
            self._note_other(self._run, _Run(total, number))
        self.total = max(self.total, self._sum)

    def finish(self) -> None:
        """The job has ended: a bar that lacks less than a step is full."""
        if self._run is not None:
            self._sum += self._run.rise_to(self._run.last + self._run.left)
            self.total = max(self.total, self._sum)

    def _go_on(self, run: _Run, number: float) -> None:
        is_near = bool(self._low) and self._low[0] <= run.last / 2
        if number > run.last or (number == run.last and not is_near):
            self._rise(run, number)
        elif run.is_full:
            self._start_again(run, number)
        elif self._second <= number <= self._second + max(run.step, 1.0) and self._second > 0:
            self._second = number
        elif self._low and number < self._low[-1]:
            self._low = [number]
        elif not self._low or number > self._low[-1]:
            self._low.append(number)
            is_near = self._low[0] <= run.last / 2
            if len(self._low) >= (_RISES_NEAR if is_near else _RISES_FAR):
                self._start_again(run, number)

    def _rise(self, run: _Run, number: float) -> None:
        self._low = []
        rise = number - run.last
        if run.seen > self._sure_at:
            self._before = None
        if self._before and number >= self._before[0] and rise > 2 * run.step:
            # The count goes on where it was: what rose meanwhile is a second counter.
            last, self._sum = self._before
            self._before, self._second = None, run.last
            run.last = last
        self._sum += run.rise_to(number)

    def _start_again(self, run: _Run, number: float) -> None:
        is_sure = run.is_full
        self._before = None if is_sure else (run.last, self._sum)
        self._sum += run.left + number
        self._low, self._second = [], -math.inf
        run.last = number
        run.seen += 1
        self._sure_at = run.seen + _SOON

    def _note_other(self, run: _Run, other: _Run) -> None:
        """Another total: the next epoch of this counter, or another counter beside it."""
        if other.of in self._former:
            # The first one is there again, so what was taken for the work ran beside it.
            self._besides.add(run.of)
            self._run, self._sum = self._former.pop(other.of)
            self._go_on(self._run, other.last)
            return
        is_sibling = (
            run.of is not None
            and other.of is not None
            and abs(other.of - run.of) <= _SIBLING * run.of
        )
        known = self._other if self._other and self._other.of == other.of else None
        if run.is_full and is_sibling:
            self._replace(run, other)
        elif known is None:
            self._other = other
        else:
            known.rise_to(max(known.last, other.last))
            if known.seen >= max(run.seen, _LEAST_LIFE):
                self._replace(run, known, former=True)

    def _replace(self, run: _Run, other: _Run, *, former: bool = False) -> None:
        if former:
            self._former[run.of] = run, self._sum
        self._sum += run.left + other.last
        self._run, self._other, self._low, self._before = other, None, [], None


class CounterFile:
    """The 8-byte count in `ADVISOR_PROGRESS_FILE`, times the progress of one count."""

    def __init__(self, path: Path, scale: float = 1) -> None:
        self._path, self._file = path, path.open("rb", buffering=0)
        self._scale, self._tally = scale, Tally()

    def read(self, *, last: bool = False) -> float:
        """Progress since the job started, in the job's unit; `last` as for an output.

        Raises:
            JobError: the file was emptied, or what writes it cannot count now.
        """
        self._file.seek(0)
        count = self._file.read(8)
        if len(count) < 8:
            raise JobError(
                f"the progress file has {len(count)} bytes, not 8",
                why="the job emptied it",
                fix="write the count in place, as docs/job-file.md shows",
            )
        number = struct.unpack("<q", count)[0]
        self._tally.add(number)
        if not last and (fault := read_fault(self._path)):
            raise JobError(fault)
        return self._tally.total * self._scale

    def close(self) -> None:
        """Let go of the file, into which the job may go on counting."""
        self._file.close()


class OutputCounter:
    """A pattern matched against each complete line of the job's output file."""

    def __init__(self, path: Path, pattern: str, *, cumulative: bool) -> None:
        self._matches = OutputMatches(path, pattern)
        # A pattern without a group counts lines, whatever `cumulative` says.
        self._is_cumulative = cumulative and re.compile(pattern).groups > 0
        self._tally = Tally()
        self._lines = 0.0

    def read(self, *, last: bool = False) -> float:
        """Progress since the job started, in the job's unit.

        Args:
            last: The job has ended: all of its output, and a last line without an end.

        Raises:
            JobError: the output cannot be read, or the pattern caught no number; what else was
                caught is counted.
        """
        fault: JobError | None = None
        found = self._matches.read(last=last)
        # A bar ends its line with its next state. Of a number that is cut the tally takes nothing,
        # as it is smaller than the last one.
        if (last or self._is_cumulative) and (match := self._matches.peek()):
            found.append(match)
        for match in found:
            try:
                self._take(match)
            except JobError as error:
                fault = error
        if last:
            self._tally.finish()
        elif fault is not None:
            raise fault
        return self._tally.total + self._lines

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
        if not self._is_cumulative:
            self._lines += number
            return
        end = match.end(groups)
        # A pattern with a comma of its own is of columns.
        if "," not in match.re.pattern and _THOUSANDS.match(match.string, end):
            raise JobError(
                f"the pattern {match.re.pattern} caught {caught} of {match.string.strip()!r}",
                why="it stops at the comma",
                fix=r"let it take commas, too: 'step ([\d,]+)'",
            )
        of = _OF_TOTAL.match(match.string, end)
        self._tally.add(number, number_of(of[1]) if of else None)


def open_counter(
    progress: ProgressSettings, counter_path: Path, output_path: Path
) -> CounterFile | OutputCounter:
    """The counter that `progress` asks for; both files must exist."""
    if progress.kind == "output" and progress.pattern is not None:
        return OutputCounter(output_path, progress.pattern, cumulative=progress.cumulative)
    return CounterFile(counter_path, progress.per_run if progress.kind == "runs" else 1)


def _finite(text: str) -> float:
    if math.isfinite(number := number_of(text)):
        return number
    raise JobError(
        f"the progress pattern caught '{text}', which is not a number",
        fix="put the group of the pattern around the number alone",
    )
