"""How a process that runs already tells its progress: by a file, a page, or what it prints."""

import math
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from advisor.core.job import ProgressSettings
from advisor.errors import AdvisorError, InputError, JobError
from advisor.runtime.counting import CounterFile, OutputLines, Tally, number_of, plain
from advisor.runtime.processes import environment_of
from advisor.runtime.progress_search import search
from advisor.runtime.running_job import PROGRESS_MARK
from advisor.scrape.fetch import fetch, listening_urls
from advisor.scrape.page import Selector, SeriesTotal, parse_selector, read_page
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
        read: The count now; None before the first one. Raises AdvisorError while it cannot be
            read.
        close: Lets go of the file that is read.
    """

    progress: ProgressSettings
    read: Callable[[], float | None]
    close: Callable[[], None] = lambda: None


def find_told(
    pids: Sequence[int], command: Sequence[str], asked: AskedProcess
) -> ToldProgress | None:
    """Where the processes of a job tell its progress; None where nothing of it can be read.

    A page is read from a named URL, or from a port of a known server on which these processes
    alone listen.

    Raises:
        InputError: `asked` names no pattern, URL or counter that can be used.
    """
    if asked.pattern is not None:
        return _by_output(pids, asked.pattern)
    if asked.url is not None or asked.counter is not None:
        return _by_page(pids, command, asked)
    return (
        _by_file(pids)
        or _by_page(pids, command, asked)
        or _by_output(pids, None)
        or _by_file(pids, begun=False)
    )


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
        if not path.is_file():
            continue
        count = CounterFile(path)
        if _has_begun(count) or not begun:
            return ToldProgress(ProgressSettings(), count.read, count.close)
        count.close()
    return None


def _has_begun(count: CounterFile) -> bool:
    try:
        return count.read() > 0
    except JobError:  # whoever wrote the reason counts there
        return True


def _by_page(
    pids: Sequence[int], command: Sequence[str], asked: AskedProcess
) -> ToldProgress | None:
    server, named_url = server_of(command) or (None, None)
    name = asked.counter or (server and server.counter)
    if name is None or (server is None and asked.url is None):
        if asked == AskedProcess():
            return None
        raise InputError(
            "it is not known which counter of the page to read, or where the page is",
            why="the command line is not that of a server whose page is known",
            fix="say both --url and --counter",
        )
    counter = parse_selector(name)
    url = asked.url or (server and _own_page(pids, server.path, named_url, counter))
    if url is None:
        if asked == AskedProcess():
            return None
        raise InputError(
            f"no port on which the process listens has a page with {name}",
            fix="name the page: --url http://127.0.0.1:PORT/metrics",
        )
    settings = ProgressSettings(
        kind="metrics",
        unit=server.unit if server else "steps",
        url=url,
        counter=name,
        histogram=server and server.histogram,
    )
    total = SeriesTotal()
    return ToldProgress(settings, lambda: total.add(read_page(fetch(url), counter, None).counts))


def _own_page(
    pids: Sequence[int], path: str, named_url: str | None, counter: Selector
) -> str | None:
    """The page of a server on its own ports, the one of its command line first."""
    named = named_url and urlsplit(named_url).port
    pages = [base + path for base in listening_urls(pids)]
    for page in sorted(pages, key=lambda page: urlsplit(page).port != named):
        with suppress(AdvisorError):
            read_page(fetch(page), counter, None)
            return page
    return None


def _by_output(pids: Sequence[int], pattern: str | None) -> ToldProgress | None:
    for path in _outputs(pids):
        output = _Output(path)
        if pattern is not None:
            progress = ProgressSettings(kind="output", pattern=pattern)
        elif found := search(output.newest()):
            progress = found.progress
        else:
            output.close()
            continue
        return ToldProgress(progress, output.reader(progress), output.close)
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
        self.close = self._lines.close
        self._unread: list[str] = []

    def newest(self) -> list[str]:
        """The newest lines; a `reader` counts them as well."""
        self._unread = [*self._unread, *map(plain, self._lines.read())][-_TAIL_LINES:]
        return self._unread

    def reader(self, progress: ProgressSettings) -> Callable[[], float | None]:
        """What reads the count; None before the first match."""
        expression, tally = re.compile(progress.pattern or ""), Tally()
        group = expression.groups
        count: float | None = None

        def read() -> float | None:
            nonlocal count
            lines, self._unread = [*self._unread, *map(plain, self._lines.read())], []
            for match in filter(None, map(expression.search, lines)):
                number = number_of(match[group] or "") if group else 1.0
                if not math.isfinite(number):
                    continue
                if group and progress.cumulative:
                    tally.add(number)
                    count = tally.total
                else:
                    count = (count or 0.0) + number
            return count

        return read


def _link(pid: int, number: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/fd/{number}")  # noqa: PTH115 - a pipe is no path
    except OSError:
        return ""
