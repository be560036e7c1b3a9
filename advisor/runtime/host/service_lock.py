"""A home as one service has it: for itself alone, and under a name that its launches carry."""

import secrets
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from advisor.errors import BusyError
from advisor.files.home import open_home
from advisor.files.locks import try_lock
from advisor.files.safe_files import writing_private
from advisor.files.whole_files import replace_file
from advisor.runtime.host.lock import write_holder

_LOCK, _ID = "service.lock", "id"


@contextmanager
def serving_home(home: Path) -> Generator[str]:
    """Be the one service of a home until the end of the block; a killed one lets go by itself.

    Returns:
        Name of the home, by which services of one database tell their launches apart.

    Raises:
        BusyError: another service has it.
        UnsafeFileError: the home belongs to another user, or cannot be closed to others.
    """
    with writing_private(open_home(home) / _LOCK, "r+") as file:
        if not try_lock(file):
            raise BusyError(
                f"the home {home} has a service already, process {file.read() or 'unknown'}",
                why="two would take each other's launches for their own",
                fix="stop that one, or give this one a home of its own: ADVISOR_HOME",
            )
        write_holder(file)
        yield _name_of(home)


def _name_of(home: Path) -> str:
    """Made once, and by whoever has the home for itself."""
    path = home / _ID
    if not path.exists():
        replace_file(path, secrets.token_hex(8).encode())
    return path.read_text()
