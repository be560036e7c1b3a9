"""All GPUs of one model and their queue: jobs start alone or beside others, and end.

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
from truth import WHOLE, Members, Truth
from workload import Job

from advisor.core.objectives import Rest

LOOKED_AT = 4
"""So many GPUs are compared for each way of joining: those that have waited longest."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Finished:
    """A job from its arrival to its end; `done_s` is the work that was done.

    Attributes:
        tail: Its mean p99 for each 1 ms alone; 0: it does not serve.
        missed_s: How long it missed what it promises as a server.
    """

    job: Job
    start_s: float
    end_s: float
    done_s: float
    tail: float = 0.0
    missed_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Metered:
    """What the GPUs of one model did until the last job had ended; `most` had jobs at once."""

    gpus: int
    idle_power_w: float
    energy_j: float
    busy_s: float
    shared_s: float
    stranded_s: float
    most: int


class Partition:
    """All GPUs of one model and their queue."""

    def __init__(
        self,
        env: simpy.Environment,
        site: Truth,
        gpus: int,
        rules: Rules,
        finished: list[Finished],
    ) -> None:
        self._env, self._site, self._rules, self._finished = env, site, rules, finished
        self._gpus = [Gpu(number, site) for number in range(gpus)]
        self._free = list(range(gpus))  # a heap: the first GPUs are used first
        self._waiting: dict[str, deque[Job]] = {}
        self._open: dict[Members, dict[int, None]] = {}
        self._queued = self._most = 0

    def submit(self, job: Job) -> None:
        """Queue a job, and start what can start."""
        self._waiting.setdefault(job.kind, deque()).append(job)
        self._queued += 1
        self._dispatch()

    @property
    def held(self) -> int:
        """How many GPUs have jobs."""
        return len(self._gpus) - len(self._free)

    def metered(self) -> Metered:
        """The meters of all GPUs."""
        return Metered(
            len(self._gpus),
            self._site.idle_power_w,
            sum(gpu.energy_j for gpu in self._gpus),
            sum(gpu.busy_s for gpu in self._gpus),
            sum(gpu.shared_s for gpu in self._gpus),
            sum(gpu.stranded_s for gpu in self._gpus),
            self._most,
        )

    def _dispatch(self) -> None:
        """Start jobs until none can start; the oldest first."""
        while self._queued:
            if self._rules.packs and self._join_oldest():
                continue
            if self._free:
                self._start_oldest()
            elif self._rules.packs or not self._join_oldest():
                return

    def _start_oldest(self) -> None:
        """On a free GPU, with a partner where there are more jobs than free GPUs."""
        kind = self._by_age()[0]
        gpu = self._gpus[heapq.heappop(self._free)]
        self._most = max(self._most, self.held)
        offer = self._partner(kind) if self._queued > len(self._free) + 1 else None
        self._put(gpu, kind, offer.share if offer else self._rules.alone_share)
        if offer:
            self._put(gpu, *offer.members[0])
        self._wake(gpu)

    def _partner(self, kind: str) -> Offer | None:
        """The best partner for the oldest job of a kind among the oldest of all others."""
        own_s = self._waiting[kind][0].work_s
        found: list[tuple[float, Offer]] = []
        for offer in self._rules.together.get(kind, ()):
            partner = offer.members[0][0]
            place = int(partner == kind)
            for mate in islice(self._waiting.get(partner, ()), place, place + 1):
                whole = self._site.together(((mate.kind, WHOLE),))
                rest = Rest(whole.speeds[0], whole.power_w)
                found.append((offer.worth_of(own_s, mate.work_s, rest), offer))
        return _best(found)

    def _join_oldest(self) -> bool:
        """The oldest job that may run beside those of a GPU; False where there is none."""
        for kind in self._by_age():
            offers = self._rules.joins(kind, self._open)
            own_s = self._waiting[kind][0].work_s
            if best := _best([found for offer in offers for found in self._rooms(offer, own_s)]):
                gpu, share = best
                self._put(gpu, kind, share)
                self._wake(gpu)
                return True
        return False

    def _rooms(self, offer: Offer, own_s: float) -> Iterator[tuple[float, tuple[Gpu, float]]]:
        """GPUs where the members of an offer run, and what it is worth to join them."""
        for number in islice(self._open.get(offer.members, ()), LOOKED_AT):
            gpu = self._gpus[number]
            gpu.read(self._env.now)
            other = gpu.running[0]
            rest = Rest(other.speed, gpu.power_w)
            yield offer.worth_of(own_s, max(other.left_s, 0.0), rest), (gpu, offer.share)

    def _by_age(self) -> list[str]:
        """Kinds of jobs that wait, that of the oldest job first."""
        kinds = (kind for kind, jobs in self._waiting.items() if jobs)
        return sorted(kinds, key=lambda kind: self._waiting[kind][0].number)

    def _put(self, gpu: Gpu, kind: str, share: float) -> None:
        """Take the oldest job of a kind from the queue to a GPU."""
        gpu.read(self._env.now)
        gpu.put(self._waiting[kind].popleft(), share)
        self._queued -= 1

    def _wake(self, gpu: Gpu) -> None:
        """Let the process of the GPU know what is new."""
        self._note_open(gpu)
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
                now_s = self._env.now
                tail = one.tail_s / (now_s - one.start_s)
                self._finished.append(
                    Finished(one.job, one.start_s, now_s, done_s, tail, one.missed_s)
                )
            self._note_open(gpu)
            if not gpu.running:
                heapq.heappush(self._free, gpu.number)
            self._dispatch()

    def _note_open(self, gpu: Gpu) -> None:
        """Whether a job may join there, and whom."""
        if gpu.open_as:
            del self._open[gpu.open_as][gpu.number]
            if not self._open[gpu.open_as]:
                del self._open[gpu.open_as]
        gpu.open_as = None
        if 0 < len(gpu.running) < self._rules.most:
            gpu.open_as = tuple((one.job.kind, one.share) for one in gpu.running)
            self._open.setdefault(gpu.open_as, {})[gpu.number] = None


def _best(found: list[tuple[float, T]]) -> T | None:
    """What is worth most, the first of equals; None where nothing is worth anything."""
    worth, best = max(found, key=lambda item: item[0], default=(0.0, None))
    return best if worth > 0 else None
