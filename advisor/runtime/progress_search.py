"""Runs a command without a job file and finds the number in its log that tells its progress.

Every number of every line has a place: a fraction such as `12/100`, a name such as `step: 12`, a
unit such as `12it`, a column of a table, or the start of its line. A place is a regular expression
with one group, which counts the job later. Places are scored by what their numbers do over the
whole look: how long they rise, whether they still rise at its end, how often they change, and
whether the GPU computes meanwhile.
"""

import contextlib
import os
import re
import shlex
import signal
import struct
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from advisor.core.job import START_TIMEOUT_S, Job, ProgressSettings
from advisor.core.wording import listed
from advisor.errors import DISTRIBUTION, AdvisorError, InputError, JobError
from advisor.files import open_plain, read_plain, replace_file, writing_private
from advisor.progress import FILE_BYTES, GO, HOLD, WAITING
from advisor.runtime.counting import OutputLines, number_of, plain
from advisor.runtime.processes import descendants, loaded_libraries, wait_until
from advisor.scrape.fetch import fetch, listening_urls
from advisor.scrape.page import ServerPreset, parse_selector, read_page, server_of

_NUMBER = r"\d[\d,]*(?:\.\d+)?(?:[kKMGT](?![A-Za-z]))?"
# Dates and times of day, which rise as steadily as any count.
_CLOCK = re.compile(
    r"\b\d{4}([-/.])\d\d?\1\d\d?(?:T\d\d:\d\d)?|\b\d\d?:\d\d(?::\d\d)?(?:[.,]\d+)?"
    r"|\b\d\d?[-/]\d\d?(?:[-/]\d\d(?:\d\d)?)?(?=[ T]+\d\d?:\d\d)"
)

_FRACTION = re.compile(
    rf"(?<![\w./])({_NUMBER})(\s*/\s*|\s+(?:out )?of\s+)({_NUMBER})(?![\w%/]|\.\d)"
)
_NAMED = re.compile(
    rf"(?<![\w/.-])([A-Za-z_][\w/.-]*?)([\"']?(?:\s*[:=#|]+\s*|\s+|\s*(?=[\[(]))[\"'\[(]*\s*)({_NUMBER})"
    r"(?![\w%]|\.\d|\s*(?:%|/\s*s))"
)
_UNITS = (
    "it|its|steps?|iters?|iterations?|batches|updates?|samples?|images?|imgs|examples?|frames?"
    "|tokens?|requests?|episodes?|games?|rounds?|timesteps"
)
_WITH_UNIT = re.compile(rf"(?<![\w./-])({_NUMBER})\s?({_UNITS})\b(?!\s*/|\s*per\b)")
_BAR = re.compile(r"\d+%(?:(\|)[^|]*\||[^\w%]*)\s*$")
_HEAD = re.compile(r"^\W*?(\d[\d,]*)(?=[\]:)|]|\s)(?!\s*[/%])")
_WORD = re.compile(r"(?<![\d.\w])[A-Za-z][A-Za-z_-]+")
# A number that a pattern passes over; possessive, so that a line is divided in one way alone.
_TOKEN = r"\d[\d.,]*+(?:[eE][-+]?\d++)?+"

_CELL = re.compile(r"[-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?%?|nan|inf|-+", re.I)

_STEPS = re.compile(r"(?:steps?|iters?|iterations?|it|batch|batches|updates?)$")
_ITEMS = re.compile(
    r"(?:samples?|images?|imgs|examples?|frames?|tokens?|timesteps?|requests?|episodes?|games?"
    r"|rounds?|records|rows)$"
)
_PLURALS = {
    "iter": "iterations", "it": "steps", "img": "images", "batch": "batches", "batche": "batches"
}  # fmt: skip
# Parts of names of numbers that count no work, or no work that goes on steadily.
_NO_COUNTS = re.compile(
    r"(?:time|times|sec|secs|second|seconds|ms|min|minutes|hours|elapsed|eta|remaining|wall"
    r"|date|loss|losses|lr|rate|learning|acc|accuracy|error|mean|std|avg|norm|grad|score"
    r"|reward|rew|mem|memory|peak|gpu|cpu|port|pid|rank|seed|version|size|dim|per|fps|ips|wps"
    r"|ups|tps|sps|qps|mfu|flops|tflop|tflops|gflops|speed|throughput|temp|temperature|percent"
    r"|lineno|line|max|width|height|params|parameters|world|device|devices|workers|node|nodes"
    r"|length|len|bytes|mb|gb|mib|gib)$"
)

