"""Matches a pattern of a job file against the output of its job, for a bounded time.

Python's engine tries each way of dividing a line, so `(a+)+$` on 60 letters takes longer than
anybody lives. It looks for signals meanwhile, so a timer ends that.
"""

import re
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from advisor.errors import JobError
from advisor.runtime.jobs.output import OutputLines, plain

MATCH_S = 1.0
"""Processor time for all lines of a look, 1 MiB at most; what a pattern usually takes is 50 ms."""


class OutputMatches:
    """The first match of a pattern in each line that a job completes, without colours."""

    def __init__(self, path: Path, pattern: str) -> None:
        self._lines, self._pattern = OutputLines(path), re.compile(pattern)
        self._too_slow: JobError | None = None

    def read(self, *, last: bool = False) -> list[re.Match[str]]:
        """Matches in the lines that were completed since the last look.

        Args:
            last: The job has ended: all that it wrote.

        Raises:
            JobError: the pattern takes too long, now or at an earlier look, and is not tried
                again; or the job writes more than is kept.
        """
        if self._too_slow is not None:
            raise self._too_slow
        found = self._match(self._lines.read())
        while last and self._lines.is_behind:
            found += self._match(self._lines.read())
        return found

    def peek(self) -> re.Match[str] | None:
        """The match in the line that has no end yet, and may be cut within a number.

        Raises:
            JobError: the pattern takes too long.
        """
        return next(iter(self._match([self._lines.rest])), None)

    def close(self) -> None:
        """Let go of the file."""
        self._lines.close()

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
            f"the pattern {pattern} took more than {MATCH_S:g} s of processor time",
            why="repeats within repeats, as in (a+)+, and several .* try each way of dividing a "
            "line",
            fix=r"say what stands around the number: 'step (\d+)'",
        )

    before = signal.signal(signal.SIGVTALRM, late)
    signal.setitimer(signal.ITIMER_VIRTUAL, MATCH_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
