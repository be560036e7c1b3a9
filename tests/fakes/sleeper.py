"""A process that does nothing, with variables of its own."""

import shutil
import subprocess
from collections.abc import Generator, Mapping
from contextlib import contextmanager


@contextmanager
def sleeper(variables: Mapping[str, str]) -> Generator[int]:
    """Its number; it has these variables alone, and may be looked at in the middle of exec."""
    with subprocess.Popen([shutil.which("sleep") or "sleep", "60"], env=variables) as started:
        try:
            yield started.pid
        finally:
            started.kill()
