"""The folder of a launch: how its supervisor and everybody else speak to each other.

    spec.json           what is wanted; there before a supervisor starts
    claim               made by the supervisor that runs the launch, so that there is only ever one
    alive               locked while that supervisor lives
    status.json         where it stands; replaced as a whole, about once a second
    stop                made by anyone who wants it stopped
    joins/              who asked to join, and what was answered (advisor.launch.records.joins)
    reserve             room for the last words, should the disk be full by then
    history.json        its power and speeds over time, in few points
    observations.jsonl  one line for each stretch that is known for good
    observing.jsonl     the same of the others, every few seconds, until they are
    N-a/, N-b/ ..       counter, gate and output of the jobs that were the N-th together
    N-joined-0/ ..      the same of those that joined them

Files, since they outlive every process: a server can be killed and find its launches again.
"""

import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from advisor.errors import BusyError, InputError
from advisor.files import (
    PRIVATE_FILE,
    open_home,
    private_folder,
    replace_file,
    try_lock,
    writing_private,
)
from advisor.formats.moments import now, to_text
from advisor.formats.wire import read, write
from advisor.launch.records.spec import LaunchSpec
from advisor.launch.records.status import LaunchStatus, abandoned, as_heard
from advisor.runtime.host.processes import wait_until

_READERS_S = 1.0
"""Who asks whether a supervisor lives holds its lock for an instant."""

_RESERVE_BYTES = 256 << 10
"""A status and an observation have a few kilobytes each."""

_ID_LENGTH = 100
_ID = re.compile(rf"[0-9a-zA-Z-]{{1,{_ID_LENGTH}}}")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LaunchFolder:
    """One launch's folder."""

    path: Path

    @property
    def launch_id(self) -> str:
        """Name of the launch."""
        return self.path.name

    def read_spec(self) -> LaunchSpec:
        """What is wanted.

        Raises:
            InputError: it cannot be read.
        """
        with InputError.instead_of(
            (OSError, ValueError), f"the launch {self.launch_id} has no readable spec"
        ):
            return loads(LaunchSpec, (self.path / "spec.json").read_bytes())

    def read_status(self) -> LaunchStatus:
        """Where it stands; where its supervisor is silent or gone before the end, it says so."""
        # Looked at before the status: a supervisor writes its last word, then lets go. And the
        # claim before the lock, in which it is made: else one that just begins seems to be gone.
        claimed = self.claimed()
        lives = self.supervised()
        try:
            status = loads(LaunchStatus, (self.path / "status.json").read_bytes())
        except (OSError, ValueError):
            status = LaunchStatus(
                launch_id=self.launch_id, state="accepted", updated_at=self._made_at()
            )
        if lives:
            return as_heard(status)
        if not claimed or status.over:
            return status
        return abandoned(status)

    def write_status(self, status: LaunchStatus) -> None:
        """Say where it stands; only its supervisor does.

        Raises:
            OSError: it cannot be written; the status before stays.
        """
        replace_file(self.path / "status.json", dumps(status), durable=status.over)

    def keep_reserve(self) -> None:
        """Keep room on the disk; where there is none, nothing happens."""
        with suppress(OSError), writing_private(self.path / "reserve") as file:
            os.posix_fallocate(file.fileno(), 0, _RESERVE_BYTES)

    def free_reserve(self) -> None:
        """Give the room back to whatever is to be written now."""
        (self.path / "reserve").unlink(missing_ok=True)

    def ask_stop(self) -> None:
        """Ask the supervisor to stop the jobs in the safe order; again does nothing."""
        (self.path / "stop").touch(PRIVATE_FILE)

    def stop_asked(self) -> bool:
        """Whether somebody asked."""
        return (self.path / "stop").exists()

    def claimed(self) -> bool:
        """Whether a supervisor has ever begun: then no other one may."""
        return (self.path / "claim").exists()

    def supervised(self) -> bool:
        """Whether the supervisor lives."""
        try:
            with (self.path / "alive").open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False

    @contextmanager
    def supervising(self) -> Generator[None]:
        """Be the one supervisor of this launch, until the end of the block.

        Raises:
            BusyError: there is or was one.
        """
        with writing_private(self.path / "alive") as file:
            # Locked before it is claimed: who sees the claim sees the lock.
            if not wait_until(lambda: try_lock(file), _READERS_S):
                raise self._has_one()
            try:
                (self.path / "claim").touch(PRIVATE_FILE, exist_ok=False)
            except FileExistsError as error:
                raise self._has_one() from error
            yield

    def _made_at(self) -> str:
        try:
            made_s = (self.path / "spec.json").stat().st_mtime
        except OSError:
            return now()
        return to_text(datetime.fromtimestamp(made_s, UTC))

    def _has_one(self) -> BusyError:
        return BusyError(
            f"the launch {self.launch_id} has or had a supervisor already",
            why="jobs are never started twice",
            fix="launch them again",
        )


def find_folder(root: Path, launch_id: str) -> LaunchFolder:
    """The folder of a launch of this host.

    Raises:
        InputError: there is none; a name with anything but letters, digits and dashes names none.
    """
    folder = LaunchFolder(root / launch_id)
    if _ID.fullmatch(launch_id) and (folder.path / "spec.json").is_file():
        return folder
    raise InputError(
        f"there is no launch {launch_id[:_ID_LENGTH]}", fix="list them: advisor launches"
    )


def create_folder(root: Path, spec: LaunchSpec) -> LaunchFolder:
    """The folder of a new launch, whole or not at all; one that is there stays as it is.

    `root`, which is `launches` in the home, and the home are made where they are not there, and
    closed to others.

    Raises:
        OSError: it cannot be written.
        UnsafeFileError: `root` or the home belongs to another user.
    """
    folder = LaunchFolder(root / spec.launch_id)
    if folder.path.exists():
        return folder
    open_home(root.parent, root.name)
    # Of its own for each try: two that make it at once do not meet in a draft.
    draft = root / f".{spec.launch_id}.{secrets.token_hex(4)}"
    try:
        private_folder(draft)
        replace_file(draft / "spec.json", dumps(spec))
        draft.rename(folder.path)
    except OSError:
        shutil.rmtree(draft, ignore_errors=True)
        # Somebody else made it at the same moment.
        if not folder.path.exists():
            raise
    return folder


def list_folders(root: Path) -> list[LaunchFolder]:
    """All launches of this host, the newest first."""
    names = sorted((p.name for p in root.glob("[!.]*") if p.is_dir()), reverse=True)
    return [LaunchFolder(root / name) for name in names]


def new_launch_id() -> str:
    """A name that sorts by time, such as 20260131-120000-3f2a91."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


def dumps(value: object) -> bytes:
    """A dataclass as JSON."""
    return write(value).encode()


def loads(kind: type[T], text: bytes) -> T:
    """The spec or the status that a document holds.

    Raises:
        ValueError: it is none; says where.
    """
    try:
        return read(kind, text)
    except InputError as error:
        raise ValueError(str(error)) from error
