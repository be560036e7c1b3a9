"""Locks on files, which the kernel lets go of when their process ends."""

import fcntl
import os
from pathlib import Path
from typing import IO, Any

_LOCKS = Path("/proc/locks")
"""As proc_locks(5) has it: number, kind, mode, access, process, device and inode, range."""


def try_lock(file: IO[Any]) -> bool:
    """Lock an open file for this process alone; False where another one holds it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def holders(file: IO[Any]) -> list[int]:
    """Processes that hold the lock of an open file; none where the kernel does not name them."""
    inode = str(os.fstat(file.fileno()).st_ino)
    try:
        lines = [line.split() for line in _LOCKS.read_text().splitlines()]
    except OSError:
        return []
    held = [line for line in lines if line[1] == "FLOCK" and line[5].endswith(f":{inode}")]
    return sorted({int(line[4]) for line in held} - {-1, 0})
