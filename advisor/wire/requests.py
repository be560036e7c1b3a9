"""What advice, placements and launches can be asked for, with the bounds of each value.

By the command line, a request to the service, or the client.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Annotated, Any, Self, TypeAlias

from advisor.core.gpu import ADVISED_JOBS, MOST_JOBS, Split
from advisor.core.job import WhenOneEnds, WhenP99Breaks
from advisor.core.objectives import ADVISED, Aim, Objective, Policy, Work
from advisor.core.wording import count_of
from advisor.errors import InputError

NAME = r"^[a-z0-9][a-z0-9._-]{0,99}$"
"""As in job files."""

SET_OF_NAMES = r"^[a-z0-9][a-z0-9._-]{0,99}(\+[a-z0-9][a-z0-9._-]{0,99}){1,6}$"
"""Two to seven of them (`advisor.core.gpu.MOST_JOBS`)."""

VERSION, LAUNCH_ID = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$", r"^[0-9a-zA-Z-]{1,100}$"
PRINTABLE = r"^[!-~]([ -~]{0,98}[!-~])?$"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Bounds of a value, for `Annotated`: the reader of JSON holds them, and OpenAPI says them.

    The two methods are what pydantic asks of an annotation; nothing is imported for them.

    Attributes:
        ge: Least value; `gt`: the value is above it; `le`: largest value.
        pattern: Regular expression that a text matches.
        min_length: Of a text or a list; `max_length` likewise.
        check: Raises InputError for a text that cannot be meant.
        choices: The texts that there are, for OpenAPI; `check` refuses others.
        says: What the value means.
    """

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    pattern: str | None = None
    min_length: int | None = None
    max_length: int | None = None
    check: Callable[[str], object] | None = None
    choices: tuple[str, ...] = ()
    says: str = ""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        schema = handler(source)
        given = {
            name: getattr(self, name)
            for name in ("ge", "gt", "le", "pattern", "min_length", "max_length")
        }
        schema |= {name: value for name, value in given.items() if value is not None}
        # Of a long list only the first fault is looked for.
        if schema["type"] == "tuple" and (self.max_length or 0) > 10:
            schema["fail_fast"] = True
        if self.check is None:
            return schema
        return {
            "type": "function-after",
            "schema": schema,
            "function": {"type": "no-info", "function": partial(_checked, self.check)},
        }

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Any:
        more = {"description": self.says, "enum": list(self.choices)}
        return {**handler(schema), **{name: value for name, value in more.items() if value}}


def _checked(check: Callable[[str], object], text: str) -> str:
    try:
        check(text)
    except InputError as error:
        # What pydantic takes for a fault of this value, and adds its place to.
        raise ValueError(str(error)) from error
    return text


JobName: TypeAlias = Annotated[str, Bounds(pattern=NAME, says="name of a job")]
GpuModel: TypeAlias = Annotated[
    str, Bounds(pattern=PRINTABLE, says="a GPU model as its driver names it")
]
GpuUuid: TypeAlias = Annotated[
    str,
    Bounds(pattern=r"^[0-9A-Za-z-]{1,64}$", says="UUID of a card, as its driver gives it"),
]
Speed: TypeAlias = Annotated[
    float, Bounds(ge=0, le=1, says="relative speed: 1 is as alone on the whole GPU, 0 no limit")
]
Percent: TypeAlias = Annotated[
    float, Bounds(gt=0, le=100, says="share of the GPU, percent; 100 is no limit")
]
Gain: TypeAlias = Annotated[
    float, Bounds(ge=0, le=1, says="part that is gained over one after the other")
]
Milliseconds: TypeAlias = Annotated[float, Bounds(gt=0, le=1e9)]
Watts: TypeAlias = Annotated[float, Bounds(gt=0, le=1e6)]
Cores: TypeAlias = Annotated[float, Bounds(gt=0, le=1e6)]

MOST_PLACED = 100_000
"""Jobs and GPUs of a placement."""

MOST_CROSSED = 80
"""Most jobs with all pairs in an answer: 3,240 pairs, some ten seconds the first time."""

