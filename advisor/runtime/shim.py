"""Holds one job: starts it, keeps its output bounded, and ends all that came of it.

Run as `python -I -S shim.py`. Its standard input begins with a line of JSON, an `Order`. When the
job has started, each byte is a command: `t` asks every process of the job to end, `k` ends them.
When the input is closed, the supervisor is gone; its guard then has some seconds for the safe order
before all are ended.

It answers in lines: `started PID`, `failed TEXT`, `ended STATUS` (of the first process), and
`empty` when no process of the job is left; then it ends.

The kernel hands orphans of the job to this process (PR_SET_CHILD_SUBREAPER), so a process that
forks twice, opens a session of its own or empties its environment stays below it. Only its own
children are killed, whose numbers cannot have been given away: they are free again when this
process has waited for them. Those below become children when their parents end.
"""

import ctypes
import json
import os
import select
import signal
import sys
import time
from contextlib import suppress
from typing import Any

# What is kept of the beginning of the output, in `output.log.head`, when it is written over.
HEAD_BYTES = 64 * 1024

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_KERNEL_LISTS_CHILDREN = os.path.exists(f"/proc/self/task/{os.getpid()}/children")  # noqa: PTH110
_CHUNK = 65536
# What is still taken of the output when the first process has ended.
_DRAIN_BYTES = 16 * 1024 * 1024


class _Output:
    """The output files; what cannot be written, as on a full disk, is dropped."""

    def __init__(self, path: str, file_bytes: int) -> None:
        self._path, self._file_bytes = path, file_bytes
        self._head = b""
        self._begun_again = 0
        self._open()

    def _open(self) -> None:
        self._file = _open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._size = os.fstat(self._file).st_size

    def write(self, data: bytes) -> None:
        """Add `data`; begin a new file where it would not fit."""
        self._head += data[: HEAD_BYTES - len(self._head)]
        with suppress(OSError):
            if self._size and self._size + len(data) > self._file_bytes:
                self._begun_again += 1
                # With the second new file the first one goes, which says what was started.
                if self._begun_again == 2:
                    _write(f"{self._path}.head", self._head)
                os.rename(self._path, f"{self._path}.1")  # noqa: PTH104 - see _children
                full = self._file
                self._open()
                os.close(full)
            self._size += os.write(self._file, data)


