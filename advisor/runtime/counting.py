"""Reads what a running job shows: progress, results and latencies.

A fault of the reading, such as a pattern that takes too long, is a `JobError` of that look. It says
nothing of the job, which runs on; the total stays right, or lacks what was never seen.

Python's engine tries each way of dividing a line, so `(a+)+$` on 60 letters takes
centuries. It looks for signals meanwhile, so a timer ends that.
"""

import math
import os
import re
import signal
import struct
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from advisor.core.job import ProgressSettings, Reported
from advisor.errors import JobError
from advisor.files import open_plain, read_plain
from advisor.progress import (
    BEATS_AT,
    BOUNDS_AT,
    FAULT_AT,
    FAULT_BYTES,
    FILE_BYTES,
    FIRST_AT,
    FIRST_VALUES,
    LATENCIES_AT,
    LATENCY_BUCKETS,
    LATENCY_LEAST_S,
    LATENCY_STEP,
    MOST_BOUNDS,
    VALUES_AT,
)

_THOUSANDS = re.compile(r",\d{3}(?!\d)")
_OF_TOTAL = re.compile(r"\s*(?:/|(?:out )?of\s)\s*(\d[\d,.]*[kKMGT]?)")

# Rising numbers, the first included, after which a smaller one was a new start: below half of the
# last number, and above it, where ranks of one job that are not in step write such numbers, too.
_RISES_NEAR, _RISES_FAR = 2, 4


@dataclass(slots=True)
class _Run:
    """One counter from its start on.

    Attributes:
        of: Its total, as in `3/60`; None: it has none.
        shown: How many different numbers it has shown.
        step: Its largest rise.
    """

    of: float | None
    last: float
    shown: int = 1
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
        self.shown += rise > 0
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
        self._run = self._other = None
        self._low: list[float] = []
        self._before: tuple[float, float] | None = None
        self._second, self._sure_at = -math.inf, 0
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
        if run.shown > self._sure_at:
            self._before = None
        if self._before and number >= self._before[0] and rise > 2 * run.step:
            # The count goes on where it was: what rose meanwhile is a second counter.
            last, self._sum = self._before
            self._before, self._second = None, run.last
            run.last = last
        self._sum += run.rise_to(number)

    def _start_again(self, run: _Run, number: float) -> None:
        self._before = None if run.is_full else (run.last, self._sum)
        self._sum += run.left + number
        self._low, self._second = [], -math.inf
        run.last = number
        run.shown += 1
        # Within five numbers of a new start the count may turn out to have gone on beside it.
        self._sure_at = run.shown + 5

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
            # A bar's totals differ from epoch to epoch where batches are of tokens; those of
            # validation and training differ by more.
            and abs(other.of - run.of) <= 0.2 * run.of
        )
        other_run = self._other if self._other and self._other.of == other.of else None
        if run.is_full and is_sibling:
            self._replace(run, other)
        elif other_run is None:
            self._other = other
        else:
            other_run.rise_to(max(other_run.last, other.last))
            # After so many numbers it is the work, where the first one had fewer.
            if other_run.shown >= max(run.shown, 20):
                self._replace(run, other_run, former=True)

    def _replace(self, run: _Run, other: _Run, *, former: bool = False) -> None:
        if former:
            self._former[run.of] = run, self._sum
        self._sum += run.left + other.last
        self._run, self._other, self._low, self._before = other, None, [], None


class CounterFile:
    """The 8-byte count in `ADVISOR_PROGRESS_FILE`, times the progress of one count.

    Args:
        path: Of the file.
        scale: Progress of one count.
        links: As of `open_plain`.

    Attributes:
        close: Lets go of the file, into which the job may go on counting.
    """

    def __init__(self, path: Path, scale: float = 1, *, links: bool = False) -> None:
        self._file = open_plain(path, links=links)
        self._scale, self._tally, self.close = scale, Tally(), self._file.close

    def read(self, *, last: bool = False) -> float:
        """Progress since the job started, in its unit; `last`: the job has ended.

        Raises:
            JobError: the count cannot be read now; with `last` only where the job emptied the file.
        """
        data = os.pread(self._file.fileno(), FILE_BYTES, 0)
        if len(data) < 8:
            raise JobError(
                f"the progress file has {len(data)} bytes, not 8",
                why="the job emptied it",
                fix="write the count in place, as docs/job-file.md shows",
            )
        self._tally.add(*struct.unpack_from("<q", data))
        if not last and (fault := parse_fault(data)):
            raise JobError(fault)
        return self._tally.total * self._scale


