"""Finds how a job that nobody described tells its progress: runs it, and looks at its output."""

import contextlib
import os
import re
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from advisor.core.job import START_TIMEOUT_S, Job, ProgressSettings
from advisor.errors import InputError, JobError
from advisor.progress import FILE_BYTES
from advisor.runtime.host.processes import descendants
from advisor.runtime.jobs.libraries import loaded_libraries
from advisor.runtime.jobs.output import OutputLines, number_of

WATCHED_S = 20.0

LOOK_S = 0.1

PATTERN_S = 60.0
"""After so long a pattern that matches no line of an output that counts is a wrong one."""

ENOUGH = 5
"""Rising numbers after which nobody need look on."""

_COUNTS = "advisor.callbacks"

LAST_LINES = 3
"""Of the output, shown where nothing was found in it."""

PATTERNS: tuple[tuple[str, str], ...] = (
    (r"(?i)\bglobal[_ ]?step\D{0,3}([\d,]+)", "steps"),
    (r"(?i)\bsteps?\b\D{0,3}([\d,]+)", "steps"),
    (r"(?i)\biter(?:ation)?s?\b\D{0,3}([\d,]+)", "iterations"),
    (r"(?i)\bbatch(?:es)?\b\D{0,3}([\d,]+)", "batches"),
    (r"([\d,]+)/[\d,]+ \[", "steps"),  # tqdm, and with it Lightning and Hugging Face
    (r"([\d,]+) ?/ ?[\d,]+", "steps"),
    (r"(?i)\bepoch\b\D{0,3}([\d.,]+)", "epochs"),
)
"""Patterns and units, the finer ones first."""


@dataclass(frozen=True, slots=True)
class FoundProgress:
    """How a job tells its progress, and the line that shows it; empty for a counter."""

    progress: ProgressSettings
    line: str


def search(lines: Sequence[str]) -> FoundProgress | None:
    """The finest pattern whose numbers only rise; None: there is none.

    Numbers that start again, as with each epoch, would make a wrong rate.
    """
    for pattern, unit in PATTERNS:
        matches = [(m.group(1), line) for line in lines if (m := re.search(pattern, line))]
        numbers = [number_of(text) for text, _ in matches]
        if len(set(numbers)) > 1 and all(a <= b for a, b in pairwise(numbers)):
            settings = ProgressSettings(kind="output", unit=unit, pattern=pattern)
            return FoundProgress(settings, matches[-1][1].strip())
    return None


def patience_s(job: Job) -> float:
    """How long it is waited for a job that does not count, while its output does."""
    hasty = job.progress.pattern is not None and job.start_timeout_s == START_TIMEOUT_S
    return PATTERN_S if hasty else job.start_timeout_s


def counts_otherwise(job: Job, lines: Sequence[str]) -> InputError | None:
    """Where a job has not begun to count in its own way, and its output counts in another."""
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


def watch(
    command: Sequence[str], environment: Mapping[str, str], seconds: float = WATCHED_S
) -> FoundProgress:
    """Run a command for some seconds, or until it has shown how it counts; then it is ended.

    Raises:
        JobError: nothing tells its progress, or it failed.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with _started(command, environment, folder) as job, _lines(folder / "output") as read:
            end, lines = time.monotonic() + seconds, list[str]()
            while (code := job.poll()) is None and time.monotonic() < end:
                time.sleep(LOOK_S)
                lines += read()
                if (folder / "progress").read_bytes()[:8] != bytes(8):
                    return FoundProgress(ProgressSettings(), "")
                if (found := search(lines)) and _matches(found, lines) >= ENOUGH:
                    return found
            lines += read()
            runs_torch = "torch" in (loaded_libraries([job.pid, *descendants(job.pid)]) or "")
    if code:
        raise JobError(f"the command ended with exit code {code}", why=_quoted(lines))
    if found := search(lines):
        return found
    how = f"in {seconds:g} s" if code is None else "until it ended by itself"
    counted = counted_script(command) if runs_torch else None
    raise JobError(
        f"nothing that the command wrote {how} tells its progress",
        why=_quoted(lines),
        fix=f"it runs PyTorch, whose optimizer steps {counted} counts"
        if counted
        else r"name the number: --progress output --pattern 'step (\d+)', or count in the program "
        "(docs/progress.md); --progress runs is for a command that is short",
    )


def counted_script(command: Sequence[str]) -> str | None:
    """The same command, whose optimizer steps are counted; None: no script or module of Python."""
    program, *words = command
    own = next((n for n, word in enumerate(words) if word.endswith(".py") or word == "-m"), None)
    if "python" not in Path(program).name or own is None or _COUNTS in words:
        return None
    return shlex.join([program, *words[:own], "-m", _COUNTS, *words[own:]])


def _matches(found: FoundProgress, lines: Sequence[str]) -> int:
    pattern = found.progress.pattern or ""
    return len({m.group(1) for line in lines if (m := re.search(pattern, line))})


@contextlib.contextmanager
def _lines(path: Path) -> Generator[Callable[[], list[str]]]:
    """What reads the lines that were completed since the last look."""
    output = OutputLines(path)
    try:
        yield lambda: [line.decode(errors="replace") for line in output.read()]
    finally:
        output.close()


def _quoted(lines: Sequence[str]) -> str:
    last = [line.strip() for line in lines if line.strip()][-LAST_LINES:]
    return f"its last lines: {' | '.join(last)}" if last else "it wrote nothing"


@contextlib.contextmanager
def _started(
    command: Sequence[str], environment: Mapping[str, str], folder: Path
) -> Generator["subprocess.Popen[bytes]"]:
    """The command with output and count in a folder, ended with all that it started."""
    (folder / "progress").write_bytes(bytes(FILE_BYTES))
    known = {"ADVISOR_PROGRESS_FILE": str(folder / "progress"), "PYTHONUNBUFFERED": "1"}
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
