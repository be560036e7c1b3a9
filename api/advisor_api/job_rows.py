"""The jobs that are defined or measured, without reading all of them for every request."""

import functools
import threading
from pathlib import Path
from typing import Any

from advisor.errors import InputError
from advisor.job_file import load_job
from advisor_api import bundled
from advisor_data import Store
from advisor_models.job_list import job_rows_with_source

MOST_COMPARED = 2000
"""Names that a wrong one is compared with for a hint; more would take too long."""


class Jobs:
    """Rows of all jobs; safe to share between threads. Everything here may block.

    Args:
        folder: Of the job files.
        store: Of the points.
    """

    def __init__(self, folder: Path, store: Store) -> None:
        self._folder, self._store = folder, store
        self._lock = threading.Lock()
        self._rows: tuple[object, list[dict[str, Any]]] | None = None

    def rows(self, change: int) -> list[dict[str, Any]]:
        """One row for each job on each GPU model, by name.

        Args:
            change: Of the store: what was read for another one is read again.

        Raises:
            StoreError: the store cannot be read.
        """
        with self._lock:
            state = change, tuple(self.launchable())
            if self._rows is None or self._rows[0] != state:
                stored = self._store.solo_points()
                self._rows = state, job_rows_with_source(state[1], stored, bundled.solo_points())
            return self._rows[1]

    def names(self, change: int, near: str) -> set[str]:
        """Names to look for one like `near` in.

        Raises:
            StoreError: the store cannot be read.
        """
        names = {row["job"] for row in self.rows(change)}
        return names if len(names) <= MOST_COMPARED else names & {near}

    def launchable(self) -> list[str]:
        """Names of the jobs that have a job file without a fault, sorted."""
        return [path.stem for path in sorted(self._folder.glob("*.yaml")) if _defines(path)]


def _defines(path: Path) -> bool:
    try:
        written = path.stat()
    except OSError:  # gone by now
        return False
    return _is_job(path, written.st_ino, written.st_mtime_ns, written.st_size)


@functools.lru_cache(maxsize=4096)
def _is_job(path: Path, *_written: int) -> bool:
    """Whether a file, as it was written then, describes the job that it is named after."""
    try:
        return load_job(path).name == path.stem
    except InputError:
        return False
