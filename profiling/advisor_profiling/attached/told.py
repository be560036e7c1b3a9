"""How a process that runs already tells its progress: by a file, a page, or what it prints."""

import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from advisor.core.job import ProgressSettings
from advisor.errors import InputError, SourceError
from advisor.runtime.host.processes import environment_of
from advisor.runtime.jobs.counting import CounterFile
from advisor.runtime.jobs.output import OutputLines, number_of
from advisor.runtime.jobs.progress_search import FoundProgress, search
from advisor.runtime.jobs.running_job import PROGRESS_MARK
from advisor.scrape.fetch import fetch
from advisor.scrape.page import parse_selector, read_page
from advisor.scrape.servers import server_of

_TAIL_BYTES = 64 * 1024
"""Of an output that was written before, the end."""

_TAIL_LINES = 50
"""Of that end, the newest: a count that begins again with each epoch rises among few lines."""


@dataclass(frozen=True, slots=True)
class AskedProcess:
    """What somebody knows of the process and told us.

    Attributes:
        pattern: Of its output.
        url: Of its Prometheus page.
        counter: On that page.
    """

    pattern: str | None = None
    url: str | None = None
    counter: str | None = None


@dataclass(frozen=True, slots=True)
class ToldProgress:
    """Where a process tells how far it is.

    Attributes:
        progress: The same for a job file.
        read: Its count now; None where it cannot be read at this moment.
    """

    progress: ProgressSettings
    read: Callable[[], float | None]


def find_told(
    pids: Sequence[int], command: Sequence[str], asked: AskedProcess
) -> ToldProgress | None:
    """Where the processes of a job tell its progress; None: nowhere that anybody can read.

    Only pages of servers that are known, or were named, are asked for: another port may be one on
    which the job's own processes talk, and they do not expect anybody else there.

    Raises:
        InputError: what was asked for is wrong.
    """
    if asked.pattern is not None:
        return _by_output(pids, asked.pattern)
    if asked.url is not None or asked.counter is not None:
        return _by_page(command, asked)
    begun, waiting = _by_file(pids), _by_file(pids, begun=False)
    return begun or _by_page(command, asked) or _by_output(pids, None) or waiting


def output_of(pids: Sequence[int]) -> str:
    """Where the first process writes, in words."""
    names = [_link(pid, 1) for pid in pids]
    name = next((name for name in names if name), "nowhere")
    if name.startswith(("/dev/pts/", "/dev/tty")):
        return "a terminal"
    return "a pipe" if name.startswith("pipe:") else name


def _by_file(pids: Sequence[int], *, begun: bool = True) -> ToldProgress | None:
    """A file that was counted in already, or one that may be."""
    for pid in pids:
        path = Path(environment_of(pid).get(PROGRESS_MARK, "/nonexistent"))
        if path.is_file() and ((count := CounterFile(path)).read() > 0 or not begun):
            return ToldProgress(ProgressSettings(), count.read)
    return None


def _by_page(command: Sequence[str], asked: AskedProcess) -> ToldProgress | None:
    known = server_of(command)
    url = asked.url or (known and known[1])
    name = asked.counter or (known and known[0].counter)
    if url is None or name is None:
        if asked == AskedProcess():
            return None
        raise InputError(
            "it is not known which counter of the page to read, or where the page is",
            why="the command line is not that of a server whose page is known",
            fix="say both --url and --counter",
        )
    counter = parse_selector(name)

    def read() -> float | None:
        with suppress(SourceError):
            return read_page(fetch(url), counter, None).total
        return None

    # Where nobody named the page, it is one only if the counter is on it.
    if asked == AskedProcess() and read() is None:
        return None
    settings = ProgressSettings(
        kind="metrics",
        unit=known[0].unit if known else "steps",
        url=url,
        counter=name,
        histogram=known and known[0].histogram,
    )
    return ToldProgress(settings, read)


def _by_output(pids: Sequence[int], pattern: str | None) -> ToldProgress | None:
    for path in _outputs(pids):
        output = _Output(path)
        if pattern is not None:
            return ToldProgress(
                ProgressSettings(kind="output", pattern=pattern), output.reader(pattern)
            )
        if found := output.search():
            read = output.reader(found.progress.pattern or "")
            return ToldProgress(replace(found.progress), read)
    return None


def _outputs(pids: Sequence[int]) -> Iterator[Path]:
    """Files that the processes write to as output or errors, each once."""
    seen = set[tuple[int, int]]()
    for pid in pids:
        for number in (1, 2):
            path = Path(f"/proc/{pid}/fd/{number}")
            with suppress(OSError):
                found = path.stat()
                if stat.S_ISREG(found.st_mode) and (found.st_dev, found.st_ino) not in seen:
                    seen.add((found.st_dev, found.st_ino))
                    yield path


class _Output:
    """The lines of an output from near its end on."""

    def __init__(self, path: Path) -> None:
        self._lines = OutputLines(path, last_bytes=_TAIL_BYTES)
        self._newest: list[str] = []

    def search(self) -> FoundProgress | None:
        """How it counts, by what is there."""
        self._look()
        return search(self._newest)

    def reader(self, pattern: str) -> Callable[[], float | None]:
        """What reads the last number that the pattern found."""
        expression, last = re.compile(pattern), None

        def read() -> float | None:
            nonlocal last
            self._look()
            for line in self._newest:
                if match := expression.search(line):
                    last = number_of(match[match.re.groups])
            return last

        return read

    def _look(self) -> None:
        lines = [line.decode(errors="replace") for line in self._lines.read()]
        self._newest = [*self._newest, *lines][-_TAIL_LINES:]


def _link(pid: int, number: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/fd/{number}")  # noqa: PTH115 - a pipe is no path
    except OSError:
        return ""
