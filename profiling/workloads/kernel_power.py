"""Runs an operation in bursts that `advisor power kernel` asks for, and says when each one ran.

    python3 kernel_power.py gemm --m 4096 --n 4096 --k 4096 --commands FIFO --answers FIFO

The first answer, `{"ready": {..}}`, says what it is; then each command, a line of JSON with
`executions`, `gap_s` and `lead_s`, is answered by one `{"run": {"lead_began_s", "marks_s",
"ping_pongs"}}`: the GPU's times of all executions, and ping-pongs that tell the host's clock from
the GPU's. `{"fault": {..}}` says why it ends; it ends when the commands end, too.
"""

import argparse
import contextlib
import itertools
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any, TextIO

from harness import torch
from kernel_operations import (
    COLLECTIVES,
    Group,
    canonical,
    completed,
    end_with_stdin,
    launches,
    lead,
    operation_options,
    parser,
    words_of,
    work,
)

# An execution is as many launches as take this long: shorter ones events do not time well.
_SHORTEST_S = 100e-6

TIMED, WARM_UP = 5, 3
PING_PONGS = 20


class _Operation:
    """One operation, ready to be executed: CUDA graphs, or launches where it cannot be captured.

    `agree` makes a number that was found here the same in all processes that take part.
    """

    def __init__(self, args: argparse.Namespace, agree: Callable[[int], int] = int) -> None:
        with torch.device("cuda"):
            # Kept: a graph only has addresses, and what they belong to would be freed when the
            # next operation is captured.
            self._calls = launches(args)
        for call in self._calls:
            for _ in range(WARM_UP):
                call()
        torch.cuda.synchronize()
        self.name, self.work = canonical(args), work(args)
        alone_s = _seconds(self._calls[0])
        self.launches = agree(max(1, math.ceil(_SHORTEST_S / alone_s)))
        self.captured, steps = captured(self._calls, self.launches)
        self._steps = itertools.cycle(steps)
        self.execution_s = _seconds(self.execute)

    def execute(self) -> None:
        """Launch one execution; returns before the GPU is done."""
        next(self._steps)()


class _GpuPlayer:
    """The operation, and the one before it, on the GPU of this process."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._made: dict[str, _Operation] = {}
        self._peer_gpu: str = args.peer_gpu
        self._group: Group | None = None
        self._together = args.name in COLLECTIVES
        self._operation = self._make(args)
        self._before = self._make(args.before) if args.before else None

    def _make(self, args: argparse.Namespace) -> _Operation:
        name, agree = canonical(args), int
        if args.name in COLLECTIVES:
            self._group = self._group or lead(self._peer_gpu)
            self._group.say({"choose": words_of(args)})
            agree = self._group.agree
        if name not in self._made:
            self._made[name] = _Operation(args, agree)
        return self._made[name]

    def ready(self) -> dict[str, Any]:
        """The first answer: seconds and launches of one execution, SMs, libraries."""
        operation = self._operation
        return {
            "operation": operation.name,
            "execution_s": operation.execution_s,
            "launches": operation.launches,
            "captured": operation.captured,
            "units": torch.cuda.get_device_properties(0).multi_processor_count,
            "libraries": {"torch": torch.__version__},
            **operation.work,
        }

    def run(self, executions: int, gap_s: float, lead_s: float) -> dict[str, Any]:
        """Times of a run: after a gap, and the operation before for so long.

        Times of the GPU are since an event at the begin of the run, s.
        """
        anchor = _recorded()
        anchor.synchronize()
        ping_pongs = [_ping_pong(anchor) for _ in range(PING_PONGS)]
        if self._together and self._group is not None:
            self._group.say({"executions": executions})
        time.sleep(gap_s)
        began = _recorded()
        if self._before is not None:
            for _ in range(math.ceil(lead_s / self._before.execution_s)):
                self._before.execute()
        marks = [_recorded()]
        for _ in range(executions):
            self._operation.execute()
            marks.append(_recorded())
        marks[-1].synchronize()
        ping_pongs += [_ping_pong(anchor) for _ in range(PING_PONGS)]
        return {
            "lead_began_s": _since(anchor, began),
            "marks_s": [_since(anchor, mark) for mark in marks],
            "ping_pongs": ping_pongs,
        }


def serve(player: _GpuPlayer, commands: Iterable[str], answers: TextIO) -> None:
    """Answer each command until there are no more."""
    say(answers, {"ready": player.ready()})
    for line in commands:
        command = json.loads(line)
        wanted = command["executions"], command["gap_s"], command["lead_s"]
        say(answers, {"run": player.run(*wanted)})


def _follow(port: int) -> None:
    """Be the other process of a collective: make and launch what the first one does."""
    end_with_stdin()
    group = Group(1, port)
    group.join()
    made: dict[str, _Operation] = {}
    name = ""
    while command := group.hear():
        if "choose" in command:
            args = operation_options(command["choose"])
            name = canonical(args)
            if name not in made:
                made[name] = _Operation(args, group.agree)
            continue
        for _ in range(command["executions"]):
            made[name].execute()
        torch.cuda.synchronize()


def fault_of(error: BaseException) -> dict[str, Any]:
    """What an operation that fails is answered with."""
    memory = "OutOfMemory" in type(error).__name__ or "out of memory" in str(error)
    first = str(error).partition("\n")[0][:300]
    return {"fault": {"memory": memory, "message": f"{type(error).__name__}: {first}"}}


def options(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line; `before` is the operation before each run, or None."""
    with_all = parser(__doc__)
    with_all.add_argument("--commands", type=Path, required=True)
    with_all.add_argument("--answers", type=Path, required=True)
    with_all.add_argument("--peer-gpu", default="", help="UUID of a second GPU, for collectives")
    return completed(with_all, with_all.parse_args(arguments))


