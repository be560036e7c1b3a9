"""From what runs to advice: watch programs that were never profiled, ask, launch, compare.

    python docs/measurements/own/watched.py FOLDER --watch [PROGRAM ..]  # 90 s each
    python docs/measurements/own/watched.py FOLDER --ask       # ten sets, before any of them runs
    python docs/measurements/own/watched.py FOLDER --launch    # as advised, 50 s a set and GPU
    python docs/measurements/own/watched.py FOLDER --launch --alone  # 60 s, each first alone; with
                                                               # a copy of the home from before
    python docs/measurements/own/watched.py FOLDER --table     # what was said, and what came

The programs are in programs.py. `ADVISOR_HOME` keeps the points of `advisor watch`. `--bundled`
asks for the jobs of jobs/, which have a gate; give each way of launching them its own home.
"""

import json
import math
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from pathlib import Path
from queue import SimpleQueue
from statistics import fmean
from typing import Any

import pynvml
from twelve import advisor

PROGRAMS = [
    "lightning", "bert", "gcn", "jax_mlp", "nbody", "spectrum", "convnext", "unet", "demucs",
    "detection", "gaussian", "generate",
]  # fmt: skip
HERE, SEED, SETS, WATCH_S, LAUNCH_S = Path(__file__).parent, 58, 10, 90, 24
DRAWN = ((2, 28), (3, 14))
folder = Path(sys.argv[1])
ALONE = [word for word in sys.argv if word in ("--alone", "--no-alone")]
LAUNCHED = "launched-alone.jsonl" if ALONE == ["--alone"] else "launched.jsonl"


def on_each_gpu(things: Sequence[Any], do: Callable[[Any, int], None]) -> None:
    """Each GPU takes the next thing when it has done one."""
    pynvml.nvmlInit()
    count, free = pynvml.nvmlDeviceGetCount(), SimpleQueue[int]()
    for gpu in range(count):
        free.put(gpu)

    def work(thing: Any) -> None:
        gpu = free.get()
        try:
            do(thing, gpu)
        finally:
            free.put(gpu)

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(work, things))


def watch(program: str, gpu: int) -> None:
    """Start a program, watch it until it was alone for a minute, end it."""
    with (folder / f"{program}.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, str(HERE / "programs.py"), program], stdout=log, stderr=log,
            cwd=folder, env=os.environ | {"CUDA_VISIBLE_DEVICES": str(gpu)},
        )  # fmt: skip
    try:
        look = advisor("watch", str(process.pid), "--for", str(WATCH_S))["said"]
    finally:
        process.kill()
        process.wait()
    write("watched.jsonl", {"program": program, "gpu": gpu, "look": look})


def ask() -> None:
    """Pairs and sets of three in a random order, until ten are to share."""
    dice = random.Random(SEED)
    if "--bundled" in sys.argv:
        names = {file.stem: file.stem for file in (HERE.parents[2] / "jobs").glob("*.yaml")}
        sets = [*dice.sample([*combinations(sorted(names), 3)], 3 * SETS)]
    else:
        names = {row["look"]["job"]: row["program"] for row in read("watched.jsonl") if row["look"]}
        pairs, threes = (dice.sample([*combinations(sorted(names), size)], n) for size, n in DRAWN)
        sets = [jobs for some in zip(pairs[::2], pairs[1::2], threes, strict=True) for jobs in some]

    def answered(jobs: tuple[str, ...]) -> Any:
        answer: Any = advisor("recommend", *jobs, "--gpu-model", "NVIDIA H200")["said"] or {}
        kept = {key: answer.get(key) for key in ("verdict", "choice", "reasons")}
        return {"programs": [names[job] for job in jobs], "jobs": jobs} | kept

    left = SETS
    with ThreadPoolExecutor(12) as pool:
        for row in pool.map(answered, sets):
            if left:
                write("asked.jsonl", row)
                left -= bool(row["choice"])


