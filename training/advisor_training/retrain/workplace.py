"""The folder of retraining: its lock, its draft, and what the last run had looked at.

It is `retrain` in the folder of models: `lock` is held while a run goes on, `last.json` has the
points of the last run that came to its end, and `draft` is a challenger that is being written.
"""

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from advisor.errors import BusyError
from advisor.files import private_folder, replace_file, try_lock, writing_private
from advisor.formats.wire import read, write


@dataclass(frozen=True, slots=True)
class LastRun:
    """What a run had looked at.

    Attributes:
        points_sha256: Of all points that were there, refused ones among them.
        at: When, ISO 8601, UTC.
        why: How it ended.
    """

    points_sha256: str
    at: str
    why: str


@dataclass(frozen=True, slots=True)
class Workplace:
    """The folder of a run that holds the lock."""

    folder: Path

    @property
    def draft(self) -> Path:
        """Where the challenger is written before the registry takes it."""
        return self.folder / "draft"

    def clear(self) -> None:
        """Remove the draft of this run, or of one that was killed."""
        shutil.rmtree(self.draft, ignore_errors=True)

    def last_run(self) -> LastRun | None:
        """The last run that came to its end; None where there is none, or nobody can read it."""
        try:
            return read(LastRun, (self.folder / "last.json").read_bytes())
        except (OSError, ValueError):
            return None

    def remember(self, run: LastRun) -> None:
        """Keep what a run has looked at.

        Raises:
            OSError: it cannot be written.
        """
        replace_file(self.folder / "last.json", write(run).encode() + b"\n")


@contextmanager
def working_in(models: Path) -> Generator[Workplace]:
    """The workplace below the folder of models, for one run at a time.

    Raises:
        BusyError: another run goes on.
        OSError: it cannot be made.
    """
    folder = private_folder(models, "retrain")
    with writing_private(folder / "lock", "r+") as lock:
        if not try_lock(lock):
            raise BusyError(
                "another advisor retrain is running",
                why=f"{folder / 'lock'} is held",
                fix="wait for it to end; cron will call again",
            )
        place = Workplace(folder)
        place.clear()
        try:
            yield place
        finally:
            place.clear()