class OutputCounter:
    """A pattern matched against each complete line of the job's output file.

    Attributes:
        close: Lets go of the output; lines behind the last `read` are not counted.
    """

    def __init__(self, path: Path, pattern: str, *, cumulative: bool) -> None:
        self._matches = _OutputMatches(path, pattern)
        self.close = self._matches.close
        # A pattern without a group counts lines, whatever `cumulative` says.
        self._is_cumulative = cumulative and re.compile(pattern).groups > 0
        self._tally = Tally()
        self._lines = 0.0

    def read(self, *, last: bool = False) -> float:
        """As of `CounterFile`; with `last` all of its output, and a last line without an end.

        What else was caught is counted where the pattern caught no number.

        Raises:
            JobError: the count cannot be read now; with `last` what was caught is given instead.
        """
        fault: JobError | None = None
        # A bar ends its line with its next state. Of a number that is cut the tally takes nothing,
        # as it is smaller than the last one.
        for match in self._matches.read(last=last, unfinished=last or self._is_cumulative):
            try:
                self._take(match)
            except JobError as error:
                fault = error
        if last:
            self._tally.finish()
        elif fault is not None:
            raise fault
        return self._tally.total + self._lines

    def _take(self, match: re.Match[str]) -> None:
        groups = match.re.groups
        # The last group is the only one, or with index 0 the whole match.
        caught: str | None = match.group(groups)
        if caught is None:
            return
        number = number_of(caught) if groups else 1.0
        if not math.isfinite(number):
            raise JobError(
                f"the progress pattern caught '{caught}', which is not a number",
                fix="put the group of the pattern around the number alone",
            )
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
    match progress.kind:
        case "output":
            assert progress.pattern is not None
            return OutputCounter(output_path, progress.pattern, cumulative=progress.cumulative)
        case "runs":
            return CounterFile(counter_path, progress.per_run)
        case "counter" | "metrics":
            return CounterFile(counter_path)


# Most that is read at a look; what is left is read at the next ones.
LOOK_BYTES = 1024 * 1024

# Most that is read of a line; of a longer one its end.
LINE_BYTES = 64 * 1024

_ESCAPES = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
_SCALES = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


class OutputLines:
    """Complete lines of an output file that its shim may begin again.

    A carriage return ends a line too: progress bars write nothing else.

    Args:
        path: Of the file.
        last_bytes: Of what was written before; None: from its beginning.
        links: As of `open_plain`.

    Attributes:
        is_behind: The last look found more than it may read.
        rest: The line that has no end yet, such as a progress bar until it is drawn again.
    """

    def __init__(self, path: Path, last_bytes: int | None = None, *, links: bool = False) -> None:
        self._path, self._links, self.rest = path, links, b""
        self._file, self.is_behind = open_plain(path, links=links), False
        if last_bytes is not None:
            self._file.seek(max(0, self._file.seek(0, os.SEEK_END) - last_bytes))

    def read(self) -> list[bytes]:
        """Lines that were completed since the last look, without their ends, `LOOK_BYTES` at most.

        Raises:
            JobError: the job wrote more than is kept since then; the next look goes on behind it.
        """
        data = self._file.read(LOOK_BYTES)
        inode = os.fstat(self._file.fileno()).st_ino
        # Another file of this name: its shim has begun again.
        if len(data) < LOOK_BYTES and _number(self._path) not in (None, inode):
            # Nothing is added any more to a file that was put aside.
            data += self._file.read(LOOK_BYTES - len(data))
            if len(data) < LOOK_BYTES:
                self._follow()
                data += self._file.read(LOOK_BYTES - len(data))
        self.is_behind = len(data) == LOOK_BYTES
        *lines, rest = re.split(rb"[\r\n]", self.rest + data)
        self.rest = rest[-LINE_BYTES:]
        return [line[-LINE_BYTES:] for line in lines]

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def _follow(self) -> None:
        old = self._file
        with JobError.instead_of(OSError, "the job's output cannot be read"):
            self._file = open_plain(self._path, links=self._links)
        aside = _number(self._path.with_name(f"{self._path.name}.1"))
        is_next = aside == os.fstat(old.fileno()).st_ino
        old.close()
        if not is_next:
            raise JobError(
                "the job writes its output faster than it can be read",
                why="only the newest part of it is kept, and the part that was not read is gone",
                fix="write less, or count in the progress file (docs/progress.md)",
            )


