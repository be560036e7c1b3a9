"""Jobs that keep one part of the GPU busy and little else: they tell component weights apart.

idle holds a context and does nothing, spin holds warps that only look at the clock; fp32, integer
and shared work in registers and shared memory; tensor-bf16 and tensor-fp8 multiply what stays in
registers, with mma.sync, so that no library chooses a kernel by the number of SMs; l2-copy stays in
the L2; hbm-write and hbm-copy go to memory (`kernels.py reduction` reads alone).

`batch` is blocks; `size` is steps of one launch, for hbm-write and hbm-copy MiB of an array.

`--check` compares each result with the same by PyTorch and ends with status 1 if they differ.
The CUDA C is in component_bench.cu; CuPy compiles it when the job starts.
"""

import argparse
import math
import time
from collections.abc import Callable
from typing import Any

import harness
import numpy as np
import torch
from kernels import Kernel, compiled, start, work

THREADS = 1024
CHAINS = 4  # kChains of component_bench.cu
ANGLE = 0.7
MULTIPLIER, INCREMENT = 1664525, 1013904223
FILLER = 2654435761
# Of each of two arrays: together a third of the L2 of an H100 and a quarter of an H200's.
_L2_MIB = 8
IDLE_S = 0.05

LOADS = {
    "idle": harness.Load(batch=1, size=1, tiny=1),
    "spin": harness.Load(batch=264, size=400_000, inner=4, tiny=1000),
    "fp32": harness.Load(batch=264, size=1024, inner=8, tiny=16),
    "integer": harness.Load(batch=264, size=4096, inner=8, tiny=16),
    "shared": harness.Load(batch=264, size=4096, inner=8, tiny=16),
    "tensor-bf16": harness.Load(batch=4224, size=4097, inner=8, tiny=17),
    "tensor-fp8": harness.Load(batch=4224, size=4097, inner=8, tiny=17),
    "l2-copy": harness.Load(batch=264, size=64, inner=8, tiny=2),
    "hbm-write": harness.Load(batch=1056, size=1024, inner=8, tiny=1),
    "hbm-copy": harness.Load(batch=1056, size=1024, inner=4, tiny=1),
}

# Turns and sums in 32 bits round in each step; all others are exact.
TOLERANCE = {"fp32": 1e-4, "tensor-bf16": 1e-3, "tensor-fp8": 1e-3}


def _idle(cuda: Any, batch: int, size: int) -> Kernel:
    """A context, and a host that waits."""
    return Kernel(lambda: time.sleep(IDLE_S), torch.ones(batch), lambda: torch.ones(batch).double())


def _spin(cuda: Any, batch: int, size: int) -> Kernel:
    """Every thread reads the clock for `size` cycles."""
    out = torch.zeros(batch * THREADS, dtype=torch.int32)
    kernel = cuda.get_function("spin")
    return Kernel(
        lambda: start(kernel, (batch,), (THREADS,), out, size),
        out,
        lambda: torch.ones_like(out).double(),
    )


def _fp32(cuda: Any, batch: int, size: int) -> Kernel:
    """Each pair of numbers turns `size` times by `ANGLE`."""
    cosine, sine = np.float32(math.cos(ANGLE)), np.float32(math.sin(ANGLE))
    data = torch.randn(batch * THREADS * CHAINS, 2)
    out, kernel = torch.empty_like(data), cuda.get_function("fp32")

    def expected() -> torch.Tensor:
        turn = complex(float(cosine), float(sine)) ** size
        return torch.view_as_real(torch.view_as_complex(data.double()) * turn)

    return Kernel(
        lambda: start(kernel, (batch,), (THREADS,), data, out, cosine, sine, size), out, expected
    )


