"""Half-precision matrix products leave output tiles unwritten under MPS at most SM counts.

    python unwritten_tiles.py [SMs ...]    # needs PyTorch, a Hopper GPU, nvidia-cuda-mps-control

Starts an MPS control daemon of its own. For each SM count a fresh process with
CUDA_MPS_ACTIVE_THREAD_PERCENTAGE fills C with NaN, computes torch.mm(A, B, out=C) for 4096 x 4096
matrices and counts the elements that are still NaN. No element of A or B is NaN or infinite, so
every count above 0 is an output that the library never wrote.
"""

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

COUNTS = (8, 16, 20, 30, 34, 38, 52, 62, 66, 70, 78, 92, 104, 112, 118, 120, 132)
CHILD = """
import torch
from torch.profiler import ProfilerActivity, profile
sms = torch.cuda.get_device_properties(0).multi_processor_count
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
    """Print one line for each SM count."""
    import torch

    total = torch.cuda.get_device_properties(0).multi_processor_count
    name, cuda = torch.cuda.get_device_name(), torch.version.cuda
    print(f"{name}, PyTorch {torch.__version__}, CUDA {cuda}; elements of 16,777,216 not written:")
    print(f"{'SMs':>4} {'bf16':>10} {'fp16':>10} {'fp32':>10}   bf16 kernel", flush=True)
    with tempfile.TemporaryDirectory() as pipe:
        env = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": pipe, "CUDA_MPS_LOG_DIRECTORY": pipe}
        subprocess.run(["nvidia-cuda-mps-control", "-d"], env=env, check=True)
        counts = [int(text) for text in sys.argv[1:]] or [n for n in COUNTS if n <= total]

        def row(sms: int) -> str:
            share = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(-(-100 * sms // total))}
            command = [sys.executable, "-c", CHILD]
            return subprocess.run(command, env=env | share, capture_output=True, text=True).stdout

        with ThreadPoolExecutor(4) as pool:
            print(*pool.map(row, counts), sep="", end="", flush=True)
        subprocess.run(["nvidia-cuda-mps-control"], input="quit\n", env=env, text=True, check=True)


main()
