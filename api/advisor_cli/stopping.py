"""How a command that measures ends before it is done."""

import os
import signal
from collections.abc import Generator
from contextlib import contextmanager, suppress
from types import FrameType

import typer
from rich.console import Console

from advisor.errors import STOPPED

_STOPPING = b"stopping: the jobs are ended first, which may take a minute ...\n"

_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stoppable(console: Console) -> Generator[None]:
    """Ctrl-C, SIGTERM of a batch system and SIGHUP of a lost terminal all end a run cleanly."""

    def interrupt(number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            # The shell and the kernel send one each; the second must not break the cleaning up.
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        else:
            with suppress(OSError):
                # Not by the console, which the signal may have met in the midst of a line.
                os.write(console.file.fileno(), _STOPPING)
        raise KeyboardInterrupt

    # nohup asks that a hangup is ignored.
    ends = [n for n in _ENDS if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in ends}
    try:
        yield
    except KeyboardInterrupt:
        # Where the terminal is gone, there is nobody to write to.
        with suppress(OSError):
            console.print("stopped; finished points are kept: the same command goes on from here")
        raise typer.Exit(STOPPED) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
