"""Single PyTorch operations: matrix product, stream triad, Fourier transform, embedding lookups.

`size` is the side of the matrices (matmul), elements (triad), points of one transform (fft) or
rows of the table (embedding). `batch` is products, arrays, transforms or bags of one launch.
"""

import argparse
from collections.abc import Callable

import harness
import torch
from torch.nn import functional

LOADS = {
    "matmul": harness.Load(batch=1, size=8192),
    "triad": harness.Load(batch=1, size=2**28, inner=16, tiny=1024),
    "fft": harness.Load(batch=64, size=2**20, inner=16),
    "embedding": harness.Load(batch=65_536, size=2**23, inner=32),
}
EMBEDDING_WIDTH = 128
LOOKUPS_PER_BAG = 32


def _matmul(args: argparse.Namespace) -> harness.Work:
    """`c = a @ b` of square matrices; progress is matrices."""
    dtype, shape = harness.torch_type(args.dtype or "fp32"), (args.size, args.size)
    # Scaled so that the entries of the product have unit variance.
    a, b = (torch.randn(shape, dtype=dtype) * args.size**-0.25 for _ in range(2))
    c = torch.empty_like(a)
    return _work(lambda: torch.mm(a, b, out=c), args, args.batch)


def _triad(args: argparse.Namespace) -> harness.Work:
    """`a = b + s * c` as in STREAM (McCalpin 1995); progress is passes over the arrays."""
    dtype = harness.torch_type(args.dtype or "fp32")
    b, c = (torch.randn(args.batch, args.size, dtype=dtype) for _ in range(2))
    a = torch.empty_like(b)
    return _work(lambda: torch.add(b, c, alpha=3.0, out=a), args)


def _fft(args: argparse.Namespace) -> harness.Work:
    """Complex 32-bit transforms, out of place; progress is transforms."""
    if args.dtype not in (None, "fp32"):
        raise SystemExit("fft is 32 bits wide: leave --dtype away")
    signal = torch.randn(args.batch, args.size, dtype=torch.complex64)
    # Without out=, which would copy the result once more.
    return _work(lambda: torch.fft.fft(signal), args)


def _embedding(args: argparse.Namespace) -> harness.Work:
    """Sums of 32 random rows of a table in GPU memory, new rows each time; progress is bags."""
    table = torch.randn(args.size, EMBEDDING_WIDTH, dtype=harness.torch_type(args.dtype or "fp32"))
    rows = torch.empty(args.batch, LOOKUPS_PER_BAG, dtype=torch.int64)

    return _work(
        lambda: functional.embedding_bag(rows.random_(0, args.size), table, mode="sum"), args
    )


def _work(
    launch: Callable[[], object], args: argparse.Namespace, launches: int = 1
) -> harness.Work:
    """The launch returns its result; the progress of so many of them is `--batch`."""
    step = harness.repeated(launch, launches * args.inner)
    return harness.Work(step, args.batch * args.inner, launch)


if __name__ == "__main__":
    args = harness.options(harness.parser(__doc__, LOADS), LOADS)
    operations = {"matmul": _matmul, "triad": _triad, "fft": _fft, "embedding": _embedding}
    harness.run(operations[args.name], args)
