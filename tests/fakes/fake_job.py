"""A job without a GPU that behaves as one under MPS: its rate and its power follow the share.

It becomes a client of the fake MPS through the fake libcuda, counts steps as fast as its share
allows, and writes its power where the fake NVML reads it.
"""

import argparse
import ctypes
import os
import sys
import time
from pathlib import Path

from advisor.progress import Progress

STEPS_PER_S = 400.0
"""Rate at 100 %."""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--behave", default="well")
    parser.add_argument("--at", type=float, default=0, help="misbehave at this share only")
    options = parser.parse_args()
    share = float(os.environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100"))
    behave = options.behave if options.at in (0, share) else "well"
    if behave == "exit":
        print("bad checkpoint", flush=True)
        return 3
    if behave == "oom":
        print("torch.OutOfMemoryError: CUDA out of memory.", flush=True)
        return 1
    if behave != "no-gpu":
        ctypes.CDLL("libcuda.so.1").cuInit(0)
    if behave == "hang":
        time.sleep(600)
    run(share, behave)
    return 0


def run(share: float, behave: str) -> None:
    progress = Progress(on_pause=lambda: write_power(80))
    progress.ready()
    begun = time.monotonic()
    while True:
        write_power(100 + 4 * share)
        if behave == "die" and time.monotonic() - begun > 1:
            os._exit(7)
        if terminated():
            sys.exit("the MPS client has been terminated by the server")
        time.sleep(1 / STEPS_PER_S * 100 / share)
        progress.add()


def write_power(power_w: float) -> None:
    file = Path(os.environ["FAKE_NVML_DIR"]) / "gpu0" / "power_mw"
    beside = file.with_suffix(f".{os.getpid()}")
    beside.write_text(f"{power_w * 1000:.0f}")
    beside.rename(file)


def terminated() -> bool:
    pipe_dir = os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "")
    return Path(pipe_dir, "clients", f"{os.getpid()}.terminated").exists()


sys.exit(main())
