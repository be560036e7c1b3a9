"""Lock files; a killed process lets go by itself.

Anyone who can open a lock file can hold it for ever, so nobody but ourselves can, or the members of
a group whose folder root has made for that (deploy/advisor.tmpfiles.conf). Users who share no lock
meet on the GPU: who else computes there is asked of the driver before anything starts.
"""

import os
import re
import secrets
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from advisor.errors import BusyError
from advisor.files import (
    check_parents,
    open_file,
    open_home,
    private_folder,
    replace_file,
    try_lock,
    writing_private,
)

_GROUP_FILE = 0o660
_OURS = re.compile(r".*\.lock")


@contextmanager
def gpu_lock(folder: Path, gpu_uuid: str, launch_id: str = "") -> Generator[None]:
    """Hold a GPU for this process: two advisors would measure each other.

    Without `launch_id` it is being measured.

    Raises:
        BusyError: another process holds it.
        UnsafeFileError: others than we, or our group, could hold it.
    """
    with open_lock(folder, f"{gpu_uuid[-12:]}.lock") as file:
        if not try_lock(file):
            raise _busy(gpu_uuid, file.read())
        _write_holder(file, launch_id)
        yield


def _write_holder(file: IO[str], name: str = "") -> None:
    """Write into a lock file that is held who holds it: this process, and for what."""
    file.truncate(0)
    file.write(f"{os.getpid()} {name}".strip())
    file.flush()


@contextmanager
def open_lock(folder: Path, name: str) -> Generator[IO[str]]:
    """A lock file, made where it is not there; nothing of it is changed.

    Raises:
        UnsafeFileError: others than we, or our group, may open it; or it is no plain file.
    """
    check_parents(folder)
    if _is_of_group(folder):
        descriptor = open_file(folder / name, os.O_RDWR | os.O_CREAT, _GROUP_FILE)
        if os.fstat(descriptor).st_uid == os.geteuid():
            os.fchmod(descriptor, _GROUP_FILE)  # whatever the umask has made of it
        with os.fdopen(descriptor, "r+") as file:
            yield file
    else:
        with writing_private(private_folder(folder, ours=_OURS) / name, "r+") as file:
            yield file


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


def _is_of_group(folder: Path) -> bool:
    """Whether root has made the folder for a group: nobody else enters, nobody takes files away."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    wanted = stat.S_IFDIR | stat.S_ISVTX | stat.S_IWGRP
    closed = not found.st_mode & stat.S_IRWXO
    return found.st_uid == 0 and closed and found.st_mode & wanted == wanted


@contextmanager
def serving_home(home: Path) -> Generator[str]:
    """Be the one service of a home until the end of the block; a killed one lets go by itself.

    Returns:
        Name of the home, by which services of one database tell their launches apart.

    Raises:
        BusyError: another service has it.
        UnsafeFileError: the home belongs to another user, or cannot be closed to others.
    """
    with writing_private(open_home(home) / "service.lock", "r+") as file:
        if not try_lock(file):
            raise BusyError(
                f"the home {home} has a service already, process {file.read() or 'unknown'}",
                why="two would take each other's launches for their own",
                fix="stop that one, or give this one a home of its own: ADVISOR_HOME",
            )
        _write_holder(file)
        # Made once, and by the process that has the home for itself.
        name = home / "id"
        if not name.exists():
            replace_file(name, secrets.token_hex(8).encode())
        yield name.read_text()
