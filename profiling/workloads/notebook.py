"""A notebook: short cells with pauses between them, in which its user reads, thinks and types.

A cell is one of three operations on `batch` matrices of `size` x `size`, at random: products, sums,
sorting of rows; each as often as makes cells about equally long on an H100, `inner` times over. A
pause begins when the cell has ended, and is `--pause-ms` long on average: from half of that to half
as long again. Progress is matrices: `batch` for each cell.
"""

import argparse
import random
import time

import harness
import torch

LOADS = {"cells": harness.Load(batch=4, size=4096, inner=4)}


def _build(args: argparse.Namespace) -> harness.Work:
    shape, dtype = (args.batch, args.size, args.size), harness.torch_type(args.dtype or "bf16")
    a, b = (torch.randn(shape, dtype=dtype) for _ in range(2))
    out, order = torch.empty_like(a), torch.empty(shape, dtype=torch.int64)
    cells = [
        (lambda: torch.bmm(a, b, out=out), 4),
        (lambda: torch.add(a, b, out=out), 16),
        (lambda: torch.sort(a, out=(out, order))[0], 1),
    ]
    chance, record = random.Random(str(harness.process_seed(args))), harness.recorder(args.device)

    def step() -> None:
        time.sleep(chance.uniform(0.5, 1.5) * args.pause_ms / 1000)
        operation, times = chance.choice(cells)
        harness.repeated(operation, times * args.inner)()
        record().synchronize()  # its answer is read before the next cell begins

    return harness.Work(step, args.batch, lambda: [cell().clone() for cell, _ in cells])


if __name__ == "__main__":
    parser = harness.parser(__doc__, LOADS)
    parser.add_argument("--pause-ms", type=float, default=100.0, help="pauses, on average")
    harness.run(_build, harness.options(parser, LOADS))