class _Shim:
    """One job, from its start until no process is left.

    Args:
        order: What to start: `command`, `environment` and `folder`, with the paths of its `output`
            and of its `cgroup`. Of the output two files of `output_bytes` are kept: `output.log`,
            and before it `output.log.1`.
    """

    def __init__(self, order: dict[str, Any]) -> None:
        self._output = _Output(order["output"], order["output_bytes"])
        self._cgroup = order["cgroup"]
        self._end_s: float | None = None
        self._first, self._pipe = _start(order)
        os.set_blocking(self._pipe, False)
        _say(f"started {self._first}")

    def run(self) -> None:
        """Serve until no process of the job is left."""
        poll, (wake, written) = select.poll(), os.pipe()
        # A child that ends makes `wake` readable, but only where its signal has a handler.
        os.set_blocking(written, False)
        signal.set_wakeup_fd(written, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        for file in (0, self._pipe, wake):
            poll.register(file, select.POLLIN)
        while self._reap():
            left_s = None if self._end_s is None else self._end_s - time.monotonic()
            wait_ms = None if left_s is None else max(1, int(1000 * left_s))
            ready = {file for file, _ in poll.poll(wait_ms)}
            if wake in ready:
                os.read(wake, _CHUNK)
            if self._pipe in ready and not self._take():
                poll.unregister(self._pipe)
            if 0 in ready and not self._obey(os.read(0, 64)):
                poll.unregister(0)
            if self._end_s is not None and time.monotonic() >= self._end_s:
                self._kill()
        self._take(_DRAIN_BYTES)
        _say("empty")

    def _reap(self) -> bool:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._first:
                self._take(_DRAIN_BYTES)
                _say(f"ended {os.waitstatus_to_exitcode(status)}")

    def _obey(self, words: bytes) -> bool:
        """Do what the supervisor says; False when it is gone."""
        if b"t" in words:
            shim = os.getpid()
            # Each with its parent; those next to the shim first.
            pairs = [(child, shim) for child in _children(shim)]
            for child, _ in pairs:
                pairs += [(grandchild, child) for grandchild in _children(child)]
            # A number is signalled through a file that pins its process. Those whose parent has
            # ended since are children of the shim.
            for pid, parent in pairs:
                with suppress(OSError), os.fdopen(os.pidfd_open(pid), "rb", buffering=0) as pinned:
                    if pid in _children(parent) or pid in _children(shim):
                        signal.pidfd_send_signal(pinned.fileno(), signal.SIGTERM)
        if b"k" in words:
            self._end_s = time.monotonic()
        elif not words and self._end_s is None:
            # The guard of a supervisor that is gone may take 3 s before all are ended here.
            self._end_s = time.monotonic() + 3
        return bool(words)

    def _kill(self) -> None:
        """End all children, again and again for a while: a chain of forks is outrun here."""
        until_s, pause_s = time.monotonic() + 1, 0.0
        while self._reap() and time.monotonic() < until_s:
            if self._cgroup:
                _write(f"{self._cgroup}/cgroup.kill", b"1")
            for pid in _children(os.getpid()):
                os.kill(pid, signal.SIGKILL)
            time.sleep(pause_s)
            pause_s = min(0.02, pause_s + 0.0005)

    def _take(self, least_bytes: int = 1) -> bool:
        """Take what is there of the output, so much and the rest of a piece; False at its end."""
        with suppress(BlockingIOError):
            while least_bytes > 0:
                if not (data := os.read(self._pipe, _CHUNK)):
                    return False
                self._output.write(data)
                least_bytes -= len(data)
        return True


def _start(order: dict[str, Any]) -> tuple[int, int]:
    """Start the first process: its number, and the pipe with its output.

    Raises:
        OSError: the command cannot be run.
    """
    output, inner = os.pipe()
    errors, failed = os.pipe()
    shim = os.getpid()
    if (pid := os.fork()) == 0:
        try:
            _become(order, inner, shim)
        except OSError as error:
            os.write(failed, f"{error.errno} {error.filename or ''}".encode())
        finally:
            os._exit(127)
    os.close(inner)
    os.close(failed)
    if error := os.read(errors, _CHUNK).decode():
        number, _, name = error.partition(" ")
        raise OSError(int(number), os.strerror(int(number)), name or None)
    os.close(errors)
    return pid, output


def _become(order: dict[str, Any], output: int, shim: int) -> None:
    os.setsid()
    # If this shim is killed, the kernel kills the job.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != shim:
        os._exit(127)
    if order["cgroup"]:
        _write(f"{order['cgroup']}/cgroup.procs", b"0")
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    for source, target in ((_open(os.devnull, os.O_RDONLY), 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    if folder := order["folder"]:
        os.chdir(folder)
    os.execvpe(order["command"][0], order["command"], order["environment"])


def _children(pid: int) -> list[int]:
    """Numbers of the children of a process, by all of its threads."""
    if not _KERNEL_LISTS_CHILDREN:
        everybody = map(int, filter(str.isdigit, os.listdir("/proc")))  # noqa: PTH208
        return [pid_of_all for pid_of_all in everybody if _parent(pid_of_all) == pid]
    pids: list[int] = []
    # A Path takes ten times as long, and a chain of forks does not wait.
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
            with os.fdopen(_open(f"/proc/{pid}/task/{thread}/children", os.O_RDONLY), "rb") as file:
                pids += map(int, file.read().split())
    return pids


def _parent(pid: int) -> int | None:
    try:
        with os.fdopen(_open(f"/proc/{pid}/stat", os.O_RDONLY), "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return None


def _write(path: str, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with suppress(OSError), os.fdopen(_open(path, flags), "wb", buffering=0) as file:
        file.write(data)


def _open(path: str, flags: int) -> int:
    """A file in a folder that the job can write to: no link is followed, no FIFO waited for."""
    return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)


def _say(line: str) -> None:
    # The supervisor may be gone.
    with suppress(OSError):
        os.write(1, line.encode() + b"\n")


def main() -> None:
    """Hold the job that the standard input names."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    # Also where it was stopped it hears that its supervisor is gone.
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)
    try:
        # Nothing follows before the answer, so no command is lost in a buffer.
        with os.fdopen(0, "rb", closefd=False) as file:
            line = file.readline()
        if not line.endswith(b"\n"):
            sys.exit(0)
        shim = _Shim(json.loads(line))
    except OSError as error:
        _say(f"failed {error}")
        return
    shim.run()


if __name__ == "__main__":
    main()
