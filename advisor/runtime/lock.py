"""Lock files that all users of a host share; a killed process lets go by itself."""

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from advisor.errors import BusyError


@contextmanager
def gpu_lock(folder: Path, gpu_uuid: str) -> Generator[None]:
    """Hold a GPU for this process: two advisors would measure each other.

    Raises:
        BusyError: another process holds it.
    """
    with open_lock(folder, f"{gpu_uuid[-12:]}.lock") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BusyError(
                f"GPU {gpu_uuid} is being measured by process {file.read().strip() or 'unknown'}",
                fix="wait for it, or choose another GPU with --gpu",
            ) from error
        if file.writable():
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
        yield


def open_lock(folder: Path, name: str) -> IO[str]:
    """A lock file, made for everybody where it is not there; another user's is opened to read.

    A lock needs no right to write. A file that is there is opened without asking to make it:
    Linux refuses that in a folder for everybody (fs.protected_regular).
    """
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o1777)
    path = folder / name
    if not path.exists():
        with suppress(FileExistsError):
            path.touch(exist_ok=False)
            path.chmod(0o666)
    try:
        return path.open("r+")
    except PermissionError:
        return path.open("r")
