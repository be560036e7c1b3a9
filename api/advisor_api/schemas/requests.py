"""What requests may say, strictly: an unknown field, a wrong type or an infinite number is refused.

The names are those of docs/vocabulary.md and end in their unit.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias

from fastapi import Path, Query
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
)

from advisor.advice.placing import Wanted
from advisor.core.objectives import DEFAULT_OBJECTIVE, find_objective
from advisor.core.objectives import OBJECTIVES as ALL_OBJECTIVES
from advisor.decide.constraints import Limits
from advisor.errors import InputError
from advisor.place.problem import WORK_S, QueuedJob
from advisor_api.engine.engine import Asked

NAME = r"^[a-z0-9][a-z0-9._-]{0,99}$"
"""As in job files."""

PRINTABLE = r"^[!-~]([ -~]{0,98}[!-~])?$"

VERSION = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"

LAUNCH_ID = r"^[0-9a-zA-Z-]{1,100}$"

MOST_TYPES = 200
"""Jobs with a name of their own in a placement: 20,100 pairs, which take some ten seconds."""

MOST_PLACED = 100_000
"""Jobs and GPUs of a placement."""

MOST_REQUESTS = 1000
"""Recommendations of one batch."""

MOST_SEARCH_S = 60.0


def _objective(name: str) -> str:
    try:
        return find_objective(name).name
    except InputError as error:
        raise ValueError(str(error)) from error


JobName: TypeAlias = Annotated[str, Field(pattern=NAME, description="name of a job")]
GpuModel: TypeAlias = Annotated[
    str, Field(pattern=PRINTABLE, description="a GPU model as its driver names it")
]
Objective: TypeAlias = Annotated[
    str,
    AfterValidator(_objective),
    WithJsonSchema({"type": "string", "enum": list(ALL_OBJECTIVES)}),
]
Speed: TypeAlias = Annotated[float, Field(ge=0, le=1)]
WorkSeconds: TypeAlias = Annotated[float, Field(ge=0, le=1e9)]
Latency: TypeAlias = Annotated[float, Field(gt=0, le=1e9)]
PositiveSeconds: TypeAlias = Annotated[float, Field(gt=0, le=1e9)]
Count: TypeAlias = Annotated[int, Field(ge=1, le=MOST_PLACED)]

JobInPath: TypeAlias = Annotated[str, Path(pattern=NAME, description="name of a job")]
VersionInPath: TypeAlias = Annotated[
    str, Path(pattern=VERSION, description="version of a model, or `bundled`")
]
GpuModelInQuery: TypeAlias = Annotated[
    str | None, Query(pattern=PRINTABLE, description="only this GPU model")
]
LimitInQuery: TypeAlias = Annotated[
    int, Query(ge=1, le=1000, description="most entries in the answer")
]


def _moment(text: Any) -> Any:
    # Not pydantic's own reading, which takes a bare number for seconds since 1970.
    return datetime.fromisoformat(text) if isinstance(text, str) else text


BeforeInQuery: TypeAlias = Annotated[
    datetime | None,
    BeforeValidator(_moment),
    Query(description="only those that started before this moment; without a zone it is UTC"),
]


class Strict(BaseModel):
    """Takes what it names, of the type that it names, and nothing else."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, frozen=True)


class Constraints(Strict):
    """What the answer must keep."""

    min_speed: Speed | Annotated[dict[JobName, Speed], Field(max_length=MOST_TYPES)] | None = Field(
        default=None,
        description="minimum relative speed: of all jobs, or by name of job; 1 is as alone, 0 "
        "lifts the limit; left out, the service's setting holds (0.4)",
    )
    max_power_w: Annotated[float, Field(gt=0, le=1e6)] | None = Field(
        default=None, description="most power of the GPU, W"
    )
    memory_mib: Annotated[float, Field(gt=0, le=1e9)] | None = Field(
        default=None,
        description="memory of the card, MiB; left out, that of its model, where it is known",
    )


class PairConstraints(Constraints):
    """What two jobs must keep."""

    max_p99_ms: Latency | Annotated[dict[JobName, Latency], Field(max_length=MOST_TYPES)] | None = (
        Field(
            default=None,
            description="longest p99 latency of jobs that answer requests, ms: of all, or by name",
        )
    )

    @property
    def longest_p99_ms(self) -> tuple[dict[str, float], float | None]:
        """By name of job, and of every other job that answers requests."""
        most_ms = self.max_p99_ms
        return (most_ms, None) if isinstance(most_ms, dict) else ({}, most_ms)


