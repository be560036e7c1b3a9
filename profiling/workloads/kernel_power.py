"""Runs an operation in bursts that `advisor power kernel` asks for, and says when each one ran.

    python3 kernel_power.py gemm --m 4096 --n 4096 --k 4096 --commands FIFO --answers FIFO

The first answer, `{"ready": {..}}`, says what it is; then each command, a line of JSON with
`executions`, `gap_s` and `lead_s`, is answered by one `{"run": {"lead_began_s", "marks_s",
"ping_pongs"}}`: the GPU's times of all executions, and ping-pongs that tell the host's clock from
the GPU's. `{"fault": {..}}` says why it ends; it ends when the commands end, too.

`gemm` is `c = a @ b` of m x k and k x n, `gemv` the same with n = 1, `triad` is `a = b + s * c`
as in STREAM, `copy` a copy of one array to another; the last two move `m` elements of each array.
`all-gather` and `all-reduce` move `--bytes` between two GPUs, of which
this process has the one that is measured and a second process the other: NCCL runs a kernel on
each, which waits for the other's, so both make the same operation and launch it as often. What the
first decides it tells the second, by a store of PyTorch, also how many executions there will be:
the second launches them at once, so that the first does not wait. A function named
with `--call module:function` launches its work each time it is called.
"""

import argparse
import contextlib
import importlib
import itertools
import json
import math
import os
import shlex
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any, TextIO

from harness import torch, torch_type

# NVLink multicast stays off, whatever the user's environment says: a program that uses it and is
# killed, as ours may be, can leave the NVLink of a host's GPUs out of service, of others' as well.
os.environ["NCCL_NVLS_ENABLE"] = "0"

COLLECTIVES = ("all-gather", "all-reduce")
GPUS = 2

_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def _size_bytes(text: str) -> int:
    """A size such as 65536, 64KiB, 512MiB or 1GiB.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    unit = next((unit for unit in _UNITS if text.endswith(unit)), "")
    number = text.removesuffix(unit)
    if not number.isdecimal() or int(number) < 1:
        raise argparse.ArgumentTypeError(f"{text} is no size such as 64KiB, 512MiB or 1GiB")
    return int(number) * _UNITS.get(unit, 1)


def _gather(args: argparse.Namespace, dtype: Any) -> Callable[[], object]:
    """Each GPU has half of `--bytes`, and gets the other half."""
    whole = torch.empty(args.bytes // dtype.itemsize, dtype=dtype)
    part = torch.randn(len(whole) // GPUS, dtype=dtype)
    return lambda: torch.distributed.all_gather_into_tensor(whole, part)


def _reduce(args: argparse.Namespace, dtype: Any) -> Callable[[], object]:
    """Each GPU has `--bytes` and gets the mean: a sum would grow until all numbers are infinite."""
    numbers = torch.randn(args.bytes // dtype.itemsize, dtype=dtype)
    return lambda: torch.distributed.all_reduce(numbers, op=torch.distributed.ReduceOp.AVG)


class Group:
    """Both processes: what the first says, the second hears, in order.

    The first has rank 0, and chooses the port of the store where it is 0.
    """

    def __init__(self, rank: int, port: int) -> None:
        self._rank, self._sent = rank, 0
        self._store = torch.distributed.TCPStore(
            host_name="127.0.0.1",
            port=port,
            world_size=GPUS,
            is_master=rank == 0,
            timeout=timedelta(hours=1),
            wait_for_workers=False,
        )
        self.port = int(self._store.port)

    def join(self) -> None:
        """Wait for the other process, and have NCCL connect the GPUs."""
        torch.cuda.set_device(0)
        store = torch.distributed.PrefixStore("nccl", self._store)
        torch.distributed.init_process_group("nccl", store=store, rank=self._rank, world_size=GPUS)

    def say(self, what: Any) -> None:
        """Tell the second process."""
        self._store.set(str(self._sent), json.dumps(what))
        self._sent += 1

    def hear(self) -> Any:
        """The next thing that the first process says; waits for it."""
        heard = json.loads(self._store.get(str(self._sent)))
        self._sent += 1
        return heard

    def agree(self, number: int) -> int:
        """What the first process found, in both."""
        if self._rank:
            return int(self.hear())
        self.say(number)
        return number


def lead(peer_gpu: str) -> Group:
    """Start the process on the other GPU, and connect with it; if it ends, so does this one."""
    group = Group(0, 0)
    peer = subprocess.Popen(
        [sys.executable, __file__, "--follow", str(group.port)],
        stdin=subprocess.PIPE,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": peer_gpu},
    )
    threading.Thread(target=_end_with, args=(peer,), daemon=True).start()
    group.join()
    return group


def _end_with(peer: "subprocess.Popen[bytes]") -> None:
    # A kernel that waits for a GPU without its partner would wait forever.
    print(f"the process on the other GPU has ended with {peer.wait()}", file=sys.stderr, flush=True)
    os._exit(3)


NAMES = ("gemm", "gemv", "triad", "copy", *COLLECTIVES)
# Names of types and the bytes of one number.
_DTYPES = {"bf16": 2, "fp16": 2, "fp32": 4, "tf32": 4}


def parser(description: str | None) -> argparse.ArgumentParser:
    """The options that say which operation it is."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("name", choices=NAMES, nargs="?")
    for size in ("m", "n", "k"):
        options.add_argument(f"--{size}", type=int, default=4096)
    options.add_argument("--bytes", type=_size_bytes, default=2**29, help="such as 512MiB")
    options.add_argument("--dtype", choices=_DTYPES, default="bf16")
    options.add_argument("--after", metavar="OPERATION", help='such as "gemm --m 8192"')
    options.add_argument("--call", metavar="MODULE:FUNCTION")
    options.add_argument("--rotate", action="store_true", help="inputs that no cache holds")
    return options


