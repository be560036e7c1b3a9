"""What processes that do nothing but poll a card have in common: how often, and until when."""

import select
import subprocess
import sys
from contextlib import suppress

POLL_S = 0.0003
"""Asking for power takes some tens of microseconds; readings change every tens of milliseconds."""

_END_S = 10.0


def is_over() -> bool:
    """In such a process: whether the one that started it is gone or has closed its input."""
    return bool(select.select([sys.stdin], [], [], 0)[0])


def end(process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    """Close its input and wait; one that does not end is killed."""
    assert process.stdin is not None
    with suppress(BrokenPipeError):
        process.stdin.close()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
