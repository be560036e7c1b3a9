"""`advisor serve` and an empty FastAPI endpoint as processes, for scripts that load them."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import IO

HERE = Path(__file__).resolve().parents[2]
_COMPONENTS = (".", "profiling", "training", "models", "data", "api")

_EMPTY = """
import sys, uvicorn
from fastapi import FastAPI
app = FastAPI()
@app.get("/")
async def empty() -> dict[str, str]:
    return {}
uvicorn.run(app, port=int(sys.argv[1]), loop="uvloop", http="httptools", access_log=False,
            log_level="warning")
"""


@contextlib.contextmanager
def running_service(home: Path, database: str | None) -> Generator[tuple[str, int]]:
    """The URL and process number of a service with a new home."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("ADVISOR_", "CUDA_"))}
    more = {"ADVISOR_HOME": str(home / "home"), "ADVISOR_RUNTIME_DIR": str(home / "run")}
    more["PYTHONPATH"] = os.pathsep.join(str(HERE / folder) for folder in _COMPONENTS)
    more |= {"ADVISOR_DATABASE_URL": database} if database else {}
    if database:
        subprocess.run(_advisor("data", "migrate"), env=environment | more, check=True)
    # One line for each request goes to a file, as where it runs as a service.
    with (home / "log").open("wb") as log:
        command = _advisor("serve", "--port", "0", "--requests-per-s", "1000000")
        with _running(command, environment | more, log, HERE) as process:
            yield _address(process), process.pid


def _advisor(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "advisor_cli", *arguments]


def _address(process: "subprocess.Popen[bytes]") -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(rb"https?://\S+:\d+", line):
            return found[0].decode()
    raise SystemExit("advisor serve did not start")


@contextlib.contextmanager
def running_endpoint() -> Generator[str]:
    """The URL of a FastAPI endpoint that does nothing."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-c", _EMPTY, str(port)]
    with _running(command, os.environ, None):
        for _ in range(100):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/"


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


def memory_mib(pid: int) -> float:
    """Memory that a process has now; NaN where the kernel does not say."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    return int(found[1]) / 1024 if found else float("nan")
