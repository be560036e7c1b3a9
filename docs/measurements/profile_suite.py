"""Profile jobs on all NVIDIA GPUs of this host, one sweep per GPU at a time.

    python docs/measurements/profile_suite.py                # every job of jobs/
    python docs/measurements/profile_suite.py --fresh triad  # some, once more

Each sweep keeps to its part of the CPU cores; start-ups and windows of all sweeps are kept apart
by advisor itself. Prints the seconds of each sweep. Interrupted, the same command goes on.
"""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue

from advisor.formats.job_file import sound_jobs
from advisor.settings import read_settings
from advisor_profiling.testbed.live import list_gpus


def main(arguments: list[str]) -> None:
    """Give each GPU the next job until none is left."""
    options = [a for a in arguments if a.startswith("--")]
    names = [a for a in arguments if not a.startswith("--")]
    jobs: SimpleQueue[str] = SimpleQueue()
    for name in names or [job.name for job in sound_jobs(read_settings().jobs_dir)[0]]:
        jobs.put(name)
    gpus = list_gpus()
    cores = sorted(os.sched_getaffinity(0))
    part = len(cores) // len(gpus)
    with ThreadPoolExecutor(len(gpus)) as pool:
        for number, gpu in enumerate(gpus):
            own = cores[number * part : (number + 1) * part]
            pool.submit(work, jobs, gpu.uuid, own, options)


def work(jobs: "SimpleQueue[str]", gpu_uuid: str, cores: list[int], options: list[str]) -> None:
    """Profile jobs on one GPU until the queue is empty."""
    pinned = ["taskset", "--cpu-list", ",".join(map(str, cores))]
    while True:
        try:
            job = jobs.get_nowait()
        except Empty:
            return
        begun = time.monotonic()
        command = [sys.executable, "-m", "advisor_cli", "profile", job, "--gpu", gpu_uuid, *options]
        done = subprocess.run([*pinned, *command], capture_output=True, text=True, check=False)
        seconds = time.monotonic() - begun
        print(f"{job:22} {seconds:6.1f} s  exit code {done.returncode}", flush=True)
        if done.returncode:
            print(done.stderr[-800:], flush=True)


main(sys.argv[1:])
