"""A job that leaves its limit in one of the ways that a program can, once a file says go.

    python breaking_job.py WAY FILE

It is a good client at first. Each way ends in a process with a context on the fake GPU.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

from answering_fake import compute

from advisor.progress import Progress

BARE = ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")
OUTSIDE = """
import ctypes, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
cuda.cuInit(0)
cuda.cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_void_p()), 0)
time.sleep(float(sys.argv[1]))
"""


def main(way: str, file: Path) -> None:
    compute()
    progress = Progress()
    progress.ready()
    broken = False
    while True:
        time.sleep(0.01)
        progress.add()
        if file.exists() and not broken:
            broken = way != "children"
            break_limit(way)


def break_limit(way: str) -> None:
    kept = ("CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "FAKE_NVML_DIR", "PATH", "TOKEN")
    bare = {name: value for name, value in os.environ.items() if name in kept}
    command = [sys.executable, "-c", OUTSIDE]
    match way:
        case "children":
            without = {k: v for k, v in os.environ.items() if k not in BARE}
            subprocess.run([*command, "1"], env=without, check=False)
        case "escape":
            subprocess.Popen(["setsid", "-f", *command, "60"], env=bare)
        case "hidden":
            # It was started with the right variables, and changes them inside.
            code = f"import os; os.environ['CUDA_MPS_PIPE_DIRECTORY'] = '/none'\n{OUTSIDE}"
            subprocess.Popen([sys.executable, "-c", code, "60"])
        case "per-context":
            name = "CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING"
            subprocess.Popen([*command, "60"], env={**os.environ, name: "1"})
        case _:
            sys.exit(f"there is no way {way}")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
