"""When and where each job of a queue runs, by a plan or first come, first served.

When a job ends its place is free, and the first waiting job that keeps the limits next to the one
that is left starts there at once; that one goes on under its limit. On an empty GPU the first
waiting job starts with the first one that may be next to it, else alone on the whole GPU.
"""

import heapq
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from advisor.core.gpu import WHOLE
from advisor.core.split import EQUAL
from advisor.place.problem import JobGroup, Problem, QueuedJob


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
    for group in sorted(
        groups, key=lambda g: (-g.time_s, g.jobs, g.split.shares if g.split else ())
    ):
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


@dataclass(frozen=True, slots=True)
class _Beside:
    """What two types do at half a GPU each; `left` is speed and power of the first one alone."""

    shares: tuple[float, ...]
    speeds: tuple[float, ...]
    power_w: float
    left: tuple[float, float]


@dataclass(slots=True)
class _Place:
    """Where a job runs.

    Attributes:
        left_s: Work that is left.
        left: Its speed, and the power of the GPU, when nothing runs next to it.
    """

    number: int
    type: int
    share_percent: float
    start_s: float
    left_s: float
    left: tuple[float, float]


@dataclass(slots=True)
class _Gpu:
    """What runs on a GPU since `since_s`; `version` tells events that are out of date."""

    index: int
    places: list[_Place] = field(default_factory=list[_Place])
    speeds: tuple[float, ...] = ()
    power_w: float = 0.0
    since_s: float = 0.0
    version: int = 0


