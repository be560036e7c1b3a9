"""What advice can be asked for: by the command line, a request to the service, or the client."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Self, TypeAlias

from advisor.core.gpu import MPS_CLIENTS
from advisor.core.objectives import DEFAULT_OBJECTIVE, Work
from advisor.core.split import ADVISED_JOBS, MOST_JOBS
from advisor.errors import InputError
from advisor.wire.bounds import (
    Bounds,
    Cores,
    Gain,
    GpuModel,
    GpuUuid,
    JobName,
    Mebibytes,
    Milliseconds,
    ObjectiveName,
    Percent,
    Speed,
    Watts,
    WorkSeconds,
)

MOST_PLACED = 100_000
"""Jobs and GPUs of a placement."""

MOST_REQUESTS = 1000
"""Recommendations of one batch."""

MOST_CROSSED = 60
"""Jobs of which all pairs are told: 1,830 of them, which take some ten seconds the first time."""

WORK_S = 3600.0
"""Work of a job of a queue of which nothing else is said."""

MIN_GAIN = 0.03
"""Least gain for which jobs share a fate: a fault of one can end all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """One job of a pair, and what it must keep.

    Attributes:
        min_speed: Minimum relative speed; None: that of the request.
        max_p99_ms: Longest p99 latency; None: that of the request, if the job answers requests.
        work_s: What it has to do, in seconds that it takes alone; None: it runs on and on.
    """

    job: JobName
    min_speed: Speed | None = None
    max_p99_ms: Milliseconds | None = None
    work_s: WorkSeconds | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedJobs:
    """Equal jobs of a queue.

    Attributes:
        count: How many of them.
        work_s: Time that one takes alone, s.
        min_speed: Minimum relative speed; None: that of the request.
    """

    job: JobName
    count: Annotated[int, Bounds(ge=1, le=MOST_PLACED)] = 1
    work_s: Annotated[float, Bounds(gt=0, le=1e9, says="time that one takes alone, s")] = WORK_S
    min_speed: Speed | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceRequest(ABC):
    """What every request for advice may say.

    Attributes:
        gpu_model: None: the one that all profiles have in common.
        objective: What is maximised.
        min_speed: Minimum relative speed of each job without one of its own; None: the setting
            (0.4), and all of its demand for a job that answers requests at a given rate.
        max_power_w: Most power of the GPU, W.
        memory_mib: Memory of the card, MiB; None: that of its model, where it is known.
        min_gain: Least gain over one after the other for which jobs share; 0.1 is a tenth.
    """

    gpu_model: GpuModel | None = None
    objective: ObjectiveName = DEFAULT_OBJECTIVE
    min_speed: Speed | None = None
    max_power_w: Watts | None = None
    memory_mib: Mebibytes | None = None
    min_gain: Gain = MIN_GAIN

    def min_speeds(self) -> dict[str, float]:
        """By name of job; nothing where the setting counts.

        Raises:
            InputError: a job that comes twice has two of them.
        """
        return by_name(
            (job.job, self.min_speed if job.min_speed is None else job.min_speed)
            for job in self._every_job()
        )

    @abstractmethod
    def _every_job(self) -> Iterable[JobRequest | QueuedJobs]:
        """The jobs, each as often as it is asked for."""


