"""Commands that run in a process of their own without the cost of its start."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

from forking import STATUS

_PROGRAM = Path(__file__).with_name("forking.py")

_MODULES = (
    "advisor_cli.place",
    "advisor_cli.launches",
    "advisor_cli.measure.colocate",
    "advisor_cli.measure.profile",
    "advisor_data.store",
    "sqlalchemy.dialects.sqlite",
    "typer._adapters",
)
"""What most commands import."""

_SERVING = (
    "advisor.predict.predictions",
    "advisor_api.app",
    "advisor_api.routes.v1",
    "advisor_api.server",
    "advisor_cli.serve",
    "fastapi",
)
"""What services import beside it."""

_AT_THE_START = ("PATH", "HOME", "LD_", "LC_", "LANG", "PYTHON", "TERM", "FORCE_COLOR", "NO_COLOR")
"""Variables that are read when Python or a module starts. The programs that fork have no others: a
test that looks for what was left behind finds it by those of its host."""

_programs: dict[tuple[Any, ...], tuple[socket.socket, subprocess.Popen[bytes]]] = {}
"""By their Python, by whether they serve, and by those of their variables that start so: a command
is forked from one that began as it does."""

_starting = threading.Lock()


@contextmanager
def forking() -> Generator[None]:
    """The programs that fork end with this."""
    try:
        yield
    finally:
        for asked, program in _programs.values():
            asked.close()
            program.wait(20)
        _programs.clear()


@dataclass
class Forked:
    """A command that runs in a process of its own, as `subprocess.Popen` has it."""

    pid: int
    stdout: IO[str] | None
    stderr: IO[str] | None
    _ending: IO[bytes]
    returncode: int | None = None

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._ending], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
            with self._ending:
                self.returncode = int(STATUS.unpack(self._ending.read(STATUS.size))[0])
        return self.returncode

    def send_signal(self, number: int) -> None:
        """To a process that runs; to another nothing."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """As an init system ends it."""
        self.send_signal(signal.SIGTERM)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """The rest of what it says, and its end."""
        with ThreadPoolExecutor(2) as reading:
            output, errors = (reading.submit(_rest, file) for file in (self.stdout, self.stderr))
            try:
                self.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()
                raise
        self.close()
        return output.result(), errors.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self.wait()

    def close(self) -> None:
        """Nobody looks any more."""
        for file in (self.stdout, self.stderr):
            if file:
                file.close()


def start_forked(
    words: Sequence[str],
    environment: Mapping[str, str],
    folder: Path | None = None,
    output: IO[Any] | None = None,
    errors: IO[Any] | None = None,
    python: str = sys.executable,
) -> Forked:
    """Start `advisor` with these words and this environment, in a folder or in that of the tests.

    What it says goes to a file, or is to be read from what is returned; so do its messages. It is
    the advisor that `python` has.
    """
    request = {
        "words": words,
        "environment": dict(environment),
        "folder": str(folder or Path.cwd()),
        "umask": _umask(),
    }
    asked = _program(environment, python, serves=any(word == "serve" for word in words[:2]))
    ending, status = os.pipe()
    said, its_output = _pipe(output)
    complained, its_errors = _pipe(errors)
    ours = [status] if output else [status, its_output]
    ours += [] if errors else [its_errors]
    socket.send_fds(asked, [json.dumps(request).encode()], [its_output, its_errors, status])
    for descriptor in ours:
        os.close(descriptor)
    file = os.fdopen(ending, "rb", buffering=0)
    (pid,) = STATUS.unpack(file.read(STATUS.size) or b"")
    return Forked(pid, said, complained, file)


def run_forked(
    words: Sequence[str],
    environment: Mapping[str, str],
    folder: Path | None = None,
    timeout_s: float = 250,
    python: str = sys.executable,
) -> subprocess.CompletedProcess[str]:
    """Run `advisor` with these words to its end, in a folder or in that of the tests.

    Raises:
        subprocess.TimeoutExpired: it takes longer, and was killed.
    """
    # The limit of a whole test ends sooner what hangs on a machine that is not loaded.
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        with start_forked(words, environment, folder, output, errors, python) as process:
            try:
                code = process.wait(timeout_s)
            except BaseException:
                process.kill()
                raise
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(words, code, output.read(), errors.read())


def _rest(file: IO[str] | None) -> str:
    return file.read() if file else ""


def _pipe(file: IO[Any] | None) -> tuple[IO[str] | None, int]:
    """What we read of it, and the descriptor to write to."""
    if file:
        return None, file.fileno()
    reading, writing = os.pipe()
    return os.fdopen(reading), writing


def _umask() -> int:
    os.umask(mask := os.umask(0o077))
    return mask


def _program(environment: Mapping[str, str], python: str, serves: bool) -> socket.socket:
    kept = sorted((k, v) for k, v in environment.items() if k.startswith(_AT_THE_START))
    with _starting:
        if (key := (python, serves, *kept)) not in _programs:
            ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            modules = (*_MODULES, *_SERVING) if serves else _MODULES
            with its:
                program = subprocess.Popen(
                    [python, str(_PROGRAM), str(its.fileno()), *modules],
                    env=dict(kept),
                    pass_fds=[its.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                )
            _programs[key] = ours, program
        return _programs[key][0]
