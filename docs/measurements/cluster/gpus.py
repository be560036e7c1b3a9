"""One GPU: its jobs, how fast they are, and its meter."""

from dataclasses import dataclass, field

import simpy
from truth import WHOLE, Members, Truth
from workload import Job

DONE_S = 1e-6
"""A job that has less work left is done."""


@dataclass(slots=True)
class Running:
    """A job on a GPU.

    Attributes:
        left_s: Work that is left, in seconds alone on the whole GPU.
        tail: p99 now for each 1 ms alone; 0: it does not serve.
        tail_s: Sum of that over time.
        missed_s: How long it missed what it promises as a server.
    """

    job: Job
    share: float
    start_s: float
    left_s: float
    speed: float = 0.0
    tail: float = 0.0
    misses: bool = False
    tail_s: float = 0.0
    missed_s: float = 0.0


@dataclass(slots=True, eq=False)
class Gpu:
    """One GPU and its meter.

    Attributes:
        since_s: When the meter was last read.
        energy_j: While it had jobs.
        busy_s: How long it had one at least.
        shared_s: How long it had more than one.
        stranded_s: How long a job was alone there under a limit.
        open_as: Kinds and shares of its jobs, where another one may join.
        process: Of the simulation, while it has jobs.
    """

    number: int
    site: Truth
    running: list[Running] = field(default_factory=list[Running])
    power_w: float = 0.0
    since_s: float = 0.0
    energy_j: float = 0.0
    busy_s: float = 0.0
    shared_s: float = 0.0
    stranded_s: float = 0.0
    open_as: Members | None = None
    process: simpy.Process | None = None

    def read(self, now_s: float) -> None:
        """Count work and energy since the last time."""
        span_s = now_s - self.since_s
        self.since_s = now_s
        if self.running:
            for one in self.running:
                one.left_s -= span_s * one.speed
                one.tail_s += span_s * one.tail
                one.missed_s += span_s * one.misses
            self.energy_j += span_s * self.power_w
            self.busy_s += span_s
            self.shared_s += span_s * (len(self.running) > 1)
            is_alone = len(self.running) == 1
            self.stranded_s += span_s * (is_alone and self.running[0].share < WHOLE)

    def put(self, job: Job, share: float) -> None:
        """Start a job; the meter is up to date."""
        self.running.append(Running(job, share, self.since_s, job.work_s))
        self.running.sort(key=lambda one: (one.job.kind, one.share))
        self._set_rates()

    def take_done(self) -> list[Running]:
        """Take the jobs off that have no work left; the meter is up to date."""
        done = [one for one in self.running if one.left_s <= DONE_S]
        self.running = [one for one in self.running if one.left_s > DONE_S]
        self._set_rates()
        return done

    @property
    def next_end_s(self) -> float:
        """How long until the first job ends."""
        return max(0.0, min(one.left_s / one.speed for one in self.running))

    def _set_rates(self) -> None:
        """Speeds and power of the jobs that are there."""
        if not self.running:
            return
        way = self.site.together(tuple((one.job.kind, one.share) for one in self.running))
        self.power_w = way.power_w
        for n, one in enumerate(self.running):
            one.speed = way.speeds[n]
            one.tail = way.tails[n] if way.tails else 0.0
            one.misses = bool(way.misses) and way.misses[n]