class _FirstCome:
    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        types = {kind.name: n for n, kind in enumerate(problem.types)}
        self._waiting: dict[int, deque[int]] = {}
        for number, job in enumerate(problem.queue):
            self._waiting.setdefault(types[job.name], deque()).append(number)
        self._pairs = _pairs(problem)
        self._events: list[tuple[float, int, int]] = []
        self._runs: dict[int, JobRun] = {}
        self._busy_s = self._busy_j = 0.0

    def run(self) -> Schedule | None:
        """The whole queue; None where a job may not run alone and finds no other."""
        problem = self._problem
        gpus = [_Gpu(index) for index in range(problem.gpus)]
        for gpu in gpus:
            self._fill(gpu, 0.0)
        while self._events:
            now_s, index, version = heapq.heappop(self._events)
            if version == gpus[index].version:
                self._advance(gpus[index], now_s)
                self._fill(gpus[index], now_s)
        if len(self._runs) < len(problem.queue):
            return None
        return Schedule(
            runs=tuple(self._runs[number] for number in range(len(problem.queue))),
            gpus=problem.gpus,
            idle_power_w=problem.idle_power_w,
            busy_s=self._busy_s,
            busy_j=self._busy_j,
        )

    def _advance(self, gpu: _Gpu, now_s: float) -> None:
        passed_s = now_s - gpu.since_s
        self._busy_s += passed_s
        self._busy_j += passed_s * gpu.power_w
        for place, speed in zip(gpu.places, gpu.speeds, strict=True):
            place.left_s -= passed_s * speed
            job = self._problem.queue[place.number]
            if place.left_s <= 1e-9 * job.work_s:
                self._runs[place.number] = JobRun(
                    number=place.number,
                    job=job,
                    gpu=gpu.index,
                    start_s=place.start_s,
                    end_s=now_s,
                    share_percent=place.share_percent,
                )
        gpu.places = [place for place in gpu.places if place.number not in self._runs]

    def _fill(self, gpu: _Gpu, now_s: float) -> None:
        if not gpu.places:
            self._start(gpu, now_s)
        elif gpu.places[0].share_percent < WHOLE:
            self._join(gpu, now_s)
        if not gpu.places:
            return
        gpu.speeds, gpu.power_w = self._together(gpu.places)
        gpu.since_s, gpu.version = now_s, gpu.version + 1
        times_s = [p.left_s / speed for p, speed in zip(gpu.places, gpu.speeds, strict=True)]
        heapq.heappush(self._events, (now_s + min(times_s), gpu.index, gpu.version))

    def _start(self, gpu: _Gpu, now_s: float) -> None:
        """The first waiting job that may start on an empty GPU, with a second one if any may."""
        for kind in sorted(self._waiting, key=lambda kind: self._waiting[kind][0]):
            beside = self._first_beside(kind, None)
            if beside is not None:
                shares = beside[1].shares
                gpu.places = [self._take(kind, shares[0], now_s), self._take(beside[0], 0, now_s)]
                self._limit(gpu.places, beside[1])
                return
            if self._problem.alone_fits[kind]:
                gpu.places = [self._take(kind, WHOLE, now_s)]
                return

    def _join(self, gpu: _Gpu, now_s: float) -> None:
        (here,) = gpu.places
        if beside := self._first_beside(here.type, here.share_percent):
            gpu.places.append(self._take(beside[0], beside[1].shares[1], now_s))
            self._limit(gpu.places, beside[1])

    def _limit(self, places: list[_Place], beside: _Beside) -> None:
        """Write down shares, and what each does when it is left by the other."""
        here, there = places
        there.share_percent = beside.shares[1]
        here.left = beside.left
        there.left = self._pair(there, here).left

    def _first_beside(self, kind: int, share: float | None) -> tuple[int, _Beside] | None:
        """The type that waits longest of those that may be next to a job, at its share if given."""
        possible = [
            (self._waiting[other][own], other, found)
            for other in self._waiting
            # On an empty GPU the job itself still waits.
            if len(self._waiting[other]) > (own := int(share is None and other == kind))
            for found in self._pairs.get((kind, other), ())
            if share is None or found.shares[0] == share
        ]
        if not possible:
            return None
        _, other, found = min(possible, key=lambda item: item[:2])
        return other, found

    def _take(self, kind: int, share: float, now_s: float) -> _Place:
        number = self._waiting[kind].popleft()
        if not self._waiting[kind]:
            del self._waiting[kind]
        work_s = self._problem.queue[number].work_s
        return _Place(number, kind, share, now_s, work_s, (1.0, self._problem.types[kind].power_w))

    def _together(self, places: list[_Place]) -> tuple[tuple[float, ...], float]:
        if len(places) == 1:
            speed, power_w = places[0].left
            return (speed,), power_w
        found = self._pair(*places)
        return found.speeds, found.power_w

    def _pair(self, here: _Place, there: _Place) -> _Beside:
        shares = here.share_percent, there.share_percent
        return next(p for p in self._pairs[here.type, there.type] if p.shares == shares)


def first_come(problem: Problem) -> Schedule | None:
    """Jobs as they come, two on each GPU at half of it each.

    Returns:
        None where a job may not run alone and finds no other to share with.
    """
    return _FirstCome(problem).run()


def _pairs(problem: Problem) -> dict[tuple[int, int], list[_Beside]]:
    """What each ordered pair of types does at half a GPU each, where that keeps the limits."""
    options, column = problem.options, problem.options.splits.index(EQUAL)
    ways: dict[tuple[int, int, tuple[float, ...]], _Beside] = {}
    for row in map(int, np.flatnonzero(problem.pair_fits[:, column])):
        if (split := options.split(row, column)) is None:
            continue
        for order in ([0, 1], [1, 0]):
            kind, other = map(int, options.types[order, row])
            shares = tuple(split.shares[n] for n in order)
            ways[kind, other, shares] = _Beside(
                shares=shares,
                speeds=tuple(map(float, options.speed[order, row, column])),
                power_w=float(options.power_w[row, column]),
                left=(
                    float(options.left_speed[order[0], row, column]),
                    float(options.left_power_w[order[0], row, column]),
                ),
            )
    found: dict[tuple[int, int], list[_Beside]] = {}
    for (kind, other, _), beside in ways.items():
        found.setdefault((kind, other), []).append(beside)
    return found