_PREPARES = re.compile(
    r"(?:map|filter|flatten(?:ing)?|tokeni[sz]\w*|fetch(?:ing)?|(?:down|up)load(?:ing|ed)?|load(?:ing)?"
    r"|generating|casting|grouping|packing|sanity|checkpoints?|shards?|resolving|extracting|caching"
    r"|scanning|converting|pre-?process\w*|compil(?:e|ing)|capturing|unpacking|saving|reading"
    r"|verifying|index(?:ing)?|creating|preparing|applying|adding|truncating|dropping|building"
    r"|installing|collecting|writing|copying|importing|initiali[sz]\w+|warm-?up|warming|files?)$",
    re.I,
)
_CHECKS = re.compile(r"^(?:val|valid|validation|validating|eval|evaluat|test|testing|dev)", re.I)
_BYTES_PER_S = re.compile(r"\d\s?[kKMGT]?i?B/s")

# Lines of uvicorn, gunicorn, nginx, Apache and most others for one request each.
_ACCESS_LOG = r'"(?:GET|POST|PUT|PATCH|DELETE|HEAD|OPTIONS) \S+(?: HTTP/[\d.]+)?" (?:- )?\d{3}\b'

_MOST_COLUMNS, _MOST_BETWEEN = 40, 8
_ENOUGH_MOVES = 5

_INTERVALS = 3