def _main() -> None:
    if sys.argv[1:2] == ["--follow"]:
        _follow(int(sys.argv[2]))
        return
    args = options()
    with answering(args.answers) as answers, args.commands.open() as commands:
        serve(_GpuPlayer(args), commands, answers)


@contextlib.contextmanager
def answering(file: Path) -> Generator[TextIO]:
    """Where answers go; whatever fails inside, the one who waits for an answer is told."""
    with file.open("w") as answers:
        try:
            yield answers
        except Exception as error:  # of any kind: raised again when it is told
            with contextlib.suppress(OSError):
                say(answers, fault_of(error))
            raise


def say(answers: TextIO, what: dict[str, Any]) -> None:
    """One answer."""
    answers.write(json.dumps(what) + "\n")
    answers.flush()


def captured(
    calls: list[Callable[[], object]], count: int
) -> tuple[bool, list[Callable[[], object]]]:
    """A graph of so many launches for each set of inputs, or what launches them one by one."""
    try:
        graphs = [graph_of(calls[first:] + calls[:first], count) for first in range(len(calls))]
        steps = [graph.replay for graph in graphs]
    except RuntimeError:
        # The launches themselves worked; what cannot be captured is launched each time.
        torch.cuda.synchronize()
        calls_in_cycle = itertools.cycle(calls)

        def step() -> None:
            for _ in range(count):
                next(calls_in_cycle)()

        graphs, steps = [], [step] * len(calls)
    # Once each, captured or not: the other process of a collective does the same.
    for step_once in steps:
        step_once()
    torch.cuda.synchronize()
    return bool(graphs), steps


def graph_of(calls: list[Callable[[], object]], count: int) -> Any:
    """A CUDA graph of so many launches, by calls in turn."""
    graph = torch.cuda.CUDAGraph()
    # Threads of NCCL ask the driver meanwhile: what they do does not end this capture.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        for call in itertools.islice(itertools.cycle(calls), count):
            call()
    return graph


def _seconds(execute: Callable[[], object]) -> float:
    """One execution, median of some."""
    marks = [_recorded()]
    for _ in range(TIMED):
        execute()
        marks.append(_recorded())
    marks[-1].synchronize()
    return statistics.median(_since(a, b) for a, b in itertools.pairwise(marks))


def _recorded() -> Any:
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _since(anchor: Any, event: Any) -> float:
    return float(anchor.elapsed_time(event)) / 1000


def _ping_pong(anchor: Any) -> tuple[float, float, float]:
    """Host's clock, GPU's, host's."""
    before_s = time.monotonic()
    event = _recorded()
    event.synchronize()
    after_s = time.monotonic()
    return before_s, _since(anchor, event), after_s


if __name__ == "__main__":
    _main()
