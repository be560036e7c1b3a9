"""One measuring advisor per GPU: two would measure each other."""

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from advisor.errors import BusyError


@contextmanager
def gpu_lock(runtime_dir: Path, gpu_uuid: str) -> Generator[None]:
    """Hold the GPU for this process; a killed process lets go of it by itself.

    Raises:
        BusyError: another process holds it.
    """
    runtime_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = runtime_dir / f"{gpu_uuid[-12:]}.lock"
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            raise BusyError(
                f"GPU {gpu_uuid} is being measured by process {file.read().strip() or 'unknown'}",
                fix="wait for it, or choose another GPU with --gpu",
            ) from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
