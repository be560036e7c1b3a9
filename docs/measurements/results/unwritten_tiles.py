"""Half-precision matrix products leave output tiles unwritten under MPS at most SM counts.

    python unwritten_tiles.py [--told N] [SMs ...]
    # a minute; needs PyTorch, a GPU since Hopper, nvidia-cuda-mps-control, and nobody on the GPU

Starts an MPS control daemon of its own. For each SM count a fresh process with
CUDA_MPS_ACTIVE_THREAD_PERCENTAGE fills C with NaN, computes torch.mm(A, B, out=C) for 4096 x 4096
matrices and counts the elements that are still NaN. No element of A or B is NaN or infinite, so
every count above 0 is an output that the library never wrote. `--told N` tells cuBLASLt that it has
N SMs, where there are more: a way around. The last line is for the table of known combinations.
"""

import ctypes
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path

COUNTS = (8, 16, 20, 30, 34, 38, 52, 62, 66, 70, 78, 92, 104, 112, 118, 120, 132)
CHILD = """
import os, torch
from torch.profiler import ProfilerActivity, profile
sms = torch.cuda.get_device_properties(0).multi_processor_count
told = int(os.environ["TOLD"])
if 0 < told < sms:
    torch.backends.cuda.preferred_blas_library("cublaslt")
    torch._C._set_sm_carveout_experimental(sms - told)
row, n = [], 4096
for dtype in (torch.bfloat16, torch.float16, torch.float32):
    a, b = (torch.ones(n, n, device="cuda", dtype=dtype) for _ in "ab")
    c = torch.full((n, n), float("nan"), device="cuda", dtype=dtype)
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        torch.mm(a, b, out=c)
        torch.cuda.synchronize()
    row.append(f"{int(c.isnan().sum()):>10,}")
    if dtype is torch.bfloat16:
        kernel = next((e.key for e in seen.key_averages() if "nvjet" in e.key), "other kernel")
print(f"{sms:4}", *row, f"  {kernel}")
"""


def main() -> None:
    """Print one line for each SM count, and one for the table."""
    import torch

    words = sys.argv[1:]
    told = words[1] if words[:1] == ["--told"] else "0"
    total = torch.cuda.get_device_properties(0).multi_processor_count
    name, cuda = torch.cuda.get_device_name(), torch.version.cuda
    print(f"{name}, PyTorch {torch.__version__}, CUDA {cuda}; elements of 16,777,216 not written:")
    print(f"{'SMs':>4} {'bf16':>10} {'fp16':>10} {'fp32':>10}   bf16 kernel", flush=True)
    counts = [int(text) for text in words[2 * (told != "0") :]]
    counts = counts or sorted({n for n in (*COUNTS, *range(144, total, 12)) if n < total} | {total})
    with tempfile.TemporaryDirectory() as pipe:
        env = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": pipe, "CUDA_MPS_LOG_DIRECTORY": pipe}
        subprocess.run(["nvidia-cuda-mps-control", "-d"], env=env, check=True)

        def row(sms: int) -> str:
            share = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(-(-100 * sms // total)), "TOLD": told}
            command = [sys.executable, "-c", CHILD]
            done = subprocess.run(command, env=env | share, capture_output=True, text=True)
            return done.stdout or f"{sms:4} failed: {done.stderr.strip().splitlines()[-1:]}\n"

        with ThreadPoolExecutor(4) as pool:
            rows = list(pool.map(row, counts))
        print(*rows, sep="", end="", flush=True)
        subprocess.run(["nvidia-cuda-mps-control"], input="quit\n", env=env, text=True, check=True)
    wrong = [fields[0] for fields in map(str.split, rows) if fields[1:4] != ["0", "0", "0"]]
    versions = f"{driver()} | {torch.__version__} | {cublas(cuda)}"
    said = f"{len(wrong)} of {len(rows)}: {' '.join(wrong)}" if wrong else f"none of {len(rows)}"
    way = f", told {told} SMs" if told != "0" else ""
    print(f"| {name} | {total} | {versions} | {said}{way} | {date.today()} |")


def driver() -> str:
    """The version of the kernel's part."""
    found = re.search(r"\d{3}\.\d+(\.\d+)?", Path("/proc/driver/nvidia/version").read_text())
    return found[0] if found else "?"


def cublas(cuda: str) -> str:
    """The version of the cuBLASLt that PyTorch has loaded."""
    get = ctypes.CDLL(f"libcublasLt.so.{cuda.split('.')[0]}").cublasLtGetVersion
    get.restype = ctypes.c_size_t
    number = get()
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


main()
