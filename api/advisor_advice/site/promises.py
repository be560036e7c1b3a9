"""What job files promise to the users of a server."""

from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from advisor.errors import InputError
from advisor.settings import job_folders


def promised_p99_ms(jobs: Iterable[str], jobs_dir: Path) -> dict[str, float]:
    """The longest p99 latency of each job whose file in `jobs_dir` names one, ms.

    A job without a file, or with a faulty one, has promised nothing: advice needs no job files.
    """
    found = {job: _promised_ms(job, jobs_dir) for job in jobs}
    return {job: most_ms for job, most_ms in found.items() if most_ms is not None}


def _promised_ms(job: str, jobs_dir: Path) -> float | None:
    for path in (folder / f"{job}.yaml" for folder in job_folders(jobs_dir)):
        with suppress(OSError):
            return _read(path, path.stat().st_mtime_ns)
    return None


@lru_cache(maxsize=1024)
def _read(path: Path, _changed_ns: int) -> float | None:
    """A service is asked thousands of times of the same files; one takes 2 ms to read."""
    if b"max_p99_ms" not in path.read_bytes():
        return None
    # Loading YAML takes a tenth of a short answer.
    from advisor.formats.job_file import load_job

    try:
        return load_job(path).max_p99_ms
    except InputError:
        return None
