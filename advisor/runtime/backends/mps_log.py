"""What the log of an MPS server says of faults."""

import os
import re
from pathlib import Path

_FAULT_LINE = re.compile(r"fault|exception|illegal|fatal", re.IGNORECASE)
_CLIENT = re.compile(r"\bPID:? *([0-9]+)")
"""As in `Client {PID: 4267, Context ID: 0} connected`; the server's own number has no such word."""

_READ_BYTES = 64 << 10


def named_in_faults(log: str) -> frozenset[int]:
    """The clients in those lines that speak of a fault.

    Such a line may also be of one that a fault takes along: who is named alone is guilty.
    """
    lines = (line for line in log.splitlines() if _FAULT_LINE.search(line))
    return frozenset(int(found[1]) for line in lines for found in _CLIENT.finditer(line))


def end_of(log: Path) -> str:
    """The newest part of a log; nothing where it cannot be read."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _READ_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