def _integer(cuda: Any, batch: int, size: int) -> Kernel:
    """`size` steps of a linear congruential generator in 32 bits."""
    data = torch.randint(-(2**31), 2**31 - 1, (batch * THREADS * CHAINS,), dtype=torch.int32)
    out, kernel = torch.empty_like(data), cuda.get_function("integer")

    def expected() -> torch.Tensor:
        factor, term = 1, 0
        for _ in range(size):
            factor, term = factor * MULTIPLIER % 2**32, (term * MULTIPLIER + INCREMENT) % 2**32
        # In halves: the product of two numbers of 32 bits leaves 64 bits with a sign.
        low, high = factor % 2**16, factor >> 16
        wide = data.long() % 2**32
        return _signed(wide * low + (wide * high % 2**16) * 2**16 + term)

    return Kernel(lambda: start(kernel, (batch,), (THREADS,), data, out, size), out, expected)


def _shared(cuda: Any, batch: int, size: int) -> Kernel:
    """The values of each block move by `size` places."""
    data = torch.randint(-(2**31), 2**31 - 1, (batch, THREADS), dtype=torch.int32)
    out, kernel = torch.empty_like(data), cuda.get_function("shared")
    return Kernel(
        lambda: start(kernel, (batch,), (THREADS,), data, out, size),
        out,
        lambda: data.roll(-size, dims=1).double(),
    )


def _hbm_write(cuda: Any, batch: int, size: int) -> Kernel:
    """Fills an array of `size` MiB."""
    out = torch.zeros(size * 2**18, dtype=torch.int32)
    kernel, vectors = cuda.get_function("fill"), out.numel() // 4
    return Kernel(
        lambda: start(kernel, (batch,), (THREADS,), out, vectors),
        out,
        lambda: _signed(torch.arange(out.numel(), dtype=torch.int64) * FILLER),
    )


KERNELS: dict[str, Callable[[Any, int, int], Kernel]] = {
    "idle": _idle, "spin": _spin, "fp32": _fp32, "integer": _integer, "shared": _shared,
    "hbm-write": _hbm_write,
    "tensor-bf16": lambda *sizes: _tensor(*sizes, "tensor_bf16", torch.bfloat16, 16),
    "tensor-fp8": lambda *sizes: _tensor(*sizes, "tensor_fp8", torch.float8_e4m3fn, 32),
    # `size` copies of an array that stays in the L2, and one of `size` MiB.
    "l2-copy": lambda cuda, batch, size: _copy(cuda, batch, _L2_MIB, size),
    "hbm-copy": lambda cuda, batch, size: _copy(cuda, batch, size, 1),
}  # fmt: skip


def _build(args: argparse.Namespace) -> harness.Work:
    if args.device != "cuda" or args.dtype is not None:
        raise SystemExit("these are CUDA kernels of fixed types: leave --device and --dtype away")
    if args.name.startswith("tensor") and args.size % 2 == 0:
        raise SystemExit("--size of tensor products must be odd: they are taken away alternately")
    cuda = None if args.name == "idle" else compiled("component_bench.cu")
    kernel = KERNELS[args.name](cuda, args.batch, args.size)
    return work(kernel, args, args.inner, TOLERANCE.get(args.name, 0.0))


def _tensor(cuda: Any, batch: int, size: int, name: str, dtype: torch.dtype, depth: int) -> Kernel:
    """Products of 16 x `depth` by `depth` x 8, added and taken away alternately."""
    a, b = torch.randn(batch, 16, depth).to(dtype), torch.randn(batch, 8, depth).to(dtype)
    out, kernel = torch.empty(batch, 16, 8), cuda.get_function(name)
    return Kernel(
        lambda: start(kernel, (batch,), (32,), a, b, out, size),
        out,
        lambda: a.double() @ b.double().transpose(1, 2),
    )


def _copy(cuda: Any, batch: int, mib: int, steps: int) -> Kernel:
    data = torch.randn(mib * 2**18)
    out, kernel = torch.empty_like(data), cuda.get_function("copy")
    vectors = data.numel() // 4
    return Kernel(
        lambda: start(kernel, (batch,), (THREADS,), data, out, vectors, steps),
        out,
        data.double,
    )


def _signed(values: torch.Tensor) -> torch.Tensor:
    """As 32 bits with a sign are read."""
    low = values % 2**32
    return torch.where(low < 2**31, low, low - 2**32).double()


if __name__ == "__main__":
    harness.run(_build, harness.options(harness.parser(__doc__, LOADS), LOADS))
