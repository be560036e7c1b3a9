"""Waiting for what other processes and threads do, with an end."""

import re
import socket
import subprocess
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from forked import Forked

PATIENCE_S = 240.0
"""Only a machine that stands still lets anything take so long."""


def eventually(
    holds: Callable[[], Any], said: Callable[[], object] = str, within_s: float = PATIENCE_S
) -> Any:
    """The first true value; what `said` gives is shown where there is none."""
    ends = time.monotonic() + within_s
    while not (found := holds()):
        assert time.monotonic() < ends, said()
        time.sleep(0.05)
    return found


def free_port() -> int:
    """On which nobody of this host listens yet."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def announced(process: Forked | subprocess.Popen[bytes], log: Path, pattern: str) -> str:
    """What a process that starts writes into its log, such as its address."""
    found: re.Match[str] | Literal[True] = eventually(
        lambda: re.search(pattern, log.read_text()) or process.poll() is not None, log.read_text
    )
    assert found is not True, f"it did not start: {log.read_text()}"
    return str(found[1])


@contextmanager
def ending(process: Forked | subprocess.Popen[bytes]) -> Generator[None]:
    """The process is asked to end after the block, and killed where it does not."""
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
