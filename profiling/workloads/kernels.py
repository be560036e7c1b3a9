"""Our own CUDA kernels: Walsh transform, reduction, transpose, sorting, matrix product.

`size` is points of one transform (2048 times a power of four), elements of one row (reduction) or
array (sorting, a power of two), or the side of the square matrices (transpose, gemm). `batch` is
rows, arrays or matrices of one launch. All are 32 bits wide.

`--check` compares each kernel's result with PyTorch's and ends with status 1 if they differ.
The CUDA C is in kernels.cu; CuPy compiles it when the job starts.
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import harness
import numpy as np
import torch

LOADS = {
    "walsh": harness.Load(batch=64, size=2**21, inner=8, tiny=2**13),
    "reduction": harness.Load(batch=64, size=2**22, inner=40, tiny=2**12),
    "transpose": harness.Load(batch=4, size=8192, inner=16, tiny=64),
    "sorting": harness.Load(batch=64, size=2**20, tiny=2**13),
    "gemm": harness.Load(batch=1, size=4096, inner=3, tiny=256),
}
CHUNK = 2048  # kChunk of kernels.cu
# 32-bit sums of thousands of terms in another order agree to about 1e-6.
TOLERANCE = 1e-5
REDUCTION_BLOCKS = 32


# A computation, ready to launch; where the kernels leave their result; and the same by PyTorch, in
# 64 bits: what must be there after the first launch, computed before it.
_Kernel = tuple[Callable[[], object], torch.Tensor, Callable[[], torch.Tensor]]


def _walsh(cuda: Any, batch: int, size: int) -> _Kernel:
    """Orthonormal Walsh-Hadamard transform of each row, in place: twice gives the row again."""
    passes = (size // CHUNK).bit_length() // 2  # of four points each
    _require(
        size >= CHUNK and size == CHUNK * 4**passes,
        "--size of walsh must be 2048 times a power of four",
    )
    data = torch.randn(batch, size)
    pass_kernel, chunk = cuda.get_function("walsh_pass"), cuda.get_function("walsh_chunk")
    scale = np.float32(size**-0.5)

    def launch() -> None:
        for stage in range(passes):
            _start(pass_kernel, (data.numel() // 1024,), (256,), data, CHUNK * 4**stage)
        _start(chunk, (data.numel() // CHUNK,), (CHUNK // 2,), data, scale)

    return (launch, data, lambda: walsh_reference(data.double()))


def walsh_reference(rows: torch.Tensor) -> torch.Tensor:
    """Orthonormal Walsh-Hadamard transform of rows, shape (batch, power of two)."""
    batch, size = rows.shape
    stride = 1
    while stride < size:
        even, odd = rows.reshape(batch, -1, 2, stride).unbind(2)
        rows = torch.stack([even + odd, even - odd], dim=2)
        stride *= 2
    return rows.reshape(batch, size) * size**-0.5


def _reduction(cuda: Any, batch: int, size: int) -> _Kernel:
    """Sum of each row, by a tree of partial sums."""
    _require(size % 4 == 0, "--size of reduction must be a multiple of 4")
    # Not around zero, where the sum would be far smaller than its parts.
    data = torch.rand(batch, size)
    partial, sums = torch.empty(batch, REDUCTION_BLOCKS), torch.empty(batch)
    kernel = cuda.get_function("reduce")

    def launch() -> None:
        _start(kernel, (REDUCTION_BLOCKS, batch), (256,), data, partial, size // 4)
        _start(kernel, (1, batch), (32,), partial, sums, REDUCTION_BLOCKS // 4)

    return (launch, sums, lambda: data.sum(dim=1, dtype=torch.float64))


def _transpose(cuda: Any, batch: int, size: int) -> _Kernel:
    """Transpose of each matrix, out of place."""
    _require(size % 32 == 0, "--size of transpose must be a multiple of 32")
    data = torch.randn(batch, size, size)
    out = torch.empty_like(data)
    grid = (size // 32, size // 32, batch)
    launch = partial(_start, cuda.get_function("transpose"), grid, (32, 8), data, out, size)
    return (launch, out, lambda: data.transpose(1, 2).double())


def _sorting(cuda: Any, batch: int, size: int) -> _Kernel:
    """Ascending bitonic sort (Batcher 1968) of each array, always from the same keys."""
    _require(size >= CHUNK and size & (size - 1) == 0, "--size of sorting: a power of two >= 2048")
    keys = torch.randint(-(2**31), 2**31 - 1, (batch, size), dtype=torch.int32)
    out = torch.empty_like(keys)
    chunk, pass_kernel = cuda.get_function("sort_chunk"), cuda.get_function("sort_pass")
    chunks, threads = (keys.numel() // CHUNK,), (CHUNK // 2,)

    def launch() -> None:
        _start(chunk, chunks, threads, keys, out, size, 2, CHUNK)
        span = 2 * CHUNK
        while span <= size:
            stride = span // 2
            while stride >= CHUNK:
                _start(pass_kernel, (keys.numel() // 512,), (256,), out, size, span, stride)
                stride //= 2
            _start(chunk, chunks, threads, out, out, size, span, span)
            span *= 2

    return (launch, out, lambda: keys.sort(dim=1).values.double())


def _gemm(cuda: Any, batch: int, size: int) -> _Kernel:
    """Product of two square matrices in 32 bits, without tensor cores."""
    _require(size % 128 == 0, "--size of gemm must be a multiple of 128")
    a, b = torch.randn(batch, size, size), torch.randn(batch, size, size)
    c = torch.empty_like(a)
    grid = (size // 128, size // 128, batch)
    launch = partial(_start, cuda.get_function("gemm"), grid, (256,), a, b, c, size)
    return (launch, c, lambda: a.double() @ b.double())


KERNELS = {
    "walsh": _walsh,
    "reduction": _reduction,
    "transpose": _transpose,
    "sorting": _sorting,
    "gemm": _gemm,
}


def _build(args: argparse.Namespace) -> harness.Work:
    """Steps of a kernel; with `--check`, its comparison with PyTorch instead."""
    if args.device != "cuda" or args.dtype not in (None, "fp32"):
        raise SystemExit("these are CUDA kernels, 32 bits wide: leave --device and --dtype away")
    import cupy

    # CuPy and PyTorch share the context and, both untold, the default stream.
    cuda = cupy.RawModule(code=Path(__file__).with_name("kernels.cu").read_text())
    launch, result, by_torch = KERNELS[args.name](cuda, args.batch, args.size)
    if args.check:
        expected = by_torch()
        launch()
        error = relative_error(result, expected)
        print(f"{args.name}: relative error {error:.2e}, allowed {TOLERANCE:.0e}")
        # Written so that NaN fails too.
        raise SystemExit(0 if error <= TOLERANCE else 1)

    def once() -> torch.Tensor:
        launch()
        return result

    return harness.Work(harness.repeated(launch, args.inner), args.batch * args.inner, once)


def relative_error(result: torch.Tensor, expected: torch.Tensor) -> float:
    """Norm of the difference over the norm of what was expected."""
    return float((result.double() - expected).norm() / expected.norm())


def _start(kernel: Any, grid: tuple[int, ...], block: tuple[int, ...], *arguments: Any) -> None:
    """Enqueue a kernel; the caller keeps the tensors, and so their memory, alive."""
    pointers = (a.data_ptr() if isinstance(a, torch.Tensor) else a for a in arguments)
    kernel(grid, block, tuple(pointers))


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise SystemExit(message)


if __name__ == "__main__":
    harness.run(_build, harness.options(harness.parser(__doc__, LOADS), LOADS))
