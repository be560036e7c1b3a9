"""Runs a command without a job file and finds how its progress can be read."""

import contextlib
import os
import shlex
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from advisor.core.job import START_TIMEOUT_S, Job, ProgressSettings
from advisor.core.wording import listed
from advisor.errors import AdvisorError, InputError, JobError
from advisor.progress import FILE_BYTES, GO, HOLD, WAITING
from advisor.runtime.host.processes import descendants, wait_until
from advisor.runtime.jobs.libraries import loaded_libraries
from advisor.runtime.jobs.log_numbers import FoundProgress, LogNumbers, search
from advisor.runtime.jobs.output import OutputLines, plain
from advisor.scrape.fetch import fetch
from advisor.scrape.listening import listening_urls
from advisor.scrape.page import parse_selector, read_page
from advisor.scrape.servers import KnownServer, server_of

WATCHED_S = 20.0
"""Length of a look: time for a second epoch, or for the work to follow what prepares it."""

LONGEST_LOOK_S = 60.0
"""Length of a look at whose end data are being prepared, or the best candidate has stopped."""

LOOK_S, ASK_S = 0.1, 1.0
"""How often the output is read; how often the GPU, the libraries and a metrics page are."""

CERTAIN_S = 6.0
"""Seconds of steady steps after which a look ends."""

GATE_S = 3.0
"""Time in which a job that honours its gate comes to it: one step."""

PATTERN_S = 60.0
"""After so long a pattern that matches no line of an output that counts is a wrong one."""

MOST_LINES = 2000
"""Newest lines of a look that are searched; a job that floods its output says no more in others."""

_COUNTS = "advisor.callbacks"

LAST_LINES = 3
"""Of the output, shown where nothing was found in it."""


@dataclass(frozen=True, slots=True)
class FoundJob:
    """A command whose progress can be read.

    Attributes:
        command: As given, or with `advisor.callbacks` in it, which counts its optimizer steps.
        found: How its progress is read.
        counted: The command that counts each optimizer step of a PyTorch job, where `command`
            is another one.
    """

    command: tuple[str, ...]
    found: FoundProgress
    counted: str | None = None


def patience_s(job: Job) -> float:
    """Seconds to wait for a job that does not count, while its output does."""
    hasty = job.progress.pattern is not None and job.start_timeout_s == START_TIMEOUT_S
    return PATTERN_S if hasty else job.start_timeout_s


def counts_otherwise(job: Job, lines: Sequence[str]) -> InputError | None:
    """The error of a job that does not count in its own way while its output counts in another."""
    seconds = patience_s(job)
    kind, pattern = job.progress.kind, job.progress.pattern
    found = search(lines) if kind in ("output", "counter") and not job.progress.gate else None
    if found is None:
        return None
    return InputError(
        f"no line that {job.name} wrote in {seconds:g} s matches its pattern {pattern}"
        if pattern
        else f"{job.name} counted nothing in ADVISOR_PROGRESS_FILE in {seconds:g} s",
        why=f"its output counts otherwise: {found.line!r}",
        fix=f"the pattern {found.progress.pattern} reads that (progress: {{kind: output, pattern: "
        ".. }); where it begins later, set start_timeout_s in its job file",
    )


def find_progress(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    seconds: float = WATCHED_S,
    computes: Callable[[], bool] = lambda: False,
) -> FoundJob:
    """Run a command until its progress is found, then end it.

    A progress file that it counts in is taken at once. Then the metrics page of a known server,
    then what it prints. Of a PyTorch job that prints nothing the optimizer steps are counted, if
    its Python has advisor.

    Args:
        command: Program and arguments; no shell.
        environment: All of its variables.
        seconds: Length of the look.
        computes: Whether the GPU computes now.

    Raises:
        JobError: it failed, or nothing tells its progress.
    """
    with _Look(command, environment) as look:
        found = look.run(seconds, computes)
        runs_torch = look.runs_torch
    counted = counted_script(command) if runs_torch else None
    if found:
        return FoundJob(tuple(command), found, counted)
    if counted and _has_advisor(command[0], environment):
        words = shlex.split(counted)
        with _Look(words, environment) as second, contextlib.suppress(JobError):
            if (found := second.run(LONGEST_LOOK_S, computes)) and not found.line:
                return FoundJob(tuple(words), found)
    raise look.nothing(counted)