WORK_S = 3600.0
"""Work of a job of a queue of which nothing else is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """One job, and what it must keep.

    Attributes:
        min_speed: Minimum relative speed; None: that of the request.
        max_p99_ms: Longest p99 latency; None: that of the request, if the job answers requests.
        work_s: What it has to do, in seconds that it takes alone; None: it runs on and on.
    """

    job: JobName
    min_speed: Speed | None = None
    max_p99_ms: Milliseconds | None = None
    work_s: (
        Annotated[float, Bounds(ge=0, le=1e9, says="work, in seconds that it takes alone")] | None
    ) = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCopies(JobRequest):
    """Equal jobs that are to share a GPU with others; each of them must keep the same.

    Attributes:
        copies: How many of them.
    """

    copies: Annotated[int, Bounds(ge=1, le=MOST_JOBS)] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedJobs(JobRequest):
    """Equal jobs that are to be placed.

    Attributes:
        count: How many of them.
        work_s: Time that one takes alone, s; None: of no job, and they run from now on.
    """

    count: Annotated[int, Bounds(ge=1, le=MOST_PLACED)] = 1
    work_s: Annotated[float, Bounds(gt=0, le=1e9, says="time that one takes alone, s")] | None = (
        None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _AdviceRequest(ABC):
    """What every request for advice may say.

    Attributes:
        gpu_model: None: the one that all profiles have in common.
        objective: What is maximised; None: as the policy of the settings says.
        min_speed: Minimum relative speed of each job without one of its own; None: the policy's
            (0.4), and all of its demand for a job that answers requests at a given rate.
        max_power_w: Most power of the GPU, W.
        memory_mib: Memory of the card, MiB; None: that of its model, where it is known.
        min_gain: Least gain over a GPU for each job for which jobs share; None: the policy's.
    """

    gpu_model: GpuModel | None = None
    objective: (
        Annotated[
            str, Bounds(check=Objective.find, choices=tuple(ADVISED), says="what is maximised")
        ]
        | None
    ) = None
    min_speed: Speed | None = None
    max_power_w: Watts | None = None
    memory_mib: Annotated[float, Bounds(gt=0, le=1e9)] | None = None
    min_gain: Gain | None = None

    def policy(self, default: Policy) -> Policy:
        """The policy of the settings with what the request says instead."""
        return default.with_(self.objective, self.min_gain)

    def min_speeds(self) -> dict[str, float]:
        """By name of job; nothing where the setting counts.

        Raises:
            InputError: a job that comes twice has two of them.
        """
        return _by_name(
            (job.job, self.min_speed if job.min_speed is None else job.min_speed)
            for job in self._every_job()
        )

    @abstractmethod
    def _every_job(self) -> Iterable[JobRequest]:
        """The jobs, each as often as it is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _SharingRequest(_AdviceRequest):
    """Jobs that are to share a GPU.

    Attributes:
        max_p99_ms: Longest p99 latency, ms, of each job that answers requests and has none of its
            own.
        power_limit_w: Of the GPU, W, where it is lower than that of the profiles. A launch sets it
            until it ends, which takes the rights of an administrator.
    """

    jobs: tuple[JobRequest, ...]
    max_p99_ms: Milliseconds | None = None
    power_limit_w: Watts | None = None

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
        return _by_name((job.job, job.max_p99_ms) for job in self._every_job())

    def _every_job(self) -> Iterable[JobRequest]:
        return self.jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendationRequest(_SharingRequest):
    """One to seven jobs for one GPU with their limits; equal requests get equal answers.

    Attributes:
        gpu_uuid: The card; None: any.
        isolate: Whether a fault of one job must leave the others running.
        host_cores: Of the host, for all jobs; None: not looked at.
        running: Shares of all jobs but the last, percent, which they have and keep; none: all are
            yet to start.
        most: Of one job alone: most copies that are looked at.
        every: Whether to list every option, and the choice of each objective.
        fine: Of two jobs: every split of the GPU in steps of its quantum, such as two SMs.
        words: Whether to say it in words, too.
    """

    jobs: Annotated[
        tuple[JobCopies, ...],
        Bounds(
            min_length=1,
            max_length=MOST_JOBS,
            says="two to seven jobs with all of their copies; of one alone, how many copies of it "
            "one GPU holds",
        ),
    ]
    gpu_uuid: GpuUuid | None = None
    isolate: bool = False
    host_cores: Cores | None = None
    running: tuple[Percent, ...] = ()
    most: Annotated[int, Bounds(ge=ADVISED_JOBS, le=MOST_JOBS)] = MOST_JOBS
    every: bool = False
    fine: bool = False
    words: bool = False

    @classmethod
    def of(cls, *jobs: str | JobRequest, **fields: Any) -> Self:
        """As that of `_SharingRequest`."""
        return cls(jobs=tuple(map(_copies_of, jobs)), **fields)

    @property
    def each(self) -> tuple[JobCopies, ...]:
        """The jobs, each as often as it has copies."""
        return tuple(job for job in self.jobs for _ in range(job.copies))

    @property
    def names(self) -> tuple[str, ...]:
        """Of each job, as often as it has copies."""
        return tuple(job.job for job in self.each)

    @property
    def looked_at(self) -> tuple[str, ...]:
        """Names of the jobs to predict; one job alone stands once for each copy."""
        return self.names if len(self.names) > 1 else self.names * self.most

    @property
    def work(self) -> Work | None:
        """Of all jobs; None: they run on and on.

        Raises:
            InputError: nothing is said of one of them.
        """
        if not any(job.work_s is not None for job in self.jobs):
            return None
        if lacking := [job.job for job in self.jobs if job.work_s is None]:
            raise InputError(
                f"nothing is said of the work of {lacking[0]}",
                fix=f"give work_s of each job, or --work {lacking[0]}=1h",
            )
        return Work(tuple(job.work_s or 0.0 for job in self.each))

    def check(self) -> None:
        """Refuse options that do not apply to so many jobs.

        Raises:
            InputError: more than seven with all copies, shares of other jobs than all but the last,
                or what is known of two jobs only.
        """
        count = len(self.names)
        if count > MOST_JOBS:
            raise InputError(
                f"these are {count} jobs with all copies",
                why=f"sets of two to {MOST_JOBS} were measured",
                fix="name fewer; for a queue of jobs ask for a plan: advisor place",
            )
        if self.running and len(self.running) != count - 1:
            raise InputError(
                f"{len(self.running)} shares are of jobs that run, and {count} jobs are named",
                fix="give a share of each job but the last, which is to join them",
            )
        of_two = {
            "fine": self.fine,
            "an amount of work": any(job.work_s is not None for job in self.jobs),
        }
        if count != ADVISED_JOBS and (given := [name for name, value in of_two.items() if value]):
            raise InputError(
                f"{given[0]} does not apply to {count_of(count, 'job')}",
                why="what it asks for is known of two jobs only",
                fix="leave it out, or name two jobs; for a queue with work: advisor place",
            )


