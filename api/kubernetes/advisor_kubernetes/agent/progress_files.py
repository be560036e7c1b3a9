"""The progress files of pods, made before their jobs look for them (docs/progress.md)."""

import os
from pathlib import Path

from advisor.progress import FILE_BYTES
from advisor_kubernetes.names import PROGRESS_FILE

_ENTER, _OWN, _SHARED = 0o711, 0o700, 0o777


def progress_file(folder: Path, uid: str) -> Path:
    """Where a pod's file is.

    Args:
        folder: Of all pods.
        uid: Of the pod.
    """
    return folder / uid / PROGRESS_FILE


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
    path = progress_file(folder, uid)
    own = path.parent
    own.mkdir(exist_ok=True)
    # Below it only names that were not there are opened: the pod may be writing already.
    own.chmod(_SHARED if user is None else _OWN)
    if user is not None and os.geteuid() == 0:
        os.chown(own, user, -1, follow_symlinks=False)
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
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
