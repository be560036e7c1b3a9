"""The memory's power beside every kind of work, on one card: jobs alone.

    .venv/bin/python docs/measurements/power/memory_jobs.py OUT.jsonl --python python3 --minutes 9

All jobs on the whole GPU, those of `jobs/components` at smaller shares as well. Windows are of 3 s,
so that the memory's mean over a second is read over two of them. As many jobs as fit into memory
stand ready at their gates; their windows follow one another, and then every third comes again: how
far its two windows, minutes apart, differ is what no weights can tell. Points are kept as soon as
they are known, and those of the run, which is named as OUT is, are written to OUT.jsonl at the end,
for `component_claims.py`. After Ctrl-C, or when time is over, the same command goes on.
"""

import argparse
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from advisor.core.gpu import WHOLE, Share
from advisor.core.job import Job
from advisor.core.records import Point, SoloPoint
from advisor.formats.job_file import list_jobs
from advisor.settings import Settings, read_settings
from advisor_data import open_store
from advisor_data.files.files import write_points
from advisor_profiling.campaign.blocks import Block, cut, remaining
from advisor_profiling.campaign.campaign import conditions_on, measure_blocks
from advisor_profiling.campaign.outcome import Failure
from advisor_profiling.campaign.sweep import free_memory_mib
from advisor_profiling.testbed.live import live_testbed
from advisor_profiling.window.rules import rules_for
from advisor_profiling.window.targets import Target, solo

JOBS = Path(__file__).resolve().parents[3] / "jobs"

COPIES_AT = {"component-hbm-copy": (10, 20, 30, 50), "component-hbm-write": (10, 30, 50)}
SMALL = 10
"""Percent, for the other microbenchmarks."""

ALIKE = (
    "bert-serve-10", "bert-serve-60", "llm-serve-30", "resnet50-train-waiting", "albert-train-b2",
    "resnet50-infer-b2", "whisper-infer-b2", "wav2vec2-infer-b2", "mobilenet-infer-b2",
)  # fmt: skip
"""Left out: the same work as another job at another rate."""

AGAIN = 3
"""Of so many windows one is measured twice."""

WINDOW_S, LONGEST_S = 3.0, 6.0


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("out", type=Path, help="points, .jsonl")
    parser.add_argument("--python", default="python3", help="interpreter that has PyTorch")
    parser.add_argument("--gpu", default="0")
    parser.add_argument("--minutes", type=float, default=9.0, help="then no window begins")
    parser.add_argument("--jobs", nargs="*", help="only these")
    options = parser.parse_args()
    settings, console = read_settings(), Console(stderr=True, markup=False, highlight=False)
    wanted, run = list(targets(options.python, options.jobs)), options.out.stem
    # As Ctrl-C does: the window is given up, everything before it is kept.
    alarm = threading.Timer(60 * options.minutes, os.kill, (os.getpid(), signal.SIGINT))
    alarm.daemon = True
    alarm.start()
    try:
        measure(wanted, run, options.gpu, settings, console)
    except KeyboardInterrupt:
        console.print("stopped; finished points are kept: the same command goes on from here")
    finally:
        alarm.cancel()
        found = points_of(run, settings)
        write_points(options.out, found)
        console.print(f"{len(found)} points in {options.out}")


def points_of(run: str, settings: Settings) -> list[SoloPoint]:
    """What the run has kept."""
    with open_store(settings.database_url, settings.home) as store:
        return [p for p in store.solo_points() if p.run == run]


def targets(python: str, only: Sequence[str] | None) -> Iterator[Target]:
    """Each job at its shares, once."""
    for folder in (JOBS / "components", JOBS):
        for job in list_jobs(folder):
            if job.name in ALIKE or (only and job.name not in only):
                continue
            ready = _with(python, job)
            yield solo(ready, Share(WHOLE))
            smaller = COPIES_AT.get(job.name, (SMALL,)) if folder.name == "components" else ()
            yield from (solo(ready, Share(float(share))) for share in smaller)


def measure(
    wanted: Sequence[Target], run: str, gpu: str, settings: Settings, console: Console
) -> None:
    """Every target of a block once, then some of them again."""
    rules = replace(rules_for(LONGEST_S), least_s=WINDOW_S)
    with (
        open_store(settings.database_url, settings.home) as store,
        live_testbed(settings, gpu, None, "mps", f"{run}-{time.time_ns()}") as testbed,
    ):
        conditions = conditions_on(testbed, run, rules)
        once = cut(wanted, testbed.max_clients, free_memory_mib(testbed), run, alone=False)
        blocks = [Block(block.specs, tuple(with_repeats(block.targets))) for block in once]
        done = {(p.job, p.share_percent, p.repeat) for p in points_of(run, settings)}
        known = [t for block in blocks for t in block.targets if _name(t) in done]
        outcome = measure_blocks(
            remaining(blocks, known), conditions, testbed, store, _Told(console)
        )
        console.print(outcome.cost)


def with_repeats(once: Sequence[Target]) -> Iterator[Target]:
    """All, then every third again."""
    yield from once
    yield from (replace(target, repeat=1) for target in once[::AGAIN])


def _name(target: Target) -> tuple[str, float, int]:
    (spec,) = target.specs
    return spec.job.name, spec.share.percent, target.repeat


def _with(python: str, job: Job) -> Job:
    program, *words = job.command
    return replace(job, command=(python if program == "python3" else program, *words))


class _Told:
    """Progress, a line for each window."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def phase(self, text: str) -> None:
        self._console.print(text)

    def point(self, point: Point, done: int, total: int, eta_s: float) -> None:
        if isinstance(point, SoloPoint):
            memory = "-" if point.memory_power_w is None else f"{point.memory_power_w:.1f}"
            said = f"{point.job} at {point.share_percent:g} %: {point.power_w} W, memory {memory}"
            self._console.print(f"  {done}/{total} {said}, eta {eta_s:.0f} s")

    def failure(self, failure: Failure) -> None:
        self._console.print(f"not measured: {failure.target}: {failure.error}")


if __name__ == "__main__":
    main()
