"""All GPUs of one model and their queue: jobs start alone or beside another one, and end.

Each GPU that has jobs is a process of simpy. It sleeps until the first of its jobs ends, and is
interrupted where another job joins.
"""

import heapq
from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

import simpy
from gpus import Gpu
from policies import Offer, Rules
from truth import WHOLE, Site
from workload import Job

LOOKED_AT = 4
"""So many GPUs are compared for each way of joining: those that have waited longest."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Finished:
    """A job from its arrival to its end; `done_s` is the work that was done."""

    job: Job
    start_s: float
    end_s: float
    done_s: float


@dataclass(frozen=True, slots=True)
class Metered:
    """What the GPUs of one model did until the last job had ended."""

    gpus: int
    idle_power_w: float
    energy_j: float
    busy_s: float
    shared_s: float
    stranded_s: float


class Partition:
    """All GPUs of one model and their queue."""

    def __init__(
        self,
        env: simpy.Environment,
        site: Site,
        gpus: int,
        rules: Rules,
        finished: list[Finished],
    ) -> None:
        self._env, self._site, self._rules, self._finished = env, site, rules, finished
        self._gpus = [Gpu(number, site) for number in range(gpus)]
        self._free = list(range(gpus))  # a heap: the first GPUs are used first
        self._waiting: dict[str, deque[Job]] = {}
        self._lone: dict[tuple[str, float], dict[int, None]] = {}
        self._queued = 0

    def submit(self, job: Job, label: str) -> None:
        """Queue a job under the name by which the policy knows it, and start what can start."""
        self._waiting.setdefault(label, deque()).append(job)
        self._queued += 1
        self._dispatch()

    def metered(self) -> Metered:
        """The meters of all GPUs."""
        return Metered(
            len(self._gpus),
            self._site.idle_power_w,
            sum(gpu.energy_j for gpu in self._gpus),
            sum(gpu.busy_s for gpu in self._gpus),
            sum(gpu.shared_s for gpu in self._gpus),
            sum(gpu.stranded_s for gpu in self._gpus),
        )

    def _dispatch(self) -> None:
        """Start jobs until none can start; the oldest first."""
        while self._queued:
            if self._free:
                self._start_oldest()
            elif not self._join_oldest():
                return

    def _start_oldest(self) -> None:
        """On a free GPU, with a partner where there are more jobs than free GPUs."""
        label = self._by_age()[0]
        gpu = self._gpus[heapq.heappop(self._free)]
        offer = self._partner(label) if self._queued > len(self._free) + 1 else None
        self._put(gpu, label, offer.shares[0] if offer else self._rules.alone_share)
        if offer:
            self._put(gpu, offer.partner, offer.shares[1])
        self._wake(gpu)

    def _partner(self, label: str) -> Offer | None:
        """The best partner for the oldest job of a label among the oldest of all others."""
        own_s = self._waiting[label][0].work_s
        found: list[tuple[float, Offer]] = []
        for offer in self._rules.together.get(label, ()):
            place = int(offer.partner == label)
            for mate in islice(self._waiting.get(offer.partner, ()), place, place + 1):
                whole = self._site.alone[mate.kind, WHOLE]
                found.append((offer.worth_of(own_s, mate.work_s, whole), offer))
        return _best(found)

    def _join_oldest(self) -> bool:
        """The oldest job that may run beside one that runs alone; False where there is none."""
        for label in self._by_age():
            offers = self._rules.joins.get(label, ())
            own_s = self._waiting[label][0].work_s
            if best := _best([found for offer in offers for found in self._rooms(offer, own_s)]):
                gpu, share = best
                self._put(gpu, label, share)
                self._wake(gpu)
                return True
        return False

    def _rooms(self, offer: Offer, own_s: float) -> Iterator[tuple[float, tuple[Gpu, float]]]:
        """GPUs where the partner of an offer runs alone, and what it is worth to join it."""
        alone_there = self._lone.get((offer.partner, offer.shares[1]), ())
        for number in islice(alone_there, LOOKED_AT):
            gpu = self._gpus[number]
            gpu.read(self._env.now)
            (other,) = gpu.running
            rest = self._site.alone[other.job.kind, other.share]
            yield offer.worth_of(own_s, max(other.left_s, 0.0), rest), (gpu, offer.shares[0])

    def _by_age(self) -> list[str]:
        """Labels of jobs that wait, that of the oldest job first."""
        labels = (label for label, jobs in self._waiting.items() if jobs)
        return sorted(labels, key=lambda label: self._waiting[label][0].number)

    def _put(self, gpu: Gpu, label: str, share: float) -> None:
        """Take the oldest job of a label from the queue to a GPU."""
        gpu.read(self._env.now)
        gpu.put(self._waiting[label].popleft(), label, share)
        self._queued -= 1

    def _wake(self, gpu: Gpu) -> None:
        """Let the process of the GPU know what is new."""
        self._note_lone(gpu)
        if gpu.process is None or not gpu.process.is_alive:
            gpu.process = self._env.process(self._run(gpu))
        elif gpu.process is not self._env.active_process:
            gpu.process.interrupt()

    def _run(self, gpu: Gpu) -> Generator[simpy.Event, Any, None]:
        while gpu.running:
            try:
                yield self._env.timeout(gpu.next_end_s)
            except simpy.Interrupt:
                continue  # another job has joined
            gpu.read(self._env.now)
            for one in gpu.take_done():
                done_s = one.job.work_s - one.left_s
                self._finished.append(Finished(one.job, one.start_s, self._env.now, done_s))
            self._note_lone(gpu)
            if not gpu.running:
                heapq.heappush(self._free, gpu.number)
            self._dispatch()

    def _note_lone(self, gpu: Gpu) -> None:
        """Whether a job may be joined there, and which one."""
        if gpu.lone_as:
            del self._lone[gpu.lone_as][gpu.number]
        gpu.lone_as = None
        if len(gpu.running) == 1:
            gpu.lone_as = gpu.running[0].label, gpu.running[0].share
            self._lone.setdefault(gpu.lone_as, {})[gpu.number] = None


def _best(found: list[tuple[float, T]]) -> T | None:
    """What is worth most, the first of equals; None where nothing is worth anything."""
    worth, best = max(found, key=lambda item: item[0], default=(0.0, None))
    return best if worth > 0 else None
