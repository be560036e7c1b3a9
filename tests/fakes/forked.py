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
from contextlib import contextmanager, suppress
from pathlib import Path

from forking import STATUS

_PROGRAM = Path(__file__).with_name("forking.py")

_MODULES = (
    "advisor_cli.advise.place",
    "advisor_cli.launching.launch",
    "advisor_cli.measure.colocate",
    "advisor_cli.measure.profile",
    "advisor_data.store.sql_store",
    "sqlalchemy.dialects.sqlite",
    "typer._adapters",
)
"""What most commands import."""

_AT_THE_START = ("PATH", "HOME", "LD_", "LC_", "LANG", "PYTHON", "TERM", "FORCE_COLOR", "NO_COLOR")
"""Variables that are read when Python or a module starts. The programs that fork have no others: a
test that looks for what was left behind finds it by those of its host."""

_programs: dict[tuple[tuple[str, str], ...], tuple[socket.socket, subprocess.Popen[bytes]]] = {}
"""By those of their variables that start so: a command is forked from one that began as it does."""

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


def run_forked(
    words: Sequence[str],
    environment: Mapping[str, str],
    folder: Path | None = None,
    timeout_s: float = 110,
) -> subprocess.CompletedProcess[str]:
    """Run `advisor` with these words to its end, in a folder or in that of the tests.

    Raises:
        subprocess.TimeoutExpired: it takes longer, and was killed.
    """
    request = {
        "words": words,
        "environment": dict(environment),
        "folder": str(folder or Path.cwd()),
        "umask": _umask(),
    }
    asked = _program(environment)
    # The limit of a whole test ends sooner what hangs on a machine that is not loaded.
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        ended, status = os.pipe()
        with os.fdopen(ended, "rb", buffering=0) as ending:
            passed = [output.fileno(), errors.fileno(), status]
            socket.send_fds(asked, [json.dumps(request).encode()], passed)
            os.close(status)
            code = _exit_code(ending.fileno(), words, timeout_s)
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(words, code, output.read(), errors.read())


def _umask() -> int:
    os.umask(mask := os.umask(0o077))
    return mask


def _exit_code(ending: int, words: Sequence[str], timeout_s: float) -> int:
    (pid,) = STATUS.unpack(os.read(ending, STATUS.size))
    try:
        if not select.select([ending], [], [], timeout_s)[0]:
            raise subprocess.TimeoutExpired(words, timeout_s)
    except BaseException:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        raise
    return STATUS.unpack(os.read(ending, STATUS.size))[0]


def _program(environment: Mapping[str, str]) -> socket.socket:
    kept = sorted((k, v) for k, v in environment.items() if k.startswith(_AT_THE_START))
    with _starting:
        if (key := tuple(kept)) not in _programs:
            ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with its:
                program = subprocess.Popen(
                    [sys.executable, str(_PROGRAM), str(its.fileno()), *_MODULES],
                    env=dict(key),
                    pass_fds=[its.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                )
            _programs[key] = ours, program
        return _programs[key][0]
