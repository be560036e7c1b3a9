"""Sets of two to seven jobs on one card: what they draw, how fast each is, and how long its tail.

    python docs/measurements/sets/campaign.py OUT.jsonl --seed 1 --python python3 --minutes 9

Draws jobs and sets with the seed (sets.py), so the same seed on another card is the same campaign.
Every process is started once for each of its limits and stands at its gate; a set takes one window
with its gates open, about 6.5 s. First under MPS: without limits, and with a limit on the job alone
that fills the card. Then without MPS, time-sliced; `--sliced` measures these alone. Windows are at
least 4 s, so that a server of 34 requests a second has more than a hundred in its tail. Each job is
measured alone as well, on as many cores as in a set. Points are kept as soon as they are known;
after Ctrl-C, or when time is over, the same command goes on. OUT.jsonl gets solo points,
OUT-sets.jsonl those of sets.
"""

import argparse
import os
import signal
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from sets import MOST_JOBS, draw

from advisor.core.job import Job
from advisor.core.records import Point, SoloPoint
from advisor.formats.job_file import sound_jobs
from advisor.settings import Settings, read_settings
from advisor_data import Store, open_store
from advisor_data.files.files import write_points
from advisor_profiling.campaign.blocks import cut, remaining
from advisor_profiling.campaign.campaign import conditions_on, measure_blocks
from advisor_profiling.campaign.outcome import Failure
from advisor_profiling.campaign.sweep import free_memory_mib
from advisor_profiling.testbed.live import Mode, live_testbed
from advisor_profiling.window.rules import WindowRules
from advisor_profiling.window.targets import Target

JOBS = Path(__file__).resolve().parents[3] / "jobs"
RULES = WindowRules(least_s=4.0, most_s=5.0, settle_least_s=2.0, settle_most_s=3.0)
MOST_READY: dict[Mode, int] = {"mps": 48, "uncapped": 8}
"""Processes that stand ready together. Without MPS contexts that start take turns on the GPU: 18
were not ready after 170 s; under MPS 24 were after 37 s."""


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("out", type=Path, help="solo points, .jsonl")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--python", default="python3", help="interpreter that has PyTorch")
    parser.add_argument("--gpu", default="0")
    parser.add_argument("--sliced", action="store_true", help="only what is time-sliced")
    parser.add_argument("--minutes", type=float, default=9.0, help="then no window begins")
    options = parser.parse_args()
    console = Console(stderr=True, markup=False, highlight=False)
    alarm = threading.Timer(60 * options.minutes, os.kill, (os.getpid(), signal.SIGINT))
    alarm.daemon = True
    alarm.start()
    run = f"sets-{options.seed}"
    settings = read_settings()
    with open_store(settings.database_url, settings.home) as store:
        try:
            drawn = draw(known_jobs(options.python), options.seed)
            if not options.sliced:
                measure(drawn.limited, "mps", run, options.gpu, settings, store, console)
            measure(
                drawn.sliced, "uncapped", f"{run}-sliced", options.gpu, settings, store, console
            )
        except KeyboardInterrupt:
            console.print("stopped; finished points are kept: the same command goes on from here")
        finally:
            alarm.cancel()
            write(options.out, run, store, console)


def known_jobs(python: str) -> dict[str, Job]:
    """The jobs of `jobs/`, by name, run by that interpreter."""
    jobs = (job for job in sound_jobs(JOBS)[0] if job.progress.gate)
    return {job.name: replace(job, command=(python, *job.command[1:])) for job in jobs}


def measure(
    targets: Sequence[Target],
    mode: Mode,
    run: str,
    gpu: str,
    settings: Settings,
    store: Store,
    console: Console,
) -> None:
    """Every set that is not measured yet, and each of its processes alone."""
    with live_testbed(settings, gpu, None, mode, run, jobs=MOST_JOBS) as testbed:
        conditions = conditions_on(testbed, run, RULES)
        memory = free_memory_mib(testbed)
        most = min(testbed.max_clients, MOST_READY[mode])
        blocks = cut(targets, most, memory and 0.92 * memory, run, profiles=True)
        done = {_key(point) for point in _points(run, store)}
        known = [t for block in blocks for t in block.targets if _key_of(t) in done]
        outcome = measure_blocks(
            remaining(blocks, known), conditions, testbed, store, _Lines(console)
        )
        console.print(outcome.cost)


def write(out: Path, run: str, store: Store, console: Console) -> None:
    """What both parts of the run have kept."""
    points = [p for name in (run, f"{run}-sliced") for p in _points(name, store)]
    alone = [p for p in points if isinstance(p, SoloPoint)]
    together = [p for p in points if not isinstance(p, SoloPoint)]
    write_points(out, alone)
    write_points(out.with_name(f"{out.stem}-sets{out.suffix}"), together)
    console.print(f"{len(alone)} points of jobs alone, {len(together)} of sets")


def _points(run: str, store: Store) -> list[Point]:
    return [p for p in (*store.solo_points(), *store.pair_points()) if p.run == run]


def _key(point: Point) -> tuple[object, ...]:
    parts = (point,) if isinstance(point, SoloPoint) else point.parts
    return (*sorted((part.job, part.share_percent) for part in parts), point.repeat)


def _key_of(target: Target) -> tuple[object, ...]:
    return (*sorted((s.job.name, s.share.percent) for s in target.specs), target.repeat)


class _Lines:
    """Progress, a line for each window."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def phase(self, text: str) -> None:
        self._console.print(text)

    def point(self, point: Point, done: int, total: int, eta_s: float) -> None:
        parts = (point,) if isinstance(point, SoloPoint) else point.parts
        names = " + ".join(f"{part.job}@{part.share_percent:g}" for part in parts)
        self._console.print(f"  {done}/{total} {names}: {point.power_w} W, eta {eta_s:.0f} s")

    def failure(self, failure: Failure) -> None:
        self._console.print(f"not measured: {failure.target}: {failure.error}")


if __name__ == "__main__":
    main()
