"""Work beside the event loop: milliseconds in threads, seconds of a whole core in processes.

In a thread those would hold up every other request: Python runs one thread at a time. A process
here does one piece of work after the other, gives way to the service, ends with it however that
ends, and is replaced when it was killed or has grown.

    python -P -m advisor_api.worker_process NUMBER     # of its end of the pipe
"""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from contextvars import ContextVar
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeAlias

from advisor.errors import AdvisorError, undone_by
from advisor.formats.wire import T
from advisor.settings import SECRETS, Settings, python

_Place: TypeAlias = AbstractAsyncContextManager[object]

ASKING = ContextVar[tuple[_Place, _Place, Callable[[float], None]]](
    "ASKING", default=(nullcontext(), nullcontext(), lambda _: None)
)
"""Of the request that is answered: its caller's places for what reads and for what is worked out,
and the counter of its ms. The service's own questions are free."""

# The store's answer may be long in coming.
_READING = ThreadPoolExecutor(4, "reading")


async def worked(what: Callable[[], T], threads: Executor | None = None) -> T:
    """Call a function in a thread, and charge its CPU time to the caller.

    Without threads of its own it may read the store.
    """
    loop, (reading, working, pay) = asyncio.get_running_loop(), ASKING.get()

    def timed() -> T:
        began_s = time.thread_time()
        try:
            return what()
        finally:
            loop.call_soon_threadsafe(pay, 1000 * (time.thread_time() - began_s))

    async with working if threads else reading:
        return await loop.run_in_executor(threads or _READING, timed)


_LOOK_S = 1.0

MOST_KIB = 512 * 1024
"""A process that took more memory is not used again: Python gives little of it back."""


class ProcessEndedError(AdvisorError, code="process-ended"):
    """The process that worked something out ended before it was done."""


class WorkerProcesses:
    """Up to so many, each started when all others are at work; for one event loop.

    What is worked out is a function of a module and values that can be pickled.
    """

    def __init__(self, settings: Settings, most: int) -> None:
        self._environment = {k: v for k, v in settings.environment.items() if k not in SECRETS}
        self._threads = ThreadPoolExecutor(most, "own-process")
        self._idle, self._all = list[_WorkerProcess](), set[_WorkerProcess]()
        self._lock, self._closed = threading.Lock(), False

    async def work(self, what: Callable[..., bytes], *args: Any) -> bytes:
        """What it returns or raises; waits for a free process.

        Raises:
            ProcessEndedError: the process was killed, or the service ends.
        """
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, self._work, what, args
        )

    def close(self) -> None:
        """End all of them, in whatever they do."""
        with self._lock:
            self._closed = True
            for process in self._all:
                process.end()
        self._threads.shutdown(cancel_futures=True)

    # Kept and given back by the thread that works: a caller who no longer waits changes nothing.
    def _work(self, what: Callable[..., bytes], args: tuple[Any, ...]) -> bytes:
        process = self._taken()
        # Whatever it was in the middle of, it answers no other request.
        with undone_by(lambda: self._drop(process)):
            value, has_grown = process.ask(what, args)
        if has_grown:
            self._drop(process)
        else:
            self._idle.append(process)
        if isinstance(value, Exception):
            raise value
        return value

    def _taken(self) -> "_WorkerProcess":
        with self._lock:
            while self._idle:
                process = self._idle.pop()
                if process.lives:
                    return process
                process.end()
                self._all.discard(process)
            if self._closed:
                raise service_ends()
            process = _WorkerProcess(self._environment)
            self._all.add(process)
            return process

    def _drop(self, process: "_WorkerProcess") -> None:
        with self._lock:
            process.end()
            self._all.discard(process)


def service_ends() -> ProcessEndedError:
    """The error for waiting callers at the end."""
    return ProcessEndedError("the service ends", fix="ask again when it has started")


class _WorkerProcess:
    def __init__(self, environment: dict[str, str]) -> None:
        self._pipe, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(
                [python(), "-P", "-m", __name__, str(theirs.fileno())],
                env=environment,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.PIPE,  # its end tells the process that the service is gone
                stdout=subprocess.DEVNULL,
            )

    @property
    def lives(self) -> bool:
        return self._process.poll() is None

    def ask(self, what: Callable[..., bytes], args: tuple[Any, ...]) -> tuple[Any, bool]:
        """What it returned or raised, and whether it has grown."""
        with ProcessEndedError.instead_of(
            (EOFError, OSError),
            "the process that worked this out was ended",
            why="it was killed, or memory ran out",
            fix="ask again, another one starts; if that ends too, ask for less at once",
        ):
            self._go_on()
            self._pipe.send((what, args))
            while not self._pipe.poll(_LOOK_S):
                self._go_on()
            return self._pipe.recv()

    def _go_on(self) -> None:
        """Continue it, in case it was stopped."""
        self._process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """At once; nothing of it stays."""
        self._process.kill()
        self._process.wait()
        if self._process.stdin:
            self._process.stdin.close()


def _serve(pipe: Connection) -> None:
    """Do what comes, until the service is gone."""
    # Ctrl-C in a terminal reaches all of its processes; the service lets requests end first.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Beside a service that wants the core, such a process gets a tenth of it.
    os.nice(10)
    threading.Thread(target=_end_with_service, daemon=True).start()
    with suppress(EOFError):
        while True:
            what, args = pipe.recv()
            value = _done(what, args)
            # Not `ru_maxrss`, which counts the memory of the service that started it.
            status = Path("/proc/self/status").read_text()
            has_grown = int(status.partition("VmHWM:")[2].split()[0]) > MOST_KIB
            pipe.send((value, has_grown))


def _done(what: Callable[..., bytes], args: tuple[Any, ...]) -> bytes | Exception:
    try:
        return what(*args)
    except AdvisorError as error:
        return error
    except Exception as error:  # noqa: BLE001 whatever it is, the service tells and logs it
        error.add_note(traceback.format_exc())  # stack traces are not sent
        return error


def _end_with_service() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    _serve(Connection(int(sys.argv[1])))
