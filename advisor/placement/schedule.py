"""When and where each job of a queue runs, by a plan or first come, first served.

When a job ends its place is free, and the first waiting job that keeps the limits next to the one
that is left starts there at once; that one goes on under its limit. On an empty GPU the first
waiting job starts with the first one that may be next to it, else alone on the whole GPU.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

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
        slots: Every set with its GPU and start, in the order of the starts; none of first come.
        busy_s: Time in which GPUs run something, added up.
        busy_j: Energy of the GPUs in that time.
    """

    runs: tuple[JobRun, ...]
    gpus: int
    idle_power_w: float
    busy_s: float
    busy_j: float
    slots: "tuple[Slot, ...]" = ()

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


def scheduled(sets: Iterable[PlacedSet], placing: Placing) -> Schedule:
    """When and where each set of a queue runs.

    The longest set goes to the GPU that is free first, which keeps the makespan within a third of
    the shortest possible (R. Graham, "Bounds on multiprocessing timing anomalies", SIAM Journal on
    Applied Mathematics 17(2), 1969). Each GPU then runs its sets the shortest first: that ends no
    later, and the mean job ends sooner. Of equal jobs the one that came first starts first.
    """
    pool = placing.pools[0]
    free = [(0.0, gpu) for gpu in range(pool.gpus)]
    lists: list[list[PlacedSet]] = [[] for _ in range(pool.gpus)]
    for one in sorted(sets, key=lambda s: (-s.time_s, s.kinds, s.split.shares if s.split else ())):
        free_s, gpu = free[0]
        lists[gpu].append(one)
        heapq.heapreplace(free, (free_s + one.time_s, gpu))
    placed = [item for gpu, those in enumerate(lists) for item in _in_turn(gpu, those[::-1])]
    waiting: dict[int, deque[int]] = {}
    for number, kind in enumerate(placing.queue):
        waiting.setdefault(kind, deque()).append(number)
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
        busy_s=sum(slot.placed.time_s for slot in slots),
        busy_j=sum(slot.placed.energy_j for slot in slots),
        slots=slots,
    )


def _in_turn(gpu: int, groups: Iterable[PlacedSet]) -> Iterable[tuple[float, int, PlacedSet]]:
    start_s = 0.0
    for group in groups:
        yield start_s, gpu, group
        start_s += group.time_s


@dataclass(frozen=True, slots=True)
class Beside:
    """Two kinds at half a GPU each; `left` is speed and power of the first one afterwards."""

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
    def __init__(
        self,
        placing: Placing,
        alone: Sequence[PlacedSet],
        beside: Callable[[int, int], Sequence[Beside]],
    ) -> None:
        self._placing, self._pairs = placing, beside
        self._alone = {one.kinds[0]: one for one in alone}
        # One kind for each name: which jobs may share does not depend on their work.
        first = {kind.name: n for n, kind in reversed([*enumerate(placing.kinds)])}
        self._waiting: dict[int, deque[int]] = {}
        for number, kind in enumerate(placing.queue):
            self._waiting.setdefault(first[placing.kinds[kind].name], deque()).append(number)
        self._events: list[tuple[float, int, int]] = []
        self._runs: dict[int, JobRun] = {}
        self._busy_s = self._busy_j = 0.0

    def run(self) -> Schedule | None:
        """The whole queue; None where a job may not run alone and finds no other."""
        placing, pool = self._placing, self._placing.pools[0]
        gpus = [_Gpu(index) for index in range(pool.gpus)]
        for gpu in gpus:
            self._fill(gpu, 0.0)
        while self._events:
            now_s, index, version = heapq.heappop(self._events)
            if version == gpus[index].version:
                self._advance(gpus[index], now_s)
                self._fill(gpus[index], now_s)
        if len(self._runs) < len(placing.queue):
            return None
        return Schedule(
            runs=tuple(self._runs[number] for number in range(len(placing.queue))),
            gpus=pool.gpus,
            idle_power_w=pool.idle_power_w,
            busy_s=self._busy_s,
            busy_j=self._busy_j,
        )

    def _advance(self, gpu: _Gpu, now_s: float) -> None:
        passed_s = now_s - gpu.since_s
        self._busy_s += passed_s
        self._busy_j += passed_s * gpu.power_w
        for place, speed in zip(gpu.places, gpu.speeds, strict=True):
            place.left_s -= passed_s * speed
            kind = self._placing.kinds[self._placing.queue[place.number]]
            if place.left_s <= 1e-9 * (work_s := kind.work_s or 0.0):
                self._runs[place.number] = JobRun(
                    number=place.number,
                    job=kind.name,
                    work_s=work_s,
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
            if kind in self._alone:
                gpu.places = [self._take(kind, WHOLE, now_s)]
                return

    def _join(self, gpu: _Gpu, now_s: float) -> None:
        (here,) = gpu.places
        if beside := self._first_beside(here.type, here.share_percent):
            gpu.places.append(self._take(beside[0], beside[1].shares[1], now_s))
            self._limit(gpu.places, beside[1])

    def _limit(self, places: list[_Place], beside: Beside) -> None:
        """Write down shares, and what each does when it is left by the other."""
        here, there = places
        there.share_percent = beside.shares[1]
        here.left = beside.left
        there.left = self._pair(there, here).left

    def _first_beside(self, kind: int, share: float | None) -> tuple[int, Beside] | None:
        """The type that waits longest of those that may be next to a job, at its share if given."""
        possible = [
            (self._waiting[other][own], other, found)
            for other in self._waiting
            # On an empty GPU the job itself still waits.
            if len(self._waiting[other]) > (own := int(share is None and other == kind))
            for found in self._pairs(kind, other)
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
        work_s = self._placing.kinds[self._placing.queue[number]].work_s or 0.0
        watts = self._alone[kind].power_w if kind in self._alone else 0.0
        return _Place(number, kind, share, now_s, work_s, (1.0, watts))

    def _together(self, places: list[_Place]) -> tuple[tuple[float, ...], float]:
        if len(places) == 1:
            speed, power_w = places[0].left
            return (speed,), power_w
        found = self._pair(*places)
        return found.speeds, found.power_w

    def _pair(self, here: _Place, there: _Place) -> Beside:
        shares = here.share_percent, there.share_percent
        return next(p for p in self._pairs(here.type, there.type) if p.shares == shares)


def first_come(
    placing: Placing, alone: Sequence[PlacedSet], beside: Callable[[int, int], Sequence[Beside]]
) -> Schedule | None:
    """Jobs as they come, two on each GPU at half of it each; `alone` are kinds that may run alone.

    None where a job may not run alone and finds no other to share with.
    """
    return _FirstCome(placing, alone, beside).run()
