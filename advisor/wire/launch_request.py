"""What launches can be asked for: by the command line, a request to the service, or the client."""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Annotated, TypeAlias

from advisor.core.gpu import WHOLE
from advisor.core.job import WhenOneEnds, WhenP99Breaks
from advisor.core.objectives import DEFAULT_OBJECTIVE
from advisor.core.split import ADVISED_JOBS, MOST_JOBS, parse_split
from advisor.errors import InputError
from advisor.wire.bounds import Bounds
from advisor.wire.requests import JobRequest, OneJob, SharingRequest

MOST_PAIRS = 100
"""Pairs and sets that wait behind the first one."""

_DAY_S = 86400.0

_SPLIT = r"^(uncapped|time-sliced|[0-9]{1,3}(\.[0-9]{1,3})?(/[0-9]{1,3}(\.[0-9]{1,3})?){1,6})$"
"""What OpenAPI says; the words and the numbers are checked where splits are read."""


JobsTogether: TypeAlias = Annotated[
    tuple[JobRequest, ...],
    Bounds(
        min_length=ADVISED_JOBS,
        max_length=MOST_JOBS,
        says="two to seven jobs; one that comes several times so often",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class NextPair:
    """Jobs that follow on the same GPU."""

    jobs: JobsTogether


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest(SharingRequest):
    """Two to seven jobs to run together on one GPU, and others that follow them.

    Attributes:
        gpu: Index or UUID of a GPU of the host.
        split: `30/70`, `100/50/100` (100 is no limit), `uncapped` or `time-sliced`, of all that
            follow, too; None: the recommended one of each, for which objective and limits are.
        allow_unsafe: Launch `split` also at counts of SMs at which results are wrong.
        stop_on_wrong_results: Stop all when a job reports a wrong result; False: only warn.
        strict: End the launch also where a process of no job computes on the GPU.
        limit_memory: Bound the GPU memory of each job by what it is known to need, under MPS.
        when_p99_breaks: Where a server is above its promised p99 for several windows of requests in
            a row: only tell it, or end the newest job that serves nobody.
        duration_s: Those that run together are stopped after this time, s.
        hang_s: A job that makes no progress for so long is ended, s; None: none is.
        then: Jobs that run together afterwards, one after the other.
        dry_run: Say what would run, and start nothing.
    """

    jobs: JobsTogether
    gpu: (
        Annotated[int, Bounds(ge=0, le=4095)]
        | Annotated[str, Bounds(pattern=r"^[0-9A-Za-z-]{1,64}$")]
    ) = 0
    split: Annotated[str, Bounds(max_length=40, pattern=_SPLIT, check=parse_split)] | None = None
    allow_unsafe: bool = False
    stop_on_wrong_results: bool = False
    strict: bool = False
    when_one_ends: WhenOneEnds = "keep"
    when_p99_breaks: WhenP99Breaks = "tell"
    limit_memory: bool = True
    duration_s: Annotated[float, Bounds(gt=0, le=400 * _DAY_S)] | None = None
    hang_s: Annotated[float, Bounds(gt=0, le=30 * _DAY_S)] | None = None
    then: Annotated[tuple[NextPair, ...], Bounds(max_length=MOST_PAIRS)] = ()
    dry_run: bool = False

    @property
    def pairs(self) -> tuple[JobsTogether, ...]:
        """The jobs that run together, in their order."""
        return (self.jobs, *(pair.jobs for pair in self.then))

    def _every_job(self) -> Iterable[JobRequest]:
        return (job for pair in self.pairs for job in pair)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinLaunchRequest(SharingRequest):
    """One job to run beside those of a launch that runs, which keep their shares.

    Attributes:
        share_percent: 100 is no limit; None: the share that is worth most beside the others, for
            which objective and limits are.
        allow_unsafe, limit_memory: As of a launch.
    """

    jobs: OneJob
    share_percent: Annotated[float, Bounds(gt=0, le=WHOLE)] | None = None
    allow_unsafe: bool = False
    limit_memory: bool = True

    def as_launch(self) -> LaunchRequest:
        """What of it is as of a launch.

        Raises:
            InputError: as `check_launch`.
        """
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "share_percent"}
        share = self.share_percent
        asked = LaunchRequest(**own)
        check_launch(asked if share is None else replace(asked, split=f"{share:g}"))
        return asked


def check_launch(asked: LaunchRequest) -> None:
    """Refuse what a launch would ignore: limits beside a split that is given, and work.

    Raises:
        InputError: there are both, or the work of a job is told.
    """
    if told := [job.job for pair in asked.pairs for job in pair if job.work_s is not None]:
        raise InputError(
            f"work_s of {told[0]} does not count in a launch",
            why="jobs run until they end or are stopped, whatever they are said to have to do",
            fix="ask for a recommendation with work_s, and launch its split",
        )
    of_jobs = (limit for job in asked.jobs for limit in (job.min_speed, job.max_p99_ms))
    limits = (asked.min_speed, asked.max_p99_ms, asked.max_power_w, asked.memory_mib, *of_jobs)
    advised = asked.objective != DEFAULT_OBJECTIVE or any(limit is not None for limit in limits)
    if asked.split is not None and advised:
        raise InputError(
            "a split or a share is given or recommended, not both",
            fix="leave it out, or the objective and the limits that a recommended one keeps",
        )
