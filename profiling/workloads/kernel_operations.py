"""Operations whose power is looked at over time, each with input sets to take turns with.

`gemm` is `c = a @ b` of m x k and k x n, `gemv` the same with n = 1, `triad` is `a = b + s * c`
as in STREAM, `copy` a copy of one array to another; the last two move `m` elements of each array.
`all-gather` and `all-reduce` move `--bytes` between two GPUs, of which
this process has the one that is measured and a second process the other: NCCL runs a kernel on
each, which waits for the other's, so both make the same operation and launch it as often. What the
first decides it tells the second, by a store of PyTorch, also how many executions there will be:
the second launches them at once, so that the first waits for nobody. A function named
with `--call module:function` launches its work each time it is called.
"""

import argparse
import importlib
import json
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

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


def words_of(args: argparse.Namespace) -> list[str]:
    """A collective as options, for the other process."""
    return [args.name, "--bytes", str(args.bytes), "--dtype", args.dtype]


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
    script = Path(__file__).with_name("kernel_power.py")
    peer = subprocess.Popen(
        [sys.executable, str(script), "--follow", str(group.port)],
        stdin=subprocess.PIPE,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": peer_gpu},
    )
    threading.Thread(target=_end_with, args=(peer,), daemon=True).start()
    group.join()
    return group


def end_with_stdin() -> None:
    """End this process as soon as the one that started it has ended."""

    def wait() -> None:
        sys.stdin.buffer.read()
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


def _end_with(peer: "subprocess.Popen[bytes]") -> None:
    # A kernel that waits for a GPU on which nobody runs any more would wait for ever.
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
    if args.name in COLLECTIVES:
        make_operation = _gather if args.name == "all-gather" else _reduce
        return [make_operation(args, torch_type(args.dtype))]
    make = {"gemm": _product, "gemv": _product, "triad": _triad, "copy": _copy}[args.name]
    first, size_bytes = make(args)
    sets = 1
    if args.rotate:
        # Rotating inputs are four times as large as the cache of the GPU.
        sets = max(2, -(-4 * torch.cuda.get_device_properties(0).L2_cache_size // size_bytes))
    return [first, *(make(args)[0] for _ in range(sets - 1))]


def called(text: str) -> Callable[[], object]:
    """The function `module:function`, looked for in the current folder, too."""
    module, _, name = text.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    function = getattr(importlib.import_module(module), name)
    if not callable(function):
        raise TypeError(f"{text} is no function")
    return function


def _product(args: argparse.Namespace) -> tuple[Callable[[], object], int]:
    n = 1 if args.name == "gemv" else args.n
    dtype = torch_type(args.dtype)
    a, b = (torch.randn(shape, dtype=dtype) for shape in ((args.m, args.k), (args.k, n)))
    c = torch.empty((args.m, n), dtype=dtype)
    return (lambda: torch.mm(a, b, out=c)), _bytes(a, b, c)


def _triad(args: argparse.Namespace) -> tuple[Callable[[], object], int]:
    b, c = (torch.randn(args.m, dtype=torch_type(args.dtype)) for _ in range(2))
    a = torch.empty_like(b)
    return (lambda: torch.add(b, c, alpha=3.0, out=a)), _bytes(a, b, c)


def _copy(args: argparse.Namespace) -> tuple[Callable[[], object], int]:
    b = torch.randn(args.m, dtype=torch_type(args.dtype))
    a = torch.empty_like(b)
    return (lambda: a.copy_(b)), _bytes(a, b)


def _bytes(*tensors: Any) -> int:
    return sum(tensor.nbytes for tensor in tensors)