def launch(row: Any, gpu: int) -> None:
    """Run a set as advised, and keep the last state."""
    for_s = ("--duration", str(LAUNCH_S))
    state = advisor("launch", *row["jobs"], "--gpu", str(gpu), *for_s, *ALONE)["said"]
    write(LAUNCHED, {"programs": row["programs"], "state": state})


def write(name: str, row: Any) -> None:
    """Add a line to a file of the folder."""
    with (folder / name).open("a") as file:
        file.write(json.dumps(row) + "\n")
    print(name, *list(row.values())[:2], flush=True)


def read(name: str) -> list[Any]:
    """All lines of a file of the folder."""
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def table() -> Iterator[str]:
    """A row for each launch: said, its range, and what came."""
    yield "| set | split | speeds said, % | came | watts said | came | saved said, % | came |"
    yield "|---|---|---|---|---|--:|---|--:|"
    hits, off = list[bool](), list[tuple[float, float]]()
    tails, small = list[float](), list[float]()
    for row in read(LAUNCHED):
        names, state = " + ".join(row["programs"]), row["state"]
        if not state or "error" in state:
            yield f"| {names} | did not start |"
            continue
        forecast, watts = state["forecast"], state["mean_power_w"]
        saved, saved_said = state["mean_energy_saved"], forecast["energy_saved"]
        pairs = zip(state["jobs"], forecast["jobs"], strict=True)
        said = [(one["rate"], one["solo_rate"], job["mean_rate"], job["job"]) for job, one in pairs]
        figures = [(rate, rate_came) for rate, _, rate_came, _ in said]
        figures += [(forecast["power_w"], watts), (saved_said, saved)]
        small += [came / rate["value"] for rate, _, came, job in said if job.endswith("-b2")]
        hits += [one["low"] <= value <= one["high"] for one, value in figures if one and value]
        came_ms = {job["job"]: job.get("mean_p99_ms") for job in state["jobs"]}
        said_ms = re.findall(
            r"p99 latency of (\S+) is expected at (\S+) ms", str(state.get("warnings"))
        )
        tails += [abs(math.log(float(ms) / came_ms[job])) for job, ms in said_ms]
        watts_off = forecast["power_w"]["value"] / watts - 1
        off += [(abs(watts_off), abs(saved - saved_said["value"]))]
        limits = "/".join(f"{job['share_percent']:g}" for job in state["jobs"])
        cells = (
            names,
            state["sharing"] if state["sharing"] != "limited" else limits,
            ", ".join(ranged(rate, 100 / solo) for rate, solo, *_ in said),
            ", ".join(f"{100 * came / solo:.0f}" if came else "-" for _, solo, came, _ in said),
            ranged(forecast["power_w"], 1),
            f"{watts:.0f}",
            ranged(saved_said, 100) if saved_said else "-",
            f"{100 * saved:.0f}" if saved else "-",
        )
        yield f"| {' | '.join(cells)} |"
    watts, saved = (100 * fmean(column) for column in zip(*off, strict=True))
    yield f"\nIn range: {sum(hits)} of {len(hits)}. Off: watts {watts:.0f} %, saved {saved:.0f}."
    if small:
        yield f"Small jobs at {min(small):.2f} to {max(small):.2f} of the predicted speed."
    near = sum(tail < math.log(1.5) for tail in tails)
    yield f"p99 within a factor of 1.5: {near} of {len(tails)}."


def ranged(one: Any, factor: float) -> str:
    """A value with its range."""
    return " ".join(f"{factor * one[key]:.0f}" for key in ("value", "low", "high"))


if __name__ == "__main__":
    folder.mkdir(exist_ok=True)
    if "--watch" in sys.argv:
        on_each_gpu([name for name in PROGRAMS if name in sys.argv] or PROGRAMS, watch)
    if "--ask" in sys.argv:
        ask()
    if "--launch" in sys.argv:
        on_each_gpu([row for row in read("asked.jsonl") if row["choice"]], launch)
    if "--table" in sys.argv:
        print(*table(), sep="\n")
