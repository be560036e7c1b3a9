"""`advisor serve` as a process, for scripts that load it."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import IO

HERE = Path(__file__).resolve().parents[2]
_COMPONENTS = (".", "profiling", "training", "models", "data", "api")


@contextlib.contextmanager
def running_service(home: Path, checkout: Path = HERE) -> Generator[tuple[str, int]]:
    """The URL and process number of a checkout's service with a new home."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("ADVISOR_", "CUDA_"))}
    more = {"ADVISOR_HOME": str(home / "home"), "ADVISOR_RUNTIME_DIR": str(home / "run")}
    more["PYTHONPATH"] = os.pathsep.join(str(checkout / folder) for folder in _COMPONENTS)
    # One line for each request goes to a file, as where it runs as a service.
    with (home / "log").open("wb") as log:
        command = [sys.executable, "-m", "advisor_cli", "serve", "--port", "0"]
        with _running(command, environment | more, log, checkout) as process:
            yield _address(process), process.pid


def _address(process: "subprocess.Popen[bytes]") -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(rb"https?://\S+:\d+", line):
            return found[0].decode()
    raise SystemExit("advisor serve did not start")


@contextlib.contextmanager
def _running(
    command: Sequence[str],
    environment: Mapping[str, str],
    log: IO[bytes] | None,
    folder: Path | None = None,
) -> Generator[subprocess.Popen[bytes]]:
    """A process that is ended after the block; its errors go to `log`, else where ours go."""
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=log, cwd=folder
    ) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)
