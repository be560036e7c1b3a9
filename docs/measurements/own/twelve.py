"""Twelve jobs with a fixed amount of work: by `advisor run`, one after the other, and as planned.

    python docs/measurements/own/twelve.py FOLDER --gpu 0    # 8 to 12 minutes of an H200
    python docs/measurements/own/twelve.py FOLDER --table

Seven trainings leave most of a GPU unused, an inference leaves a third, four jobs fill it. Each
has as many steps as it makes alone in 15 s by its bundled profile, and the queue gets that as its
work. Then one job of each kind runs alone on this host, without advisor; two equal jobs one after
the other take twice as long. By these seconds `advisor place` plans twice afterwards, in
the same `ADVISOR_HOME`: with each job's time from its start to its end, and with that of its steps.
The queue is to take at most 10 % longer than the first: a queue must start its jobs, too, so no
host can follow a plan that starts nothing. Neither is a bound: `place` has two jobs share a GPU.

Seconds and joules (the card's energy counter) include all starts. FOLDER gets the files of jobs and
one file a GPU; the same command goes on where it stopped.
"""

import argparse
import json
import os
import runpy
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

TWELVE = {
    "mobilenet-train-b2": 2, "resnet50-train-b2": 2, "bert-train-b2": 2, "resnet50-train-b32": 1,
    "mobilenet-infer-fp32": 1, "vit-infer-fp16": 1, "triad": 1, "whisper-infer": 1,
    "albert-infer": 1,
}  # fmt: skip

WORK_S = 15.0

# What each plan takes for the work of a job.
PLANS = {"plan with starts": "wall_s", "plan without starts": "work_s"}


def work(steps: int, script: str, *arguments: str) -> None:
    """Run a Python job, which ends well after so many steps; needs the standard library alone."""
    sys.path.append(str(Path(__file__).resolve().parents[3]))
    from advisor import progress

    class Fixed(progress.Progress):
        first: tuple[float, int] | None = None

        def report(self, value: float | None, steps_more: int = 0) -> None:
            super().report(value, steps_more)
            now_s = time.monotonic()
            if self._count:
                self.first = self.first or (now_s, self._count)
            if self._count >= steps and self.first:
                if "SEEN" in os.environ:
                    per_step_s = (now_s - self.first[0]) / (self._count - self.first[1])
                    found = json.dumps({"work_s": steps * per_step_s})
                    Path(os.environ["SEEN"]).write_text(found)
                sys.exit()

    progress.Progress = Fixed
    sys.argv, folder = [script, *arguments], str(Path(script).resolve().parent)
    sys.path.insert(0, folder)
    runpy.run_path(script, run_name="__main__")


