"""The processes of one recording: those that write what is read, and the one with the load."""

import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

from advisor.errors import JobError, SourceError
from advisor_power.sensor.stimulus import Stage
from advisor_profiling.telemetry import polling
from advisor_profiling.testbed.workloads import workload_path

READY_S = 120.0
"""PyTorch takes long to load from a cold or shared disk."""

_LATE_S = 30.0
_COMPLAINT_S = 2.0


class Child:
    """A process that writes lines of JSON; it ends when its input is closed.

    Args:
        command: Program and arguments.
        environment: Of the process.
    """

    def __init__(self, command: list[str], environment: Mapping[str, str]) -> None:
        # A session of its own: Ctrl-C is for advisor, which ends it in order.
        self._process = subprocess.Popen(
            command,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._lines = queue.Queue[str | None]()
        self._errors: list[str] = []
        readers = (self._read_lines, self._read_errors)
        self._threads = [threading.Thread(target=read, daemon=True) for read in readers]
        for thread in self._threads:
            thread.start()

    def send(self, line: str) -> None:
        """Write a line to it; one that is gone shows when it is read from."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def line(self, timeout_s: float) -> str | None:
        """Its next line; None where it ended.

        Raises:
            TimeoutError: it wrote none for so long.
        """
        try:
            return self._lines.get(timeout=timeout_s)
        except queue.Empty:
            raise TimeoutError from None

    @property
    def gone(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    def complaint(self) -> str:
        """The last line of its standard error; waits a moment for one that is ending."""
        self._threads[1].join(_COMPLAINT_S)
        return next((line for line in reversed(self._errors) if line), "it wrote nothing")

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    def end(self) -> None:
        """Close its input and wait; one that does not end is killed."""
        polling.end(self._process)
        for thread in self._threads:
            thread.join()

    def _read_lines(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            self._errors += (line.strip() for line in lines)


@contextmanager
def recorders(uuid: str, file: Path, environment: Mapping[str, str]) -> Generator[list[Child]]:
    """Both recorders of a card, recording into a file.

    Raises:
        SourceError: one does not start.
    """
    module = "advisor_power.sensor.recorder"
    started: list[Child] = []
    try:
        for role in ("power", "state"):
            command = [sys.executable, "-m", module, uuid, str(file), role]
            started.append(Child(command, environment))
        for child in started:
            if child.line(READY_S) != "ready":
                raise recorder_failed(child)
        yield started
    finally:
        for child in started:
            child.end()


def recorder_failed(child: Child) -> SourceError:
    """One does not record any more."""
    return SourceError(
        f"the sensors cannot be recorded: {child.complaint()}",
        why="a recorder ended",
        fix="look at `nvidia-smi` and `dmesg`, then try again",
    )


@contextmanager
def load(python: str, environment: Mapping[str, str]) -> Generator[Child]:
    """The load, ready to be switched on.

    Raises:
        JobError: it does not start: no PyTorch, no memory.
    """
    try:
        child = Child([python, str(workload_path("power_load.py"))], environment)
    except OSError as error:
        raise _no_load(python, str(error)) from error
    try:
        if _message(child, READY_S, python)[0] != "ready":
            raise _no_load(python, "it does not say that it is ready")
        yield child
    except BaseException:
        # In the middle of a stage it does not look whether its input is closed.
        child.kill()
        raise
    finally:
        child.end()


def run_stage(child: Child, stage: Stage, python: str) -> Generator[list[Any]]:
    """Have the load do a stage; the lines of the recording as they come.

    Raises:
        JobError: it ends, or does not end the stage.
    """
    on = [list(span) for span in stage.on]
    child.send(json.dumps({"name": stage.name, "length_s": stage.length_s, "on": on}))
    latest_s = time.monotonic() + stage.length_s + _LATE_S
    while True:
        line = _message(child, max(0.0, latest_s - time.monotonic()), python)
        if line[0] == "done":
            return
        yield line


def _message(child: Child, timeout_s: float, python: str) -> list[Any]:
    """The next line that is one of ours; libraries may write others."""
    while True:
        try:
            text = child.line(timeout_s)
        except TimeoutError:
            raise _no_load(python, f"it did not go on for {timeout_s:.0f} s") from None
        if text is None:
            raise _no_load(python, child.complaint())
        if text.startswith('["'):
            return cast("list[Any]", json.loads(text))


def _no_load(python: str, why: str) -> JobError:
    return JobError(
        f"the load that the sensors are measured with failed under {python}",
        why=why,
        fix="name an interpreter that has PyTorch with CUDA: --python /path/to/python",
    )
