"""When and where each job of a queue runs, and what that takes."""

import heapq
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from advisor.core.gpu import WHOLE
from advisor.place.problem import JobGroup, QueuedJob


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRun:
    """One job from its start to its end.

    Attributes:
        number: Its place in the queue, from 0.
        gpu: Index of the GPU, from 0.
        share_percent: Of the GPU's units; 100 where it has no limit.
    """

    number: int
    job: QueuedJob
    gpu: int
    start_s: float
    end_s: float
    share_percent: float

    @property
    def speed(self) -> float:
        """Mean relative speed from start to end."""
        return self.job.work_s / (self.end_s - self.start_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A queue from its start until the last job has ended.

    Attributes:
        runs: One for each job, in the order of the queue.
        busy_s: Time in which GPUs run something, added up.
        busy_j: Energy of the GPUs in that time.
    """

    runs: tuple[JobRun, ...]
    gpus: int
    idle_power_w: float
    busy_s: float
    busy_j: float

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
    """A group on a GPU; `numbers` are the places of its jobs in the queue."""

    group: JobGroup
    gpu: int
    start_s: float
    numbers: tuple[int, ...]

    @property
    def runs(self) -> tuple[JobRun, ...]:
        """Of its jobs."""
        shares = self.group.split.shares if self.group.split else (WHOLE,)
        parts = zip(self.numbers, self.group.jobs, shares, self.group.times_s, strict=True)
        return tuple(
            JobRun(
                number=number,
                job=job,
                gpu=self.gpu,
                start_s=self.start_s,
                end_s=self.start_s + time_s,
                share_percent=share,
            )
            for number, job, share, time_s in parts
        )


def slots(groups: Iterable[JobGroup], gpus: int, queue: Sequence[QueuedJob]) -> tuple[Slot, ...]:
    """Which GPU runs each group and when, in the order of their starts.

    The longest group goes to the GPU that is free first, which keeps the makespan within a third of
    the shortest possible (R. Graham, "Bounds on multiprocessing timing anomalies", SIAM Journal on
    Applied Mathematics 17(2), 1969). Each GPU then runs its groups the shortest first: that ends no
    later, and the mean job ends sooner. Of equal jobs the one that came first starts first.
    """
    free = [(0.0, gpu) for gpu in range(gpus)]
    lists: list[list[JobGroup]] = [[] for _ in range(gpus)]
    for group in sorted(groups, key=_longest_first):
        free_s, gpu = free[0]
        lists[gpu].append(group)
        heapq.heapreplace(free, (free_s + group.time_s, gpu))
    placed = [item for gpu, those in enumerate(lists) for item in _in_turn(gpu, those[::-1])]
    waiting: dict[QueuedJob, deque[int]] = {}
    for number, job in enumerate(queue):
        waiting.setdefault(job, deque()).append(number)
    return tuple(
        Slot(
            group=group,
            gpu=gpu,
            start_s=start_s,
            numbers=tuple(waiting[job].popleft() for job in group.jobs),
        )
        for start_s, gpu, group in sorted(placed, key=lambda item: item[:2])
    )


def schedule(placed: Sequence[Slot], gpus: int, idle_power_w: float) -> Schedule:
    """What slots come to."""
    runs = (run for slot in placed for run in slot.runs)
    return Schedule(
        runs=tuple(sorted(runs, key=lambda run: run.number)),
        gpus=gpus,
        idle_power_w=idle_power_w,
        busy_s=sum(slot.group.time_s for slot in placed),
        busy_j=sum(slot.group.energy_j for slot in placed),
    )


def _in_turn(gpu: int, groups: Iterable[JobGroup]) -> Iterable[tuple[float, int, JobGroup]]:
    start_s = 0.0
    for group in groups:
        yield start_s, gpu, group
        start_s += group.time_s


def _longest_first(group: JobGroup) -> tuple[float, tuple[QueuedJob, ...], tuple[float, ...]]:
    return -group.time_s, group.jobs, group.split.shares if group.split else ()
