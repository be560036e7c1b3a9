"""How long a fingerprint takes by the size of its file, and how far it is from that of all numbers.

    .venv/bin/python docs/measurements/power/fingerprint_time.py [--folder DIR]

Each file is a safetensors file with one matrix of bf16, of 4 KiB to 4 GiB. Its blocks are alike
within and differ from each other, as layers do that were trained, pruned or never used: normal
numbers of several spreads, and zeros. Up to 256 MiB are written; what is behind them is a hole of
the file system, which reads as zeros. The time is the median of five, with the opening of the file;
`first` is the one with nothing of the file in memory. `off` is the largest difference, in points of
a percent, of bits set, bits that switch along rows and between rows, and of zeros, from all numbers
of the matrix.
"""

import argparse
import dataclasses
import json
import mmap
import os
import statistics
import tempfile
import time
from pathlib import Path

import ml_dtypes
import numpy as np

from advisor_power.operands.fingerprint import OperandPrint, operand_print
from advisor_power.tensors.tensor_file import Matrix, open_tensors

SIZES = tuple(1 << power for power in range(12, 33, 2))
WRITTEN = 1 << 28
"""Bytes of numbers; the rest is a hole."""

ROWS = 1 << 10
"""Of a block that is looked at in whole."""

REPEATS = 5
COMPARED = ("weight", "along", "across", "zeros")


def main() -> None:
    """Prints one line for each size."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--folder", type=Path, help="on the disk to try; else a temporary one")
    folder = options.parse_args().folder
    print(f"{'size':>9} {'matrix':>13} {'first, ms':>10} {'again, ms':>10} {'off, points':>12}")
    with tempfile.TemporaryDirectory(dir=folder) as made:
        for size in SIZES:
            path = Path(made) / "matrix.safetensors"
            shape = write(path, size)
            first, *again = [seconds(path) for _ in range(1 + REPEATS)]
            off = 100 * distance(path)
            print(
                f"{size_text(size):>9} {'x'.join(map(str, shape)):>13} {1e3 * first:10.1f} "
                f"{1e3 * statistics.median(again):10.1f} {off:12.2f}",
                flush=True,
            )
            path.unlink()


def write(path: Path, size: int) -> tuple[int, int]:
    """A file with a matrix of so many bytes of numbers; returns its shape."""
    columns = 1 << ((size // 2).bit_length() // 2)
    rows = size // 2 // columns
    tensor = {"dtype": "BF16", "shape": [rows, columns], "data_offsets": [0, size]}
    header = json.dumps({"weight": tensor}).encode()
    random = np.random.default_rng(0)
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        start = file.tell()
        blocks = 8
        count = max(min(size, WRITTEN) // 2 // blocks, 1)
        for block in range(blocks):
            spread = 0.0 if block % 3 == 2 else 4.0 ** (block - 4)
            numbers = random.standard_normal(count, dtype=np.float32) * spread
            file.write(numbers.astype(ml_dtypes.bfloat16).tobytes())
        file.flush()
        os.fsync(file.fileno())
        file.truncate(start + size)
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return rows, columns


def seconds(path: Path) -> float:
    """From the name of a file to the fingerprint of its matrix."""
    begin = time.perf_counter()
    sampled(path)
    return time.perf_counter() - begin


def sampled(path: Path) -> OperandPrint:
    """The fingerprint as the product makes it."""
    found = open_tensors(path)
    return operand_print(found.matrix(found.tensor()), "bf16")


def distance(path: Path) -> float:
    """The largest difference of a part between the sample and all numbers."""
    found = open_tensors(path)
    found.mapped.madvise(mmap.MADV_SEQUENTIAL)
    whole = of_all(found.matrix(found.tensor()))
    part = dataclasses.asdict(sampled(path))
    return max(abs(part[name] - whole[name]) for name in COMPARED)


def of_all(matrix: Matrix) -> dict[str, float]:
    """The same parts by definition, block by block."""
    rows, columns = matrix.shape
    sums = dict.fromkeys(COMPARED, 0)
    for begin in range(0, rows, ROWS):
        end = min(begin + ROWS, rows)
        bits = np.take(matrix, np.arange(begin, end + 1), axis=0, mode="wrap").view(np.uint16)
        here = bits[:-1]
        sums["weight"] += int(np.bitwise_count(here).sum(dtype=np.int64))
        sums["along"] += int(np.bitwise_count(here[:, 1:] ^ here[:, :-1]).sum(dtype=np.int64))
        sums["across"] += int(np.bitwise_count(here ^ bits[1:]).sum(dtype=np.int64))
        sums["zeros"] += 16 * int(np.count_nonzero((here & 0x7FFF) == 0))
    sums["along"] = sums["along"] * columns // max(columns - 1, 1)
    return {name: total / (16 * rows * columns) for name, total in sums.items()}


def size_text(size: int) -> str:
    """Such as 4 KiB."""
    unit = (size.bit_length() - 1) // 10
    return f"{size >> 10 * unit} {('B', 'KiB', 'MiB', 'GiB')[unit]}"


if __name__ == "__main__":
    main()
