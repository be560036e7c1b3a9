"""A second user of this host, for tests of what one may do to the other; needs root."""

import os
import pickle
import subprocess
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

MALLORY = 65534
"""User `nobody`; nothing is theirs but what a test lets them make."""


@contextmanager
def shared_folder() -> Generator[Path]:
    """A folder as /tmp is: everybody may make something in it, and remove only their own."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to be two users")
    with tempfile.TemporaryDirectory(prefix="adv") as folder:
        Path(folder).chmod(0o1777)
        yield Path(folder)


def mallory_does(*command: str | Path) -> None:
    with mallory_starts(*command) as process:
        assert process.wait(20) == 0


def mallory_starts(*command: str | Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, user=MALLORY, group=MALLORY, extra_groups=[], cwd="/")


def as_user(user: int, act: Callable[[], object], groups: tuple[int, ...] = ()) -> object:
    """What a function returned, or the exception that it raised, in a process of that user."""
    reading, writing = os.pipe()
    if not (child := os.fork()):
        try:
            os.setgroups(groups)
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            answer = act()
        except BaseException as error:  # noqa: BLE001 - the parent is to see it
            answer = repr(error)
        with os.fdopen(writing, "wb") as file:
            pickle.dump(answer, file)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        answer = pickle.load(file)
    os.waitpid(child, 0)
    return answer
