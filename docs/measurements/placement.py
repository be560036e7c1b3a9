"""Plans of made-up queues and of jobs that run on: what they save, their gap, and their time.

    .venv/bin/python docs/measurements/placement.py queue    # four queues of 200 jobs, a minute
    .venv/bin/python docs/measurements/placement.py sets     # 200 jobs on 40 GPUs, 2,000 on 400

Jobs are drawn with a seed from the 37 first ones on H200; 15 % of those that run on fill a GPU. Of
more kinds than there are jobs each further one has 85 to 100 % of the activity and power of one.
The time limit of sets counts CPU time, so that a busy machine changes nothing.
"""

import argparse
import dataclasses
import math
import time
from collections.abc import Iterator
from unittest import mock

import numpy as np

from advisor.core.objectives import Policy
from advisor.decide.limits import Request, is_served
from advisor.placement import solver
from advisor.placement.placing import Kind, Placing, Pool, make_placing
from advisor.predict.sets import fills
from advisor.settings import read_settings
from advisor.wire.requests import PlacementRequest, QueuedJobs
from advisor_advice.placing import place_jobs
from advisor_advice.profiles import checked_on, find_profiles
from advisor_data.bundled import GPU_MODEL, bundled_solo_points
from advisor_models.registry import Registry

POINTS = (p for p in bundled_solo_points() if p.gpu_model == GPU_MODEL)
NAMES = sorted({p.job for p in POINTS if p.started_at < "2026-11-28"})
VARIED = ("sm_active_percent", "dram_active_percent", "power_w")


def main() -> None:
    """One of both tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=("queue", "sets"))
    parser.add_argument("--seeds", type=int, default=2)
    given = parser.parse_args()
    for row in queues(given.seeds) if given.what == "queue" else sets():
        print(f"| {' | '.join(row)} |", flush=True)


def queues(seeds: int) -> Iterator[tuple[str, ...]]:
    """Energy saved and done sooner, %, against each baseline, by seed."""
    for work, gpus in (("an hour", 40), ("an hour", 120), ("to 8 h", 40), ("to 8 h", 120)):
        for seed in range(seeds):
            dice = np.random.default_rng(seed)
            jobs = tuple(
                QueuedJobs(
                    job=NAMES[n],
                    work_s=3600.0
                    if work == "an hour"
                    else 600.0 * round(math.exp(dice.uniform(0, math.log(48)))),
                )
                for n in dice.integers(0, len(NAMES), 200).tolist()
            )
            asked = PlacementRequest(jobs=jobs, gpus=gpus, gpu_model=GPU_MODEL, time_limit_s=60.0)
            begun_s = time.process_time()
            plan = place_jobs(asked, read_settings())
            baselines = plan.queue.baselines if plan.queue else ()
            yield (
                f"{work}, {gpus}, seed {seed}",
                *(f"{100 * b.energy_saved:.1f}, {100 * b.time_saved:.1f}" for b in baselines),
                f"{time.process_time() - begun_s:.1f}",
            )


def sets() -> Iterator[tuple[str, ...]]:
    """CPU seconds, GPUs, seated, cost, gap and energy saved, %, for two sizes and objectives."""
    for jobs, kinds, gpus in ((200, len(NAMES), 40), (2000, 100, 400)):
        for aim in ("fewest-cards", "energy-efficiency"):
            placing, begun_s = drawn(jobs, kinds, gpus, aim), time.process_time()
            with mock.patch.object(solver.time, "monotonic", time.process_time):
                plan = solver.place(placing, time_limit_s=10.0)
            yield (
                f"{jobs}, {kinds}, {gpus}",
                aim,
                f"{time.process_time() - begun_s:.1f}",
                f"{plan.cards} | {plan.seated} | {plan.cost:.0f} | {100 * plan.gap:.1f}",
                f"{100 * (1 - plan.power_w / plan.same_work_w):.1f}",
            )


def drawn(jobs: int, kinds: int, gpus: int, aim: str) -> Placing:
    """Jobs that run on."""
    settings, dice = read_settings(), np.random.default_rng(0)
    own = find_profiles(NAMES, settings, GPU_MODEL)
    profiles = list(own.profiles)
    while len(profiles) < kinds:
        like, part = own.profiles[len(profiles) % len(own.profiles)], dice.uniform(0.85, 1.0)
        values = {**like.values, **{name: part * like.values[name] for name in VARIED}}
        profiles.append(dataclasses.replace(like, job=f"{like.job}-{len(profiles)}", values=values))
    full = np.array([fills(profile) for profile in profiles])
    chances = 0.15 * full / full.sum() + 0.85 * ~full / (~full).sum()
    counts = np.bincount(dice.choice(kinds, jobs, p=chances), minlength=kinds)
    there = np.flatnonzero(counts).tolist()
    pool = Pool(
        gpu_model=GPU_MODEL,
        gpus=gpus,
        profiles=tuple(profiles[n] for n in there),
        limits=Request(policy=Policy(objective=None if aim != "fewest-cards" else "throughput")),
        idle_power_w=float(np.mean([profile.idle_power_w for profile in profiles])),
        of_pairs=Registry(settings.home / "models").open_champion(),
        checked=checked_on(own, settings),
    )
    kept = [
        Kind(name=profiles[n].job, count=int(counts[n]), is_server=is_served(profiles[n]))
        for n in there
    ]
    return make_placing(kept, [pool], aim)


if __name__ == "__main__":
    main()
