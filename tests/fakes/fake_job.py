"""A job without a GPU that behaves as one under MPS: its rate and its power follow the share.

It becomes a client of the fake MPS through the fake libcuda, counts steps as fast as its share
allows, and writes its power where the fake NVML reads it.
"""

import argparse
import math
import os
import sys
import time
from pathlib import Path

from answering_fake import compute

from advisor.progress import Progress

STEPS_PER_S = 400.0
"""Rate at 100 %."""

LOOK_S = 0.02
"""How often it looks at its server: at every step that would be most of what a job computes."""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--behave", default="well")
    parser.add_argument("--steps", type=int, default=0, help="end well after so many")
    parser.add_argument("--at", type=float, default=0, help="misbehave at this share only")
    options = parser.parse_args()
    share = float(os.environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100"))
    # A job that reports does so at every share.
    reports = options.behave in ("reports", "differs", "nan")
    behave = options.behave if options.at in (0, share) else "reports" if reports else "well"
    if behave == "exit":
        print("bad checkpoint", flush=True)
        return 3
    compute()
    run(share, behave, options.steps)
    return 0


def run(share: float, behave: str, steps: int) -> None:
    written, looked, done = 0.0, 0.0, 0

    def rest() -> None:
        nonlocal written
        written = 0.0
        write_power(0)

    progress = Progress(on_pause=rest)
    # What the first step computed, but for rounding; other jobs of this kind report nothing.
    first = {"reports": 10.0 * (1 + 1e-4 / share), "differs": 9.0, "nan": math.nan}
    if behave in first:
        progress.report(first[behave])
    progress.ready()
    begun = time.monotonic()
    while True:
        # Again and again: a partner that adds up at the same moment may miss this job.
        if time.monotonic() - written > 0.1:
            written = time.monotonic()
            write_power(20 + 4 * share)
        if behave == "die" and time.monotonic() - begun > 1:
            os._exit(7)
        if time.monotonic() - looked > LOOK_S:
            looked = time.monotonic()
            look_at_server()
        time.sleep(1 / STEPS_PER_S * 100 / share)
        progress.add()
        done += 1
        if done == steps:
            return


def write_power(job_w: float) -> None:
    """The GPU draws 80 W, and what each of its running jobs adds."""
    gpu = Path(os.environ["FAKE_NVML_DIR"]) / f"gpu{int(os.environ['ADVISOR_GPU'][-12:])}"
    jobs = gpu / "jobs"
    jobs.mkdir(exist_ok=True)
    swap(jobs / str(os.getpid()), job_w)
    total_w = 80 + sum(filter(None, (power_of(file) for file in jobs.iterdir())))
    swap(gpu / "power_mw", total_w * 1000)


def power_of(file: Path) -> float:
    # Its owner may be writing it, or be gone, or be a zombie.
    try:
        lives = ") Z " not in Path("/proc", file.name, "stat").read_text()
        return float(file.read_text()) if lives and file.name.isdigit() else 0
    except (OSError, ValueError):
        return 0


def swap(file: Path, value: float) -> None:
    beside = file.with_name(f"{file.name}.{os.getpid()}")
    beside.write_text(f"{value:.0f}")
    beside.rename(file)


def look_at_server() -> None:
    pipes = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/nonexistent"))
    if (pipes / "clients" / f"{os.getpid()}.terminated").exists():
        sys.exit("the MPS client has been terminated by the server")


sys.exit(main())
