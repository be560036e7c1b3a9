"""Plans of made-up queues and of jobs that run on: what they save, their gap, and their time.

    .venv/bin/python docs/measurements/placement.py queue    # four queues of 200 jobs, a minute
    .venv/bin/python docs/measurements/placement.py sets     # 200 jobs on 40 GPUs, 2,000 on 400
    .venv/bin/python docs/measurements/placement.py run      # `advisor run` of twelve; 30 s a seed

Jobs are drawn with a seed from the 37 first ones on H200; 15 % of those that run on fill a GPU. Of
more kinds than there are jobs each further one has 85 to 100 % of the activity and power of one.
The time limit of sets counts CPU time, so that a busy machine changes nothing.

`advisor run` starts and joins as it does on GPUs, of launches that are worked out instead: jobs go
on as predicted, and no start takes time. The plan of `place` for the same jobs knows all works.
"""

import argparse
import dataclasses
import itertools
import math
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from unittest import mock

import numpy as np

from advisor.core.gpu import CARD_UNITS, MEMORY_MIB, Gpu
from advisor.core.job import Job
from advisor.core.objectives import Policy
from advisor.decide.limits import Request, is_served
from advisor.launch.run_queue import LaunchedJob, LaunchView, QueueFile, QueueRecord
from advisor.launch.spec import JobStatus, LaunchPart, LaunchSet, LaunchStatus
from advisor.placement import solver
from advisor.placement.placing import Kind, Placing, Pool
from advisor.placement.solver import APART
from advisor.predict.sets import fills
from advisor.settings import read_settings
from advisor.wire.requests import LaunchRequest, PlacementRequest, QueuedJobs
from advisor_advice.conditions import find_profiles
from advisor_advice.launching import ResolvedLaunch
from advisor_advice.placing import place_jobs
from advisor_advice.queue import QueueCard, QueueLook, QueueRun
from advisor_data.bundled import GPU_MODEL, bundled_solo_points
from advisor_models.registry import Registry

POINTS = (p for p in bundled_solo_points() if p.gpu_model == GPU_MODEL)
NAMES = sorted({p.job for p in POINTS if p.started_at < "2026-11-28"})
VARIED = ("sm_active_percent", "dram_active_percent", "power_w")


