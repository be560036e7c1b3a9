"""The jobs that are defined or measured, without reading all of them for every request."""

import functools
import threading
from pathlib import Path

from advisor.errors import InputError
from advisor.formats.job_file import load_job
from advisor.settings import job_folders
from advisor.wire.lists import JobRow
from advisor_api.engine import bundled
from advisor_data import Store
from advisor_data.lists import job_rows

MOST_COMPARED = 2000
"""Names that a wrong one is compared with for a hint; more would take too long."""


class Jobs:
    """Rows of all jobs; safe to share between threads. Everything here may block."""

    def __init__(self, folder: Path, store: Store) -> None:
        self._folder, self._store = folder, store
        self._lock = threading.Lock()
        self._names = -1, frozenset[str]()

    def rows(self, after: str, limit: int) -> tuple[JobRow, ...]:
        """One row for each job on each GPU model, by name: of `limit` names after one.

        Raises:
            StoreError: the store cannot be read.
        """
        defined = self.launchable()
        others = {row.job for row in bundled.profile_rows()}.union(defined)
        stored = self._store.profile_names(after, limit)
        names = sorted({*stored, *(name for name in others if name > after)})[:limit]
        if not names:
            return ()
        first, last = names[0], names[-1]
        return job_rows(
            [name for name in defined if first <= name <= last],
            self._store.profile_rows(first, last),
            [row for row in bundled.profile_rows() if first <= row.job <= last],
        )

    def names(self, change: int, near: str) -> set[str]:
        """Names to look for one like `near` in; read again for another `change` of the store.

        Raises:
            StoreError: the store cannot be read.
        """
        names = {row.job for row in bundled.profile_rows()}.union(self.launchable())
        names |= self._stored(change)
        if len(names) <= MOST_COMPARED:
            return names
        return {near} if near in names or self._store.profile_rows(near, near) else set()

    def _stored(self, change: int) -> frozenset[str]:
        """Names in the store; some of them where there are very many."""
        with self._lock:
            if self._names[0] != change:
                found = self._store.profile_names(limit=MOST_COMPARED + 1)
                self._names = change, frozenset(found)
            return self._names[1]

    def launchable(self) -> list[str]:
        """Names of the jobs that have a job file without a fault, sorted."""
        files = (file for folder in job_folders(self._folder) for file in folder.glob("*.yaml"))
        return sorted({path.stem for path in files if _defines(path)})


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
