"""Lock files that all users of a host share; a killed process lets go by itself."""

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from advisor.errors import BusyError


@contextmanager
def gpu_lock(folder: Path, gpu_uuid: str, launch_id: str = "") -> Generator[None]:
    """Hold a GPU for this process: two advisors would measure each other.

    Args:
        folder: Of the locks of this host.
        gpu_uuid: The GPU.
        launch_id: Of the launch that holds it; empty: it is being measured.

    Raises:
        BusyError: another process holds it.
    """
    with open_lock(folder, f"{gpu_uuid[-12:]}.lock") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise _busy(gpu_uuid, file.read()) from error
        if file.writable():
            file.truncate(0)
            file.write(f"{os.getpid()} {launch_id}".strip())
            file.flush()
        yield


def _busy(gpu_uuid: str, holder: str) -> BusyError:
    process, _, launch_id = holder.strip().partition(" ")
    if launch_id:
        return BusyError(
            f"GPU {gpu_uuid} has the launch {launch_id}",
            fix=f"wait for it, or stop it: advisor launches stop {launch_id}; or choose another "
            "GPU with --gpu",
        )
    return BusyError(
        f"GPU {gpu_uuid} is being measured by process {process or 'unknown'}",
        fix="wait for it, or choose another GPU with --gpu",
    )


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