def plain(line: bytes) -> str:
    """The text of a line without what steers a terminal, such as colours and backspaces."""
    if b"\x1b" in line:
        line = _ESCAPES.sub(b"", line)
    return line.replace(b"\b", b"").decode(errors="replace")


def number_of(text: str) -> float:
    """The number in a job's log: `1,000`, `12.5` or, as tqdm scales it, `1.25k`; else NaN."""
    scale = _SCALES.get(text[-1:], 1.0)
    try:
        return float((text if scale == 1 else text[:-1]).replace(",", "")) * scale
    except ValueError:
        return math.nan


def _number(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None


# Processor time for all lines of a look, 1 MiB at most; what a pattern usually takes is 50 ms.
_MATCH_S = 1.0


class _OutputMatches:
    """The first match of a pattern in each line that a job completes, without colours.

    Attributes:
        close: Lets go of the file.
    """

    def __init__(self, path: Path, pattern: str) -> None:
        self._lines, self._pattern = OutputLines(path), re.compile(pattern)
        self.close = self._lines.close
        self._too_slow: JobError | None = None

    def read(self, *, last: bool = False, unfinished: bool = False) -> list[re.Match[str]]:
        """Matches in the lines that were completed since the last look.

        Args:
            last: The job has ended: all that it wrote.
            unfinished: Also in the line that has no end yet, and may be cut within a number.

        Raises:
            JobError: the pattern takes too long, now or at an earlier look, and is not tried
                again; or the job writes more than is kept.
        """
        if self._too_slow is not None:
            raise self._too_slow
        matches = self._match(self._lines.read())
        while last and self._lines.is_behind:
            matches += self._match(self._lines.read())
        return matches + (self._match([self._lines.rest]) if unfinished else [])

    def _match(self, lines: list[bytes]) -> list[re.Match[str]]:
        try:
            with _in_time(self._pattern.pattern):
                return [match for line in lines if (match := self._pattern.search(plain(line)))]
        except JobError as error:
            self._too_slow = error
            raise


@contextmanager
def _in_time(pattern: str) -> Generator[None]:
    """End what the block matches after a while; signals reach the main thread of a process alone.

    Raises:
        JobError: it took longer.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def late(_number: int, _frame: FrameType | None) -> None:
        raise JobError(
            f"the pattern {pattern} took more than {_MATCH_S:g} s of processor time",
            why="repeats within repeats, as in (a+)+, and several .* try each way of dividing a "
            "line",
            fix=r"say what stands around the number: 'step (\d+)'",
        )

    before = signal.signal(signal.SIGVTALRM, late)
    signal.setitimer(signal.ITIMER_VIRTUAL, _MATCH_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def read_reported(progress_path: Path) -> Reported:
    """The values in `ADVISOR_PROGRESS_FILE`: all that the job reported since it started."""
    return parse_reported(_content(progress_path))


class ReportedOutput:
    """A pattern matched against each line of the job's output; the n-th match counts as n.

    Attributes:
        close: Lets go of the output; values behind the last `read` stay unknown.
    """

    def __init__(self, path: Path, pattern: str) -> None:
        self._matches, self._reported = _OutputMatches(path, pattern), Reported()
        self.close = self._matches.close

    def read(self) -> Reported:
        """All that the job reported since it started."""
        for match in self._matches.read():
            value, reported = number_of(match.group(match.re.groups)), self._reported
            first = (*reported.first, (reported.count + 1, value))[:FIRST_VALUES]
            self._reported = Reported(
                first, reported.count + 1, reported.not_finite + (not math.isfinite(value)), value
            )
        return self._reported


def parse_reported(data: bytes) -> Reported:
    """The values in the beginning of a progress file; none where it is too short for them."""
    if len(data) < LATENCIES_AT:  # an emptied file is the counter's fault to name
        return Reported()
    count, not_finite, _, last = struct.unpack_from("<qqqd", data, VALUES_AT)
    kept = range(min(max(count, 0), FIRST_VALUES))
    return Reported(
        tuple(struct.unpack_from("<qd", data, FIRST_AT + 16 * n) for n in kept),
        count,
        not_finite,
        last if count else None,
    )


def read_latencies(progress_path: Path) -> tuple[int, ...]:
    """How many requests fell into each bucket so far; empty where the file holds none."""
    return _values(progress_path, f"<{LATENCY_BUCKETS}q", LATENCIES_AT)


def read_bounds_ms(progress_path: Path) -> tuple[float, ...]:
    """Bounds of the buckets that latencies came in, ms; empty where these are as fine as ours."""
    (count,) = _values(progress_path, "<q", BOUNDS_AT) or (0,)
    kept = min(max(count, 0), MOST_BOUNDS)
    return tuple(1000 * bound for bound in _values(progress_path, f"<{kept}d", BOUNDS_AT + 8))


def read_beats(progress_path: Path) -> int:
    """How often the job said that it lives and has nothing to do; 0 where it never did."""
    return next(iter(_values(progress_path, "<q", BEATS_AT)), 0)


def _values(progress_path: Path, form: str, at: int) -> tuple[Any, ...]:
    """What stands at a place of a progress file; nothing where the file ends before that."""
    data = _content(progress_path)
    return struct.unpack_from(form, data, at) if len(data) >= at + struct.calcsize(form) else ()


def _content(progress_path: Path) -> bytes:
    """What a progress file holds; nothing where the job has put something else in its place."""
    return read_plain(progress_path, FILE_BYTES, os.geteuid()) or b""


def parse_fault(data: bytes) -> str:
    """Why the job is not counted now, in the beginning of a progress file of any size.

    Empty while it is.
    """
    return data[FAULT_AT : FAULT_AT + FAULT_BYTES].partition(b"\0")[0].decode(errors="replace")


def percentile_ms(before: tuple[int, ...], after: tuple[int, ...], percent: float) -> float | None:
    """Latency that `percent` of the requests between two readings did not exceed, ms.

    The middle of the bucket it falls into, so within 2.5 %; None without requests.
    """
    counts = [now - then for then, now in zip(before, after, strict=False)]
    total, so_far = sum(counts), 0
    if total <= 0:
        return None
    for bucket, count in enumerate(counts):
        so_far += count
        if so_far >= total * percent / 100:
            return 1000 * LATENCY_LEAST_S * LATENCY_STEP ** (bucket + 0.5)
    return None


def range_ms(percentile: float, bounds_ms: Sequence[float]) -> tuple[float, float]:
    """Between which latencies a percentile lies: the bounds of the bucket that it fell into.

    Of a bucket that is as narrow as ours, or of which nothing is told, those of ours.
    """
    low, high = percentile / LATENCY_STEP**0.5, percentile * LATENCY_STEP**0.5
    if not bounds_ms:
        return low, high
    # Which of two buckets it fell into is not known where ours lies across their bound.
    least = max((bound for bound in bounds_ms if bound <= low), default=0.0)
    return min(low, least), max(high, min(bound for bound in bounds_ms if bound >= high))
