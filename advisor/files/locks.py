"""Locks on files, which the kernel lets go of when their process ends."""

import fcntl
from typing import IO, Any


def try_lock(file: IO[Any]) -> bool:
    """Lock an open file for this process alone; False where another one holds it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
