"""Reads the progress files of jobs on the node (docs/job-file.md).

The owner of a job can write what he likes into its file, and put other things in its place, so
nothing is followed: a link, a pipe or a device there is no progress.
"""

import os
import stat
import struct
from dataclasses import dataclass
from pathlib import Path

from advisor.core.job import Reported
from advisor.progress import LATENCIES_AT
from advisor.runtime.counting import parse_fault, parse_reported

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class ProgressReading:
    """The content of a job's progress file.

    Attributes:
        steps: As counted by the job, which may start again.
        fault: Why it cannot be counted now; empty while it is.
    """

    steps: int
    reported: Reported
    fault: str = ""


def read_progress(path: Path) -> ProgressReading | None:
    """How far a job is; None where it has no such file, or something else in its place."""
    data = read_plain(path, LATENCIES_AT)
    return None if data is None else parse_progress(data)


def read_plain(path: Path, most_bytes: int, owner: int | None = None) -> bytes | None:
    """The beginning of a file that another user may have put there.

    Args:
        path: Its last part may be anything; the folders before it must be ours.
        most_bytes: Of it.
        owner: Number of the user whose file it must be; None: anybody's.

    Returns:
        None where there is none, or it is no plain file, or not that user's.
    """
    try:
        file = os.open(path, _READ)
    except OSError:
        return None
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or owner not in (None, found.st_uid):
            return None
        return os.read(file, most_bytes)
    except OSError:
        return None
    finally:
        os.close(file)


def parse_progress(data: bytes) -> ProgressReading | None:
    """The beginning of a progress file; None of fewer bytes than a count has."""
    if len(data) < 8:
        return None
    (steps,) = struct.unpack_from("<q", data)
    return ProgressReading(steps, parse_reported(data), parse_fault(data))
