"""Whether a start on one GPU of a host disturbs a window on another.

    python docs/measurements/own/neighbours.py [0.1]    # two idle GPUs, no MPS daemon; 80 s

On the first GPU that CUDA_VISIBLE_DEVICES names a job runs kernels of 1 us, which wait for their
launches, or of so many ms. In every other window of 3 s a process begins on the second GPU and
ends. Each has half of the cores. It needs the driver, no PyTorch, and changes no setting.
"""

import atexit
import math
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from windows import SETTLE_S, START_S, Process

from advisor.runtime.processes import physical_cores

GPUS = os.environ.get("CUDA_VISIBLE_DEVICES", "0,1").split(",")
WINDOW_S, PAIRS, T_95 = 3.0, 10, 2.262  # Student's t of nine degrees of freedom


def started(name: str, number: int, folder: Path) -> Process:
    """A probe on one of both GPUs, when it stands before its gate."""
    cores, ms = physical_cores(), sys.argv[1] if sys.argv[1:] else "0.001"
    os.environ["CUDA_VISIBLE_DEVICES"] = GPUS[number]
    half = cores[number * len(cores) // 2 : (number + 1) * len(cores) // 2]
    command = [sys.executable, "short_kernels.py", "--ms", ms, "--block-us", "1"]
    one, until_s = Process(name, command, folder), time.monotonic() + START_S
    atexit.register(one.child.kill)
    os.sched_setaffinity(one.child.pid, frozenset[int]().union(*half))
    while not one.waits():
        if one.child.poll() is not None or time.monotonic() > until_s:
            sys.exit(f"{name} did not start:\n{one.log.read_text()[-500:]}")
        time.sleep(0.01)
    return one


def main() -> None:
    """Print the rates of each two windows, and the mean of their ratios with its 95 % interval."""
    rates = list[float]()
    with tempfile.TemporaryDirectory() as made:
        job = started("job", 0, Path(made))
        job.want(1)
        time.sleep(SETTLE_S)
        for number in range(2 * PAIRS):
            begun_s, before = time.perf_counter(), job.count()
            if number % 2:
                (other := started(f"{number}", 1, Path(made))).want(2)
                other.child.wait(START_S)
                print(f"began and ended in {time.perf_counter() - begun_s:.2f} s", end=": ")
            time.sleep(max(0.0, begun_s + WINDOW_S - time.perf_counter()))
            rates.append((job.count() - before) / (time.perf_counter() - begun_s))
            print(f"{rates[-1]:,.0f} kernels/s", end="; " if number % 2 == 0 else "\n", flush=True)
    ratios = [beside / alone for alone, beside in zip(rates[::2], rates[1::2], strict=True)]
    mean, error = statistics.mean(ratios), T_95 * statistics.stdev(ratios) / math.sqrt(PAIRS)
    print(f"rate with a start beside it: {mean:.4f} [{mean - error:.4f} {mean + error:.4f}]")


if __name__ == "__main__":
    main()
