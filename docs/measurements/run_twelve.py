"""Twelve mixed jobs with a fixed amount of work: through `advisor run`, and one after the other.

Seven trainings that leave most of a GPU unused, an inference that leaves a third, and four that
fill it; each has as many steps as it makes alone in `--seconds`, by its profile. One after the
other each is started as its file says, without advisor; on several GPUs, each takes the next that
waits. Hours and joules count from the first start to the last end, with all that jobs take to
start; of all those GPUs, by their energy counters where they have one.

    .venv/bin/python docs/measurements/run_twelve.py FOLDER            # about 5 minutes of one GPU
    .venv/bin/python docs/measurements/run_twelve.py FOLDER --gpu 0,1  # about 3 of two
    .venv/bin/python docs/measurements/run_twelve.py FOLDER --print    # once more what was found

FOLDER gets the job files and, after each of both ways, `run_twelve.json`.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from worked_jobs import with_work, write_job

from advisor.core.gpu import Gpu
from advisor.core.job import Job
from advisor.core.wording import energy_text, less_or_more
from advisor.formats.job_file import find_job
from advisor.formats.moments import duration_text, now
from advisor.launch.monitor.energy import CardMeter
from advisor.launch.monitor.timed import timed
from advisor.settings import Settings, read_settings
from advisor_advice.profiles import all_profiles
from advisor_profiling.testbed.live import find_gpu, open_source

TWELVE = {
    "mobilenet-train-b2": 2,
    "resnet50-train-b2": 2,
    "bert-train-b2": 2,
    "resnet50-train-b32": 1,
    "mobilenet-infer-fp32": 1,
    "vit-infer-fp16": 1,
    "triad": 1,
    "whisper-infer": 1,
    "albert-infer": 1,
}
"""How many of each; all have profiles of an H100 that come with advisor."""

LOOK_S = 0.2


def main() -> None:
    """Measure both ways, and print what they took."""
    options = _options()
    file: Path = options.folder / "run_twelve.json"
    if not options.print:
        settings = read_settings()
        gpus = [find_gpu(text) for text in options.gpu.split(",")]
        found: dict[str, Any] = {"gpu_model": gpus[0].model, "at": now()}
        found["gpu_uuids"] = [gpu.uuid for gpu in gpus]
        jobs = _jobs(options.folder / "jobs", gpus[0], options.seconds, settings)
        found |= {"seconds": options.seconds, "commands": {j.name: j.command for j in jobs}}
        for way, run in (("queue", _queue), ("apart", _apart)):
            with ExitStack() as stack:
                each = [stack.enter_context(_metered(gpu, settings)) for gpu in gpus]
                said = run(jobs, gpus, options.folder / "jobs", settings)
            took = {"wall_s": each[0]["wall_s"], "energy_j": sum(one["energy_j"] for one in each)}
            found[way] = {**took, **said}
            file.write_text(json.dumps(found, indent=1) + "\n")
    for line in _lines(json.loads(file.read_text())):
        print(line)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Twelve jobs as a queue, and one by one.")
    parser.add_argument("folder", type=Path, help="where job files and figures go")
    parser.add_argument("--gpu", default="0", help="indices or UUIDs")
    parser.add_argument("--seconds", type=float, default=6.0, help="work of each job, alone")
    parser.add_argument("--print", action="store_true", help="measure nothing: print the figures")
    return parser.parse_args()


def _jobs(folder: Path, gpu: Gpu, seconds: float, settings: Settings) -> list[Job]:
    """The jobs with so much to do, of which `folder` gets the files."""
    profiles = all_profiles(settings, gpu.model)
    folder.mkdir(parents=True, exist_ok=True)
    jobs: list[Job] = []
    for name in TWELVE:
        steps = profiles[name].whole_gpu_rate * seconds
        jobs.append(with_work(find_job(name, settings.jobs_dir), steps))
        write_job(folder, jobs[-1])
    return jobs


def _queue(jobs: list[Job], gpus: list[Gpu], folder: Path, settings: Settings) -> dict[str, Any]:
    """All of them through `advisor run`; what it said last."""
    uuids = ",".join(gpu.uuid for gpu in gpus)
    names = [f"{name}*{count}" for name, count in TWELVE.items()]
    done = subprocess.run(
        [sys.executable, "-m", "advisor_cli", "run", *names, "--gpus", uuids, "--json"],
        env={**settings.environment, "ADVISOR_JOBS": str(folder.absolute())},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    return {"exit_code": done.returncode, "said": json.loads(lines[-1]) if lines else None}


def _apart(jobs: list[Job], gpus: list[Gpu], folder: Path, settings: Settings) -> dict[str, Any]:
    """Each of them as a process of its own, one after the other on each GPU."""
    waiting, took = [one for one in jobs for _ in range(TWELVE[one.name])][::-1], list[Any]()

    def work(gpu: Gpu) -> None:
        base = {**settings.job_environment(), "CUDA_VISIBLE_DEVICES": gpu.uuid}
        with suppress(IndexError):
            while job := waiting.pop():
                with _metered(gpu, settings) as one:
                    done = subprocess.run(
                        job.command,
                        cwd=job.workdir,
                        env=base | dict(job.env),
                        stdout=subprocess.DEVNULL,
                        check=False,
                    )
                took.append({"job": job.name, "exit_code": done.returncode, **one})

    with ThreadPoolExecutor(len(gpus)) as pool:
        list(pool.map(work, gpus))
    return {"jobs": took}


@contextmanager
def _metered(gpu: Gpu, settings: Settings) -> Generator[dict[str, Any]]:
    """Seconds and joules of the block, once it is left."""
    took: dict[str, Any] = {}
    source, over = open_source(gpu, None, settings), threading.Event()
    energy = CardMeter(source)

    def look() -> None:
        # Again and again: where there is no counter the power is added up.
        while not over.wait(LOOK_S):
            energy.add(*timed(energy.read, time.monotonic))

    begun_s = time.monotonic()
    energy.add(*timed(energy.read, time.monotonic))
    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield took
    finally:
        took["wall_s"] = time.monotonic() - begun_s
        over.set()
        thread.join()
        metered = energy.add(*timed(energy.read, time.monotonic))
        took["energy_j"] = metered and metered.joules
        source.close()


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    several = len(found.get("gpu_uuids", [""]))
    gpus = f"{several} times " * (several > 1) + found["gpu_model"]
    yield f"{sum(TWELVE.values())} jobs of {found['seconds']:g} s each on {gpus}"
    for way in ("queue", "apart"):
        if took := found.get(way):
            yield f"{way}: {duration_text(took['wall_s'])}, {energy_text(took['energy_j'])}"
    if not (queue := found.get("queue")) or not (apart := found.get("apart")):
        return
    failed = [job["job"] for job in apart["jobs"] if job["exit_code"]]
    yield f"exit code of the queue {queue['exit_code']}; failed alone: {failed or 'none'}"
    yield f"time {less_or_more(1 - queue['wall_s'] / apart['wall_s'])}"
    yield f"energy {less_or_more(1 - queue['energy_j'] / apart['energy_j'])}"
    said: dict[str, Any] = queue["said"] or {}
    for job in said.get("jobs", ()):
        yield f"  {job['job']} {job['state']} {job['launch_id']} {job['error'] or ''}".rstrip()


if __name__ == "__main__":
    os.umask(0o077)
    main()
