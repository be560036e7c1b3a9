"""One command on several GPUs of a host: a process for each, with its own part of the cores."""

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import IO, Any

import typer
from rich.console import Console

from advisor.errors import AdvisorError, JobError, undone_by
from advisor.runtime.processes import physical_cores

_PR_SET_PDEATHSIG = 1
_GO_ON = "its finished points are kept, the same command goes on"


def run_on_each(
    gpus: Sequence[str], shard: tuple[int, int], arguments: Sequence[str], console: Console
) -> tuple[list[dict[str, Any]], int]:
    """Run this command once for each GPU and wait for all.

    Args:
        gpus: Indices or UUIDs.
        shard: Number and count of this host's part; each GPU gets an equal part of it.
        arguments: The command line; `--gpu`, `--shard` and `--json` are added, and win.
        console: What the processes say goes here, each line with its GPU before it.

    Returns:
        The JSON answers of those that gave one, and the largest exit code; 128 and the signal's
        number for one that was killed, as a shell tells it.

    Raises:
        AdvisorError: none of them gave an answer; all ended with the code of this error.
        JobError: none gave an answer, and their codes differ.
        typer.Exit: none gave an answer, and their one code is no error's of ours.
    """
    children: list[subprocess.Popen[str]] = []
    with undone_by(lambda: _end(children)):  # nobody measures on for a command that is gone
        for options, cores in zip(_options(gpus, shard), _cores(len(gpus)), strict=True):
            children.append(_start([*arguments, *options], cores))
        found = _listen(gpus, children, console)
    ends = (child.wait() for child in children)
    codes = [end if end >= 0 else 128 - end for end in ends]
    ended = zip(gpus, codes, strict=True)
    why = [f"GPU {gpu} gave no answer and ended with exit code {code}" for gpu, code in ended]
    return together(found, codes, why, console)


def together(
    found: Sequence[dict[str, Any] | None],
    codes: Sequence[int],
    why: Sequence[str],
    console: Console,
) -> tuple[list[dict[str, Any]], int]:
    """What came of one command on several GPUs, as `run_on_each` gives it and raises it.

    Of each there is an answer or None, the exit code, and what to say where there is no answer.
    """
    for answer, text in zip(found, why, strict=True):
        if answer is None:
            console.print(f"{text}: {_GO_ON}", highlight=False, markup=False)
    # A part of the answer of all has no number of its own.
    answers = [{k: v for k, v in one.items() if k != "schema"} for one in found if one is not None]
    if not answers:
        raise _nothing(set(codes))
    return answers, max(codes)


def _options(gpus: Sequence[str], shard: tuple[int, int]) -> list[list[str]]:
    """What tells each process its GPU and its part of this host's part."""
    index, count = shard
    first, total = (index - 1) * len(gpus) + 1, count * len(gpus)
    return [
        ["--gpu", gpu, "--shard", f"{number}/{total}", "--json"]
        for number, gpu in enumerate(gpus, start=first)
    ]


def _nothing(codes: set[int]) -> Exception:
    """What to raise where no GPU gave an answer: where all codes are the same, an error of it."""
    same = codes.pop() if len(codes) == 1 else JobError.exit_code
    errors = {error.exit_code: error for error in AdvisorError.__subclasses__()}
    if same and same not in errors:
        return typer.Exit(same)
    return errors.get(same, JobError)("no GPU finished its part", fix="see the messages above")


def _start(arguments: Sequence[str], cores: frozenset[int]) -> subprocess.Popen[str]:
    def prepare() -> None:
        os.sched_setaffinity(0, cores)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

    return subprocess.Popen(
        [sys.executable, "-m", "advisor_cli", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A terminal's Ctrl-C reaches this process alone, which then ends the others.
        process_group=0,
        preexec_fn=prepare,
    )


def _listen(
    gpus: Sequence[str], children: Sequence[subprocess.Popen[str]], console: Console
) -> list[dict[str, Any] | None]:
    """The answer of each, None where there is none."""
    answers: list[dict[str, Any] | None] = [None] * len(children)

    def collect(stream: IO[str], number: int) -> None:
        with contextlib.suppress(ValueError):
            answer: dict[str, Any] = json.loads(stream.read())
            if "error" not in answer:
                answers[number] = answer

    def forward(stream: IO[str], gpu: str) -> None:
        for line in stream:
            text = f"GPU {gpu} |{line.rstrip()}"
            console.print(text, highlight=False, markup=False, soft_wrap=True)

    threads = [
        threading.Thread(target=target, args=arguments, daemon=True)
        for number, child in enumerate(children)
        for target, arguments in (
            (collect, (child.stdout, number)),
            (forward, (child.stderr, gpus[number])),
        )
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def _end(children: Sequence[subprocess.Popen[str]]) -> None:
    """As Ctrl-C ends one; each still stops its jobs in the safe order."""
    for child in children:
        # Not SIGINT: a job of a shell in the background may have to ignore that.
        child.send_signal(signal.SIGTERM)
    for child in children:
        child.wait()


def _cores(count: int) -> list[frozenset[int]]:
    """Physical cores in equal parts; with fewer cores than parts, all share all."""
    groups = physical_cores()
    size = len(groups) // count
    if size == 0:
        return [frozenset[int]().union(*groups)] * count
    return [
        frozenset[int]().union(*groups[number * size : (number + 1) * size])
        for number in range(count)
    ]