def main() -> None:
    """One of both tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=("queue", "sets", "run"))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first", type=int, default=0, help="Seed of the first twelve jobs")
    given = parser.parse_args()
    rows = {"queue": lambda: queues(given.seeds), "sets": sets}
    seeds = range(given.first, given.first + given.seeds)
    for row in rows.get(given.what, lambda: runs(seeds))():
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


class WorkedOut(QueueRun):
    """A queue of which every launch is worked out; `told_s` are the works that it is told."""

    def __init__(
        self, cards: Sequence[QueueCard], works_s: dict[str, float], told_s: dict[str, float]
    ) -> None:
        jobs = [Job(name=name, command=("true",)) for name in works_s]
        file = QueueFile(Path("never written"))
        super().__init__(jobs, cards, file, read_settings(), works_s=told_s)
        self.all_s, self.left_s = works_s, dict(works_s)
        self.on = dict[str, LaunchView]()

    def look(self) -> QueueLook:
        """Launches as they are, with the jobs that have work left."""
        seated = {job.status.job for launch in self.on.values() for job in launch.jobs}
        left = tuple(name for name in self.names if name in self.left_s and name not in seated)
        launches = tuple(launch for launch in self.on.values() if launch.jobs)
        return QueueLook(record=QueueRecord(), launches=launches, waiting=left)

    def _start(self, card: QueueCard, ways: Sequence[LaunchSet], look: QueueLook) -> None:
        made, gpu = ways[0], card.gpu.uuid
        seats = zip(made.parts, made.split.seats, strict=True)
        self.on[gpu] = LaunchView(
            launch_id=gpu,
            gpu=gpu,
            status=LaunchStatus(
                launch_id=gpu, updated_at="", state="running", sharing=made.split.sharing
            ),
            jobs=tuple(going(part.job, *seat) for part, seat in seats),
            refused=frozenset(),
            joining=False,
            stop_requested=False,
        )

    def _join(
        self, card: QueueCard, launch: LaunchView, name: str, seat: tuple[float, bool]
    ) -> None:
        more = going(self._jobs[name], *seat)
        self.on[launch.gpu] = dataclasses.replace(launch, jobs=(*launch.jobs, more))

    def go(self, idle_w: float) -> tuple[float, float]:
        """Seconds and joules of all GPUs until every job has ended."""
        now_s, energy_j = 0.0, 0.0
        while self.left_s:
            while self.act(self.look()):
                pass
            rates, watts = dict[str, float](), 0.0
            for card in self.cards:
                launch = self.on.get(card.gpu.uuid)
                names = [job.status.job for job in launch.jobs] if launch else []
                found = card.expected(names, launch.split) if launch and names else None
                watts += found.power_w.value if found else idle_w
                speeds = [part.speed.value for part in found.parts] if found else []
                rates |= zip(names, speeds, strict=True)
            step_s = min(self.left_s[name] / rate for name, rate in rates.items())
            now_s, energy_j = now_s + step_s, energy_j + step_s * watts
            left = {n: s - step_s * rates.get(n, 0.0) for n, s in self.left_s.items()}
            self.left_s = {name: left_s for name, left_s in left.items() if left_s > 1e-6}
            for gpu, launch in self.on.items():
                jobs = [job for job in launch.jobs if job.status.job in self.left_s]
                done = (self.all_s[job.status.job] - self.left_s[job.status.job] for job in jobs)
                at = [
                    dataclasses.replace(j.status, steps=s) for j, s in zip(jobs, done, strict=True)
                ]
                now = tuple(LaunchedJob(j.part, s) for j, s in zip(jobs, at, strict=True))
                self.on[gpu] = dataclasses.replace(launch, jobs=now)
        return now_s, energy_j


def going(job: Job, share_percent: float, is_low: bool) -> LaunchedJob:
    """A job that runs, and makes a step in each second alone."""
    status = JobStatus(
        job=job.name,
        rate_unit="s",
        share_percent=share_percent,
        below_normal=is_low,
        outcome="running",
    )
    return LaunchedJob(LaunchPart(job=job, solo_rate=1.0), status)


def runs(seeds: Iterable[int]) -> Iterator[tuple[str, ...]]:
    """Time and energy, %, beside the plan of `place` and beside one job after the other.

    Of `advisor run` with all works told, told within a factor of about 1.5, and not told.
    """
    found = defaultdict[tuple[int, str], list[list[float]]](list)
    for gpus, seed in itertools.product((1, 2), seeds):
        profiles = find_profiles(NAMES, read_settings(), GPU_MODEL).profiles
        names, dice = [p.job for p in profiles if not is_served(p)], np.random.default_rng(seed)
        works = {
            names[n]: 600.0 * round(math.exp(dice.uniform(0, math.log(48))))
            for n in dice.choice(len(names), 12, replace=False).tolist()
        }
        about = {n: s * math.exp(dice.normal(0, 0.4)) for n, s in works.items()}
        jobs = [Job(name=name, command=("true",)) for name in works]
        cards = list[QueueCard]()
        for n in range(gpus):
            units, memory = CARD_UNITS[GPU_MODEL], MEMORY_MIB[GPU_MODEL]
            gpu = Gpu(uuid=str(n), model=GPU_MODEL, units_total=units, memory_mib=memory)
            wanted = ResolvedLaunch(request=LaunchRequest.of(*works), card=gpu)
            cards.append(QueueCard.read(jobs, wanted, read_settings()))
        idle_w = float(np.mean([p.idle_power_w for p in cards[0].profiles.values()]))
        queue = tuple(QueuedJobs(job=name, work_s=s) for name, s in works.items())
        asked = PlacementRequest(jobs=queue, gpus=gpus, gpu_model=GPU_MODEL, time_limit_s=60.0)
        with mock.patch.object(solver.time, "monotonic", time.process_time):
            plan = place_jobs(asked, read_settings()).queue
            assert plan
            for told, told_s in (("all", works), ("about", about), ("none", {})):
                run_s, run_j = WorkedOut(cards, works, told_s).go(idle_w)
                others = (plan, *(b for b in plan.baselines if b.name == APART))
                parts = [(run_s / o.makespan_s, run_j / o.energy_j) for o in others]
                found[gpus, told].append([100 * (part - 1) for own in parts for part in own])
    for (gpus, told), rows in found.items():
        table = np.array(rows)
        cells = (f"{column.mean():+.1f} ({column.max():+.1f})" for column in table.T)
        yield f"{gpus}", told, *cells, f"{(table[:, 0] > 10).sum()} of {len(rows)}"


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
        checked=own.checked(settings),
    )
    kept = [
        Kind(name=profiles[n].job, count=int(counts[n]), is_server=is_served(profiles[n]))
        for n in there
    ]
    return Placing.of(kept, [pool], aim)


if __name__ == "__main__":
    main()