def measured(gpu: int, do: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What it says, with seconds and joules of the card."""
    began_s, began_mj = time.monotonic(), read(gpu, "TotalEnergyConsumption")
    said = do()
    joules = (read(gpu, "TotalEnergyConsumption") - began_mj) / 1e3
    return said | {"wall_s": time.monotonic() - began_s, "energy_j": joules}


def read(gpu: int, name: str) -> Any:
    """A reading of NVML."""
    import pynvml

    pynvml.nvmlInit()
    return getattr(pynvml, f"nvmlDeviceGet{name}")(pynvml.nvmlDeviceGetHandleByIndex(gpu))


def advisor(*words: str) -> dict[str, Any]:
    """A command's JSON, or the last line of it, and its exit code; None where it says nothing."""
    command = [sys.executable, "-m", "advisor_cli", *words, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    try:
        said = json.loads(done.stdout)
    except ValueError:
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        said = json.loads(lines[-1]) if lines else None
    return {"exit_code": done.returncode, "said": said}


def write_job(folder: Path, name: str, *before: str) -> tuple[Path, tuple[str, ...]]:
    """A bundled job's file, with words before its script; where it runs, and its command."""
    from dataclasses import asdict

    from advisor.formats.job_file import find_job

    job = find_job(name, Path(__file__).parents[3] / "jobs")
    python, *script = job.command
    command, workdir = (python, *before, *script), job.workdir or Path.cwd()
    fields = {"command": command, "workdir": str(workdir), "progress": asdict(job.progress)}
    fields |= {"memory_mib": job.memory_mib, "offered_rate": job.offered_rate}
    known = {key: value for key, value in fields.items() if value is not None}
    (folder / f"{name}.yaml").write_text(json.dumps(known))
    return workdir, command


def write_jobs(folder: Path) -> dict[str, tuple[Path, tuple[str, ...]]]:
    """The files of the twelve; where each runs, and its command."""
    from advisor_data.bundled import bundled_solo_points

    whole = [one for one in bundled_solo_points() if one.share_percent == 100]
    rates = {one.job: one.rate for one in whole if "H200" in one.gpu_model}
    here = str(Path(__file__).resolve())
    folder.mkdir(parents=True, exist_ok=True)
    steps = {name: str(round(rates[name] * WORK_S)) for name in TWELVE}
    return {name: write_job(folder, name, here, "--steps", steps[name]) for name in TWELVE}


def main() -> None:
    """Measure both ways and plan, or print what came."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    if given.table:
        for file in sorted(given.folder.glob("twelve*.json")):
            table(json.loads(file.read_text()))
        return
    commands = write_jobs(given.folder / "jobs")
    os.environ["ADVISOR_JOBS"] = str((given.folder / "jobs").absolute())
    file: Path = given.folder / f"twelve-{read(given.gpu, 'UUID')[4:12]}.json"
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {"apart": {}}
    # The first start would read the libraries from disk, others from memory.
    subprocess.run([sys.executable, "-c", "import torch, transformers"], check=False)
    if "queue" not in found:
        jobs = (f"{name}*{count}" for name, count in TWELVE.items())
        queue = ("run", *jobs, "--gpus", str(given.gpu), "--work", f"{WORK_S:g}s")
        found["queue"] = measured(given.gpu, lambda: advisor(*queue))
        found["launches"] = launches({job["launch_id"] for job in found["queue"]["said"]["jobs"]})
        file.write_text(json.dumps(found))
    for name in [name for name in commands if name not in found["apart"]]:
        workdir, command = commands[name]
        seen = given.folder.absolute() / f"{name}.seen"
        env = os.environ | {"CUDA_VISIBLE_DEVICES": str(given.gpu), "SEEN": str(seen)}
        run = partial(subprocess.run, command, cwd=workdir, env=env, check=True)
        one = measured(given.gpu, lambda run=run: {"exit_code": run().returncode})
        found["apart"][name] = one | json.loads(seen.read_text())
        file.write_text(json.dumps(found))
    counted = [f"{name}:{count}" for name, count in TWELVE.items()]
    for plan, key in PLANS.items():
        works = (f"{name}={one[key]:.1f}s" for name, one in found["apart"].items())
        told = [word for work in works for word in ("--work", work)]
        found[plan] = advisor("place", *counted, *told, "--gpus", "1", "--gpu-model", "NVIDIA H200")
    file.write_text(json.dumps(found))
    table(found)


def launches(ids: set[str]) -> list[list[tuple[str | None, ...]]]:
    """Jobs of each launch, from its begin, or from when they had joined, to their end."""
    from advisor.launch.folder import find_folder
    from advisor.launch.run_queue import see
    from advisor.settings import read_settings

    home = read_settings().home / "launches"
    found = list[list[tuple[str | None, ...]]]()
    for one in (see(find_folder(home, name)) for name in sorted(ids)):
        began, ended, jobs = (
            one.status.started_at,
            one.status.ended_at,
            [j.status for j in one.jobs],
        )
        times = ((job.joined_at or began, job.ended_at or ended) for job in jobs)
        pairs = zip(jobs, times, strict=True)
        found.append([(job.job, job.share_text, *both) for job, both in pairs])
    return found


def table(found: dict[str, Any]) -> None:
    """Seconds and kilojoules of each way, and what ran when."""
    alone = [(found["apart"][name], count) for name, count in TWELVE.items()]
    said, queue = found["queue"]["said"], found["queue"]
    number = len({job["launch_id"] for job in said["jobs"]})
    keys = ("wall_s", "energy_j", "work_s")
    wall_s, energy_j, work_s = (sum(one[key] * count for one, count in alone) for key in keys)
    print(f"one after the other: {wall_s:.0f} s, of which {work_s:.0f} s steps; {energy_j:.0f} J")
    print(f"queue, {number} launches: {queue['wall_s']:.0f} s, {queue['energy_j']:.0f} J,", end=" ")
    print(f"of which {said['starts_j']:.0f} J before jobs ran; unwatched: {said['unwatched_s']} s")
    for name in PLANS:
        plan = found[name]["said"]["queue"]
        print(f"{name}: {plan['makespan_s']:.0f} s, {plan['energy_j']:.0f} J;", end=" ")
        print(f"queue takes {queue['wall_s'] / plan['makespan_s']:.2f} of its time")
    for row in found["launches"]:
        times = (f"{job} ({share}) {t0[11:19]} to {t1[11:19]};" for job, share, t0, t1 in row)
        print("launch:", *times)


if __name__ == "__main__":
    if sys.argv[1] == "--steps":
        work(int(sys.argv[2]), *sys.argv[3:])
    else:
        main()
