"""Collectives over two GPUs: this process has the one that is measured, a second one the other.

NCCL runs a kernel on each GPU, which waits for the other's. Both processes make the same operation
and launch it as often: what the first decides it tells the second, by a store of PyTorch. Before a
run the second is told how many executions there will be and launches them at once, so that the
first waits for nobody.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

# NVLink multicast stays off, whatever the user's environment says: a program that uses it and is
# killed, as ours may be, can leave the NVLink of a host's GPUs out of service, of others' as well.
os.environ["NCCL_NVLS_ENABLE"] = "0"

COLLECTIVES = ("all-gather", "all-reduce")
GPUS = 2

_HOST = "127.0.0.1"
_PATIENCE = timedelta(hours=1)
_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def size_bytes(text: str) -> int:
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


def gather(args: argparse.Namespace, dtype: Any) -> Callable[[], object]:
    """Each GPU has half of `--bytes`, and gets the other half."""
    import torch
    import torch.distributed as dist

    whole = torch.empty(args.bytes // dtype.itemsize, dtype=dtype)
    own = torch.randn(len(whole) // GPUS, dtype=dtype)
    return lambda: dist.all_gather_into_tensor(whole, own)


def reduce(args: argparse.Namespace, dtype: Any) -> Callable[[], object]:
    """Each GPU has `--bytes` and gets the mean: a sum would grow until all numbers are infinite."""
    import torch
    import torch.distributed as dist

    numbers = torch.randn(args.bytes // dtype.itemsize, dtype=dtype)
    return lambda: dist.all_reduce(numbers, op=dist.ReduceOp.AVG)


class Group:
    """Both processes: what the first says, the second hears, in order.

    The first has rank 0, and chooses the port of the store where it is 0.
    """

    def __init__(self, rank: int, port: int) -> None:
        import torch.distributed as dist

        self._rank, self._told = rank, 0
        self._store = dist.TCPStore(
            host_name=_HOST,
            port=port,
            world_size=GPUS,
            is_master=rank == 0,
            timeout=_PATIENCE,
            wait_for_workers=False,
        )
        self.port = int(self._store.port)

    def join(self) -> None:
        """Wait for the other process, and have NCCL connect the GPUs."""
        import torch
        import torch.distributed as dist

        torch.cuda.set_device(0)
        store = dist.PrefixStore("nccl", self._store)
        dist.init_process_group("nccl", store=store, rank=self._rank, world_size=GPUS)

    def say(self, what: Any) -> None:
        """Tell the second process."""
        self._store.set(str(self._told), json.dumps(what))
        self._told += 1

    def hear(self) -> Any:
        """The next thing that the first process says; waits for it."""
        heard = json.loads(self._store.get(str(self._told)))
        self._told += 1
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
    code = peer.wait()
    print(f"the process on the other GPU has ended with {code}", file=sys.stderr, flush=True)
    os._exit(3)