def _copies_of(job: str | JobRequest) -> JobCopies:
    if isinstance(job, str):
        return JobCopies(job=job)
    return JobCopies(**{field.name: getattr(job, field.name) for field in fields(job)})


@dataclass(frozen=True, slots=True, kw_only=True)
class GainsRequest(_AdviceRequest):
    """Jobs of one GPU model (not said, the H200), all of whose pairs are asked for, or one job's.

    Attributes:
        jobs: None named: all, those measured here first, up to 80 of them.
        beside: A job that is in all pairs; None: each job with each.
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

    requests: Annotated[tuple[Mapping[str, Any], ...], Bounds(min_length=1, max_length=1000)]


def _by_name(values: Iterable[tuple[str, float | None]]) -> dict[str, float]:
    """Values by name of job, without those that are None.

    Raises:
        InputError: a name has two of them.
    """
    limits: dict[str, float] = {}
    for name, value in values:
        if value is not None and limits.setdefault(name, value) != value:
            raise InputError(
                f"{name} comes twice with two limits, {limits[name]:g} and {value:g}",
                fix="give both the same one",
            )
    return limits


_DAY_S = 86400.0

_SEAT = r"[0-9]{1,3}(\.[0-9]{1,3})?(:low)?"

# What OpenAPI says; the words and the numbers are checked where splits are read.
_SPLIT = rf"^(uncapped|time-sliced|{_SEAT}(/{_SEAT}){{1,6}})$"


JobsTogether: TypeAlias = Annotated[
    tuple[JobRequest, ...],
    Bounds(
        min_length=1,
        max_length=MOST_JOBS,
        says="two to seven jobs, each copy by itself; of a join, one",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest(_SharingRequest):
    """Two to seven jobs to run together on one GPU, and others that follow them.

    Or one job to run beside those of a launch that runs, which keep their shares (`check_join`).

    Attributes:
        gpu: Index or UUID of a GPU of the host.
        split: `30/70`, `100/50/100` (100 is no limit), `100:low/100` (the first below normal
            priority), `uncapped` or `time-sliced`, of all that follow, too, with limits; None: the
            recommended one of each, for which the objective is, too.
        share_percent: Of a job that joins; 100 is no limit. None: the share that is worth most
            beside the others, for which objective and limits are.
        allow_unsafe: Launch at a given split or share also at counts of SMs at which results are
            wrong.
        stop_on_wrong_results: Stop all when a job reports a wrong result; False: only warn.
        strict: End the launch also where a process of no job computes on the GPU.
        alone: Measure jobs that have a gate alone for some seconds each, before all run; None:
            where a profile is of another host and each job has a gate.
        limit_memory: Bound the GPU memory of each job by what the needs of others leave, under MPS.
        when_p99_breaks: Where a server is above its promised p99 for several windows of requests in
            a row: only warn, or end the newest batch job.
        duration_s: Those that run together are stopped after this time, s.
        hang_s: A job that makes no progress for so long is ended, s; None: none is.
        then: Jobs that run together afterwards, one after the other.
        tries: So many of the best ways run on trial, for seconds each, and that with the most work
            per joule goes on; jobs are started again for each, so they must be restartable.
        dry_run: Say what would run, and start nothing.
    """

    jobs: JobsTogether
    gpu: (
        Annotated[int, Bounds(ge=0, le=4095)]
        | Annotated[str, Bounds(pattern=r"^[0-9A-Za-z-]{1,64}$")]
    ) = "0"
    split: Annotated[str, Bounds(max_length=40, pattern=_SPLIT, check=Split.parse)] | None = None
    share_percent: Percent | None = None
    allow_unsafe: bool = False
    stop_on_wrong_results: bool = False
    strict: bool = False
    alone: bool | None = None
    when_one_ends: WhenOneEnds = "keep"
    when_p99_breaks: WhenP99Breaks = "tell"
    limit_memory: bool = True
    duration_s: Annotated[float, Bounds(gt=0, le=400 * _DAY_S)] | None = None
    hang_s: Annotated[float, Bounds(gt=0, le=30 * _DAY_S)] | None = None
    then: Annotated[tuple[JobsTogether, ...], Bounds(max_length=100)] = ()
    tries: Annotated[int, Bounds(ge=1, le=3)] = 1
    dry_run: bool = False

    @property
    def pairs(self) -> tuple[JobsTogether, ...]:
        """The jobs that run together, in their order."""
        return (self.jobs, *self.then)

    def _every_job(self) -> Iterable[JobRequest]:
        return (job for pair in self.pairs for job in pair)

    def check(self) -> None:
        """Refuse what a launch would ignore: what only finds a split beside one, and work.

        Raises:
            InputError: the request has an objective or memory and a split, limits and a share, or
            the work of a job.
        """
        if with_work := [job.job for pair in self.pairs for job in pair if job.work_s is not None]:
            raise InputError(
                f"work_s of {with_work[0]} does not count in a launch",
                why="jobs run until they end or are stopped, whatever they are said to have to do",
                fix="ask for a recommendation with work_s, and launch its split",
            )
        if self.tries > 1 and (self.split is not None or self.then):
            raise InputError(
                f"{self.tries} ways cannot be tried",
                why="a split is given" if self.split is not None else "other jobs follow",
                fix="leave out --split and --then, or --try",
            )
        of_jobs = (limit for job in self.jobs for limit in (job.min_speed, job.max_p99_ms))
        limits = (self.min_speed, self.max_p99_ms, self.max_power_w, *of_jobs)
        limited = self.share_percent is not None and any(limit is not None for limit in limits)
        given = (self.split, self.share_percent) != (None, None)
        if limited or (given and (self.objective, self.memory_mib) != (None, None)):
            raise InputError(
                "a split or a share is given or recommended, not both",
                fix="leave out the share and its limits, or the objective and the memory",
            )

    def check_join(self) -> None:
        """Refuse more than one job that is to join a launch, and what is of a whole launch.

        Raises:
            InputError: said so, or as `check_launch`.
        """
        if (count := len(self.jobs)) != 1:
            raise InputError(
                f"{count} jobs cannot join a launch at once", fix="name one job; then the next"
            )
        for field in fields(self):
            if field.name in _NOT_OF_JOIN and getattr(self, field.name) != field.default:
                raise InputError(
                    f"{field.name} is not of a job that joins",
                    why=_NOT_OF_JOIN[field.name],
                    fix="leave it out",
                )
        self.check()


_OF_LAUNCH = "this is settled when a launch begins, for all of its jobs"

# Options that do not apply to a join, and why.
_NOT_OF_JOIN = {
    **dict.fromkeys(("split", "then"), "those that run keep their shares: give share_percent"),
    "gpu": "the job joins on the GPU of the launch",
    "dry_run": "the shares of the launch and the job's forecast are shown as it joins",
    **dict.fromkeys(("when_one_ends", "when_p99_breaks", "duration_s", "hang_s"), _OF_LAUNCH),
    **dict.fromkeys(("stop_on_wrong_results", "strict", "alone"), _OF_LAUNCH),
}


# Jobs with a name of their own in a placement: 20,100 pairs, which take some ten seconds.
_MOST_TYPES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRequest(_SharingRequest):
    """Jobs for a number of GPUs: a queue of work to its end, or jobs that run from now on.

    It is a queue if some job has work and there is no deadline.

    Attributes:
        jobs: In the order of the queue; one without work there has an hour.
        gpus: How many GPUs there are; None: one for each job.
        objective: What counts; None: as the policy of the settings says.
        gpu_uuid: The card, where there is one GPU; None: any.
        host_cores: Of the host, for all jobs of one GPU; None: not looked at.
        deadline_s: Time in which jobs that run from now on must do their work (an hour by default);
            None: no hurry.
        rack_power_w: What all GPUs in use may draw, W, kept by their power limits; None: anything.
        time_limit_s: Most time of searching, s.
    """

    jobs: Annotated[tuple[QueuedJobs, ...], Bounds(min_length=1, max_length=MOST_PLACED)]
    gpus: Annotated[int, Bounds(ge=1, le=MOST_PLACED, says="how many GPUs there are")] | None = None
    objective: Aim | None = None
    gpu_uuid: GpuUuid | None = None
    host_cores: Cores | None = None
    deadline_s: Annotated[float, Bounds(gt=0, le=1e9)] | None = None
    rack_power_w: Annotated[float, Bounds(gt=0, le=1e9)] | None = None
    time_limit_s: Annotated[float, Bounds(ge=0, le=60.0)] = 10.0

    @property
    def types(self) -> list[str]:
        """Names of the jobs, each once, in an order that does not depend on the request's."""
        return sorted({*self.names})

    @property
    def is_queue(self) -> bool:
        """Whether the jobs end, one after the other on each GPU."""
        return self.deadline_s is None and any(job.work_s is not None for job in self.jobs)

    def check_size(self) -> None:
        """Refuse a queue that would keep a service busy for too long.

        Raises:
            InputError: too many jobs, or too many names of jobs.
        """
        if (types := len(self.types)) > _MOST_TYPES:
            raise InputError(
                f"these are {types} names of jobs",
                why=f"every pair of them is predicted, so at most {_MOST_TYPES} are taken",
                fix="place them in parts",
            )
        if (count := sum(job.count for job in self.jobs)) > MOST_PLACED:
            raise InputError(f"these are {count} jobs", fix=f"place at most {MOST_PLACED} at once")