OneJob: TypeAlias = Annotated[
    tuple[JobRequest, ...], Bounds(min_length=1, max_length=1, says="the job")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingRequest(AdviceRequest):
    """Jobs that are to share a GPU.

    Attributes:
        max_p99_ms: Longest p99 latency, ms, of each job that answers requests and has none of its
            own.
    """

    jobs: tuple[JobRequest, ...]
    max_p99_ms: Milliseconds | None = None

    @classmethod
    def of(cls, *jobs: str | JobRequest, **fields: Any) -> Self:
        """The request for jobs of which some are only named."""
        named = (JobRequest(job=job) if isinstance(job, str) else job for job in jobs)
        return cls(jobs=tuple(named), **fields)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the jobs."""
        return tuple(job.job for job in self.jobs)

    @property
    def p99_by_job_ms(self) -> dict[str, float]:
        """Longest p99 latency of the jobs that have one of their own."""
        return by_name((job.job, job.max_p99_ms) for job in self._every_job())

    def _every_job(self) -> Iterable[JobRequest]:
        return self.jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class WayRequest(SharingRequest):
    """What may be said of how they are to share it.

    Attributes:
        gpu_uuid: The card; None: any.
        isolate: Whether a fault of one job must leave the others running.
        host_cores: Of the host, for all jobs; None: not looked at.
    """

    gpu_uuid: GpuUuid | None = None
    isolate: bool = False
    host_cores: Cores | None = None

    @property
    def work(self) -> Work | None:
        """Of all jobs; None: they run on and on.

        Raises:
            InputError: nothing is said of one of them.
        """
        if all(job.work_s is None for job in self.jobs):
            return None
        for job in self.jobs:
            if job.work_s is None:
                raise InputError(
                    f"nothing is said of the work of {job.job}",
                    fix=f"give work_s of each job, or --work {job.job}=1h",
                )
        return Work(tuple(job.work_s or 0.0 for job in self.jobs))


@dataclass(frozen=True, slots=True, kw_only=True)
class SetRequest(WayRequest):
    """Three to seven jobs that are to share a GPU, or one that is to join those that run there.

    Attributes:
        running: Shares of all jobs but the last, percent, which they have and keep; none: all are
            yet to start.
        every: Whether to tell every way that is looked at, in short.
        words: Whether to say it in words, too.
    """

    jobs: Annotated[
        tuple[JobRequest, ...],
        Bounds(
            min_length=ADVISED_JOBS,
            max_length=MOST_JOBS,
            says="three to seven jobs, or two of which one runs; one that comes several times so "
            "often",
        ),
    ]
    running: tuple[Percent, ...] = ()
    every: bool = False
    words: bool = False

    def check_running(self) -> None:
        """Refuse shares of other jobs than all but the last.

        Raises:
            InputError: said so, or two jobs of which none runs.
        """
        count = len(self.jobs)
        if self.running and len(self.running) != count - 1:
            raise InputError(
                f"{len(self.running)} shares are of jobs that run, and {count} jobs are named",
                fix="give a share of each job but the last, which is to join them",
            )
        if not self.running and count == ADVISED_JOBS:
            raise InputError(
                "two jobs are no set", fix="ask for a recommendation: POST /v1/recommendations"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicasRequest(WayRequest):
    """One job, of which several copies are to share a GPU; `objective` says nothing here.

    Attributes:
        most: Copies that are looked at; beyond seven nothing was measured.
    """

    jobs: OneJob
    most: Annotated[int, Bounds(ge=1, le=MPS_CLIENTS)] = MOST_JOBS


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendationRequest(WayRequest):
    """Two jobs, and what is wanted of them; equal ones have equal answers.

    Attributes:
        fine: Every split of the GPU in steps of its quantum, such as two SMs; else the nine splits.
        components: Whether to say what the power of the recommended way goes to.
        words: Whether to say it in words, too.
    """

    jobs: Annotated[
        tuple[JobRequest, ...],
        Bounds(
            min_length=2, max_length=2, says="the first and the second job; the same one twice, too"
        ),
    ]
    fine: bool = False
    components: bool = False
    words: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GainsRequest(AdviceRequest):
    """Jobs of one GPU model (not said, the H200), all of whose pairs are asked for, or one job's.

    Attributes:
        jobs: None named: all, those measured here first, up to `MOST_CROSSED` of them.
        beside: The job of all pairs; None: each with each.
    """

    jobs: Annotated[tuple[JobName, ...], Bounds(max_length=MOST_CROSSED)] = ()
    beside: JobName | None = None

    def _every_job(self) -> Iterable[JobRequest]:
        return (JobRequest(job=job) for job in self.jobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRequest:
    """Many recommendations at once; a wrong one spoils no other.

    Attributes:
        requests: Each as the body of a single one.
    """

    requests: Annotated[
        tuple[Mapping[str, Any], ...], Bounds(min_length=1, max_length=MOST_REQUESTS)
    ]


def by_name(values: Iterable[tuple[str, float | None]]) -> dict[str, float]:
    """Values by name of job, without those that are None.

    Raises:
        InputError: a name has two of them.
    """
    found: dict[str, float] = {}
    for name, value in values:
        if value is not None and found.setdefault(name, value) != value:
            raise InputError(
                f"{name} comes twice with two limits, {found[name]:g} and {value:g}",
                fix="give both the same one",
            )
    return found
