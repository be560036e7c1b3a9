"""What a placement can be asked for: of a queue over time, or of jobs that run from now on."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from advisor.core.objectives import Aim
from advisor.errors import InputError
from advisor.wire.bounds import Bounds, Cores, GpuUuid, WorkSeconds
from advisor.wire.requests import MOST_PLACED, AdviceRequest, JobRequest, QueuedJobs, SharingRequest

MOST_TYPES = 200
"""Jobs with a name of their own in a placement: 20,100 pairs, which take some ten seconds."""

MOST_SEARCH_S = 60.0
SEARCH_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRequest(AdviceRequest):
    """A queue of jobs for a number of GPUs.

    Attributes:
        jobs: In the order of the queue.
        time_limit_s: Most time of searching, s, after all pairs were predicted.
        gpu_uuid: The card, where there is one GPU; None: any.
    """

    jobs: Annotated[tuple[QueuedJobs, ...], Bounds(min_length=1, max_length=MOST_PLACED)]
    gpus: Annotated[int, Bounds(ge=1, le=MOST_PLACED, says="how many GPUs there are")]
    time_limit_s: Annotated[float, Bounds(ge=0, le=MOST_SEARCH_S)] = SEARCH_S
    gpu_uuid: GpuUuid | None = None

    @property
    def names(self) -> list[str]:
        """Of the jobs, each once, in an order that does not depend on the queue's."""
        return sorted({job.job for job in self.jobs})

    def _every_job(self) -> Iterable[QueuedJobs]:
        return self.jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningJobs(JobRequest):
    """Equal jobs that are to run from now on.

    Attributes:
        count: How many of them.
    """

    count: Annotated[int, Bounds(ge=1, le=MOST_PLACED)] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPlacementRequest(SharingRequest):
    """Jobs that run together from now on, for a number of GPUs; `min_gain` says nothing here.

    Attributes:
        jobs: Their work counts where there is a deadline, and is an hour if not given.
        objective: What is made small.
        host_cores: Of the host, for all jobs of one card; None: not looked at.
        deadline_s: By when jobs with work are to be done; None: no hurry.
        time_limit_s: Most time of searching, s.
    """

    jobs: Annotated[tuple[RunningJobs, ...], Bounds(min_length=1, max_length=MOST_PLACED)]
    gpus: Annotated[int, Bounds(ge=1, le=MOST_PLACED, says="how many GPUs there are")]
    objective: Aim = "least-energy"
    host_cores: Cores | None = None
    deadline_s: WorkSeconds | None = None
    time_limit_s: Annotated[float, Bounds(ge=0, le=MOST_SEARCH_S)] = SEARCH_S


def check_size(asked: PlacementRequest | SetPlacementRequest) -> None:
    """Refuse a queue that would keep a service busy for too long.

    Raises:
        InputError: too many jobs, or too many names of jobs.
    """
    if (types := len({*asked.names})) > MOST_TYPES:
        raise InputError(
            f"these are {types} names of jobs",
            why=f"every pair of them is predicted, so at most {MOST_TYPES} are taken",
            fix="place them in parts",
        )
    if (count := sum(job.count for job in asked.jobs)) > MOST_PLACED:
        raise InputError(f"these are {count} jobs", fix=f"place at most {MOST_PLACED} at once")
