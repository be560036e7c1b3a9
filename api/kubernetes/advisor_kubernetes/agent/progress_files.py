"""The progress files of pods on the node: made for them, and read from them (docs/progress.md).

A pod can write into its own folder whatever it likes, so nothing there is followed: a link, a pipe
or a device in the place of the file is no progress.
"""

import os
import stat
import struct
from dataclasses import dataclass
from pathlib import Path

from advisor.core.results import Reported
from advisor.progress import FILE_BYTES, LATENCIES_AT
from advisor.runtime.jobs.reports import parse_reported
from advisor_kubernetes.names import PROGRESS_FILE

_ENTER, _OWN, _SHARED = 0o711, 0o700, 0o777
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Progress:
    """What a job has told: the count of its steps, and its results."""

    steps: int
    reported: Reported


def make_file(folder: Path, uid: str, user: int | None) -> None:
    """Make a pod's folder and file, where they are not there, before its job looks for them.

    Args:
        folder: Of all pods.
        uid: Of the pod.
        user: Who may write them; None: anybody who sees the folder, which is that pod alone.

    Raises:
        OSError: they cannot be made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(_ENTER)
    own = folder / uid
    own.mkdir(exist_ok=True)
    # Below it only names that were not there are opened: the pod may be writing already.
    own.chmod(_SHARED if user is None else _OWN)
    if user is not None and os.geteuid() == 0:
        os.chown(own, user, -1, follow_symlinks=False)
    try:
        file = os.open(
            own / PROGRESS_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600
        )
    except FileExistsError:
        return
    try:
        os.ftruncate(file, FILE_BYTES)
        if user is None:
            os.fchmod(file, 0o666)
        elif os.geteuid() == 0:
            os.fchown(file, user, -1)
    finally:
        os.close(file)


def read_progress(folder: Path, uid: str) -> Progress | None:
    """How far a pod's job is; None where it has no such file, or something else in its place."""
    try:
        file = os.open(folder / uid / PROGRESS_FILE, _READ)
    except OSError:
        return None
    try:
        plain = stat.S_ISREG(os.fstat(file).st_mode)
        data = os.read(file, LATENCIES_AT) if plain else b""
    except OSError:
        return None
    finally:
        os.close(file)
    return parse_progress(data)


def parse_progress(data: bytes) -> Progress | None:
    """The beginning of a progress file; None of fewer bytes than a count has."""
    if len(data) < 8:
        return None
    (steps,) = struct.unpack_from("<q", data)
    return Progress(steps, parse_reported(data))
