"""What is said of a set of jobs on one GPU. docs/recommend.md explains each key."""

from dataclasses import dataclass
from typing import Literal

from advisor.core.interval import Interval
from advisor.core.split import Sharing
from advisor.wire.recommendation import AskedJob, JobShare


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way of running the set on one GPU, and what is expected of it.

    Parts saved are for the same work, against a card for each job; 0.1 is a tenth less.

    Attributes:
        name: Shares as people write them, 100 where a job has no limit; else the sharing.
        isolates: Whether a fault of one job leaves the others running.
        jobs: In the order that was asked.
        energy_saved: Where the cards that become free are switched off; with the watts of the
            server, where they are set.
        energy_saved_idle: The same where they idle.
        gpu_time_saved: Of the hours that GPUs are held.
        cost_saved: None: no prices are set.
        violations: Limits that are not kept, in words.
    """

    name: str
    sharing: Sharing
    isolates: bool
    jobs: tuple[JobShare, ...]
    power_w: Interval
    energy_saved: Interval
    energy_saved_idle: Interval
    gpu_time_saved: Interval
    cost_saved: Interval | None
    violations: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What the set takes beside SMs and power, and what there is; None: not known.

    Attributes:
        host_cores: That the jobs keep busy, alone.
    """

    memory_mib: float | None
    memory_of_mib: float | None
    host_cores: float | None
    mps_clients: int
    mps_clients_most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAdvice:
    """How a set of jobs is to run.

    Attributes:
        choice: Name of one of `ways`; None: a card each.
        ways: The best of each sharing; where none keeps the limits, the nearest.
        searched: How many ways were looked at.
        coverage: Part of measured values that the intervals held, job by job.
    """

    jobs: tuple[AskedJob, ...]
    gpu_model: str
    objective: str
    verdict: Literal["share", "a card each"]
    choice: str | None
    ways: tuple[Way, ...]
    needs: Needs
    searched: int
    warnings: tuple[str, ...]
    coverage: float = 0.9

    @property
    def chosen(self) -> Way | None:
        """The way of `choice`."""
        return next((way for way in self.ways if way.name == self.choice), None)