class _Look:
    """One run of a command that is looked at.

    Attributes:
        runs_torch: It has loaded PyTorch.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._command, self._environment = command, environment
        self._numbers, self._last_lines = LogNumbers(), list[str]()
        self._server = server_of(command)
        self._page: float | None = None
        self._page_moves = False
        self._ports: list[str] = []
        self.runs_torch = False

    def __enter__(self) -> "_Look":
        self._stack = contextlib.ExitStack()
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        self._job = self._stack.enter_context(
            _started(self._command, self._environment, self._folder)
        )
        self._output = OutputLines(self._folder / "output")
        self._stack.callback(self._output.close)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, seconds: float, computes: Callable[[], bool]) -> FoundProgress | None:
        """Look until something is certain or the time is up.

        Raises:
            JobError: the command failed.
        """
        begun_s = now_s = time.monotonic()
        asked_s, busy = begun_s - ASK_S, False
        is_open = False
        while (code := self._job.poll()) is None and (
            now_s - begun_s < seconds or (is_open and now_s - begun_s < LONGEST_LOOK_S)
        ):
            time.sleep(LOOK_S)
            now_s = time.monotonic()
            if now_s - asked_s >= ASK_S:
                asked_s, busy = now_s, computes()
                self._ask()
            self._read(now_s, busy=busy)
            if (self._folder / "progress").read_bytes()[:8] != bytes(8):
                return FoundProgress(ProgressSettings(gate=self._passes_gate()), "")
            if self._page_moves:
                return self._by_page()
            if self._numbers.is_certain(now_s, CERTAIN_S):
                return self._numbers.found(now_s)
            # Silence is no reason to look on: a job that has printed nothing may never do.
            is_open = self._numbers.is_seen and not self._numbers.is_clear(now_s)
        self._ended, self._now_s, self._looked_s = code is not None, now_s, now_s - begun_s
        self._read(now_s, busy=busy)
        if code:
            raise JobError(f"the command ended with exit code {code}", why=self._quoted())
        return self._by_page() if self._page is not None else self._numbers.found(now_s)

    def nothing(self, counted: str | None) -> JobError:
        """The error of a command in which nothing tells its progress."""
        how = "until it ended by itself" if self._ended else f"in {self._looked_s:.0f} s"
        if counted:
            fix = (
                f"it runs PyTorch, whose optimizer steps {counted} counts "
                "(pip install advisor in its environment)"
            )
        elif self._numbers.is_preparing(self._now_s):
            fix = (
                "it was still preparing data or weights: run it once until they are cached, then "
                "profile again"
            )
        elif self._ports or self._server:
            at = (
                f"it listens at {listed(self._ports)}"
                if self._ports
                else "its command is that of a server"
            )
            fix = (
                f"{at}: send it requests meanwhile, or name its metrics page "
                "(progress: {kind: metrics, url: .., counter: ..}, docs/job-file.md)"
            )
        else:
            fix = (
                "print a count that rises, count in the program (docs/progress.md), or name what "
                "it prints with --pattern; --progress runs is for a command that is short"
            )
        return JobError(
            f"nothing that the command wrote {how} tells its progress",
            why=self._quoted(),
            fix=fix,
        )

    def _read(self, now_s: float, *, busy: bool) -> None:
        with contextlib.suppress(JobError):  # a flood, of which the newest lines are enough
            lines = [plain(line) for line in self._output.read()]
            self._numbers.add(lines[-MOST_LINES:], now_s, busy=busy)
            self._last_lines = [*self._last_lines, *filter(str.strip, lines)][-LAST_LINES:]

    def _ask(self) -> None:
        """Ask what takes longer than a look."""
        pids = [self._job.pid, *descendants(self._job.pid)]
        self.runs_torch = self.runs_torch or "torch" in (loaded_libraries(pids) or "")
        self._ports = listening_urls(pids)
        url, counter = self._url(), self._server and self._server[0].counter
        if url and counter:
            with contextlib.suppress(AdvisorError):
                total = read_page(fetch(url), parse_selector(counter), None).total
                self._page_moves = self._page is not None and total > self._page
                self._page = total if self._page is None else self._page

    def _url(self) -> str | None:
        """Where the page of a known server is: at a port on which the job itself listens."""
        if self._server is None:
            return None
        known, url = self._server
        own = [f"{port}{known.path}" for port in self._ports]
        return url if url in own else next(iter(own), None) if url is None else None

    def _by_page(self) -> FoundProgress:
        assert self._server is not None
        known: KnownServer = self._server[0]
        settings = ProgressSettings(
            kind="metrics",
            unit=known.unit,
            url=self._url(),
            counter=known.counter,
            histogram=known.histogram,
        )
        return FoundProgress(settings, "")

    def _passes_gate(self) -> bool:
        """Close the gate, and see whether the job comes to it."""
        path = self._folder / "gate"
        path.write_bytes(struct.pack("<q", HOLD) + path.read_bytes()[8:])
        return wait_until(lambda: path.read_bytes()[8:16] == struct.pack("<q", WAITING), GATE_S)

    def _quoted(self) -> str:
        last = " | ".join(line.strip() for line in self._last_lines)
        return f"its last lines: {last}" if last else "it wrote nothing"


def counted_script(command: Sequence[str]) -> str | None:
    """The same command, whose optimizer steps are counted; None: no script or module of Python."""
    program, *words = command
    own = next((n for n, word in enumerate(words) if word.endswith(".py") or word == "-m"), None)
    if "python" not in Path(program).name or own is None or _COUNTS in words:
        return None
    return shlex.join([program, *words[:own], "-m", _COUNTS, *words[own:]])


def _has_advisor(interpreter: str, environment: Mapping[str, str]) -> bool:
    """Whether the Python of a job can import what counts its steps."""
    asked = [interpreter, "-c", f"import {_COUNTS}"]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(asked, env=environment, capture_output=True, timeout=30, check=False)
        return done.returncode == 0
    return False


@contextlib.contextmanager
def _started(
    command: Sequence[str], environment: Mapping[str, str], folder: Path
) -> Generator["subprocess.Popen[bytes]"]:
    """The command with output, count and open gate in a folder, ended with all that it started."""
    (folder / "progress").write_bytes(bytes(FILE_BYTES))
    (folder / "gate").write_bytes(struct.pack("<qq", GO, 0))
    known = {
        "ADVISOR_PROGRESS_FILE": str(folder / "progress"),
        "ADVISOR_GATE_FILE": str(folder / "gate"),
        "PYTHONUNBUFFERED": "1",
    }
    with (folder / "output").open("wb") as output:
        job = subprocess.Popen(
            command,
            env={**environment, **known},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield job
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
        job.wait()
