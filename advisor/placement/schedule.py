"""When and where each job of a queue runs."""

import heapq
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from advisor.core.gpu import WHOLE
from advisor.placement.placing import PlacedSet, Placing
from advisor.wire.placement import PlacedJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A queue from its start until the last job has ended.

    Attributes:
        runs: One for each job, in the order of the queue.
        sets: In the order of their starts.
    """

    runs: tuple[PlacedJob, ...]
    gpus: int
    idle_power_w: float
    sets: tuple[PlacedSet, ...]

    @property
    def busy_s(self) -> float:
        """Time in which GPUs run something, added up."""
        return sum(one.time_s for one in self.sets)

    @property
    def busy_j(self) -> float:
        """Energy of the GPUs in that time."""
        return sum(one.energy_j for one in self.sets)

    @property
    def makespan_s(self) -> float:
        """Until the last job has ended."""
        return max(run.end_s for run in self.runs)

    @property
    def idle_j(self) -> float:
        """Energy of GPUs that run nothing, until the last job has ended."""
        return self.idle_power_w * max(self.gpus * self.makespan_s - self.busy_s, 0.0)

    @property
    def energy_j(self) -> float:
        """Of all GPUs until the last job has ended, idle ones among them."""
        return self.busy_j + self.idle_j

    @property
    def mean_completion_s(self) -> float:
        """From the start of the queue to the end of a job, the mean of all jobs."""
        return sum(run.end_s for run in self.runs) / len(self.runs)

    @property
    def slowest(self) -> PlacedJob:
        """The job with the lowest mean speed while it runs."""
        return min(self.runs, key=lambda run: run.speed)


def numbers_of(placing: Placing) -> dict[int, deque[int]]:
    """Of the jobs of each kind of a queue, their positions in it, ascending."""
    found: dict[int, deque[int]] = {}
    for number, kind in enumerate(placing.queue):
        found.setdefault(kind, deque()).append(number)
    return found


def scheduled(sets: Iterable[PlacedSet], placing: Placing, *, in_order: bool = False) -> Schedule:
    """When and where each set of a queue runs; each on the GPU that is free first.

    Where they need not start in their order, the longest is given a GPU first, which keeps the
    makespan within a third of the shortest possible (R. Graham, "Bounds on multiprocessing timing
    anomalies", SIAM Journal on Applied Mathematics 17(2), 1969). Each GPU then runs its sets the
    shortest first: that ends no later, and the mean job ends sooner. Of equal jobs the one that
    came first starts first.
    """
    pool = placing.pools[0]
    free = [(0.0, gpu) for gpu in range(pool.gpus)]
    lists: list[list[PlacedSet]] = [[] for _ in range(pool.gpus)]
    if not in_order:
        sets = sorted(sets, key=lambda s: (-s.time_s, s.kinds, s.split.shares if s.split else ()))
    for one in sets:
        free_s, gpu = free[0]
        lists[gpu].append(one)
        heapq.heapreplace(free, (free_s + one.time_s, gpu))
    placed: list[tuple[float, int, PlacedSet]] = []
    for gpu, own in enumerate(lists):
        start_s = 0.0
        for one in own if in_order else own[::-1]:
            placed.append((start_s, gpu, one))
            start_s += one.time_s
    placed.sort(key=lambda item: item[:2])
    waiting = numbers_of(placing)
    runs = [run for item in placed for run in _runs(*item, placing, waiting)]
    return Schedule(
        runs=tuple(sorted(runs, key=lambda run: run.number)),
        gpus=pool.gpus,
        idle_power_w=pool.idle_power_w,
        sets=tuple(one for _, _, one in placed),
    )


def _runs(
    start_s: float, gpu: int, one: PlacedSet, placing: Placing, waiting: Mapping[int, deque[int]]
) -> Iterator[PlacedJob]:
    """Of each job of a set, the first ones of their kinds that wait."""
    numbers = [waiting[kind].popleft() + 1 for kind in one.kinds]
    for n, number in enumerate(numbers):
        kind, time_s = placing.kinds[one.kinds[n]], one.times_s[n]
        work_s = kind.work_s or 0.0
        yield PlacedJob(
            gpu=gpu,
            start_s=start_s,
            end_s=start_s + time_s,
            number=number,
            job=kind.name,
            work_s=work_s,
            share_percent=one.split.shares[n] if one.split else WHOLE,
            below_normal=one.split is not None and n in one.split.below_normal,
            speed=work_s / time_s,
            beside=next((other for other in numbers if other != number), None),
        )
