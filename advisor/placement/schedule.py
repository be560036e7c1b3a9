"""When and where each job of a queue runs."""

import heapq
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from advisor.core.gpu import WHOLE
from advisor.placement.placing import PlacedSet, Placing


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRun:
    """One job from its start to its end.

    Attributes:
        number: Its place in the queue, from 0.
        job: Its name.
        work_s: In seconds that it takes alone.
        gpu: Index of the GPU, from 0.
        share_percent: Of the GPU's units; 100 where it has no limit.
    """

    number: int
    job: str
    work_s: float
    gpu: int
    start_s: float
    end_s: float
    share_percent: float

    @property
    def speed(self) -> float:
        """Mean relative speed from start to end."""
        return self.work_s / (self.end_s - self.start_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A queue from its start until the last job has ended.

    Attributes:
        runs: One for each job, in the order of the queue.
        slots: Every set with its GPU and start, in the order of the starts.
    """

    runs: tuple[JobRun, ...]
    gpus: int
    idle_power_w: float
    slots: "tuple[Slot, ...]"

    @property
    def busy_s(self) -> float:
        """Time in which GPUs run something, added up."""
        return sum(slot.placed.time_s for slot in self.slots)

    @property
    def busy_j(self) -> float:
        """Energy of the GPUs in that time."""
        return sum(slot.placed.energy_j for slot in self.slots)

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
    def slowest(self) -> JobRun:
        """The job with the lowest mean speed while it runs."""
        return min(self.runs, key=lambda run: run.speed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A set on a GPU; `numbers` are the positions of its jobs in the queue."""

    placed: PlacedSet
    gpu: int
    start_s: float
    numbers: tuple[int, ...]

    def runs(self, placing: Placing) -> Iterable[JobRun]:
        """Of its jobs."""
        shares = self.placed.split.shares if self.placed.split else (WHOLE,)
        parts = zip(self.numbers, self.placed.kinds, shares, self.placed.times_s, strict=True)
        for number, kind, share, time_s in parts:
            yield JobRun(
                number=number,
                job=placing.kinds[kind].name,
                work_s=placing.kinds[kind].work_s or 0.0,
                gpu=self.gpu,
                start_s=self.start_s,
                end_s=self.start_s + time_s,
                share_percent=share,
            )


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
    turns = [own if in_order else own[::-1] for own in lists]
    placed = [item for gpu, own in enumerate(turns) for item in _in_turn(gpu, own)]
    waiting = numbers_of(placing)
    slots = tuple(
        Slot(
            placed=one,
            gpu=gpu,
            start_s=start_s,
            numbers=tuple(waiting[kind].popleft() for kind in one.kinds),
        )
        for start_s, gpu, one in sorted(placed, key=lambda item: item[:2])
    )
    runs = (run for slot in slots for run in slot.runs(placing))
    return Schedule(
        runs=tuple(sorted(runs, key=lambda run: run.number)),
        gpus=pool.gpus,
        idle_power_w=pool.idle_power_w,
        slots=slots,
    )


def _in_turn(gpu: int, groups: Iterable[PlacedSet]) -> Iterable[tuple[float, int, PlacedSet]]:
    start_s = 0.0
    for group in groups:
        yield start_s, gpu, group
        start_s += group.time_s
