"""How far it goes: the simulator, `advisor place`, and the store, each at growing sizes.

.venv/bin/python docs/measurements/cluster/scale.py simulator --gpus 256,1024,4096,10000 --days 2
.venv/bin/python docs/measurements/cluster/scale.py place --jobs 50,100,200,300 --kinds all
.venv/bin/python docs/measurements/cluster/scale.py store --scales 0.01,0.02,0.04
"""

import argparse
import resource
import runpy
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from cluster import simulate
from run import GPUS, World, policies
from workload import draw_jobs

from advisor.settings import read_settings
from advisor.wire.requests import PlacementRequest, QueuedJobs
from advisor_advice.placing import plan
from advisor_data.files.bundled import GPU_MODEL, bundled_solo_points

FILLED_STORE = Path(__file__).parents[1] / "filled_store.py"
LOAD = 0.9
JOBS_OF_A_GPU = 3
"""Queue of a plan."""


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=TABLES)
    parser.add_argument("--gpus", type=_numbers(int), default=[256, 1024])
    parser.add_argument("--days", type=float, default=2.0)
    parser.add_argument("--policies", default="exclusive,advisor")
    parser.add_argument("--jobs", type=_numbers(int), default=[50, 100, 200, 300])
    parser.add_argument("--kinds", default="all", help="how many works there are, or all")
    parser.add_argument("--time-limit", type=float, default=10.0)
    parser.add_argument("--scales", type=_numbers(float), default=[0.01, 0.02])
    options = parser.parse_args()
    TABLES[options.what](options)


def simulator(options: Any) -> None:
    """Events and jobs a second by the number of GPUs."""
    world = World()
    kinds = {model: site.kinds for model, site in world.sites.items()}
    print("| GPUs | jobs | policy | CPU, s | events/s | jobs/s | memory, MiB |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for count in options.gpus:
        gpus = {model: round(count * own / sum(GPUS.values())) for model, own in GPUS.items()}
        jobs = draw_jobs(kinds, gpus, LOAD, options.days, 1)
        for name in options.policies.split(","):
            sites, policy = policies(world, 1)[name]
            began = time.process_time()
            ran = simulate(sites, gpus, jobs, policy)
            cpu_s = time.process_time() - began
            rates = f"{ran.events / cpu_s:.0f} | {len(jobs) / cpu_s:.0f}"
            memory_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            row = f"| {count} | {len(jobs)} | {name} | {cpu_s:.1f} | {rates} | {memory_mib:.0f} |"
            print(row, flush=True)


def place(options: Any) -> None:
    """Time of planning by the length of the queue."""
    names = sorted({p.job for p in bundled_solo_points() if p.gpu_model == GPU_MODEL})
    plan(_queue(names[:2], 4, 2, 1.0), read_settings())  # loads the model
    print("| jobs | that differ | GPUs | predicting, s | searching, s | cut | energy saved, % |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for count in options.jobs:
        works = count if options.kinds == "all" else int(options.kinds)
        asked = _queue(names, count, works, options.time_limit)
        clock = _Clock()
        found = plan(asked, read_settings(), on_progress=clock.predicted)
        ended_s = time.perf_counter()
        alone = found.others["one after the other"].energy_j
        saved = 100 * (1 - found.plan.schedule.energy_j / alone)
        differ = len({(job.job, job.work_s) for job in asked.jobs})
        times = f"{clock.predicted_s - clock.began_s:.1f} | {ended_s - clock.predicted_s:.1f}"
        row = f"| {count} | {differ} | {asked.gpus} | {times} | {found.plan.timed_out}"
        print(f"{row} | {saved:.1f} |", flush=True)


def store(options: Any) -> None:
    """Bytes of a row in SQLite, indexes and parts included, between two sizes."""
    big = runpy.run_path(str(FILLED_STORE))
    sizes: list[tuple[float, int]] = []
    for scale in options.scales:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "advisor.db"
            big["fill"](f"sqlite:///{file}", scale, _say_nothing)
            sizes.append((scale, sum(path.stat().st_size for path in Path(folder).iterdir())))
    rows = {word: big[word] for word in ("SOLO_POINTS", "PAIR_POINTS", "OBSERVATIONS")}
    print(f"at scale 1: {rows}")
    for (small, one), (large, other) in pairwise(sizes):
        per_scale = (other - one) / (large - small)
        print(f"scale {small:g} to {large:g}: {per_scale / sum(rows.values()):.0f} bytes a row")


TABLES: dict[str, Callable[[Any], None]] = {"simulator": simulator, "place": place, "store": store}


class _Clock:
    """When a plan began, and when its last pair was predicted."""

    def __init__(self) -> None:
        self.began_s = self.predicted_s = time.perf_counter()

    def predicted(self, done: int, pairs: int) -> None:
        """A pair was predicted."""
        self.predicted_s = time.perf_counter()


def _say_nothing(_: str) -> None:
    pass


def _queue(names: list[str], count: int, works: int, limit_s: float) -> PlacementRequest:
    """Jobs drawn from those names, with so many different works between 10 min and 8 h."""
    rng = np.random.default_rng(1)
    choices_s = [600.0 * 48 ** (n / max(1, works - 1)) for n in range(works)]
    drawn: list[int] = rng.integers(0, len(names), count).tolist()
    works_s = rng.permutation(np.resize(choices_s, count)).tolist()
    jobs = [QueuedJobs(job=names[n], work_s=w) for n, w in zip(drawn, works_s, strict=True)]
    gpus = max(1, count // JOBS_OF_A_GPU)
    return PlacementRequest(jobs=tuple(jobs), gpus=gpus, gpu_model=GPU_MODEL, time_limit_s=limit_s)


def _numbers(kind: Callable[[str], float]) -> Callable[[str], list[float]]:
    return lambda text: [kind(word) for word in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