@dataclass(frozen=True, slots=True)
class ProgressMatch:
    """How a job tells its progress.

    Attributes:
        line: The last line that shows it; empty where the job counts in a file or on a page.
        runner_up: What would have been taken otherwise.
    """

    progress: ProgressSettings
    line: str
    runner_up: "ProgressMatch | None" = None


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a number stands, as the pattern that finds it again.

    Attributes:
        rank: 0 steps, 1 bars, 2 items such as images, 3 other names, 4 epochs.
        is_check: It is of a validation or a test.
    """

    pattern: str
    unit: str
    rank: int
    is_check: bool = False


@dataclass(slots=True)
class _Candidate:
    place: _Place
    line: str = ""
    last: float = 0.0
    lowest: float = float("inf")
    first_s: float | None = None
    moved_s: float = 0.0
    moves: int = 0
    busy_moves: int = 0
    restarts: int = 0
    wrong: int = 0
    active_s: float = 0.0
    rises: deque[float] = field(default_factory=lambda: deque(maxlen=32))
    gaps: deque[float] = field(default_factory=lambda: deque(maxlen=32))

    def add(self, number: float, at_s: float, line: str, *, busy: bool) -> None:
        self.line = line
        if self.first_s is None:
            self.first_s, self.moved_s, self.last = at_s, at_s, number
        elif number != self.last:
            self._move(number, at_s, busy=busy)
        self.lowest = min(self.lowest, number)

    def _move(self, number: float, at_s: float, *, busy: bool) -> None:
        rise = number - self.last
        step = median(self.rises) if self.rises else 1.0
        if rise > 0:
            self.rises.append(rise)
        elif number <= max(1.0, 2 * step, self.lowest):
            self.restarts += 1
        # Ranks of one job that write the same lines may be eight steps apart.
        elif -rise <= 8 * step and number > self.last / 2:
            return
        else:
            self.wrong += 1
        gap_s = at_s - self.moved_s
        if not self.gaps or gap_s <= _INTERVALS * max(median(self.gaps), 0.05):
            self.active_s += gap_s
        self.gaps.append(gap_s)
        self.last, self.moved_s = number, at_s
        self.moves += 1
        self.busy_moves += busy

    @property
    def counts(self) -> bool:
        """Whether its numbers rise as those of a count do: but for starting again at the start."""
        rising = self.moves - self.restarts - self.wrong
        if self.place.rank >= 3 and self.place.unit != "epochs":
            return rising == self.moves >= _ENOUGH_MOVES - 1
        # A first number may be written twice or out of order by ranks that are not in step.
        return rising > 0 and self.wrong <= self.moves // 10 and self.restarts <= rising

    def is_moving(self, now_s: float, patience_s: float = 1.0) -> bool:
        """Whether it counts at this moment, or did not long ago."""
        interval_s = median(self.gaps) if self.gaps else 0.0
        return now_s - self.moved_s <= max(_INTERVALS * interval_s, patience_s)


class LogNumbers:
    """The numbers of a log that is looked at while its job runs; times are those of its lines."""

    def __init__(self) -> None:
        self._candidates: dict[str, _Candidate] = {}
        self._header: tuple[str, ...] = ()
        self._begun_s: float | None = None
        self._prepared_s = float("-inf")
        self.requests = 0

    def add(self, lines: Iterable[str], at_s: float, *, busy: bool = False) -> None:
        """Take lines that were written at this time; `busy`: the GPU computes."""
        self._begun_s = at_s if self._begun_s is None else self._begun_s
        for line in lines:
            self._add(line[-2000:], at_s, busy=busy)  # lines that tell progress are shorter

    def _add(self, line: str, at_s: float, *, busy: bool) -> None:
        if re.search(_ACCESS_LOG, line):
            self.requests += 1
            self._note(_Place(_ACCESS_LOG, "requests", 2), self.requests, at_s, line, busy=busy)
            return
        for place, number in self._places(line):
            # A pattern that finds another number first would count that.
            match = re.search(place.pattern, line)
            if match and number_of(match[1]) == number:
                self._note(place, number, at_s, line, busy=busy)
        if _prepares(line):
            self._prepared_s = at_s

    def _note(self, place: _Place, number: float, at_s: float, line: str, *, busy: bool) -> None:
        if place.pattern not in self._candidates and len(self._candidates) >= 3000:
            return
        self._candidates.setdefault(place.pattern, _Candidate(place)).add(
            number, at_s, line.strip(), busy=busy
        )

    def _places(self, line: str) -> Iterator[tuple[_Place, float]]:
        masked = _CLOCK.sub(lambda match: "\0" * len(match[0]), line)
        taken = set[int]()
        for match in _FRACTION.finditer(masked):
            number, total = number_of(match[1]), number_of(match[3])
            if not number <= total or total <= 1:
                continue
            taken |= {match.start(1), match.start(3)}
            if place := _fraction_place(masked, match):
                yield place, number
        columns = [*self._columns(masked)]
        for match in _NAMED.finditer(masked):
            if columns or match.start(3) in taken:
                continue
            if place := _named_place(match, masked):
                taken.add(match.start(3))
                yield place, number_of(match[3])
        yield from (
            (_unit_place(match), number_of(match[1]))
            for match in _WITH_UNIT.finditer(masked)
            if match.start(1) not in taken and not _prepares(masked)
        )
        if (match := _HEAD.search(masked)) and match.start(1) not in taken and not columns:
            yield _Place(r"^\W*([\d,]+)\b", "steps", 3), number_of(match[1])
        yield from columns

    def _columns(self, line: str) -> Iterator[tuple[_Place, float]]:
        """Whole numbers of a row, by the header above it."""
        comma = line.count(",") >= 1 and not re.search(r",\s\s", line)
        cells = [c.strip().strip("\"'") for c in (line.split(",") if comma else line.split())]
        if not 2 <= len(cells) <= _MOST_COLUMNS:
            return
        numeric = [bool(_CELL.fullmatch(cell)) for cell in cells]
        if not any(numeric):
            self._header = tuple(cell.lstrip("#").strip("\"' ") for cell in cells)
            return
        header = self._header if len(self._header) == len(cells) else ()
        # Without a header only rows that are numbers alone are told from sentences.
        if sum(numeric) < len(cells) - (1 if header else 0) or (not header and len(cells) < 3):
            return
        for n, cell in enumerate(cells):
            name = header[n] if header else ""
            rank, unit = _rank_of(name) if name else (3, "steps")
            if re.fullmatch(r"\d[\d,]*", cell) and rank is not None:
                yield (
                    _Place(_column(n, len(cells) - n - 1, comma=comma), unit, rank),
                    number_of(cell),
                )

    def ranked(self, now_s: float) -> list["_Candidate"]:
        """What may tell the progress, the best first."""
        looked_s = now_s - (self._begun_s if self._begun_s is not None else now_s)
        alive = [
            candidate
            for candidate in self._candidates.values()
            if candidate.counts and candidate.is_moving(now_s, 0.25 * looked_s)
        ]
        # While a GPU computes in some part of the look, what counts then is its work.
        alive = [candidate for candidate in alive if candidate.busy_moves] or alive
        return sorted(
            alive,
            key=lambda candidate: (
                candidate.place.is_check,
                candidate.moves < _ENOUGH_MOVES,
                candidate.place.rank,
                candidate.restarts > 0,
                candidate.wrong > 0,
                -candidate.active_s,
            ),
        )

    def match(self, now_s: float) -> ProgressMatch | None:
        """How the job tells its progress, by all that was seen until now; None: nothing does."""
        match: ProgressMatch | None = None
        # The best one last, with the next one as its runner-up.
        for candidate in self.ranked(now_s)[1::-1]:
            settings = ProgressSettings(
                kind="output", unit=candidate.place.unit, pattern=candidate.place.pattern
            )
            match = ProgressMatch(settings, candidate.line, match)
        return match

    def is_certain(self, now_s: float, least_s: float) -> bool:
        """Whether more looking would change nothing: steps have been counted for some seconds."""
        best = next(iter(self.ranked(now_s)), None)
        if best is None or best.moves < 2 * _ENOUGH_MOVES:
            return False
        is_work = best.place.rank == 0 or best.restarts > 1
        return is_work and best.active_s >= least_s and best.is_moving(now_s)

    def is_open(self, now_s: float) -> bool:
        """Whether numbers were printed that may yet tell: none counts, or something is prepared."""
        moving = any(candidate.is_moving(now_s) for candidate in self.ranked(now_s)[:1])
        return bool(self._candidates) and (not moving or self.is_preparing(now_s))

    def is_preparing(self, now_s: float) -> bool:
        """Whether downloads, weights, data or checks were told of within the last seconds."""
        return now_s - self._prepared_s < 5


def search(lines: Sequence[str]) -> ProgressMatch | None:
    """The number that tells progress in lines of which no times are known; None: none does."""
    numbers = LogNumbers()
    for n, line in enumerate(lines):
        numbers.add([line], float(n))
    return numbers.match(float(len(lines)))


def _prepares(line: str) -> bool:
    """Whether a line tells of downloads, weights, data or checks before the work."""
    words: list[str] = _WORD.findall(line.split("%|")[0].split(" [")[0])[:4]
    return bool(_BYTES_PER_S.search(line)) or any(map(_PREPARES.match, words))


def _parts(name: str) -> list[str]:
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", re.split(r"[/.]", name)[-1] or name)
    return [word.lower() for word in words]


def _rank_of(name: str) -> tuple[int | None, str]:
    """Rank and unit of a named number; rank None: such a name counts nothing."""
    parts = _parts(name)
    if not parts or any(map(_NO_COUNTS.match, parts)):
        return None, ""
    for rank, units in ((0, _STEPS), (2, _ITEMS)):
        if unit_words := [part for part in parts if units.match(part)]:
            unit = unit_words[-1].removesuffix("s")
            return rank, _PLURALS.get(unit, f"{unit}s")
    return (4, "epochs") if "epoch" in parts or "epochs" in parts else (3, "steps")


def _fraction_place(line: str, match: re.Match[str]) -> _Place | None:
    """The pattern of `n/m`, with the word before it, so that another bar is not taken for it."""
    left, right = line[: match.start()], line[match.end() :]
    words, percent = [*_WORD.finditer(left)], _BAR.search(left)
    # The words before a bar are its name; those of a log line may be anything.
    named = [word[0] for word in (words if percent else words[-3:])]
    if _BYTES_PER_S.search(right) or any(map(_PREPARES.match, named)):
        return None
    rank, unit = 1, "steps"
    if after := re.match(rf"\s?({_UNITS})\b(?!\s*[/:=])", right):
        unit_rank, unit = _rank_of(after[1])
        rank = unit_rank or 0
    is_check = any(map(_CHECKS.match, named[-3:]))
    # The fraction itself, whose first number is its group.
    number = _digits(match[1] + match[3])
    between = r"\s*/\s*" if "/" in match[2] else r"\s+(?:out )?of\s+"
    tail = rf"({number}){between}{number}" + (r" \[" if right.startswith(" [") else "")
    if percent:
        inside = [word[0] for word in words if word.end() <= percent.start()]
        start = rf"\b{re.escape(inside[-1])}\b.*?" if inside else r"^(?:(?![A-Za-z]{2}).)*?"
        # tqdm draws with digits where a terminal has no blocks.
        drawn = r"\|[^|]*\|\s*" if percent[1] else r"[^\w%]*"
        return _Place(f"{start}%{drawn}{tail}", unit, rank, is_check)
    gap = left[words[-1].end() :] if words else left
    skipped = len(re.findall(_TOKEN, gap))
    if not words or skipped > _MOST_BETWEEN:
        return _Place(_from_start(left) + tail, unit, rank)
    if "\0" in gap:
        return None
    word_rank, word_unit = _rank_of(words[-1][0])
    # A word that stands right before the fraction names it, if it is one of steps or epochs.
    if not skipped and unit == "steps" and word_rank not in (None, 3):
        rank, unit = word_rank or 0, word_unit
    return _Place(
        rf"\b{re.escape(words[-1][0])}\b" + _passing(r"\D", gap) + tail, unit, rank, is_check
    )


def _digits(number: str) -> str:
    """The pattern of such numbers, with what may stand between their digits."""
    return r"[\d.]+[kKMGT]?" if any(ch in "kKMGT." for ch in number) else r"[\d,]+"


def _from_start(left: str) -> str:
    """The pattern of what is left of a number that no word names."""
    if "\0" in left or len(re.findall(_TOKEN, left)) > _MOST_COLUMNS:
        return ""
    return "^" + _passing(r"\D" if re.search("[A-Za-z]", left) else r"[^\dA-Za-z]", left)


def _passing(between: str, text: str) -> str:
    """The pattern of a text that holds other numbers, each after characters of `between`."""
    numbers = re.findall(_TOKEN, text)
    token = r"\d+" if all(map(str.isdecimal, numbers)) else _TOKEN
    return _repeated(f"{between}*+{token}", len(numbers)) + f"{between}*+"


def _column(before: int, after: int, *, comma: bool) -> str:
    """The pattern of a whole number between so many cells of its row."""
    if comma:
        return rf'^{_repeated("[^,]*,", before)}\s*"?(\d+)"?{_repeated(",[^,]*", after)}$'
    left, right = _repeated(r"\S+\s+", before), _repeated(r"\s+\S+", after)
    return rf"^\s*{left}(\d+){right}\s*$"


def _repeated(pattern: str, times: int) -> str:
    return pattern * times if times < 2 else rf"(?:{pattern}){{{times}}}"


def _named_place(match: re.Match[str], line: str) -> _Place | None:
    name, number = match[1], match[3]
    rank, unit = _rank_of(name)
    before: list[str] = _WORD.findall(line[: match.start()])[-2:]
    if rank is None or ("." in number and unit != "epochs") or any(map(_PREPARES.match, before)):
        return None
    is_check = any(map(_CHECKS.match, [*before, *_parts(name)]))
    group = r"([\d.]+)" if unit == "epochs" else r"([\d,]+)"
    return _Place(rf"\b{re.escape(name)}\b\W*{group}", unit, rank, is_check)


def _unit_place(match: re.Match[str]) -> _Place:
    pattern = rf"({_digits(match[1])})\s?{match[2]}\b(?!\s*/)"
    rank, unit = _rank_of(match[2])
    return _Place(pattern, unit, 1 if match[2] == "it" else rank or 1)


WATCHED_S = 20.0
"""Length of a look: time for a second epoch, or for the work to follow what prepares it."""

# Length of a look at whose end data are being prepared, or the best candidate has stopped.
_LONGEST_LOOK_S = 60.0

# How often the output is read; how often the GPU, the libraries and a metrics page are.
LOOK_S, ASK_S = 0.1, 1.0

# Seconds of steady steps after which a look ends.
CERTAIN_S = 6.0

# Time in which a job that honours its gate comes to it: one step.
_GATE_S = 3.0

# After so long a pattern that matches no line of an output that counts is a wrong one.
_PATTERN_S = 60.0

_COUNTS = "advisor.callbacks"


@dataclass(frozen=True, slots=True)
class CountableJob:
    """A command whose progress can be read.

    Attributes:
        command: As given, or with `advisor.callbacks` in it, which counts its optimizer steps.
        found: How its progress is read.
        counted: The command that counts each optimizer step of a PyTorch job, where `command`
            is another one.
    """

    command: tuple[str, ...]
    match: ProgressMatch
    counted: str | None = None


def patience_s(job: Job) -> float:
    """Seconds to wait for a job that does not count, while its output does."""
    hasty = job.progress.pattern is not None and job.start_timeout_s == START_TIMEOUT_S
    return _PATTERN_S if hasty else job.start_timeout_s


def counts_otherwise(job: Job, lines: Sequence[str]) -> InputError | None:
    """The error of a job that does not count in its own way while its output counts in another."""
    seconds, kind, pattern = patience_s(job), job.progress.kind, job.progress.pattern
    match = search(lines) if kind in ("output", "counter") and not job.progress.gate else None
    return match and InputError(
        f"no line that {job.name} wrote in {seconds:g} s matches its pattern {pattern}"
        if pattern
        else f"{job.name} counted nothing in ADVISOR_PROGRESS_FILE in {seconds:g} s",
        why=f"its output counts otherwise: {match.line!r}",
        fix=f"the pattern {match.progress.pattern} reads that (progress: {{kind: output, pattern: "
        ".. }); where it begins later, set start_timeout_s in its job file",
    )


def find_progress(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    seconds: float = WATCHED_S,
    computes: Callable[[], bool] = lambda: False,
) -> CountableJob:
    """Run a command until its progress is found, then end it.

    A progress file that it counts in is taken at once. Then the metrics page of a known server,
    then what it prints. Of a PyTorch job that prints nothing the optimizer steps are counted, if
    its Python has advisor.

    Args:
        command: Program and arguments; no shell.
        environment: All of its variables.
        seconds: Length of the look.
        computes: Whether the GPU computes now.

    Raises:
        JobError: it failed, or nothing tells its progress.
    """
    with _looking(command, environment) as look:
        match = look.run(seconds, computes)
    counted = counted_script(command) if look.runs_torch else None
    if match:
        return CountableJob(tuple(command), match, counted)
    if counted and _has_advisor(command[0], environment):
        words = shlex.split(counted)
        with _looking(words, environment) as second, contextlib.suppress(JobError):
            if (match := second.run(_LONGEST_LOOK_S, computes)) and not match.line:
                return CountableJob(tuple(words), match)
    raise look.nothing(counted)


class _Look:
    """One run of a command that is looked at.

    Attributes:
        runs_torch: It has loaded PyTorch.
    """

    def __init__(
        self,
        job: "subprocess.Popen[bytes]",
        folder: Path,
        output: OutputLines,
        server: tuple[ServerPreset, str | None] | None,
    ) -> None:
        self._job, self._folder, self._output, self._server = job, folder, output, server
        self._numbers, self._last_lines = LogNumbers(), list[str]()
        self._page: float | None = None
        self._page_moves = self.runs_torch = False
        self._ports: list[str] = []

    def run(self, seconds: float, computes: Callable[[], bool]) -> ProgressMatch | None:
        """Look until something is certain or the time is up.

        Raises:
            JobError: the command failed.
        """
        begun_s = now_s = time.monotonic()
        polled_s, busy = begun_s - ASK_S, False
        is_open = False
        while (code := self._job.poll()) is None and (
            now_s - begun_s < seconds or (is_open and now_s - begun_s < _LONGEST_LOOK_S)
        ):
            time.sleep(LOOK_S)
            now_s = time.monotonic()
            if now_s - polled_s >= ASK_S:
                polled_s, busy = now_s, computes()
                self._ask()
            self._read(now_s, busy=busy)
            if (read_plain(self._folder / "progress", 8) or bytes(8)) != bytes(8):
                return ProgressMatch(ProgressSettings(gate=self._passes_gate()), "")
            if self._page_moves:
                return self._by_page()
            if self._numbers.is_certain(now_s, CERTAIN_S):
                return self._numbers.match(now_s)
            # Silence is no reason to look on: a job that has printed nothing may never do.
            is_open = self._numbers.is_open(now_s)
        self._ended, self._now_s, self._looked_s = code is not None, now_s, now_s - begun_s
        self._read(now_s, busy=busy)
        if code:
            raise JobError(f"the command ended with exit code {code}", why=self._quoted())
        return self._by_page() if self._page is not None else self._numbers.match(now_s)

    def nothing(self, counted: str | None) -> JobError:
        """The error of a command in which nothing tells its progress."""
        how = "until it ended by itself" if self._ended else f"in {self._looked_s:.0f} s"
        if counted:
            fix = (
                f"it runs PyTorch, whose optimizer steps {counted} counts "
                f"(pip install {DISTRIBUTION} in its environment)"
            )
        elif self._numbers.is_preparing(self._now_s):
            fix = (
                "it was still preparing data or weights: run it once until they are cached, then "
                "profile again"
            )
        elif self._ports or self._server:
            at = (
                f"it listens at {listed(self._ports)}"
                if self._ports
                else "its command is that of a server"
            )
            fix = (
                f"{at}: send it requests meanwhile, or name its metrics page "
                "(progress: {kind: metrics, url: .., counter: ..}, docs/job-file.md)"
            )
        else:
            fix = (
                "print a count that rises, count in the program (docs/progress.md), or name what "
                "it prints with --pattern; --progress runs is for a command that is short"
            )
        return JobError(
            f"nothing that the command wrote {how} tells its progress",
            why=self._quoted(),
            fix=fix,
        )

    def _read(self, now_s: float, *, busy: bool) -> None:
        with contextlib.suppress(JobError):  # a flood, of which the newest lines are enough
            lines = [plain(line) for line in self._output.read()]
            # The newest 2,000 lines of a look: a job that floods its output says no more in others.
            self._numbers.add(lines[-2000:], now_s, busy=busy)
            self._last_lines = [*self._last_lines, *filter(str.strip, lines)][-3:]

    def _ask(self) -> None:
        pids = [self._job.pid, *descendants(self._job.pid)]
        self.runs_torch = self.runs_torch or "torch" in (loaded_libraries(pids) or "")
        self._ports = listening_urls(pids)
        url, counter = self._url(), self._server and self._server[0].counter
        if url and counter:
            with contextlib.suppress(AdvisorError):
                total = read_page(fetch(url), parse_selector(counter), None).total
                self._page_moves = self._page is not None and total > self._page
                self._page = total if self._page is None else self._page

    def _url(self) -> str | None:
        """Where the page of a known server is: at a port on which the job itself listens."""
        if self._server is None:
            return None
        server, url = self._server
        urls = [f"{port}{server.path}" for port in self._ports]
        return url if url in urls else next(iter(urls), None) if url is None else None

    def _by_page(self) -> ProgressMatch:
        assert self._server is not None
        server: ServerPreset = self._server[0]
        return ProgressMatch(
            ProgressSettings(
                kind="metrics",
                unit=server.unit,
                url=self._url(),
                counter=server.counter,
                histogram=server.histogram,
            ),
            "",
        )

    def _passes_gate(self) -> bool:
        """Close the gate, and see whether the job comes to it."""
        waiting = struct.pack("<q", WAITING)
        # In place: a job that has mapped the file dies of a read while it is empty.
        with open_plain(self._folder / "gate", "r+b") as file:
            file.write(struct.pack("<q", HOLD))
            return wait_until(lambda: os.pread(file.fileno(), 8, 8) == waiting, _GATE_S)

    def _quoted(self) -> str:
        last = " | ".join(line.strip() for line in self._last_lines)
        return f"its last lines: {last}" if last else "it wrote nothing"


def counted_script(command: Sequence[str]) -> str | None:
    """The same command, whose optimizer steps are counted; None: no script or module of Python."""
    program, *words = command
    place = next((n for n, word in enumerate(words) if word.endswith(".py") or word == "-m"), None)
    if "python" not in Path(program).name or place is None or _COUNTS in words:
        return None
    return shlex.join([program, *words[:place], "-m", _COUNTS, *words[place:]])


def _has_advisor(interpreter: str, environment: Mapping[str, str]) -> bool:
    probe = [interpreter, "-c", f"import {_COUNTS}"]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        return (
            subprocess.run(
                probe, env=environment, capture_output=True, timeout=30, check=False
            ).returncode
            == 0
        )
    return False


@contextlib.contextmanager
def _looking(command: Sequence[str], environment: Mapping[str, str]) -> Generator[_Look]:
    """A look at the command, with output, count and open gate in a folder of its own.

    It is ended with all that it started.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        replace_file(folder / "progress", bytes(FILE_BYTES), durable=False)
        replace_file(folder / "gate", struct.pack("<qq", GO, 0), durable=False)
        with writing_private(folder / "output") as output:
            job = subprocess.Popen(
                command,
                env={
                    **environment,
                    "ADVISOR_PROGRESS_FILE": str(folder / "progress"),
                    "ADVISOR_GATE_FILE": str(folder / "gate"),
                    "PYTHONUNBUFFERED": "1",
                },
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            with contextlib.closing(OutputLines(folder / "output")) as lines:
                yield _Look(job, folder, lines, server_of(command))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)
            job.wait()
