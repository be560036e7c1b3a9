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

from rich.console import Console

from advisor.errors import JobError
from advisor.runtime.cores import physical_cores

_PR_SET_PDEATHSIG = 1


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
        The JSON answers of those that gave one, and the largest exit code.

    Raises:
        JobError: none of them gave an answer.
    """
    parts = _cores(len(gpus))
    index, count = shard
    children: list[subprocess.Popen[str]] = []
    try:
        for number, gpu in enumerate(gpus):
            own = f"{(index - 1) * len(gpus) + number + 1}/{count * len(gpus)}"
            options = ["--gpu", gpu, "--shard", own, "--json"]
            children.append(_start([*arguments, *options], parts[number]))
        answers = _listen(gpus, children, console)
    except BaseException:
        _end(children)
        raise
    codes = [child.wait() for child in children]
    if not answers:
        raise JobError("no GPU finished its part", fix="see the messages above")
    return answers, max(abs(code) for code in codes)


def _start(arguments: Sequence[str], cores: frozenset[int]) -> subprocess.Popen[str]:
    def prepare() -> None:
        os.sched_setaffinity(0, cores)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

    return subprocess.Popen(
        [sys.executable, "-m", "advisor.cli", *arguments],
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
) -> list[dict[str, Any]]:
    answers: list[dict[str, Any]] = []

    def collect(stream: IO[str]) -> None:
        with contextlib.suppress(ValueError):
            answer: dict[str, Any] = json.loads(stream.read())
            if "error" not in answer:
                answers.append(answer)

    def forward(stream: IO[str], gpu: str) -> None:
        for line in stream:
            console.print(f"GPU {gpu} |{line.rstrip()}", highlight=False, markup=False)

    threads = [
        threading.Thread(target=target, args=arguments, daemon=True)
        for gpu, child in zip(gpus, children, strict=True)
        for target, arguments in ((collect, (child.stdout,)), (forward, (child.stderr, gpu)))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def _end(children: Sequence[subprocess.Popen[str]]) -> None:
    """As Ctrl-C ends one; each still stops its jobs in the safe order."""
    for child in children:
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(signal.SIGINT)
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