class RecommendationRequest(Strict):
    """Two jobs, and what is wanted of them."""

    jobs: Annotated[list[JobName], Field(min_length=2, max_length=2)] = Field(
        description="the first and the second job; the same one twice, too"
    )
    gpu: GpuModel | None = Field(
        default=None, description="else the one that both profiles have in common"
    )
    objective: Objective = DEFAULT_OBJECTIVE
    constraints: PairConstraints = PairConstraints()
    splits: Literal["nine", "fine"] = Field(
        default="nine", description="10/90 to 90/10, or every split in steps of two SMs"
    )

    work_s: Annotated[list[WorkSeconds], Field(min_length=2, max_length=2)] | None = Field(
        default=None,
        description="what each job has to do, in seconds that it takes alone; left out, both run "
        "on and on",
    )

    def asked(self) -> Asked:
        """As the engine takes it."""
        by_job_ms, for_all_ms = self.constraints.longest_p99_ms
        return Asked(
            jobs=(self.jobs[0], self.jobs[1]),
            gpu_model=self.gpu,
            objective=self.objective,
            min_speed=tuple(sorted(_least_speeds(self.constraints, self.jobs).items())),
            max_p99_ms=tuple(sorted(by_job_ms.items())),
            default_max_p99_ms=for_all_ms,
            max_power_w=self.constraints.max_power_w,
            memory_mib=self.constraints.memory_mib,
            fine=self.splits == "fine",
            work_s=(self.work_s[0], self.work_s[1]) if self.work_s else None,
        )


class BatchRequest(Strict):
    """Many recommendations at once; a wrong one spoils no other."""

    requests: Annotated[
        list[dict[str, Any]], Field(min_length=1, max_length=MOST_REQUESTS, fail_fast=True)
    ] = Field(description="each as the body of POST /v1/recommendations")


class PlacementRequest(Strict):
    """A queue of jobs for a number of GPUs."""

    jobs: (
        Annotated[dict[JobName, Count], Field(min_length=1, max_length=MOST_TYPES)]
        | Annotated[list[JobName], Field(min_length=1, max_length=MOST_PLACED, fail_fast=True)]
    ) = Field(description="how many of each job, or one name for each in the order of the queue")
    gpus: Count = Field(description="how many GPUs there are")
    work_s: PositiveSeconds | dict[JobName, PositiveSeconds] = Field(
        default=WORK_S,
        description="time that a job takes alone, of all jobs or by name; an hour for jobs that "
        "are not named",
    )
    gpu: GpuModel | None = Field(
        default=None, description="else the one that all profiles have in common"
    )
    objective: Objective = Field(
        default=DEFAULT_OBJECTIVE, description="energy-efficiency or throughput"
    )
    constraints: Constraints = Constraints()
    time_limit_s: Annotated[float, Field(gt=0, le=MOST_SEARCH_S)] = Field(
        default=10.0, description="most seconds of searching, after all pairs were predicted"
    )

    def wanted(self) -> Wanted:
        """As placing takes it.

        Raises:
            InputError: too many jobs, or a number for one that is not there.
        """
        queue = self._names()
        names = list(dict.fromkeys(queue))
        if len(names) > MOST_TYPES:
            raise InputError(
                f"these are {len(names)} names of jobs",
                why=f"every pair of them is predicted, so at most {MOST_TYPES} are taken",
                fix="place them in parts",
            )
        return Wanted(
            queue=self._queue(queue, names),
            gpus=self.gpus,
            objective=self.objective,
            limits=self._limits(names),
            gpu_model=self.gpu,
            profiles=None,
            time_limit_s=self.time_limit_s,
        )

    def _queue(self, queue: Sequence[str], names: Sequence[str]) -> list[QueuedJob]:
        works = self.work_s if isinstance(self.work_s, dict) else dict.fromkeys(names, self.work_s)
        _check_there("work", works, names)
        jobs = {name: QueuedJob(name, works.get(name, WORK_S)) for name in names}
        return [jobs[name] for name in queue]

    def _names(self) -> list[str]:
        if isinstance(self.jobs, list):
            return self.jobs
        if (jobs := sum(self.jobs.values())) > MOST_PLACED:
            raise InputError(f"these are {jobs} jobs", fix=f"place at most {MOST_PLACED} at once")
        return [name for name, count in self.jobs.items() for _ in range(count)]

    def _limits(self, names: Sequence[str]) -> Limits:
        least = _least_speeds(self.constraints, names)
        _check_there("a minimum speed", least, names)
        return Limits(
            min_speed=least,
            max_power_w=self.constraints.max_power_w,
            memory_mib=self.constraints.memory_mib,
        )


def _check_there(what: str, named: Iterable[str], names: Iterable[str]) -> None:
    if strangers := sorted(set(named) - set(names)):
        raise InputError(
            f"{what} was given for {', '.join(strangers[:5])}", why="no such job is to be placed"
        )


def _least_speeds(constraints: Constraints, jobs: Sequence[str]) -> dict[str, float]:
    """By name of job; one number is for all of them."""
    least = constraints.min_speed
    if least is None:
        return {}
    return dict.fromkeys(jobs, least) if isinstance(least, float | int) else least
