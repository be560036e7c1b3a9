"""Finds the number in a job's log that tells its progress.

Every number of every line has a place: a fraction such as `12/100`, a name such as `step: 12`, a
unit such as `12it`, a column of a table, or the start of its line. A place is a regular expression
with one group, which counts the job later. Places are scored by what their numbers do over the
whole look: how long they rise, whether they still rise at its end, how often they change, and
whether the GPU computes meanwhile.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

from advisor.core.job import ProgressSettings
from advisor.runtime.jobs.output import number_of

_NUMBER = r"\d[\d,]*(?:\.\d+)?(?:[kKMGT](?![A-Za-z]))?"
_CLOCK = re.compile(
    r"\b\d{4}([-/.])\d\d?\1\d\d?(?:T\d\d:\d\d)?|\b\d\d?:\d\d(?::\d\d)?(?:[.,]\d+)?"
    r"|\b\d\d?[-/]\d\d?(?:[-/]\d\d(?:\d\d)?)?(?=[ T]+\d\d?:\d\d)"
)
"""Dates and times of day, which rise as steadily as any count."""

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
_NO_WORD = r"^(?:(?![A-Za-z]{2}).)*?"
_HEAD = re.compile(r"^\W*?(\d[\d,]*)(?=[\]:)|]|\s)(?!\s*[/%])")
_WORD = re.compile(r"(?<![\d.\w])[A-Za-z][A-Za-z_-]+")
_INTEGER = re.compile(r"\d[\d,]*")
_TOKEN = r"\d[\d.,]*+(?:[eE][-+]?\d++)?+"
"""A number that a pattern passes over; possessive, so that a line is divided in one way alone."""

_CELL = re.compile(r"[-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?%?|nan|inf|-+", re.I)

_STEPS = re.compile(r"(?:steps?|iters?|iterations?|it|batch|batches|updates?)$")
_ITEMS = re.compile(
    r"(?:samples?|images?|imgs|examples?|frames?|tokens?|timesteps?|requests?|episodes?|games?"
    r"|rounds?|records|rows)$"
)
_NO_COUNTS = re.compile(
    r"(?:time|times|sec|secs|second|seconds|ms|min|minutes|hours|elapsed|eta|remaining|wall"
    r"|date|loss|losses|lr|rate|learning|acc|accuracy|error|mean|std|avg|norm|grad|score"
    r"|reward|rew|mem|memory|peak|gpu|cpu|port|pid|rank|seed|version|size|dim|per|fps|ips|wps"
    r"|ups|tps|sps|qps|mfu|flops|tflop|tflops|gflops|speed|throughput|temp|temperature|percent"
    r"|lineno|line|max|width|height|params|parameters|world|device|devices|workers|node|nodes"
    r"|length|len|bytes|mb|gb|mib|gib)$"
)
"""Parts of names of numbers that count no work, or no work that goes on steadily."""

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

ACCESS_LOG = r'"(?:GET|POST|PUT|PATCH|DELETE|HEAD|OPTIONS) \S+(?: HTTP/[\d.]+)?" (?:- )?\d{3}\b'
"""Lines of uvicorn, gunicorn, nginx, Apache and most others for one request each."""

LONGEST_LINE = 2000
"""Characters of a line that are looked at; log lines that tell progress are shorter."""

_MOST_COLUMNS, _MOST_BETWEEN = 40, 8
_MOST_PLACES = 3000
_ENOUGH_MOVES = 5
_QUIET_PART = 0.25
_CALM_S = 5.0
_OUT_OF_STEP = 8
"""Steps by which ranks of one job that write the same lines may be apart."""

_INTERVALS = 3


@dataclass(frozen=True, slots=True)
class FoundProgress:
    """How a job tells its progress.

    Attributes:
        line: The last line that shows it; empty where the job counts in a file or on a page.
        runner_up: What would have been taken otherwise.
    """

    progress: ProgressSettings
    line: str
    runner_up: "FoundProgress | None" = None


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
    """The numbers of one place over the look."""

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
        elif -rise <= _OUT_OF_STEP * step and number > self.last / 2:
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
    def interval_s(self) -> float:
        """Typical time between two of its numbers."""
        return median(self.gaps) if self.gaps else 0.0

    @property
    def counts(self) -> bool:
        """Whether its numbers rise as those of a count do: but for starting again at the start."""
        rising = self.moves - self.restarts - self.wrong
        strict = self.place.rank >= 3 and self.place.unit != "epochs"
        if strict and (self.restarts or self.wrong or self.moves < _ENOUGH_MOVES - 1):
            return False
        # A first number may be written twice or out of order by ranks that are not in step.
        return rising > 0 and self.wrong <= self.moves // 10 and self.restarts <= rising

    def is_alive(self, now_s: float, looked_s: float) -> bool:
        """Whether it still counts at the end of the look."""
        patience_s = max(_INTERVALS * self.interval_s, _QUIET_PART * looked_s)
        return now_s - self.moved_s <= patience_s

    def is_moving(self, now_s: float) -> bool:
        """Whether it counts at this moment."""
        return now_s - self.moved_s <= max(_INTERVALS * self.interval_s, 1.0)


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
            self._add(line[-LONGEST_LINE:], at_s, busy=busy)

    def _add(self, line: str, at_s: float, *, busy: bool) -> None:
        if re.search(ACCESS_LOG, line):
            self.requests += 1
            self._note(_Place(ACCESS_LOG, "requests", 2), self.requests, at_s, line, busy=busy)
            return
        for place, number in self._places(line):
            # A pattern that finds another number first would count that.
            match = re.search(place.pattern, line)
            if match and number_of(match[1]) == number:
                self._note(place, number, at_s, line, busy=busy)
        if _prepares(line):
            self._prepared_s = at_s

    def _note(self, place: _Place, number: float, at_s: float, line: str, *, busy: bool) -> None:
        if place.pattern not in self._candidates and len(self._candidates) >= _MOST_PLACES:
            return
        found = self._candidates.setdefault(place.pattern, _Candidate(place))
        found.add(number, at_s, line.strip(), busy=busy)

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
        for match in _WITH_UNIT.finditer(masked):
            if match.start(1) not in taken and not _prepares(masked):
                yield _unit_place(match), number_of(match[1])
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
            if _INTEGER.fullmatch(cell) and rank is not None:
                pattern = _column(n, len(cells) - n - 1, comma=comma)
                yield _Place(pattern, unit, rank), number_of(cell)

    def ranked(self, now_s: float) -> list["_Candidate"]:
        """What may tell the progress, the best first."""
        looked_s = now_s - (self._begun_s if self._begun_s is not None else now_s)
        able = [one for one in self._candidates.values() if one.counts]
        alive = [one for one in able if one.is_alive(now_s, looked_s)]
        # While a GPU computes in some part of the look, what counts then is its work.
        if any(one.busy_moves for one in alive):
            alive = [one for one in alive if one.busy_moves] or alive
        return sorted(alive, key=_order)

    def found(self, now_s: float) -> FoundProgress | None:
        """How the job tells its progress, by all that was seen until now; None: nothing does."""
        ranked = self.ranked(now_s)
        if not ranked:
            return None
        other = next((_found(one) for one in ranked[1:] if one.place.unit), None)
        return _found(ranked[0], other)

    def is_certain(self, now_s: float, least_s: float) -> bool:
        """Whether more looking would change nothing: steps have been counted for some seconds."""
        ranked = self.ranked(now_s)
        if not ranked or ranked[0].moves < 2 * _ENOUGH_MOVES:
            return False
        best = ranked[0]
        steady = best.active_s >= least_s and best.is_moving(now_s)
        return steady and (best.place.rank == 0 or best.restarts > 1)

    def is_clear(self, now_s: float) -> bool:
        """Whether the best candidate counts at this moment, and nothing is being prepared."""
        ranked = self.ranked(now_s)
        return bool(ranked) and ranked[0].is_moving(now_s) and not self.is_preparing(now_s)

    def is_preparing(self, now_s: float) -> bool:
        """Whether downloads, weights, data or checks were told of within the last seconds."""
        return now_s - self._prepared_s < _CALM_S

    @property
    def is_seen(self) -> bool:
        """Whether any number was printed that could tell progress."""
        return bool(self._candidates)


def search(lines: Sequence[str]) -> FoundProgress | None:
    """The number that tells progress in lines of which no times are known; None: none does."""
    numbers = LogNumbers()
    for n, line in enumerate(lines):
        numbers.add([line], float(n))
    return numbers.found(float(len(lines)))


def _order(one: _Candidate) -> tuple[bool, bool, int, bool, bool, float]:
    is_sparse = one.moves < _ENOUGH_MOVES
    return (
        one.place.is_check,
        is_sparse,
        one.place.rank,
        one.restarts > 0,
        one.wrong > 0,
        -one.active_s,
    )


def _found(one: _Candidate, runner_up: FoundProgress | None = None) -> FoundProgress:
    settings = ProgressSettings(kind="output", unit=one.place.unit, pattern=one.place.pattern)
    return FoundProgress(settings, one.line, runner_up)


def _words(text: str) -> list[str]:
    return _WORD.findall(text)


def _prepares(line: str) -> bool:
    """Whether a line tells of downloads, weights, data or checks before the work."""
    words = _words(line.split("%|")[0].split(" [")[0])[:4]
    return bool(_BYTES_PER_S.search(line)) or any(map(_PREPARES.match, words))


def _parts(name: str) -> list[str]:
    last = re.split(r"[/.]", name)[-1] or name
    return [part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", last)]


def _rank_of(name: str) -> tuple[int | None, str]:
    """Rank and unit of a named number; rank None: such a name counts nothing."""
    parts = _parts(name)
    if not parts or any(map(_NO_COUNTS.match, parts)):
        return None, ""
    for rank, units in ((0, _STEPS), (2, _ITEMS)):
        if found := [part for part in parts if units.match(part)]:
            return rank, _plural(found[-1])
    return (4, "epochs") if "epoch" in parts or "epochs" in parts else (3, "steps")


def _plural(unit: str) -> str:
    unit = {"iter": "iterations", "iters": "iterations", "it": "steps", "imgs": "images"}.get(
        unit, unit
    )
    if unit.endswith("s"):
        return unit
    return f"{unit}es" if unit.endswith("ch") and unit != "epoch" else f"{unit}s"


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
        found, unit = _rank_of(after[1])
        rank = found or 0
    is_check = any(map(_CHECKS.match, named[-3:]))
    tail = _fraction(match, right)
    if percent:
        inside = [word[0] for word in words if word.end() <= percent.start()]
        start = rf"\b{re.escape(inside[-1])}\b.*?" if inside else _NO_WORD
        # tqdm draws with digits where a terminal has no blocks.
        drawn = r"\|[^|]*\|\s*" if percent[1] else r"[^\w%]*"
        return _Place(f"{start}%{drawn}{tail}", unit, rank, is_check)
    gap = left[words[-1].end() :] if words else left
    skipped = len(re.findall(_TOKEN, gap))
    if not words or skipped > _MOST_BETWEEN:
        return _Place(_from_start(left) + tail, unit, rank)
    if "\0" in gap:
        return None
    own_rank, own_unit = _rank_of(words[-1][0])
    # A word that stands right before the fraction names it, if it is one of steps or epochs.
    if not skipped and unit == "steps" and own_rank not in (None, 3):
        rank, unit = own_rank or 0, own_unit
    between = _passing(r"\D", gap)
    return _Place(rf"\b{re.escape(words[-1][0])}\b{between}{tail}", unit, rank, is_check)


def _fraction(match: re.Match[str], right: str) -> str:
    """The pattern of the fraction itself, whose first number is its group."""
    scaled = any(ch in "kKMGT." for ch in match[1] + match[3])
    number = r"[\d.]+[kKMGT]?" if scaled else r"[\d,]+"
    between = r"\s*/\s*" if "/" in match[2] else r"\s+(?:out )?of\s+"
    return rf"({number}){between}{number}" + (r" \[" if right.startswith(" [") else "")


def _from_start(left: str) -> str:
    """The pattern of what is left of a number that no word names."""
    skipped = len(re.findall(_TOKEN, left))
    if "\0" in left or skipped > _MOST_COLUMNS:
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
    before = _words(line[: match.start()])[-2:]
    if rank is None or any(map(_PREPARES.match, before)):
        return None
    if "." in number and unit != "epochs":
        return None
    is_check = any(map(_CHECKS.match, [*before, *_parts(name)]))
    group = r"([\d.]+)" if unit == "epochs" else r"([\d,]+)"
    return _Place(rf"\b{re.escape(name)}\b\W*{group}", unit, rank, is_check)


def _unit_place(match: re.Match[str]) -> _Place:
    rank, unit = _rank_of(match[2])
    group = r"[\d.]+[kKMGT]?" if any(ch in "kKMGT." for ch in match[1]) else r"[\d,]+"
    return _Place(rf"({group})\s?{match[2]}\b(?!\s*/)", unit, 1 if match[2] == "it" else rank or 1)