def operation_options(words: list[str]) -> argparse.Namespace:
    """An operation in words of the command line; `before` is the one before each run, or None."""
    options = parser(None)
    return completed(options, options.parse_args(words))


def completed(options: argparse.ArgumentParser, args: argparse.Namespace) -> argparse.Namespace:
    """What was given, with `before`; ends the process where options do not go together."""
    if bool(args.name) == bool(args.call):
        options.error("name an operation, or a function with --call")
    args.before = operation_options(shlex.split(args.after)) if args.after else None
    together = args.name in COLLECTIVES
    if (together or (args.before and args.before.name in COLLECTIVES)) and (
        args.before or args.rotate
    ):
        options.error("a collective runs after idle, with one set of inputs")
    if together and args.bytes % (GPUS * _DTYPES[args.dtype]):
        options.error(f"{args.bytes} bytes are not as many whole numbers for each of {GPUS} GPUs")
    return args


def canonical(args: argparse.Namespace) -> str:
    """The operation in words: what runs of one operation are known by."""
    if args.call:
        return str(args.call)
    if args.name in COLLECTIVES:
        return f"{args.name} bytes={args.bytes} {args.dtype}"
    sizes = {"gemm": "mnk", "gemv": "mk"}.get(args.name, "m")
    shape = " ".join(f"{size}={getattr(args, size)}" for size in sizes)
    return f"{args.name} {shape} {args.dtype}" + (" rotating" if args.rotate else "")


def work(args: argparse.Namespace) -> dict[str, float | None]:
    """Operations of one launch by its definition, and bytes that its operands hold, each once."""
    if args.call:
        return {"launch_flop": None, "launch_bytes": None}
    width = _DTYPES[args.dtype]
    if args.name in COLLECTIVES:
        # Each GPU adds the other's numbers to its own, or has half of them before.
        reduced = args.name == "all-reduce"
        flop, held = (args.bytes / width, args.bytes) if reduced else (0, 1.5 * args.bytes)
        return {"launch_flop": float(flop), "launch_bytes": float(held)}
    m, n, k = args.m, 1 if args.name == "gemv" else args.n, args.k
    flop, numbers = {
        "gemm": (2 * m * n * k, m * k + k * n + m * n),
        "gemv": (2 * m * k, m * k + k + m),
        "triad": (2 * m, 3 * m),
        "copy": (0, 2 * m),
    }[args.name]
    return {"launch_flop": float(flop), "launch_bytes": float(numbers * width)}


def launches(args: argparse.Namespace) -> list[Callable[[], object]]:
    """What launches the operation once, for each set of inputs."""
    if args.call:
        return [called(args.call)]
    torch.set_float32_matmul_precision("high" if args.dtype == "tf32" else "highest")
    sets = 1
    if args.rotate:
        # Rotating inputs are four times as large as the cache of the GPU.
        cache_bytes = torch.cuda.get_device_properties(0).L2_cache_size
        sets = max(2, math.ceil(4 * cache_bytes / (work(args)["launch_bytes"] or 1)))
    return [_MAKERS[args.name](args, torch_type(args.dtype)) for _ in range(sets)]


def called(text: str) -> Callable[[], object]:
    """The function `module:function`, looked for in the current folder, too."""
    module, _, name = text.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    function = getattr(importlib.import_module(module), name)
    if not callable(function):
        raise TypeError(f"{text} is no function")
    return function


def _product(args: argparse.Namespace, dtype: Any) -> Callable[[], object]:
    n = 1 if args.name == "gemv" else args.n
    a, b = (torch.randn(shape, dtype=dtype) for shape in ((args.m, args.k), (args.k, n)))
    c = torch.empty((args.m, n), dtype=dtype)
    return lambda: torch.mm(a, b, out=c)


def _triad(args: argparse.Namespace, dtype: Any) -> Callable[[], object]:
    b, c = (torch.randn(args.m, dtype=dtype) for _ in range(2))
    a = torch.empty_like(b)
    return lambda: torch.add(b, c, alpha=3.0, out=a)


def _copy(args: argparse.Namespace, dtype: Any) -> Callable[[], object]:
    b = torch.randn(args.m, dtype=dtype)
    a = torch.empty_like(b)
    return lambda: a.copy_(b)


_MAKERS = {
    "gemm": _product,
    "gemv": _product,
    "triad": _triad,
    "copy": _copy,
    "all-gather": _gather,
    "all-reduce": _reduce,
}


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
        self.launches = agree(max(1, math.ceil(_SHORTEST_S / _seconds(self._calls[0]))))
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
        self._group: Group | None = None
        self._operation = self._make(args)
        self._before = self._make(args.before) if args.before else None

    def _make(self, args: argparse.Namespace) -> _Operation:
        name, agree = canonical(args), int
        if args.name in COLLECTIVES:
            self._group = self._group or lead(args.peer_gpu)
            words = [args.name, "--bytes", str(args.bytes), "--dtype", args.dtype]
            self._group.say({"choose": words})
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
        if self._group is not None:
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

    def end_with_stdin() -> None:
        # It ends as soon as the process that started this one has ended.
        sys.stdin.buffer.read()
        os._exit(0)

    threading.Thread(target=end_with_stdin, daemon=True).start()
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
    """Where answers go; a failure inside is sent to the caller."""
    with file.open("w") as answers:
        try:
            yield answers
        except Exception as error:  # of any kind: raised again in the caller
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
