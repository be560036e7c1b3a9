"""One GPU: its jobs, how fast they are, and its meter."""

from dataclasses import dataclass, field

import simpy
from truth import WHOLE, Site
from workload import Job

DONE_S = 1e-6
"""A job that has less work left is done."""


@dataclass(slots=True)
class Running:
    """A job on a GPU.

    Attributes:
        label: By which the policy knows it.
        left_s: Work that is left, in seconds alone on the whole GPU.
    """

    job: Job
    label: str
    share: float
    start_s: float
    left_s: float
    speed: float = 0.0


@dataclass(slots=True, eq=False)
class Gpu:
    """One GPU and its meter.

    Attributes:
        since_s: When the meter was last read.
        energy_j: While it had jobs.
        busy_s: How long it had one at least.
        shared_s: How long it had two.
        stranded_s: How long a job was alone there under a limit.
        lone_as: Label and share of a job that runs alone.
        process: Of the simulation, while it has jobs.
    """

    number: int
    site: Site
    running: list[Running] = field(default_factory=list[Running])
    power_w: float = 0.0
    since_s: float = 0.0
    energy_j: float = 0.0
    busy_s: float = 0.0
    shared_s: float = 0.0
    stranded_s: float = 0.0
    lone_as: tuple[str, float] | None = None
    process: simpy.Process | None = None

    def read(self, now_s: float) -> None:
        """Count work and energy since the last time."""
        span_s = now_s - self.since_s
        self.since_s = now_s
        if self.running:
            for one in self.running:
                one.left_s -= span_s * one.speed
            self.energy_j += span_s * self.power_w
            self.busy_s += span_s
            self.shared_s += span_s * (len(self.running) > 1)
            is_alone = len(self.running) == 1
            self.stranded_s += span_s * (is_alone and self.running[0].share < WHOLE)

    def put(self, job: Job, label: str, share: float) -> None:
        """Start a job; the meter is up to date."""
        self.running.append(Running(job, label, share, self.since_s, job.work_s))
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
        if len(self.running) == 1:
            (one,) = self.running
            alone = self.site.alone[one.job.kind, one.share]
            one.speed, self.power_w = alone.speed, alone.power_w
        elif self.running:
            a, b = self.running
            way = self.site.ways[a.job.kind, b.job.kind][a.share, b.share]
            (a.speed, b.speed), self.power_w = way.speeds, way.power_w
